"""The inference engine on a GPU: the logits of the CPU within rounding, and tokens that do not depend on company."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import BITNET, llama_config, stored_model

import nncuda
from nncuda.infer import Sampling
from nncuda.infer.engine import Engine
from nncuda.infer.paged_cache import PAGE
from nncuda.infer.scheduler import Request, Scheduler

EXPERTS = {"num_experts": 4, "experts_per_token": 2}


def run(engine: Engine, requests: list[Request]) -> list[list[int]]:
    scheduler = Scheduler(engine)
    for request in requests:
        scheduler.add(request)
    while not scheduler.idle:
        scheduler.step()
    scheduler.close()
    return [list(request.tokens) for request in requests]


@pytest.mark.parametrize(
    ("weights", "cache", "changes"),
    [("q4_0", "f16", {}), ("f32", "f32", {}), ("q8_0", "q8_0", EXPERTS), ("f16", "f16", BITNET)],
    ids=["q4_0", "f32", "experts", "bitnet"],
)
def test_engine(gpu: nncuda.Context, weights: str, cache: str, changes: dict[str, object]) -> None:
    config = llama_config(vocab_size=64, context=256, num_layers=1, **changes)
    ids = np.random.default_rng(0).integers(0, 64, PAGE + 6, dtype=np.int32)
    with nncuda.Context(threads=2) as cpu:
        stored = stored_model(cpu, config, weights)
        wanted = Engine(stored, cpu, piece=64, cache_format=cache, cache_tokens=2 * PAGE).logits(ids[:20])
    engine = Engine(stored, gpu, piece=64, cache_format=cache, cache_tokens=6 * PAGE, max_batch=3)
    logits = engine.logits(ids[:20])
    if weights == "f32":
        # Sums in another order: 2^-24 a rounding, some hundred deep, of values up to the largest.
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=100 * 2**-24 * np.abs(wanted).max())
    else:
        # A value that lies between two steps of 8 bits may fall to the other one: 1/254 of a block's largest.
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=np.abs(wanted).max() / 127)
    pieces = Engine(stored, gpu, piece=7, cache_format=cache, cache_tokens=2 * PAGE)
    np.testing.assert_array_equal(pieces.logits(ids[:20]), logits)
    cases = [(ids[:length], 4, Sampling(seed=length)) for length in (5, PAGE + 2, 9)]
    together = run(engine, [Request(*case) for case in cases])
    for case, tokens in zip(cases, together, strict=True):
        engine.cache.forget()
        assert run(engine, [Request(*case)]) == [tokens]
