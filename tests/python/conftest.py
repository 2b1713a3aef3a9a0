"""A context for each test, closed at its end, and a tokenizer of few words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nncuda
from nncuda.tokenizer import Tokenizer, train_tokenizer

TEXTS = ["the sea is wide and the ship is small\n", "a ship sails the wide sea\n", "small waves, big waves\n"] * 20


@pytest.fixture
def ctx() -> Iterator[nncuda.Context]:
    with nncuda.Context(threads=2) as context:
        yield context


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(TEXTS, vocab_size=280))
