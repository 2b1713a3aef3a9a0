"""Scripts of requests for the inference engine: what `bench engine` of other languages reads, run by Python's own.

python engine_scripts.py --device cuda < SCRIPT
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from nncuda import Context, Sampling
from nncuda.infer.engine import Engine
from nncuda.infer.scheduler import Request, Scheduler
from nncuda.infer.scores import TokenLogprobs
from nncuda.models.adapter import Adapter
from nncuda.models.stored import StoredModel

_SAMPLING = [field.name for field in dataclasses.fields(Sampling) if field.name != "logit_bias"]
OPTIONS = ("context", "cache_format", "cache_tokens", "max_batch", "piece", "weights")


def run(script: dict[str, Any], threads: int | None, device: str = "cpu") -> dict[str, Any]:
    """What `bench engine` of another language writes for the same script."""
    with Context(device, threads=threads, isa=script.get("isa")) as ctx:
        options = {name: script[name] for name in OPTIONS if script.get(name)}
        stored = StoredModel.open(Path(script["model"]))
        if script.get("adapter"):
            options["adapter"] = Adapter.open(script["adapter"], stored.config)
        named = script.get("adapters", {})
        options["adapters"] = {name: Adapter.open(named[name], stored.config) for name in sorted(named)}
        engine = Engine(stored, ctx, **options)
        found: dict[str, Any] = {}
        if script.get("logits"):
            found["logits"] = _digest(engine.logits(script["logits"]))
        scheduler = Scheduler(engine)
        requests = _serve(script.get("requests", []), scheduler)
        found["requests"] = [_told(one) for one in requests]
        done = scheduler.statistics
        found["tokens"] = {
            "prompt": done.prompt_tokens, "shared": done.shared_tokens, "prefill": done.prefill_tokens,
            "decode": done.decode_tokens, "steps": done.decode_steps,
        }  # fmt: skip
        scheduler.close()
        return found


class Allowed:
    """A constraint of lists of ids, one a token."""

    def __init__(self, lists: list[list[int]], vocab: int):
        self._left, self._vocab = list(lists), vocab

    def mask(self) -> np.ndarray:
        bits = np.zeros(-(-self._vocab // 32) * 32, bool)
        bits[self._left[0] if self._left else []] = True
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def accept(self, token: int) -> None:
        del self._left[0]


def _told(request: Request) -> dict[str, Any]:
    told: dict[str, Any] = {
        "tokens": list(request.tokens) or None,
        "finish": request.finish,
        "shared": request.shared,
    }
    if request.logprobs is not None:
        told["logprobs"] = [_pairs(one) for one in request.scores]
    if request.prompt_logprobs is not None:
        told["prompt_logprobs"] = [_pairs(one) for one in request.prompt_scores]
    if request.embedding is not None:
        told["embedding"] = _digest(request.embedding)
    return told


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def _pairs(scores: TokenLogprobs | None) -> list[Any] | None:
    return None if scores is None else [scores.logprob, [list(pair) for pair in scores.top]]


def _serve(scripted: list[dict[str, Any]], scheduler: Scheduler) -> list[Request]:
    requests: dict[int, Request] = {}
    step = 0
    while len(requests) < len(scripted) or not scheduler.idle:
        for at, one in enumerate(scripted):
            if one.get("joins", 0) == step:
                options = {name: one[name] for name in _SAMPLING if name in one}
                bias = {int(token): number for token, number in one.get("logit_bias", {}).items()}
                sampling = Sampling(**{"temperature": 0.0, **options}, logit_bias=bias)
                prompt, length = np.array(one["prompt"], np.int32), one["max_new_tokens"]
                scheduler.check(prompt, length)
                vocab, lists = scheduler.engine.config.vocab_size, one.get("allowed")
                requests[at] = Request(
                    prompt,
                    length,
                    sampling,
                    one.get("end_ids", ()),
                    logprobs=one.get("logprobs"),
                    prompt_logprobs=one.get("prompt_logprobs"),
                    embed=one.get("embed", False),
                    adapter=one.get("adapter"),
                    constraint=None if lists is None else Allowed(lists, vocab),
                )
                scheduler.add(requests[at])
            if step and one.get("cancelled") == step:
                scheduler.cancel(requests[at])
        if not scheduler.idle:
            scheduler.step()
        step += 1
    return [requests[at] for at in range(len(scripted))]


if __name__ == "__main__":
    print(json.dumps(run(json.load(sys.stdin), None, sys.argv[2])))
