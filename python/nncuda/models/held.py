"""Which elements of a layout each of several ranks holds and updates, and which pieces go from rank to rank.

An arena has the addresses of the whole layout everywhere, so that parameters, shards and parts of checkpoints are found
as ever; memory is there for what a rank holds alone.
"""

from __future__ import annotations

import bisect
import copy
from collections.abc import Iterable, Iterator

from ..device import Shard, expert_shards
from .parameters import GRAIN, Layout

#: First byte, the one after the last, the rank that has them and the one that gets them.
Move = tuple[int, int, int, int]


class HeldElements:
    """What a rank holds and updates of a job of `ranks`, of which so many neighbours as `size` share the experts out
    (see `ExpertParallel`).

    shards      which rank updates what, all of the layout in ascending order
    updated     those of this rank; each begins at a multiple of GRAIN
    dense       ranges that every rank holds: all but the experts where these are shared out
    own         the experts' that it holds for its group: of each layer those of w13 and those of w2
    computes    all three: of the weights and the gradients
    gradients   of these what a rank keeps that partitions them (see `PartitionedGradients`)
    """

    def __init__(self, layout: Layout, ranks: int, rank: int, size: int = 1):
        self._layout = layout
        self._ranks, self._size = ranks, size
        matrices = [(part.start, part.stop) for layer in layout.experts for part in layer]
        self.shards = expert_shards(layout.size, GRAIN, ranks, size, matrices)
        self._updated: list[list[range]] = [[] for _ in range(ranks)]
        for begin, end, owner in self.shards:
            self._updated[owner].append(range(begin, end))
        self.dense = [range(layout.size)]
        if size > 1:
            starts = [0, *(w2.stop for _, w2 in layout.experts)]
            stops = [*(w13.start for w13, _ in layout.experts), layout.size]
            self.dense = [range(start, stop) for start, stop in zip(starts, stops, strict=True)]
        self._sit(rank)

    def _sit(self, rank: int) -> None:
        self._rank = rank
        self.updated, self.own = self._updated[rank], []
        if self._size > 1:
            self.own = [part for layer in self._layout.experts for part in self._of_position(layer, rank % self._size)]
        self.computes = joined([*self.dense, *self.own, *self.updated])
        self.gradients = joined([*self.updated, range(self._layout.num_decayed, self._layout.size)])

    def of(self, rank: int) -> HeldElements:
        """The same of another rank of the job."""
        other = copy.copy(self)
        other._sit(rank)
        return other

    def dense_shards(self) -> list[Shard]:
        """Which rank updates what of all that every rank holds."""
        return self.shards_within(self.dense)

    def dense_within(self, elements: range) -> list[range]:
        """Which of these elements every rank holds."""
        cut = (range(max(one.start, elements.start), min(one.stop, elements.stop)) for one in self.dense)
        return [part for part in cut if part]

    def shards_within(self, ranges: Iterable[range]) -> list[Shard]:
        """Which rank updates what of these elements."""
        return [piece for part in ranges for piece in self._cut(part)]

    def slot_shards(self) -> list[tuple[Shard, int]]:
        """The own experts' elements one after the other, as a slot of sums has them: which of their owners (see
        `ExpertParallel`) gets the sums of which, that of the group of the rank that updates them; and where in the
        layout they begin."""
        found, first = [], 0
        for part in self.own:
            for begin, end, rank in self._cut(part):
                found.append((Shard(first, first + end - begin, rank // self._size), begin))
                first += end - begin
        return found

    def _of_position(self, layer: tuple[range, range], position: int) -> Iterator[range]:
        """The experts of one position, of w13 and of w2."""
        for part in layer:
            count = len(part) // self._size
            yield part[position * count : (position + 1) * count]

    def gradient_moves(self, width: int) -> list[Move]:
        """What brings the sums of the experts' gradients, each on the owner of these experts in the group of the rank
        that updates them, to that rank; of elements of so many bytes."""
        size = self._size
        return [
            (width * begin, width * end, rank // size * size + position, rank)
            for position, part in self._experts_by_position()
            for begin, end, rank in self._cut(part)
            if position != rank % size
        ]

    def weight_moves(self, width: int) -> list[Move]:
        """What brings the updated weights from the ranks that have updated them to those that compute with them: of
        these moves, which are as many as pieces times ranks, those that this rank is an end of."""
        me = self._rank
        return [
            (width * begin, width * end, rank, to)
            for (begin, end, rank), receivers in self._wanted()
            for to in (receivers if rank == me else (me,) if me in receivers else ())
            if to != rank
        ]

    def weights_sent(self) -> list[int]:
        """How many elements each rank sends by `weight_moves`."""
        sent = [0] * self._ranks
        for (begin, end, rank), receivers in self._wanted():
            sent[rank] += (end - begin) * (len(receivers) - (rank in receivers))
        return sent

    def _wanted(self) -> Iterator[tuple[Shard, range]]:
        """All pieces, and the ranks that compute with each."""
        wanted = [(part, range(self._ranks)) for part in self.dense]
        if self._size > 1:
            wanted += [(part, range(p, self._ranks, self._size)) for p, part in self._experts_by_position()]
        return ((piece, receivers) for part, receivers in wanted for piece in self._cut(part))

    def _experts_by_position(self) -> Iterator[tuple[int, range]]:
        for layer in self._layout.experts:
            for of_kind in zip(*(self._of_position(layer, p) for p in range(self._size)), strict=True):
                yield from enumerate(of_kind)

    def _cut(self, part: range) -> Iterator[Shard]:
        """The shards of these elements."""
        at = bisect.bisect_right(self.shards, part.start, key=lambda shard: shard.begin) - 1
        while at < len(self.shards) and self.shards[at].begin < part.stop:
            begin, end, rank = self.shards[at]
            yield Shard(max(begin, part.start), min(end, part.stop), rank)
            at += 1


def joined(ranges: Iterable[range]) -> list[range]:
    """The elements of all of them, as ranges in ascending order with others between."""
    found: list[range] = []
    for one in sorted((one for one in ranges if one), key=lambda one: one.start):
        if found and one.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, one.stop))
        else:
            found.append(one)
    return found
