"""Sums of gradients over the ranks that travel while the backward pass goes on."""

from __future__ import annotations

from ..device import Comm, Shard, Tensor
from ..models import ParameterLayout
from ..models.held import HeldElements
from .replicas import Replicas

_UNDER_WAY = 2  # pieces that travel at a time: one arrives while the next is sent


class BackwardSums:
    """Brings what each rank updates of the gradients to it, piece by piece, as a backward pass completes them.

    That of the last micro-batch of a rank's last replica calls `next`, once a piece; `finish` waits for the rest. Of
    the sums over all replicas not a bit depends on when they are made.
    """

    def __init__(
        self, comm: Comm, layout: ParameterLayout, held: HeldElements, replicas: Replicas, gradients: Tensor
    ) -> None:
        self.comm = comm.part(0, 1, comm.ranks)  # which is busy while others may be used
        self._replicas = replicas
        self._gradients = gradients
        self._pieces = layout.backward_pieces()
        self._shards: list[list[Shard]] = [held.shards_within(piece) for piece in self._pieces]
        sizes = [self.comm.reduce_scatter_room(*self._sums(number)) for number in range(len(self._pieces))]
        self._rooms = [comm.ctx.empty(max(sizes)) for _ in range(_UNDER_WAY)]
        self._begun = self._ended = 0

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
        self._replicas.add(self._replicas.own[-1], self._gradients, self._pieces[number])
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
        self._ended += 1

    def _room(self, number: int) -> Tensor:
        return self._rooms[number % _UNDER_WAY]

    def _sums(self, number: int) -> tuple[Tensor | None, Tensor, list[Shard], int, str]:
        replicas = self._replicas
        return replicas.aside, self._gradients, self._shards[number], replicas.total, replicas.wire
