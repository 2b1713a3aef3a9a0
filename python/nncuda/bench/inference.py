"""Generation by a model with random weights: time to the first token, tokens a second, and the bytes that these take.

`nncuda-go bench inference` and `nncuda-rs bench inference` take the same options and print the same line, without the
probe of the memory. The work: a model made for inference from seed 0, a prompt of the ids 0, 1, 2, ..., and the tokens
that follow it greedily, each read back. The first token ends the prefill; the second runs call by call and with the
third the step is captured, so that the clock starts after these three.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..device import Context
from ..infer import generate
from ..models import MoEConfig, MoETransformer
from ..models.config import Precision
from .ceilings import Bandwidth

WARM_TOKENS = 3
#: Rounds of a probe of the memory and some tokens after it, of which the medians count.
ROUNDS = 8


def bytes_a_token(config: MoEConfig, precision: Precision, position: int) -> int:
    """Bytes that decoding one token reads when `position` tokens were before it: the weights that it meets, of the
    embedding its own row, and keys and values of the tokens before it and its own."""
    met = sum(active for kind, (_, active) in config.parameters_by_kind().items() if kind != "embedding")
    cached = 2 * config.num_layers * config.num_kv_heads * config.head_dim * (position + 1)
    return (4 if precision == "f32" else 2) * (met + config.hidden_size + cached)


def measure(
    ctx: Context, config: MoEConfig, precision: Precision, prompt: int, tokens: int, probe: bool = True
) -> dict[str, Any]:
    """The figures of the line. With `probe`, on a CPU, the bandwidth of its memory is measured between tokens.

    `share` is how much of that bandwidth decoding uses for the bytes that its tokens must read. Where others use the
    machine's cores, too, bytes a second of processor time say more than those a second of the clock.
    """
    began = time.perf_counter()
    model = MoETransformer(ctx, config, seed=0, training=False, precision=precision)
    ctx.synchronize()
    made = time.perf_counter() - began
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    bandwidth = Bandwidth(ctx.threads) if probe and ctx.device == "cpu" else None
    ids = np.arange(prompt, dtype=np.int32) % config.vocab_size
    began = time.perf_counter()
    stream = generate(model, ids, WARM_TOKENS + tokens)
    next(stream)
    first = time.perf_counter() - began
    for _ in range(WARM_TOKENS - 1):
        next(stream)
    before = ctx.bytes_used + ctx.bytes_arena
    rounds = list(_rounds(stream, tokens, bandwidth))
    grown = ctx.bytes_used + ctx.bytes_arena - before
    seconds, cpu = (sum(spent) for spent in list(zip(*rounds, strict=True))[1:3])
    needed = bytes_a_token(config, precision, prompt + WARM_TOKENS - 1 + tokens // 2)
    result = {
        "language": "python",
        "parameters": config.num_parameters,
        "active_parameters": config.num_active_parameters,
        "precision": precision,
        "threads": ctx.threads,
        "prompt": prompt,
        "tokens": tokens,
        "seconds_to_make": made,
        "seconds_to_first_token": first,
        "tokens_per_second": tokens / seconds,
        "bytes_a_token": needed,
        "bytes_per_second": needed * tokens / seconds,
        "bytes_peak": ctx.bytes_peak,
        "bytes_grown": grown,
        "resident_when_made": resident,
    }
    if bandwidth is not None:
        result |= {
            "read_bytes_per_second": statistics.median(speed for _, _, _, speed, _ in rounds),
            "share": statistics.median(needed * count / spent / speed for count, spent, _, speed, _ in rounds),
            "bytes_per_cpu_second": needed * tokens / cpu,
            "read_bytes_per_cpu_second": statistics.median(speed for _, _, _, _, speed in rounds),
        }
    return result


def _rounds(
    stream: Iterator[int], tokens: int, bandwidth: Bandwidth | None
) -> Iterator[tuple[int, float, float, float, float]]:
    """In all `tokens` tokens: their number, their seconds by the clock and of the processor, and bytes a second of both
    kinds of a probe right before them."""
    rounds = min(ROUNDS, tokens)
    for number in range(rounds):
        count = tokens * (number + 1) // rounds - tokens * number // rounds
        speed = speed_of_cpu = 0.0
        if bandwidth is not None:
            speed = bandwidth.read()
            speed_of_cpu = bandwidth.bytes / bandwidth.cpu_seconds
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            next(stream)
        yield count, time.perf_counter() - began, time.process_time() - cpu, speed, speed_of_cpu
