"""Gradients of which a rank keeps those alone that it updates: stage 2 of ZeRO."""

from __future__ import annotations

import math

from ..device import Context, Tensor
from .held import HeldElements
from .parameters import ParameterArena, ParameterLayout


class PartitionedGradients(ParameterArena):
    """The gradients of a rank that runs one micro-batch of an update, and needs those of a layer only until the ranks
    that update its parameters have them: so layers share a few buffers.

    `data` has the elements that this rank updates, and the gains', to which layers add during the whole pass. A piece
    of `layout.backward_pieces()` has its `buffer` until, BUFFERS pieces later, another gets it.
    (Rajbhandari et al. 2020, "ZeRO", section 5.2)
    """

    #: Pieces that are there at a time.
    BUFFERS = 3

    @classmethod
    def saves(cls, layout: ParameterLayout, ranks: int) -> bool:
        """Whether that is less memory on so many ranks: not for few layers."""
        *pieces, _ = map(len, layout.backward_pieces())
        return cls.BUFFERS * max(pieces) + layout.size // ranks < layout.size

    def __init__(self, ctx: Context, layout: ParameterLayout, held: HeldElements):
        *self._pieces, _ = layout.backward_pieces()
        super().__init__(ctx, layout, held=held.gradients)
        largest = max(map(len, self._pieces))
        self._buffers = [ctx.empty(largest) for _ in range(self.BUFFERS)]

    @property
    def nbytes(self) -> int:
        """Memory of what is held, and of the buffers."""
        return super().nbytes + sum(buffer.nbytes for buffer in self._buffers)

    def buffer(self, number: int) -> Tensor | None:
        """The gradients of a piece, f32 of its length; None for the gains', which are in `data`."""
        if number == len(self._pieces):
            return None
        return self._buffers[number % self.BUFFERS].narrow(0, 0, len(self._pieces[number]))

    def in_pass(self, first: str, *shape: int) -> Tensor:
        """Where a backward pass puts the gradients of neighbouring parameters, from parameter `first` on."""
        start, size = self.layout[first].offset, math.prod(shape)
        for number, piece in enumerate(self._pieces):
            if piece.start <= start < piece.stop:
                return self._buffers[number % self.BUFFERS].narrow(0, start - piece.start, size).view(*shape)
        return super().in_pass(first, *shape)
