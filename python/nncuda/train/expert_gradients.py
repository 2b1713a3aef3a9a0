"""The gradients of experts that ranks share out: in which rounds they come about, and the order of their sums.

A rank gets gradients of its own experts from all ranks of its group, and adds them up in the tree in which one rank
adds up all gradients (`Replicas`): in slots, since several replicas are under way at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..device import Comm, Context, ExpertEvent, Tensor, expert_schedule
from ..layers import ExpertParallel
from ..layers.expert_parallel import Add, Round, Rounding, Run
from ..models import MoEConfig
from ..models.held import HeldElements
from .config import ReduceDtype
from .replicas import sums_left


class _Planned(NamedTuple):
    """A round: the micro-batch that this rank runs, none of a guest, all of them, and what happens."""

    own: int | None
    micro_batches: list[int]
    events: tuple[Run | Add | Rounding, ...]


def _happens(event: ExpertEvent, wire: ReduceDtype) -> Iterator[Run | Add | Rounding]:
    """An event of the schedule as layers carry it out."""
    if event.kind == "run":
        yield Run(event.a, event.c, event.accumulate)
    elif event.kind == "add":
        yield Add(event.a, event.b)
    elif event.kind == "round" and wire != "f32":
        yield Rounding(event.a, wire)


class ExpertGradients:
    """The rounds of an update of `micro_batches`, and the sums of the gradients of this rank's own experts.

    `reduce` brings them to the ranks that update the parameters.
    """

    def __init__(
        self,
        ctx: Context,
        experts: ExpertParallel,
        held: HeldElements,
        replicas: int,
        micro_batches: int,
        wire: ReduceDtype = "f32",
    ) -> None:
        """`wire` is what sums are rounded to, as those of `Replicas`."""
        ranks, first, size = experts.comm.ranks, experts.first, experts.size
        events, slots = expert_schedule(replicas, ranks, first, size, micro_batches, experts.position)
        self._experts = experts
        self._held = held
        self._replicas = replicas
        self._rounds: list[_Planned] = []
        for number in range(1 + max(event.round for event in events if event.kind == "run")):
            of_round = [event for event in events if event.round == number and event.kind != "copy"]
            runs = {event.a: event.b for event in of_round if event.kind == "run"}
            happens = tuple(one for event in of_round for one in _happens(event, wire))
            self._rounds.append(_Planned(runs.get(experts.position), list(runs.values()), happens))
        self._copies = [(event.a, event.b) for event in events if event.kind == "copy"]
        self._slots = ctx.empty((slots, sum(map(len, held.own))))
        self._left = sums_left(replicas, ranks // size, first // size)
        self._wire = wire
        self._dense_shards = held.dense_shards()
        self._slot_shards = held.slot_shards()
        self._gradient_moves = held.gradient_moves(4)

    @property
    def nbytes(self) -> int:
        """Memory of the sums."""
        return self._slots.nbytes

    def rounds(self, config: MoEConfig, sizes: Sequence[int], length: int) -> list[tuple[int | None, Round]]:
        """The rounds of micro-batches of so many sequences of `length`: the one that this rank runs in it, None of a
        guest, and what happens."""
        found = []
        for one in self._rounds:
            tokens = max(sizes[number] for number in one.micro_batches) * length
            rows = self._experts.most_rows(config.experts_per_token, tokens, config.capacity(tokens))
            found.append((one.own, Round(rows, one.events, self._slots)))
        return found

    def reduce(self, comm: Comm, gradients: Tensor) -> None:
        """Makes what this rank updates of the experts' gradients the sums over all replicas."""
        self._reduce_own(gradients)
        comm.move(gradients, self._gradient_moves)

    def reduce_dense(self, comm: Comm, aside: Tensor | None, gradients: Tensor) -> None:
        """The same of all others, in one call; `aside` and what is there are the sums that the ranks' replicas have
        left."""
        comm.reduce_scatter(aside, gradients, self._dense_shards, self._replicas, self._wire)

    def _reduce_own(self, gradients: Tensor) -> None:
        """The sums over all replicas of those own experts that this rank's group updates into their place."""
        for source, target in self._copies:
            self._slots[target].copy_(self._slots[source])
        total, owners = self._slots[self._left - 1], self._experts.owners
        if owners is not None:
            aside = self._slots.narrow(0, 0, self._left - 1) if self._left > 1 else None
            shards = [shard for shard, _ in self._slot_shards]
            owners.reduce_scatter(aside, total, shards, self._replicas, self._wire)
        for (begin, end, owner), start in self._slot_shards:
            if owners is None or owner == owners.rank:
                gradients.narrow(0, start, end - begin).copy_(total.narrow(0, begin, end - begin))
