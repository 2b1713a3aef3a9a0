"""Sums of gradients over the ranks that travel while the backward pass goes on."""

from __future__ import annotations

from typing import NamedTuple

from ..device import Comm, Shard, Tensor
from ..models import ParameterArena
from ..models.held import HeldElements
from ..models.partitioned import PartitionedGradients
from .replicas import Replicas

#: Pieces that travel at a time: one arrives while the next is sent. The backward pass is at another one.
_UNDER_WAY = PartitionedGradients.BUFFERS - 1


class _Piece(NamedTuple):
    """Gradients that are complete at a time.

    gradients  f32 of one dimension, which has them
    elements   which of it they are, but for those of experts that ranks share out
    shards     which rank updates what of them
    kept       what this rank updates, and where it then belongs; nothing where it already lies there
    """

    gradients: Tensor
    elements: list[range]
    shards: list[Shard]
    kept: list[tuple[Tensor, Tensor]]


class BackwardSums:
    """Brings what each rank updates of the gradients to it, piece by piece, as a backward pass completes them.

    That of the last micro-batch of a rank's last replica calls `next`, once a piece; where ranks share experts out,
    that of the last round does, also on a guest, so that what a rank waits for never needs what it has not done itself.
    `finish` waits for the rest. Of the sums over all replicas not a bit depends on when they are made.
    """

    def __init__(self, comm: Comm, gradients: ParameterArena, held: HeldElements, replicas: Replicas) -> None:
        self.comm = comm.part(0, 1, comm.ranks)  # which is busy while others may be used
        self._replicas = replicas
        pieces = enumerate(gradients.layout.backward_pieces())
        self._pieces = [self._piece(number, piece, gradients, held) for number, piece in pieces]
        sizes = [self.comm.reduce_scatter_room(*self._sums(number)) for number in range(len(self._pieces))]
        self._rooms = [comm.ctx.empty(max(sizes)) for _ in range(_UNDER_WAY)]
        self._begun = self._ended = 0

    def _piece(self, number: int, elements: range, gradients: ParameterArena, held: HeldElements) -> _Piece:
        dense, data = held.dense_within(elements), gradients.data
        shards = held.shards_within(dense)
        buffer = gradients.buffer(number) if isinstance(gradients, PartitionedGradients) else None
        if buffer is None:
            return _Piece(data, dense, shards, [])
        first = elements.start
        shards = [Shard(begin - first, end - first, rank) for begin, end, rank in shards]
        own = [(begin, end - begin) for begin, end, rank in shards if rank == self.comm.rank]
        kept = [(buffer.narrow(0, at, size), data.narrow(0, first + at, size)) for at, size in own]
        return _Piece(buffer, [range(len(elements))], shards, kept)

    @property
    def nbytes(self) -> int:
        """Memory for what arrives."""
        return sum(room.nbytes for room in self._rooms)

    def start(self) -> None:
        """Before a step."""
        self._begun = self._ended = 0

    def next(self) -> None:
        """The next piece of the gradients is complete: adds what waits for it on this rank, and sends it."""
        number = self._begun
        piece = self._pieces[number]
        self._replicas.add(self._replicas.own[-1], piece.gradients, piece.elements)
        if number - self._ended == _UNDER_WAY:
            self._end()
        self.comm.reduce_scatter_begin(*self._sums(number), room=self._room(number))
        self._begun += 1

    def finish(self) -> None:
        """Waits for what is under way: now all elements that this rank updates are sums over all replicas."""
        while self._ended < self._begun:
            self._end()

    def _end(self) -> None:
        self.comm.reduce_scatter_end(*self._sums(self._ended), room=self._room(self._ended))
        for sums, place in self._pieces[self._ended].kept:
            place.copy_(sums)
        self._ended += 1

    def _room(self, number: int) -> Tensor:
        return self._rooms[number % _UNDER_WAY]

    def _sums(self, number: int) -> tuple[Tensor | None, Tensor, list[Shard], int, str]:
        piece, replicas = self._pieces[number], self._replicas
        return replicas.aside, piece.gradients, piece.shards, replicas.total, replicas.wire
