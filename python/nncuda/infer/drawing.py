"""The drawing of tokens on the device: what changes a row's logits first, and the samplers.

What a row does not use costs nothing: memory is there once a row wants it, and calls are made while one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from .sampling import Sampling

#: Tokens that may be drawn for a row beyond those that anybody asked for: a batch may run a step ahead.
_DRAWN_AHEAD = 2


@dataclass(eq=False)
class Drawing:
    """How tokens of a sequence are drawn, and what was drawn so far.

    draws   how many were
    seen    how often each token was, with those of the prompt that were not, where the options count them
    room    the most tokens that `seen` may come to have
    mask    the tokens that are allowed next, a bit each (`Constraint`); None for all
    """

    sampling: Sampling
    draws: int = 0
    seen: dict[int, int] | None = None
    room: int = 0
    mask: np.ndarray | None = None

    @classmethod
    def of(cls, sampling: Sampling, prompt: np.ndarray, most: int) -> Drawing:
        """For at most `most` tokens after a prompt."""
        if not sampling.penalizes:
            return cls(sampling)
        seen = dict.fromkeys(np.unique(prompt).tolist(), 0) if sampling.repetition_penalty != 1 else {}
        return cls(sampling, seen=seen, room=len(seen) + most + _DRAWN_AHEAD)

    def drawn(self, token: int) -> None:
        """Counts a token that was drawn."""
        self.draws += 1
        if self.seen is not None:
            self.seen[token] = self.seen.get(token, 0) + 1


class Kind(NamedTuple):
    """Which calls a draw makes: a graph holds those of one kind."""

    greedy: bool = True  # all rows: then no numbers are drawn at all
    min_p: bool = False
    penalized: bool = False
    biased: bool = False
    masked: bool = False

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed in place."""
        return self.penalized or self.biased or self.masked


class RowSampler:
    """Draws a token a row on the device, each row by its own options.

    One kernel serves them all, or another where one has a min_p: with the largest top_k, a top_p of 1 and a min_p of 0
    it draws as those without do, and with a temperature of 0 it takes the most likely token. `kind` says what the rows
    need; `generation` counts how often graphs of earlier calls have become invalid, since memory was made anew.
    """

    def __init__(self, ctx: Context, rows: int, vocab: int):
        self._ctx, self._rows, self._vocab = ctx, rows, vocab
        self._counts = ctx.zeros((rows,), "i32")
        self._top_k = ctx.zeros((rows,), "i32")
        self._temperature = ctx.zeros((rows,))
        self._top_p = ctx.zeros((rows,))
        self._min_p = ctx.zeros((rows,))
        self._seeds = ctx.zeros((rows,), "i64")
        self._penalties: _Penalties | None = None
        self._biases: _Biases | None = None
        self._masks: _Masks | None = None
        self.kind = Kind()
        self.generation = 0

    def assign(self, rows: Sequence[Drawing]) -> None:
        """Sets the first rows."""
        options = [row.sampling for row in rows]
        seeds = np.array([option.seed % 2**64 for option in options], np.uint64).view(np.int64)
        for target, values in (
            (self._counts, np.array([row.draws for row in rows], np.int32)),
            (self._top_k, np.array([option.top_k or 2**31 - 1 for option in options], np.int32)),
            (self._temperature, np.array([option.temperature for option in options], np.float32)),
            (self._top_p, np.array([option.top_p or 1.0 for option in options], np.float32)),
            (self._min_p, np.array([option.min_p or 0.0 for option in options], np.float32)),
            (self._seeds, seeds),
        ):
            target.narrow(0, 0, len(rows)).copy_(values)
        self.kind = Kind(
            all(option.temperature == 0 for option in options),
            any(option.min_p for option in options),
            any(row.seen is not None for row in rows),
            any(option.logit_bias for option in options),
            any(row.mask is not None for row in rows),
        )
        if self.kind.penalized:
            self._penalties_for(max(row.room for row in rows)).assign(rows)
        if self.kind.biased:
            self._biases_for(sum(len(option.logit_bias) for option in options)).assign(options)
        if self.kind.masked:
            if self._masks is None:
                self._masks = _Masks(self._ctx, self._rows, self._vocab)
            self._masks.assign(rows)

    def renew_masks(self, rows: Sequence[Drawing]) -> None:
        """Sets the masks of rows that have been assigned, for their next tokens."""
        if self._masks is not None:
            self._masks.renew(rows)

    def draw(self, logits: Tensor, ids: Tensor) -> None:
        """The next token of each row of logits [rows, vocab], which it may change, into ids i32 [rows]."""
        rows, kind = logits.shape[0], self.kind
        if kind.penalized and self._penalties is not None:
            self._penalties.apply(logits)
        if kind.biased and self._biases is not None:
            self._biases.apply(logits)
        if kind.masked and self._masks is not None:
            self._masks.apply(logits)
        if kind.greedy:
            kernels.argmax(logits, ids=ids)
        else:
            counts, top_k, temperature, top_p, min_p, seeds = (
                tensor.narrow(0, 0, rows)
                for tensor in (self._counts, self._top_k, self._temperature, self._top_p, self._min_p, self._seeds)
            )
            if kind.min_p:
                kernels.minp_sample(logits, temperature, top_k, top_p, min_p, seeds, counts, ids=ids)
            else:
                kernels.topp_sample(logits, temperature, top_k, top_p, seeds, counts, ids=ids)
            kernels.increment(counts)
        if kind.penalized and self._penalties is not None:
            self._penalties.count(ids, self._vocab)

    def _penalties_for(self, room: int) -> _Penalties:
        room = min(room, self._vocab)
        if self._penalties is None or self._penalties.capacity < room:
            self._penalties = _Penalties(self._ctx, self._rows, min(_power_of_two(room), self._vocab))
            self.generation += 1
        return self._penalties

    def _biases_for(self, count: int) -> _Biases:
        if self._biases is None or self._biases.capacity < count:
            self._biases = _Biases(self._ctx, self._rows, _power_of_two(count))
            self.generation += 1
        return self._biases


class _Penalties:
    """Lists of tokens, a row each: 8 bytes for each token that a sequence may come to have, and as many to read a step
    as it has. Counts of the whole vocabulary would be 4 bytes of each of its tokens, all of them read in every step."""

    def __init__(self, ctx: Context, rows: int, capacity: int):
        self.capacity = capacity
        self._options = [ctx.zeros((rows,)) for _ in range(3)]
        self._ids = ctx.zeros((rows, capacity), "i32")
        self._counts = ctx.zeros((rows, capacity), "i32")
        self._lengths = ctx.zeros((rows,), "i32")

    def assign(self, rows: Sequence[Drawing]) -> None:
        options = [row.sampling for row in rows]
        values = (
            [option.presence_penalty for option in options],
            [option.frequency_penalty for option in options],
            [option.repetition_penalty for option in options],
        )
        for target, numbers in zip(self._options, values, strict=True):
            target.narrow(0, 0, len(rows)).copy_(np.array(numbers, np.float32))
        lengths = [-1 if row.seen is None else len(row.seen) for row in rows]
        self._lengths.narrow(0, 0, len(rows)).copy_(np.array(lengths, np.int32))
        for at, row in enumerate(rows):
            if row.seen:
                listed = np.array(sorted(row.seen.items()), np.int32).T
                for target, numbers in zip((self._ids, self._counts), listed, strict=True):
                    target.narrow(0, at, 1).narrow(1, 0, len(row.seen)).copy_(numbers[None])

    def apply(self, logits: Tensor) -> None:
        rows = logits.shape[0]
        presence, frequency, repetition = (option.narrow(0, 0, rows) for option in self._options)
        kernels.penalize_logits(logits, presence, frequency, repetition, *self._lists(rows))

    def count(self, ids: Tensor, vocab: int) -> None:
        kernels.count_tokens(ids, *self._lists(ids.shape[0]), vocab=vocab)

    def _lists(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        return self._ids.narrow(0, 0, rows), self._counts.narrow(0, 0, rows), self._lengths.narrow(0, 0, rows)


class _Biases:
    def __init__(self, ctx: Context, rows: int, capacity: int):
        self.capacity = capacity
        self._offsets = ctx.zeros((rows + 1,), "i32")
        self._ids = ctx.zeros((capacity,), "i32")
        self._bias = ctx.zeros((capacity,))

    def assign(self, options: Sequence[Sampling]) -> None:
        ends = np.cumsum([0, *(len(option.logit_bias) for option in options)])
        self._offsets.narrow(0, 0, len(ends)).copy_(ends.astype(np.int32))
        pairs = [pair for option in options for pair in sorted(option.logit_bias.items())]
        self._ids.narrow(0, 0, len(pairs)).copy_(np.array([token for token, _ in pairs], np.int32))
        self._bias.narrow(0, 0, len(pairs)).copy_(np.array([bias for _, bias in pairs], np.float32))

    def apply(self, logits: Tensor) -> None:
        kernels.bias_logits(logits, self._offsets.narrow(0, 0, logits.shape[0] + 1), self._ids, self._bias)


class _Masks:
    """A mask a row; those of rows that have none are not sent."""

    def __init__(self, ctx: Context, rows: int, vocab: int):
        self._masks = ctx.zeros((rows, mask_words(vocab)), "i32")
        self._of = ctx.zeros((rows,), "i32")

    def assign(self, rows: Sequence[Drawing]) -> None:
        of = [-1 if row.mask is None else at for at, row in enumerate(rows)]
        self._of.narrow(0, 0, len(rows)).copy_(np.array(of, np.int32))
        self.renew(rows)

    def renew(self, rows: Sequence[Drawing]) -> None:
        for at, row in enumerate(rows):
            if row.mask is not None:
                self._masks.narrow(0, at, 1).copy_(row.mask[None])

    def apply(self, logits: Tensor) -> None:
        kernels.mask_logits(logits, self._masks, self._of.narrow(0, 0, logits.shape[0]))


def mask_words(vocab: int) -> int:
    """Words of 32 bits that a mask of the vocabulary has."""
    return -(-vocab // 32)


def _power_of_two(n: int) -> int:
    """At least n, so that what grows is made anew seldom."""
    return 1 << max(n - 1, 0).bit_length()
