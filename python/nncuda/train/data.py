"""Training data: windows of tokens from shards, in an order that is a function of the seed and the position."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..device import Context
from ..formats import FormatError, TokenShard
from ..formats.errors import cannot_read
from ..formats.regular import open_regular


def open_shards(source: str | os.PathLike[str]) -> list[TokenShard]:
    """A shard, or all `*.tokens` files of a folder in the order of their names."""
    path = Path(source)
    files = sorted(path.glob("*.tokens")) if path.is_dir() else [path]
    if not files:
        raise FormatError(path, "holds no token shards (*.tokens)")
    return [TokenShard(file) for file in files]


def unigram_entropy(*shards: TokenShard) -> float:
    """Entropy of the frequencies of the shards' own tokens, in nats: what a model that knows only them would reach.

    FormatError when an id is outside the vocabulary.
    """
    chunk = 1 << 24
    counts = np.zeros(max(shard.vocab_size for shard in shards), np.int64)
    for shard in shards:
        for start in range(0, shard.count, chunk):
            found = np.bincount(shard.read(start, start + chunk), minlength=len(counts))
            if len(found) > len(counts):
                shard.check_ids()
            counts += found
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


class TokenWindows:
    """Windows of `length` + 1 tokens, each beginning where the one before has its last token; none crosses a shard.

    Window w gives the inputs tokens[0 : length] and the targets tokens[1 : length + 1] from its place.
    """

    def __init__(self, shards: Sequence[TokenShard], length: int):
        sizes = {shard.vocab_size for shard in shards}
        if len(sizes) > 1:
            raise ValueError(f"the shards have different vocabularies: {sorted(sizes)}")
        self.shards = list(shards)
        self.length = length
        self.vocab_size = sizes.pop()
        counts = [max(0, (shard.count - 1) // length) for shard in shards]
        self._ends = np.cumsum(counts)
        self.windows = int(self._ends[-1])
        if self.windows == 0:
            raise ValueError(f"the data holds no window of {length} + 1 tokens")

    def __len__(self) -> int:
        return self.windows

    def take(self, indices: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of windows, int32 [len(indices), length]."""
        rows = np.empty((len(indices), self.length + 1), np.int32)
        for row, window in enumerate(indices):
            which = int(np.searchsorted(self._ends, window, side="right"))
            shard = self.shards[which]
            start = (int(window) - int(self._ends[which - 1] if which else 0)) * self.length
            rows[row] = shard.read(start, start + self.length + 1)
        worst = int(rows.max()) if rows.size else 0
        if not 0 <= worst < self.vocab_size or rows.min() < 0:
            raise FormatError(shard.path, f"holds the token {worst}; its vocabulary has {self.vocab_size}")
        return rows[:, :-1], rows[:, 1:]

    def batch(
        self, ctx: Context, seed: int, position: int, size: int, rows: Sequence[int] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The windows at positions position .. position+size-1 of the endless shuffled sequence of `seed`; `rows` of
        these, unless it is None."""
        windows = ctx.data_order(seed, position, size, self.windows)
        return self.take(windows if rows is None else windows[rows])

    def spread(self, size: int, batches: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
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
