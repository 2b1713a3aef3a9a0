"""Vectors of texts: the numbers of the reference, and the same bits however a text comes to the engine."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import BITNET, llama_config, numbers, stored_model

import nncuda
from nncuda import LanguageModel, Sampling
from nncuda.infer.engine import Engine
from nncuda.infer.paged_cache import CacheFullError
from nncuda.infer.scheduler import Request, Scheduler
from nncuda.reference import llama as reference
from nncuda.reference.arithmetic import Array
from nncuda.reference.embedding import pool_rows, pool_unit

VOCAB = 96


def ids_of(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB, length, dtype=np.int32)


def vector_of(states: Array) -> Array:
    """By the oracle, in the precision of the states."""
    zeros = np.zeros((2, states.shape[1]), states.dtype)
    return np.asarray(pool_unit(pool_rows(states, zeros)["sum"])["y"])


@pytest.fixture
def engine(ctx: nncuda.Context) -> Engine:
    config = llama_config(vocab_size=VOCAB)
    return Engine(stored_model(ctx, config, "q8_0"), ctx, context=512, piece=64, max_batch=4)


@pytest.mark.parametrize("changes", [{}, {"num_experts": 4, "experts_per_token": 2}], ids=["dense", "experts"])
def test_vectors_are_those_of_the_reference(ctx: nncuda.Context, changes: dict[str, object]) -> None:
    """At most twice as far from float64 as the same formulas in f32."""
    config = llama_config(**changes)
    stored, ids = stored_model(ctx, config), ids_of(150)
    found = Engine(stored, ctx, context=256, cache_format="f32", piece=64).embed(ids)
    exact = {**numbers(ctx, stored), "lm_head.weight": np.eye(config.hidden_size)}  # so that its logits are the states
    single = {name: array.astype(np.float32) for name, array in exact.items()}
    wanted, plain = (vector_of(reference.forward(params, config, ids)) for params in (exact, single))
    assert np.linalg.norm(found - wanted) <= 2 * np.linalg.norm(plain - wanted)
    assert abs(np.linalg.norm(found.astype(np.float64)) - 1) < 1e-6
    assert found @ Engine(stored, ctx, context=256).embed(ids_of(150, 1)) < 0.99  # texts differ


@pytest.mark.parametrize("changes", [{}, BITNET], ids=["llama", "bitnet"])
def test_pieces_change_nothing(ctx: nncuda.Context, changes: dict[str, object]) -> None:
    stored, ids = stored_model(ctx, llama_config(vocab_size=VOCAB, **changes)), ids_of(200)
    found = [Engine(stored, ctx, context=256, piece=piece).embed(ids).tobytes() for piece in (1, 7, 65, 128, 512)]
    assert len(set(found)) == 1


def test_company_and_the_cache_change_nothing(engine: Engine) -> None:
    """Beside texts that are written, prompts whose log-probabilities are wanted, other vectors; once with a warm cache:
    nothing is taken from it, but what an embedded prompt leaves there is."""
    prompts = [ids_of(length, length) for length in (1, 64, 130, 300, 5)]
    alone = [engine.embed(prompt).tobytes() for prompt in prompts]
    engine.cache.forget()
    scheduler = Scheduler(engine)
    for _ in range(2):
        requests = [Request(prompt, 0, embed=True) for prompt in prompts]
        others = [
            Request(prompts[3], 30, Sampling(1.0, seed=3)),
            Request(prompts[2], 0, prompt_logprobs=2),
            Request(prompts[3], 0, prompt_logprobs=0, embed=True),
        ]
        for request in (*others[:2], *requests, others[2]):
            scheduler.add(request)
        while not scheduler.idle:
            scheduler.step()
        vectors = [request.embedding for request in requests]
        assert [vector.tobytes() for vector in vectors if vector is not None] == alone
        assert [request.shared for request in requests] == [0] * 5
        assert all(request.finish == "length" and not request.tokens for request in requests)
        assert others[2].embedding is not None and others[2].embedding.tobytes() == alone[3]
        assert others[2].prompt_scores == engine.logprobs(prompts[3])
    again = Request(prompts[3], 1)
    scheduler.add(again)
    scheduler.step()
    assert again.shared >= 256 and engine.cache.used == 0


def test_no_logits_are_made(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_head", None)
    engine.embed(ids_of(100))
    scheduler = Scheduler(engine)
    scheduler.add(Request(ids_of(100), 0, embed=True))
    while not scheduler.idle:
        scheduler.step()


def test_one_that_is_cancelled_leaves_nothing(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    request = Request(ids_of(300), 0, embed=True)
    scheduler.add(request)
    scheduler.step()
    assert engine.cache.used
    scheduler.cancel(request)
    assert scheduler.idle and engine.cache.used == 0 and (request.finish, request.embedding) == ("cancelled", None)


def test_the_model_embeds_one_prompt_or_several(ctx: nncuda.Context) -> None:
    stored = stored_model(ctx, llama_config(vocab_size=VOCAB), "q8_0")
    with LanguageModel(stored, ctx, context=128, max_batch=2) as model:
        prompts = [ids_of(length, length) for length in (3, 100, 128, 17)]
        vectors = model.embed(prompts)
        assert vectors.shape == (4, model.config.hidden_size) and vectors.dtype == np.float32
        for prompt, vector in zip(prompts, vectors, strict=True):
            assert model.embed(prompt).tobytes() == model.engine.embed(prompt).tobytes() == vector.tobytes()
        events = model.generate(prompts[0], 4)
        next(events)
        assert model.embed(prompts[1]).tobytes() == vectors[1].tobytes()
        assert len(list(events)) == 3


def test_what_is_refused(ctx: nncuda.Context, engine: Engine) -> None:
    with pytest.raises(ValueError, match="ids is empty; there must be at least one"):
        engine.embed([])
    with pytest.raises(ValueError, match="there are 513 ids; the context has room for 512"):
        engine.embed([1] * 513)
    with pytest.raises(IndexError, match=r"ids\[1\] is 96; it must be 0 to 95"):
        engine.embed([1, 96])
    with pytest.raises(ValueError, match="max_new_tokens is 3; where a prompt is embedded it must be 0"):
        Request(ids_of(3), 3, embed=True)
    stored = stored_model(ctx, llama_config(vocab_size=VOCAB))
    with LanguageModel(stored, ctx, context=256, cache_tokens=128) as model:
        with pytest.raises(CacheFullError):
            model.embed([[1, 2], [1] * 129])
        with pytest.raises(ValueError, match="a prompt must have at least one token"):
            model.embed([[]])
        assert model.scheduler.idle
