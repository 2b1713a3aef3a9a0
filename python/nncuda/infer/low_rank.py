"""The adapters of an engine on its device, and what they add to the products of the layers.

y = x W^T + (x A^T) (scale B)^T: the product with the weights as they are stored, and two with A and scale * B as stored
matrices in f32, the last of them added to y. All give a row the same bits in any company, and so does their sum. So the
rows of a call may have several adapters: each run of neighbouring rows with one gets two products of its own, and rows
without one are left as they are.
(Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..formats.block_formats import FORMATS
from ..models.adapter_gguf import interleaved_order, is_rotated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..models.adapter import Adapter
    from ..models.llama import LlamaConfig

_F32 = FORMATS["f32"].code


class LowRank(NamedTuple):
    """Rows of f32 as bytes: `a` [rank, 4 * in], and `b`, with the scale in it, [out, 4 * rank]."""

    a: Tensor
    b: Tensor

    @property
    def nbytes(self) -> int:
        return self.a.nbytes + self.b.nbytes

    def add(self, x: Tensor, room: Tensor, y: Tensor) -> None:
        """y += the product of x f32 [tokens, in]; `room` f32, at least tokens * rank of it, is for its first half."""
        tokens, rank = x.shape[0], self.a.shape[0]
        inner = room.narrow(0, 0, tokens * rank).view(tokens, rank)
        kernels.gemm_quant(x, self.a, format=_F32, y=inner)
        kernels.gemm_quant(inner, self.b, None, None, y, format=_F32, y=y)


class Run(NamedTuple):
    """Neighbouring rows of a call with one adapter, by its number."""

    first: int
    rows: int
    adapter: int


def runs_of(adapters: Iterable[int], lengths: Iterable[int]) -> tuple[Run, ...]:
    """The runs of a call's sequences, of which each has an adapter and so many rows."""
    found, first = [], 0
    for adapter, some in itertools.groupby(zip(adapters, lengths, strict=True), lambda one: one[0]):
        rows = sum(length for _, length in some)
        found.append(Run(first, rows, adapter))
        first += rows
    return tuple(found)


def adapted_rows(
    runs: Iterable[Run], factors: Sequence[LowRank | None], first: int, rows: int
) -> Iterator[tuple[int, int, LowRank]]:
    """What `factors`, those of a matrix by adapter, add to so many rows of a call, from one on: counted from that one,
    where it begins, and to how many."""
    for run in runs if factors else ():
        begin, end = max(run.first, first), min(run.first + run.rows, first + rows)
        pair = factors[run.adapter]
        if pair is not None and begin < end:
            yield begin - first, end - begin, pair


class Adapters:
    """Those of an engine, each with a number: 0 is that of sequences that name none, which `unnamed` is for; with None
    they have none. `order` is that of the rows of a head in which queries and keys are read, None for the order of the
    folders that adapters are of. ValueError for a model beside whose weights this engine runs none."""

    def __init__(
        self,
        ctx: Context,
        config: LlamaConfig,
        order: Sequence[int] | None,
        unnamed: Adapter | None,
        named: Mapping[str, Adapter],
    ):
        self.names = list(named)
        self._factors: list[Mapping[str, LowRank]] = [
            {} if adapter is None else _factors(ctx, adapter, config, order) for adapter in (unnamed, *named.values())
        ]
        #: The largest rank, 0 without adapters.
        self.rank = max((adapter.rank for adapter in (unnamed, *named.values()) if adapter is not None), default=0)
        #: Bytes of each by its number.
        self.nbytes = [sum(pair.nbytes for pair in factors.values()) for factors in self._factors]

    def number(self, name: str | None) -> int:
        """That of an adapter by its name. ValueError for a name that there is not."""
        if name is None:
            return 0
        if name not in self.names:
            there = ", ".join(map(repr, self.names)) or "none"
            raise ValueError(f"adapter is {name!r}; of those with names the model has {there}")
        return self.names.index(name) + 1

    def of(self, matrix: str) -> tuple[LowRank | None, ...]:
        """What each adds to a matrix, by number; nothing at all where none does."""
        found = tuple(factors.get(matrix) for factors in self._factors)
        return found if any(found) else ()


def _factors(ctx: Context, adapter: Adapter, config: LlamaConfig, order: Sequence[int] | None) -> Mapping[str, LowRank]:
    """An adapter's factors by the names of their matrices."""
    if config.rope.layout == "interleaved":
        if config.rope.rotated:
            raise ValueError("a part of each head is rotated, in neighbouring pairs, where this engine runs no adapter")
        order = interleaved_order(config.head_dim)
    made = {}
    for name, pair in adapter.factors.items():
        b = pair.b.f32()
        if order is not None and is_rotated(name):
            b = b.reshape(-1, config.head_dim, adapter.rank)[:, order].reshape(b.shape)
        scaled = kernels.scale(ctx.tensor(np.ascontiguousarray(b)), alpha=adapter.scale)
        made[name] = LowRank(ctx.tensor(pair.a.f32()).as_bytes(), scaled.as_bytes())
    return made
