"""Texts of one prompt, and prompts that begin alike, at once: what they share is run once, for the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import llama_config, stored_model

import nncuda
from nncuda.infer import Sampling
from nncuda.infer.engine import Engine
from nncuda.infer.paged_cache import PAGE
from nncuda.infer.scheduler import Request, Scheduler


def ids_of(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 96, length, dtype=np.int32)


def made(ctx: nncuda.Context, **options: int) -> Engine:
    return Engine(stored_model(ctx, llama_config(), "q8_0"), ctx, **{"context": 512, "max_batch": 6, **options})


def served(engine: Engine, requests: list[Request], ahead: bool = False) -> Scheduler:
    """A scheduler that has run all of them, which came at once."""
    scheduler = Scheduler(engine, ahead)
    for request in requests:
        scheduler.add(request)
    while not scheduler.idle:
        scheduler.step()
    assert engine.cache.used == 0
    return scheduler


@pytest.mark.parametrize("length", [17, 40, PAGE, PAGE + 1, 2 * PAGE + 30])
@pytest.mark.parametrize(("batch", "ahead"), [(6, False), (6, True), (2, False)])
def test_texts_of_one_prompt_run_it_once(ctx: nncuda.Context, length: int, batch: int, ahead: bool) -> None:
    prompt, engine = ids_of(length), made(ctx, max_batch=batch)

    def requests() -> list[Request]:
        return [Request(prompt, 40, Sampling(temperature=1.0, seed=seed), logprobs=2) for seed in range(5)]

    wanted = []
    for request in requests():
        engine.cache.forget()
        served(engine, [request])
        wanted.append((list(request.tokens), list(request.scores)))
    engine.cache.forget()
    together = requests()
    done = served(engine, together, ahead).statistics
    assert [(list(one.tokens), list(one.scores)) for one in together] == wanted
    assert done.prefill_tokens == length + 4  # each runs the last one, whose logits it needs
    assert (done.prompt_tokens, done.shared_tokens) == (5 * length, 4 * (length - 1))
    assert [one.shared for one in together] == [0, *[length - 1] * 4]


def test_prompts_that_begin_alike_run_that_once(ctx: nncuda.Context) -> None:
    """A prompt waits for one under way only as long as that runs what both have."""
    begin, engine = ids_of(PAGE + 40), made(ctx, piece=64)
    prompts = [np.concatenate([begin, ids_of(30 * at, at)]) for at in (8, 2, 3)]
    scheduler = Scheduler(engine)
    requests = [Request(prompt, 5) for prompt in prompts]
    for request in requests:
        scheduler.add(request)
    for _ in range(4):
        scheduler.step()
    assert requests[0].admitted and not requests[0].tokens  # its prompt is the longest, and is run first
    while not scheduler.idle:
        scheduler.step()
    assert [one.shared for one in requests] == [0, PAGE + 40, PAGE + 40]
    for request, prompt in zip(requests, prompts, strict=True):
        engine.cache.forget()
        alone = Request(prompt, 5)
        served(engine, [alone])
        assert alone.tokens == request.tokens


def test_who_can_share_nothing_does_not_wait(ctx: nncuda.Context) -> None:
    """What is too short to copy, the logits of a prompt, and texts longer than the context, whose pages are dropped."""
    engine = made(ctx, context=2 * PAGE)
    for length, options in ((16, {}), (60, {"prompt_logprobs": 0}), (60, {"max_new_tokens": 3 * PAGE})):
        engine.cache.forget()
        requests = [Request(ids_of(length), **{"max_new_tokens": 3, **options}) for _ in range(3)]  # type: ignore[arg-type]
        scheduler = Scheduler(engine)
        for request in requests:
            scheduler.add(request)
        scheduler.step()
        assert all(request.admitted and len(request.tokens) == 2 for request in requests)
        scheduler.close()


def test_one_that_is_cancelled_leaves_the_prompt_to_the_next(ctx: nncuda.Context) -> None:
    engine = made(ctx, piece=64)
    scheduler = Scheduler(engine)
    first, second, third = (Request(ids_of(230), 5) for _ in range(3))
    for request in (first, second, third):
        scheduler.add(request)
    scheduler.step()
    assert first.admitted and not second.admitted
    scheduler.cancel(first)
    while not scheduler.idle:
        scheduler.step()
    assert second.shared == 64 and third.shared == 229 and second.tokens == third.tokens
    assert engine.cache.used == 0
