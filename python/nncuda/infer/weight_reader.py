"""The weights of a stored model as tensors of a context: on the CPU copied once or in place, on a GPU copied once.
Those of a model in memory are on its device already, where they are copied or used in place.

The copy on a CPU has the rows of matrices in block formats side by side, as products read them fastest: the same
bytes, the same results to the bit. A table of embeddings, of which a token reads one row, stays as it is.

Pages of a file are of 4 KiB, the context's memory has pages of 2 MiB: decoding, which reads all weights a token, is a
fifth faster from those, and reading a file that the system holds in memory costs as much as some 30 tokens. In place, a
model may be larger than the memory, and programs that run the same file share it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import kernels
from ..binding import exchange
from ..device import INSTRUCTION_SETS, Context, Tensor
from ..formats.block_formats import FORMATS, INTERLEAVED, INTERLEAVED_ROWS
from ..formats.mapped import release
from ..models.llama import is_norm

if TYPE_CHECKING:
    from ..formats.block_formats import StoredTensor
    from ..models.stored import StoredModel
    from .low_rank import LowRank

#: Bytes of a file that are read before their pages are given back.
_PIECE = 1 << 24

#: Where the weights lie on a CPU.
PLACES = ("auto", "memory", "file")


class Weight(NamedTuple):
    """A stored matrix: u8 [rows, row_bytes] and its NNCUDA_FORMAT_*; and what each adapter adds to it, by number, or
    nothing where none does."""

    data: Tensor
    format: int
    low_rank: tuple[LowRank | None, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix alone."""
        return self.data.nbytes


class Experts(NamedTuple):
    """The matrices of neighbouring experts, one below the other."""

    w1: Weight
    w3: Weight
    w2: Weight

    @property
    def nbytes(self) -> int:
        return self.w1.nbytes + self.w3.nbytes + self.w2.nbytes


class WeightReader:
    """Brings a model's tensors to a context.

    `place` is "memory" (copied into the context's), "file" (the pages of the mapped file) or "auto": in memory unless
    that would take more than half of what is free. On a GPU they are in its memory. `in_memory` says what it came to.
    "file" of a model in memory is its arena, in which the matrices of all experts must follow one another to be used in
    place: W2 does, W1 and W3 lie in pairs, since training multiplies with both at once, and are copied.
    """

    def __init__(self, ctx: Context, model: StoredModel, place: str = "auto"):
        if place not in PLACES:
            raise ValueError(f"weights is {place!r}; it must be one of {', '.join(PLACES)}")
        elsewhere = ctx.device_type != exchange.CPU and model.arena is None
        fits = model.tensors.nbytes <= ctx.memory_info()[0] // 2
        self.in_memory = elsewhere or place == "memory" or (place == "auto" and fits)
        self._ctx = ctx
        self._tensors, self._arena = model.tensors, model.arena
        config = model.config
        self._less_one = config.norms_less_one
        #: That of the rows of a head in which queries and keys are read; None for that of the files.
        self.order: list[int] | None = None
        if config.rope.rotated and config.rope.layout == "half":
            self.order = order_of_part(config.head_dim, config.rope.rotated)

    def table(self, name: str, tied: bool) -> Weight:
        """The embeddings. Where a tied head is a copy with its rows side by side, they stay in the file: so little of
        them is read."""
        (stored,) = self._tensors.parts(name)
        alone = tied and self._is_interleaved(stored)
        return Weight(self._ctx.from_numpy(stored.rows()) if alone else self._rows(name), stored.code)

    def tied_head(self, name: str, embedding: Weight) -> Weight:
        """The output matrix of a tied model: the table of embeddings, or its copy with rows side by side."""
        return self.matrix(name) if self._is_interleaved(self._tensors.parts(name)[0]) else embedding

    def _is_interleaved(self, stored: StoredTensor) -> bool:
        """Whether a matrix, or each expert's, is copied with its rows side by side."""
        vectors = self._ctx.device_type == exchange.CPU and self._ctx.isa != INSTRUCTION_SETS[0]
        return vectors and self.in_memory and stored.code in INTERLEAVED and stored.shape[-2] % INTERLEAVED_ROWS == 0

    def matrix(self, name: str) -> Weight:
        """A matrix of a product, or those of the experts."""
        stored = self._tensors.parts(name)[0]
        if not self._is_interleaved(stored):
            return Weight(self._rows(name), stored.code)

        def interleave(rows: np.ndarray, place: Tensor) -> None:
            kernels.interleave_rows(self._ctx.from_numpy(rows), format=stored.code, k=stored.columns, y=place)

        return Weight(self._copied(name, interleave), INTERLEAVED[stored.code])

    def experts(self, layer: int) -> Experts:
        """The matrices of a layer's experts."""
        mixture = f"model.layers.{layer}.block_sparse_moe"
        return Experts(*(self.matrix(f"{mixture}.{name}.weight") for name in ("w1", "w3", "w2")))

    def beside_zeros(self, name: str) -> Weight:
        """A vector as the first row of a matrix in f32, whose second row is zeros."""
        row = self._tensors[name].f32().ravel()
        whole = np.stack([row, np.zeros_like(row)])
        return Weight(self._ctx.tensor(whole.view(np.uint8)), FORMATS["f32"].code)

    def vector(self, *names: str) -> Tensor:
        """A norm's gain, or biases one after the other, in f32."""
        values = np.concatenate([self._tensors[name].f32().ravel() for name in names])
        return self._ctx.tensor(values + np.float32(1) if self._less_one and is_norm(names[0]) else values)

    def _rows(self, name: str) -> Tensor:
        """The rows of a matrix, of all experts one below the other: u8 [rows, row_bytes]."""
        copied = self.in_memory or self._is_reordered(name) or self._tensors.parts(name)[0].made is not None
        whole = None if copied else self._in_place(name)
        return self._copied(name, lambda rows, place: place.copy_(rows)) if whole is None else whole

    def _in_place(self, name: str) -> Tensor | None:
        """They themselves; None of experts' that do not follow one another in an arena."""
        if self._arena is None:
            return self._ctx.from_numpy(self._tensors[name].rows())
        specs = [self._arena.layout[part.name] for part in self._tensors.parts(name)]
        if any(after.offset != before.offset + before.size for before, after in itertools.pairwise(specs)):
            return None
        rows = sum(spec.shape[0] for spec in specs)
        return self._arena.fused(specs[0].name, rows, *specs[0].shape[1:]).as_bytes()

    def _copied(self, name: str, copy: Callable[[Any, Tensor], object]) -> Tensor:
        """A copy, piece by piece; `copy` puts some rows into their place."""
        parts = self._tensors.parts(name)
        if self._is_reordered(name):
            parts = [self._reordered(part) for part in parts]
        counts = [part.elements // part.columns for part in parts]
        whole = self._ctx.empty((sum(counts), parts[0].row_bytes), "u8")
        first = 0
        for part, count in zip(parts, counts, strict=True):
            place = whole.narrow(0, first, count)
            first += count
            if self._arena is not None:
                copy(self._arena[part.name].as_bytes(), place)
                continue
            for rows, there in _pieces(part.rows(), place):
                copy(rows, there)
        return whole

    def _is_reordered(self, name: str) -> bool:
        """Whether a part of each head alone is rotated, in half-split pairs, and these rows are of queries or keys."""
        return self.order is not None and name.endswith(("q_proj.weight", "k_proj.weight"))

    def _reordered(self, stored: StoredTensor) -> StoredTensor:
        """A copy whose heads have their pairs where those of a whole head are."""
        rows = stored.rows()
        heads = rows.reshape(-1, len(self.order), rows.shape[1])  # type: ignore[arg-type]
        return dataclasses.replace(stored, data=heads[:, self.order].reshape(-1))


def order_of_part(head_dim: int, rotated: int) -> list[int]:
    """Rows of a head whose first `rotated` make half-split pairs, in the order in which these are pairs of the whole:
    in the first half those that begin a pair and half of those that stay, in the second the others."""
    half, stays = rotated // 2, (head_dim - rotated) // 2
    first = [*range(half), *range(rotated, rotated + stays)]
    return [*first, *range(half, rotated), *range(rotated + stays, head_dim)]


def _pieces(rows: np.ndarray, target: Tensor) -> Iterator[tuple[np.ndarray, Tensor]]:
    """A matrix of a file in pieces of whole groups of rows, each with its place in a copy. Behind a piece the file's
    pages are given back, so that they do not count besides the copy."""
    step = max(1, _PIECE // (INTERLEAVED_ROWS * rows.shape[1])) * INTERLEAVED_ROWS
    for first in range(0, len(rows), step):
        piece = rows[first : first + step]
        yield piece, target.narrow(0, first, len(piece))
        release(piece)
