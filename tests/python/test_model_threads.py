"""Several threads on one model: a LanguageModel serves them in turn, a model or trainer refuses the second one."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from small_models import TINY, llama_config, random_batch, stored_model

import nncuda
from nncuda import LanguageModel, MoETransformer, Sampling, TrainConfig, Trainer
from nncuda.device import Turns
from nncuda.infer import generate


@pytest.fixture
def language_model(ctx: nncuda.Context) -> Iterator[LanguageModel]:
    with LanguageModel(stored_model(ctx, llama_config(), "q8_0"), ctx, context=512, max_batch=4) as made:
        yield made


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """The results of all works, begun together, or the error of one."""
    results: list[Any] = [None] * len(works)
    start = threading.Barrier(len(works))

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = works[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


@contextlib.contextmanager
def held_by_another_thread(ctx: nncuda.Context) -> Iterator[None]:
    """Another thread is in the middle of something on the context."""
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with ctx._turns:
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(60)
    try:
        yield
    finally:
        end.set()
        thread.join()


def test_threads_share_a_language_model(language_model: LanguageModel) -> None:
    """All get the tokens that they would get alone, whatever else they call."""
    model = language_model
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]
    sampled = Sampling(seed=3)

    def tokens(prompt: list[int]) -> list[int]:
        return [event.token for event in model.generate(prompt, 40, sampled)]

    expected = [tokens(prompt) for prompt in prompts]
    logits = model.logits(prompts[0]).tobytes()
    works: list[Callable[[], Any]] = [lambda prompt=prompt: tokens(prompt) for prompt in prompts]
    works += [lambda: [model.logits(prompts[0]).tobytes() for _ in range(5)]]
    *found, others = in_threads(*works)
    assert found == expected and others == [logits] * 5
    assert model.scheduler.idle and model.engine.cache.used == 0


def test_no_thread_keeps_the_others_waiting(language_model: LanguageModel) -> None:
    order: list[str] = []
    started = threading.Event()

    def long() -> None:
        for _ in language_model.generate([1, 2, 3], 400):
            order.append("long")
            started.set()

    def short() -> None:
        started.wait(60)
        for _ in range(5):
            for _ in language_model.generate([4, 5], 4):
                order.append("short")

    in_threads(long, short)
    assert order.count("long") == 400 and order.count("short") == 20
    assert order.index("short") < 300  # and not after the long one, however busy the machine is


def test_an_iterator_that_is_left_while_another_thread_works(language_model: LanguageModel) -> None:
    model = language_model
    left = model.generate([1, 2, 3], 100)
    next(left)
    used = model.engine.cache.used
    with held_by_another_thread(model.ctx):
        left.close()  # must not wait, nor cancel in the middle of a step
        assert model.engine.cache.used == used > 0
    list(model.generate([4], 2))
    assert model.engine.cache.used == 0 and model.scheduler.idle
    left = model.generate([1, 2, 3], 100)
    next(left)
    left.close()
    assert model.engine.cache.used == 0


@pytest.fixture
def trainer(ctx: nncuda.Context) -> Trainer:
    return Trainer(MoETransformer(ctx, TINY, seed=0), TrainConfig(sequence_length=8))


def test_a_second_thread_is_refused(trainer: Trainer) -> None:
    model, ctx = trainer.model, trainer.model.ctx
    batch = random_batch(TINY, 2, 8)
    running = generate(model, [1, 2], 10)
    next(running)
    calls: dict[str, list[Callable[[], Any]]] = {
        "Trainer": [lambda: trainer.train_step(*batch), lambda: trainer.restore(3)],
        "MoETransformer": [
            lambda: model.forward(batch[0]),
            lambda: model.evaluate(*batch),
            lambda: model.load_arrays(model.parameters.arrays()),
        ],
        "model": [lambda: next(running), lambda: next(generate(model, [1, 2], 3))],
    }
    before = model.parameters.data.numpy()
    with held_by_another_thread(ctx):
        for who, refused in calls.items():
            for call in refused:
                with pytest.raises(
                    nncuda.StateError, match=f"the {who} is in use by another thread.*NNCUDA_ERROR_BUSY"
                ):
                    call()
    assert trainer.step == 0 and np.array_equal(before, model.parameters.data.numpy())
    assert np.isfinite(trainer.train_step(*batch).loss)


def test_two_threads_that_train_do_not_mix(trainer: Trainer, ctx: nncuda.Context) -> None:
    """Each step of either thread is made as a whole or refused with a sentence."""
    batch = random_batch(TINY, 2, 8)
    refused: list[str] = []

    def train() -> None:
        for _ in range(60):
            try:
                trainer.train_step(*batch)
            except nncuda.StateError as error:
                refused.append(error.message)

    in_threads(train, train)
    assert trainer.step + len(refused) == 120
    assert all(message.startswith("the Trainer is in use by another thread") for message in refused)
    alone = Trainer(MoETransformer(ctx, TINY, seed=0), TrainConfig(sequence_length=8))
    for _ in range(trainer.step):
        alone.train_step(*batch)
    assert np.array_equal(alone.model.parameters.data.numpy(), trainer.model.parameters.data.numpy())


# Turns themselves


def test_turns_are_in_order_and_may_be_taken_again() -> None:
    turns, order = Turns(), []
    assert turns.acquire() and turns.acquire(wait=False) and turns.mine
    turns.release()
    assert turns.mine

    def wait(number: int) -> None:
        with turns, turns:
            assert turns.mine
            order.append(number)

    threads = []
    for number in range(6):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        while len(turns._waiting) <= number:
            time.sleep(0.001)
    assert not order
    turns.release()
    for thread in threads:
        thread.join()
    assert order == list(range(6)) and not turns.mine
    assert turns.acquire(wait=False)


def test_who_is_interrupted_while_waiting_leaves_the_queue() -> None:
    turns = Turns()
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with turns:
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(60)
    interrupt = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt.start()
            turns.acquire()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not turns._waiting and not turns.mine
    end.set()
    thread.join()
    assert turns.acquire(wait=False)
