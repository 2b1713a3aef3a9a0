"""Scripts of requests for the inference engine: what `bench engine` of other languages reads, run by Python's own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from nncuda import Context, Sampling
from nncuda.infer.engine import Engine
from nncuda.infer.scheduler import Request, Scheduler
from nncuda.models.stored import StoredModel

OPTIONS = ("context", "cache_format", "cache_tokens", "max_batch", "piece", "weights")


def run(script: dict[str, Any], threads: int) -> dict[str, Any]:
    """What `bench engine` of another language writes for the same script."""
    with Context("cpu", threads=threads) as ctx:
        options = {name: script[name] for name in OPTIONS if script.get(name)}
        engine = Engine(StoredModel.open(Path(script["model"])), ctx, **options)
        found: dict[str, Any] = {}
        if script.get("logits"):
            found["logits"] = hashlib.sha256(engine.logits(script["logits"]).tobytes()).hexdigest()
        scheduler = Scheduler(engine)
        requests = _serve(script.get("requests", []), scheduler)
        found["requests"] = [
            {"tokens": list(one.tokens) or None, "finish": one.finish, "shared": one.shared} for one in requests
        ]
        done = scheduler.statistics
        found["tokens"] = {
            "prompt": done.prompt_tokens, "shared": done.shared_tokens, "prefill": done.prefill_tokens,
            "decode": done.decode_tokens, "steps": done.decode_steps,
        }  # fmt: skip
        scheduler.close()
        return found


def _serve(scripted: list[dict[str, Any]], scheduler: Scheduler) -> list[Request]:
    requests: dict[int, Request] = {}
    step = 0
    while len(requests) < len(scripted) or not scheduler.idle:
        for at, one in enumerate(scripted):
            if one.get("joins", 0) == step:
                sampling = Sampling(one.get("temperature", 0.0), one.get("top_k"), one.get("top_p"), one.get("seed", 0))
                prompt, length = np.array(one["prompt"], np.int32), one["max_new_tokens"]
                scheduler.check(prompt, length)
                requests[at] = Request(prompt, length, sampling, one.get("end_ids", ()))
                scheduler.add(requests[at])
            if step and one.get("cancelled") == step:
                scheduler.cancel(requests[at])
        if not scheduler.idle:
            scheduler.step()
        step += 1
    return [requests[at] for at in range(len(scripted))]
