"""How the next token is chosen, and its drawing on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..device import Context, Tensor


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    temperature     divides the logits; 0 always picks the most likely token
    top_k           samples only from this many of the most likely tokens; None from all
    top_p           samples only from the shortest run of most likely tokens that reaches this probability; None: from
                    all
    seed            the same seed gives the same tokens; sequence r of a batch uses seed + r
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; it must be a finite number, at least 0")
        if self.top_k is not None and not (_is_whole(self.top_k) and 1 <= self.top_k < 2**31):
            raise ValueError(f"top_k is {self.top_k}; it must be a whole number, at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0, at most 1")
        if not _is_whole(self.seed):
            raise ValueError(f"seed is {self.seed!r}; it must be a whole number")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


GREEDY = Sampling(temperature=0.0)


class RowSampler:
    """Draws a token a row on the device, each row by its own options.

    One kernel serves them all: with the largest top_k and a top_p of 1 it draws as those without do, and with a
    temperature of 0 it takes the most likely token.
    """

    def __init__(self, ctx: Context, rows: int):
        self._counts = ctx.zeros((rows,), "i32")
        self._top_k = ctx.zeros((rows,), "i32")
        self._temperature = ctx.zeros((rows,))
        self._top_p = ctx.zeros((rows,))
        self._seeds = ctx.zeros((rows,), "i64")
        self.greedy = True  # all rows: then no numbers are drawn at all

    def assign(self, options: Sequence[Sampling], draws: Sequence[int] = ()) -> None:
        """Sets the options of the first rows, and how many draws each has had, by default none."""
        self.greedy = all(option.temperature == 0 for option in options)
        seeds = np.array([option.seed % 2**64 for option in options], np.uint64).view(np.int64)
        for target, values in (
            (self._counts, np.array(draws or [0] * len(options), np.int32)),
            (self._top_k, np.array([option.top_k or 2**31 - 1 for option in options], np.int32)),
            (self._temperature, np.array([option.temperature for option in options], np.float32)),
            (self._top_p, np.array([option.top_p or 1.0 for option in options], np.float32)),
            (self._seeds, seeds),
        ):
            target.narrow(0, 0, len(options)).copy_(values)

    def draw(self, logits: Tensor, ids: Tensor) -> None:
        """The next token of each row of logits [rows, vocab], into ids i32 [rows]."""
        rows = logits.shape[0]
        if self.greedy:
            kernels.argmax(logits, ids=ids)
            return
        counts, top_k, temperature, top_p, seeds = (
            tensor.narrow(0, 0, rows)
            for tensor in (self._counts, self._top_k, self._temperature, self._top_p, self._seeds)
        )
        kernels.topp_sample(logits, temperature, top_k, top_p, seeds, counts, ids=ids)
        kernels.increment(counts)
