"""Toy grammars over token ids."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def mask_of(ids: Iterable[int], words: int = 3) -> np.ndarray:
    """The mask that allows these ids."""
    mask = np.zeros(words, np.uint32)
    for token in ids:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


class Alternating:
    """Even and odd ids in turns; as a rule and not by position, since it only knows what it was told."""

    def __init__(self, vocab: int = 96) -> None:
        self._vocab = vocab
        self._next = 0

    def mask(self) -> np.ndarray:
        return mask_of(range(self._next, self._vocab, 2))

    def accept(self, token: int) -> None:
        assert token % 2 == self._next
        self._next = 1 - self._next


class Brackets:
    """Balanced brackets, `open` and `close`, up to a depth, and no more than so many: then the text ends."""

    def __init__(self, opening: int, closing: int, depth: int, pairs: int) -> None:
        self._opening, self._closing, self._depth, self._left = opening, closing, depth, pairs
        self._now = 0

    def mask(self) -> np.ndarray:
        allowed = []
        if self._left and self._now < self._depth:
            allowed.append(self._opening)
        if self._now:
            allowed.append(self._closing)
        return mask_of(allowed, words=max(self._opening, self._closing) // 32 + 1)

    def accept(self, token: int) -> None:
        if token == self._opening:
            self._now, self._left = self._now + 1, self._left - 1
        elif token == self._closing:
            self._now -= 1
        else:
            raise AssertionError(f"{token} is no bracket")


class Failing:
    """It fails after some tokens."""

    def __init__(self, after: int) -> None:
        self._left = after

    def mask(self) -> np.ndarray:
        return np.full(3, -1, np.int32)

    def accept(self, token: int) -> None:
        self._left -= 1
        if not self._left:
            raise LookupError("the grammar is lost")
