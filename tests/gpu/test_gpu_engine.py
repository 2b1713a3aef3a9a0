"""The inference engine on a GPU: the logits of the CPU within rounding, and tokens that do not depend on company."""

from __future__ import annotations

import numpy as np
import pytest
from constraints import Alternating
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
    [("q4_0", "f16", {}), ("f32", "f32", {}), ("q8_0", "q8_0", EXPERTS), ("f16", "f16", BITNET), ("q4_0", "e4m3", {})],
    ids=["q4_0", "f32", "experts", "bitnet", "e4m3"],
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


def test_what_is_done_to_logits(gpu: nncuda.Context) -> None:
    """Penalties, biases, min_p, masks and log-probabilities, while the batch runs ahead and while it may not."""
    with nncuda.Context(threads=2) as cpu:
        stored = stored_model(cpu, llama_config(vocab_size=64, context=256, num_layers=1), "f32")
    engine = Engine(stored, gpu, cache_format="f32", cache_tokens=6 * PAGE, max_batch=3)
    ids = np.random.default_rng(0).integers(0, 64, 12, dtype=np.int32)
    options = Sampling(1.3, seed=2, min_p=0.05, presence_penalty=0.5, frequency_penalty=0.3, repetition_penalty=1.2)
    biased = Sampling(0.0, frequency_penalty=0.4, logit_bias={3: 2.0, 60: -50.0})
    cases = [
        lambda: Request(ids, 7, options),
        lambda: Request(ids[:5], 7, biased, logprobs=4, prompt_logprobs=2),
        lambda: Request(ids[:9], 7, Sampling(seed=1), constraint=Alternating(64)),
    ]
    alone = []
    for case in cases:
        alone.append(case())
        run(engine, [alone[-1]])
    together = [case() for case in cases]
    run(engine, together)
    for one, other in zip(alone, together, strict=True):
        assert one.tokens == other.tokens and len(one.tokens) == 7
        assert (one.scores, one.prompt_scores) == (other.scores, other.prompt_scores)
    assert [token % 2 for token in alone[2].tokens] == [0, 1, 0, 1, 0, 1, 0]
    logits = engine.logits([*ids[:5].tolist(), *alone[1].tokens]).astype(np.float64)
    exact = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    scores = [*alone[1].prompt_scores[1:], *alone[1].scores]
    for row, token, found in zip(exact, [*ids[1:5].tolist(), *alone[1].tokens], scores, strict=False):
        assert found is not None and abs(found.logprob - row[token]) < 1e-5
        assert [other for other, _ in found.top] == np.argsort(-row)[: len(found.top)].tolist()
