"""How many kernels a layer takes in a decoding step: the numbers of docs/gpu.md. A launch costs time that no kernel
makes up for, so one more must be meant. Only the emulator counts them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from devices import launch_counter
from small_models import BITNET, llama_config, stored_model

import nncuda
from nncuda.infer.engine import Engine

EXPERTS = {"num_experts": 4, "experts_per_token": 2}
#: Rows of a norm that a product takes in, and of one that it leaves to a kernel of its own.
USUAL, SHORT = 1056, 64


def launches(count: Callable[[], int], ctx: nncuda.Context, weights: str, batch: int, **changes: object) -> int:
    """Of a decoding step of `batch` sequences."""
    with nncuda.Context(threads=2) as cpu:
        stored = stored_model(cpu, llama_config(vocab_size=64, context=256, **changes), weights)
    engine = Engine(stored, ctx, cache_tokens=batch * 128, max_batch=batch)
    inputs = engine.inputs(batch, batch)
    inputs.lengths.copy_(np.ones(batch, np.int32))
    inputs.table.copy_(np.arange(batch, dtype=np.int32)[:, None].repeat(inputs.table.shape[1], 1))
    before = count()
    engine.decode(inputs)
    made = count() - before
    ctx.synchronize()
    return made


@pytest.mark.parametrize(
    ("weights", "hidden", "changes", "one", "several"),
    [
        ("q4_0", USUAL, {}, 5, 5),
        ("q4_0", SHORT, {}, 5, 5),
        ("f16", USUAL, {}, 5, 5),
        ("f32", USUAL, {}, 5, 5),
        ("f32", USUAL, BITNET, 6, 6),
        ("q4_0", USUAL, EXPERTS, 6, 6),
        ("q4_0", SHORT, EXPERTS, 9, 9),
        ("f16", USUAL, EXPERTS, 6, 6),
        ("f32", USUAL, EXPERTS, 6, 6),
    ],
)
def test_launches_a_layer(
    gpu: nncuda.Context, weights: str, hidden: int, changes: dict[str, object], one: int, several: int
) -> None:
    count = launch_counter()
    for batch, expected in ((1, one), (3, several)):
        first, both = (
            launches(count, gpu, weights, batch, hidden_size=hidden, num_layers=n, **changes) for n in (1, 2)
        )
        assert both - first == expected, f"{batch} sequences"
