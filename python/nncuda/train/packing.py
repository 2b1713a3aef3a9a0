"""Documents of token shards, packed into sequences for training.

A document of n tokens gives n - 1 pairs of a token and the one that it should say next. One of more pairs than a
sequence has is cut into pieces of as many, where the last token of a piece, which is its last target, is the first of
the next. Pieces fill sequences in their order; the first that does not fit into what is left of one begins another, and
what is left stays empty. A sequence in which no target counts is left out: it would teach nothing. (Next fit, Johnson
1974, "Fast algorithms for bin packing". Its order is that of the file, so a sequence is read in one piece.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..formats import FormatError, TokenShard
from ..models.transformer import IGNORE_INDEX


class Packing(NamedTuple):
    """The sequences of a shard: number w has the tokens starts[w] .. stops[w], the last of which is only a target."""

    starts: np.ndarray
    stops: np.ndarray

    @classmethod
    def of(cls, shard: TokenShard, length: int) -> Packing:
        """Those of `length` pairs of a shard that has documents. FormatError when its bits make no documents."""
        found, targets = [np.empty(0, np.int64)], []
        for start, ends, counted in shard.chunks():
            found.append(start + np.flatnonzero(ends))
            targets.append((start, np.packbits(counted, bitorder="little"), len(counted)))
        packing = cls._fill(np.concatenate(found), length)
        # Of each sequence the last target that counts before its end: it has one if that is in it.
        latest, last = np.full(len(packing.stops), -1), -1
        for start, bits, count in targets:
            places = start + np.flatnonzero(np.unpackbits(bits, count=count, bitorder="little"))
            here = slice(*np.searchsorted(packing.stops, [start, start + count]))
            latest[here] = np.concatenate([[last], places])[np.searchsorted(places, packing.stops[here], side="right")]
            last = int(places[-1]) if len(places) else last
        teaches = latest > packing.starts
        return cls(packing.starts[teaches], packing.stops[teaches])

    @classmethod
    def _fill(cls, ends: np.ndarray, length: int) -> Packing:
        """All of them, from the last token of each document."""
        begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
        pieces = -(-(ends - begins) // length)
        number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # of a piece in its document
        starts = np.repeat(begins, pieces) + number * length
        stops = np.minimum(starts + length, np.repeat(ends, pieces))
        before = np.concatenate([[0], np.cumsum(stops - starts)])
        firsts = []
        at = 0
        while at < len(starts):
            firsts.append(at)
            at = int(np.searchsorted(before, before[at] + length, side="right")) - 1
        lasts = np.array([*firsts[1:], len(starts)], np.int64)[: len(firsts)] - 1
        return cls(starts[np.array(firsts, np.int64)], stops[lasts])


def read_sequence(shard: TokenShard, start: int, stop: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A sequence of a packing: inputs, targets and where its documents end (1 at the last token of each, else 0), int32
    [length] each. What is left empty has the token 0, targets that do not count, and ends no document."""
    tokens = shard.read(start, stop + 1).astype(np.int64)
    ends, counted = shard.ends(start, stop + 1), shard.counted(start, stop + 1)
    pairs = ~ends[:-1]
    used = int(np.count_nonzero(pairs))
    if not 0 < used <= length:
        raise FormatError(shard.path, f"was changed while it was in use: {used} tokens of a sequence of {length}")
    if (worst := int(tokens.max())) >= shard.vocab_size:
        raise FormatError(shard.path, f"holds the token {worst}; its vocabulary has {shard.vocab_size}")
    inputs, targets, marks = (np.full(length, value, np.int32) for value in (0, IGNORE_INDEX, 0))
    inputs[:used] = tokens[:-1][pairs]
    targets[:used] = np.where(counted[1:], tokens[1:], IGNORE_INDEX)[pairs]
    marks[:used] = ends[1:][pairs]
    marks[used - 1] = 1
    return inputs, targets, marks
