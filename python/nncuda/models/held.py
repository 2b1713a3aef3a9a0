"""Which elements of a layout a rank holds whose experts are shared out, and which pieces go from rank to rank.

An arena has the addresses of the whole layout everywhere, so that parameters, shards and parts of checkpoints are found
as ever; memory is there for what a rank holds alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..device import shard
from .parameters import GRAIN, ParameterLayout

#: First byte, the one after the last, the rank that has them and the one that gets them.
Move = tuple[int, int, int, int]


class HeldElements:
    """What a rank holds where so many neighbouring `ranks` as `size` share the experts out (see `ExpertParallel`).

    dense       ranges that every rank holds, one more than there are layers
    own         the experts' that it holds for its group: of each layer those of w13 and those of w2
    shard       what it updates
    computes    all three: of the weights and the gradients
    """

    def __init__(self, layout: ParameterLayout, ranks: int, rank: int, size: int):
        self._layout = layout
        self._size = size
        self._shards = [range(*shard(layout.size, GRAIN, ranks, number)) for number in range(ranks)]
        starts = [0, *(w2.stop for _, w2 in layout.experts)]
        stops = [*(w13.start for w13, _ in layout.experts), layout.size]
        self.dense = [range(start, stop) for start, stop in zip(starts, stops, strict=True)]
        self.own = [part for layer in layout.experts for part in self._of_position(layer, rank % size)]
        self.shard = self._shards[rank]
        self.computes = joined([*self.dense, *self.own, self.shard])

    def _of_position(self, layer: tuple[range, range], position: int) -> Iterator[range]:
        """The experts of one position, of w13 and of w2."""
        for part in layer:
            count = len(part) // self._size
            yield part[position * count : (position + 1) * count]

    def gradient_moves(self, width: int) -> list[Move]:
        """What brings the sums of the experts' gradients, which the ranks of each group have of their own experts, to
        the ranks that update these; of elements of so many bytes."""
        size = self._size
        return [
            (width * piece.start, width * piece.stop, rank // size * size + position, rank)
            for position, part in self._experts_by_position()
            for rank, piece in self._in_shards(part)
            if position != rank % size
        ]

    def weight_moves(self, width: int) -> list[Move]:
        """What brings the updated weights from the ranks that have updated them to those that compute with them."""
        ranks, size = len(self._shards), self._size
        wanted = [(part, range(ranks)) for part in self.dense]
        wanted += [(part, range(position, ranks, size)) for position, part in self._experts_by_position()]
        return [
            (width * piece.start, width * piece.stop, rank, to)
            for part, receivers in wanted
            for rank, piece in self._in_shards(part)
            for to in receivers
            if to != rank
        ]

    def _experts_by_position(self) -> Iterator[tuple[int, range]]:
        for layer in self._layout.experts:
            for of_kind in zip(*(self._of_position(layer, p) for p in range(self._size)), strict=True):
                yield from enumerate(of_kind)

    def _in_shards(self, part: range) -> Iterator[tuple[int, range]]:
        for rank, own in enumerate(self._shards):
            found = range(max(part.start, own.start), min(part.stop, own.stop))
            if found:
                yield rank, found


def joined(ranges: Iterable[range]) -> list[range]:
    """The elements of all of them, as ranges in ascending order with others between."""
    found: list[range] = []
    for one in sorted((one for one in ranges if one), key=lambda one: one.start):
        if found and one.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, one.stop))
        else:
            found.append(one)
    return found
