"""Training data: windows of tokens from shards, in an order that is a function of the seed and the position."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..device import Context
from ..formats import FormatError, TokenShard
from ..formats.errors import cannot_read
from ..formats.regular import open_regular
from .packing import Packing, read_sequence

#: Inputs and targets of sequences, int32 [rows, length] each; of packed documents also where these end.
Batch: TypeAlias = tuple[np.ndarray, ...]


def open_shards(source: str | os.PathLike[str]) -> list[TokenShard]:
    """A shard, or all `*.tokens` files of a folder in the order of their names."""
    path = Path(source)
    files = sorted(path.glob("*.tokens")) if path.is_dir() else [path]
    if not files:
        raise FormatError(path, "holds no token shards (*.tokens)")
    return [TokenShard(file) for file in files]


def unigram_entropy(*shards: TokenShard) -> float:
    """Entropy of the frequencies of the shards' own tokens, in nats: what a model that knows only them would reach.
    Of shards with documents it is that of the targets that count.

    FormatError when an id is outside the vocabulary.
    """
    counts = np.zeros(max(shard.vocab_size for shard in shards), np.int64)
    for shard in shards:
        for tokens in _targets(shard):
            found = np.bincount(tokens, minlength=len(counts))
            if len(found) > len(counts):
                shard.check_ids()
            counts += found
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _targets(shard: TokenShard) -> Iterator[np.ndarray]:
    """The tokens of a shard, or, where it knows them, those that count as targets, in parts."""
    if shard.has_documents:
        for start, _, counted in shard.chunks():
            yield shard.read(start, start + len(counted))[counted]
        return
    for _, tokens in shard.pieces():
        yield tokens


class TokenWindows:
    """Windows of `length` + 1 tokens, each beginning where the one before has its last token; none crosses a shard.

    Window w gives the inputs tokens[0 : length] and the targets tokens[1 : length + 1] from its place. Of shards with
    documents (`has_documents`) the windows are sequences of documents as `packing` packs them.
    """

    def __init__(self, shards: Sequence[TokenShard], length: int):
        sizes = {shard.vocab_size for shard in shards}
        if len(sizes) > 1:
            raise ValueError(f"the shards have different vocabularies: {sorted(sizes)}")
        self.shards = list(shards)
        self.length = length
        self.vocab_size = sizes.pop()
        self.has_documents = shards[0].has_documents
        for shard in shards:
            if shard.has_documents != self.has_documents:
                first, other = (shards[0], shard) if self.has_documents else (shard, shards[0])
                raise ValueError(
                    f"{first.path.name} knows where its documents end and {other.path.name} does not: encode both alike"
                )
        self._packings = [Packing.of(shard, length) for shard in shards] if self.has_documents else []
        counts = [len(packing.starts) for packing in self._packings]
        if not self.has_documents:
            counts = [max(0, (shard.count - 1) // length) for shard in shards]
        self._ends = np.cumsum(counts)
        self.windows = int(self._ends[-1])
        if self.windows == 0:
            what = (
                "no document with a target that counts" if self.has_documents else f"no window of {length} + 1 tokens"
            )
            raise ValueError(f"the data holds {what}")

    def __len__(self) -> int:
        return self.windows

    def take(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Inputs and targets of windows, int32 [len(indices), length]. Of packed documents also where these end: 1 at
        the last token of each, 0 elsewhere, of the same shape."""
        if self.has_documents:
            parts = np.empty((3, len(indices), self.length), np.int32)
            for row, window in enumerate(indices):
                parts[:, row] = self._sequence(int(window))
            return tuple(parts)
        windows = np.empty((len(indices), self.length + 1), np.int32)
        for row, window in enumerate(indices):
            shard, _, place = self._place(int(window))
            start = place * self.length
            windows[row] = shard.read(start, start + self.length + 1)
        worst = int(windows.max()) if windows.size else 0
        if not 0 <= worst < self.vocab_size or windows.min() < 0:
            raise FormatError(shard.path, f"holds the token {worst}; its vocabulary has {self.vocab_size}")
        return windows[:, :-1], windows[:, 1:]

    def _place(self, window: int) -> tuple[TokenShard, int, int]:
        """The shard of a window, that one's number, and the number of the window in it."""
        which = int(np.searchsorted(self._ends, window, side="right"))
        return self.shards[which], which, window - int(self._ends[which - 1] if which else 0)

    def _sequence(self, window: int) -> Batch:
        shard, which, place = self._place(window)
        packing = self._packings[which]
        return read_sequence(shard, int(packing.starts[place]), int(packing.stops[place]), self.length)

    def batch(self, ctx: Context, seed: int, position: int, size: int, rows: Sequence[int] | None = None) -> Batch:
        """The windows at positions position .. position+size-1 of the endless shuffled sequence of `seed`; `rows` of
        these, unless it is None."""
        windows = ctx.data_order(seed, position, size, self.windows)
        return self.take(windows if rows is None else windows[rows])

    def spread(self, size: int, batches: int = 0) -> Iterator[Batch]:
        """Batches of at most `size` windows: all in their order, or, for that many `batches`, evenly spaced ones."""
        return map(self.take, self.spread_indices(size, batches))

    def spread_indices(self, size: int, batches: int = 0) -> list[np.ndarray]:
        """The numbers of the windows in each of these batches, for `take`."""
        wanted = min(batches * size, self.windows) if batches else self.windows
        chosen = np.arange(wanted) * self.windows // wanted
        return [chosen[start : start + size] for start in range(0, wanted, size)]

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over the files of the shards, one after the other, in hexadecimal digits."""
        whole, buffer = hashlib.sha256(), memoryview(bytearray(1 << 20))
        for shard in self.shards:
            try:
                with open_regular(shard.path) as file:
                    while count := file.readinto(buffer):
                        whole.update(buffer[:count])
            except OSError as error:
                raise cannot_read(shard.path, error) from error
        return whole.hexdigest()
