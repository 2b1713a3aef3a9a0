"""A tokenizer of few words, a server that a module's tests share, and its log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from small_server import Running, serving

from nncuda.tokenizer import Tokenizer, train_tokenizer

TEXTS = ["the sea is wide and the ship is small\n", "a ship sails the wide sea\n", "small waves, big waves\n"] * 20


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(TEXTS, vocab_size=280))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The records of the log."""
    records: list[dict[str, Any]] = []
    monkeypatch.setattr("nncuda.serve.access_log.AccessLog.record", lambda self, **values: records.append(values))
    return records


@pytest.fixture(scope="module")
def running(tokenizer: Tokenizer) -> Iterator[Running]:
    """A server that a module's tests share."""
    with serving(tokenizer) as (found, _):
        yield found


@pytest.fixture
def wait() -> Callable[[Callable[[], bool]], None]:
    """Waits until something is so; it must become so within a while."""

    def until(holds: Callable[[], bool]) -> None:
        pause, left = threading.Event(), 3000
        while not holds():
            left -= 1
            assert left, "it did not come to that"
            pause.wait(0.01)

    return until
