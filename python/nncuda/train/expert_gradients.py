"""The gradients of experts that ranks share out: in which rounds they come about, and the order of their sums.

A rank gets gradients of its own experts from all ranks of its group, and adds them up in the tree in which one rank
adds up all gradients (`Replicas`): in slots, since several replicas are under way at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..device import Comm, Context, Tensor, expert_schedule, replica_merges, shard
from ..layers import ExpertParallel
from ..layers.expert_parallel import Add, Round, Run
from ..models import MoEConfig
from ..models.held import HeldElements
from ..models.parameters import GRAIN


class _Planned(NamedTuple):
    """A round: the micro-batch that this rank runs, none of a guest, all of them, and what happens."""

    own: int | None
    micro_batches: list[int]
    events: tuple[Run | Add, ...]


class ExpertGradients:
    """The rounds of an update of `micro_batches`, and the sums of the gradients of this rank's own experts.

    `reduce` brings them, and the dense ones, to the ranks that update the parameters.
    """

    def __init__(
        self,
        ctx: Context,
        experts: ExpertParallel,
        held: HeldElements,
        replicas: int,
        micro_batches: int,
        width: int,
    ) -> None:
        """`width` is the bytes of a weight."""
        ranks, first, size = experts.comm.ranks, experts.first, experts.size
        events, slots = expert_schedule(replicas, ranks, first, size, micro_batches)
        self._experts = experts
        self._held = held
        self._replicas = replicas
        self._rounds: list[_Planned] = []
        for number in range(1 + max(event.round for event in events if event.kind == "run")):
            of_round = [event for event in events if event.round == number and event.kind != "copy"]
            runs = {event.a: event.b for event in of_round if event.kind == "run"}
            happens = tuple(
                Run(event.a, event.c, event.accumulate) if event.kind == "run" else Add(event.a, event.b)
                for event in of_round
            )
            self._rounds.append(_Planned(runs.get(experts.position), list(runs.values()), happens))
        self._copies = [(event.a, event.b) for event in events if event.kind == "copy"]
        self._slots = ctx.empty((slots, sum(map(len, held.own))))
        group = range(*shard(replicas, 1, ranks // size, first // size))  # its replicas
        self._left = sum(1 - replica_merges(replicas, group.start, replica) for replica in group)
        self._gradient_moves = held.gradient_moves(4)
        self._weight_moves = held.weight_moves(width)

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

    def reduce(self, comm: Comm, aside: Tensor | None, gradients: Tensor) -> None:
        """Makes this rank's shard of `gradients` the sums over all replicas; `aside` and what is there are the dense
        sums that the ranks' replicas have left."""
        self._reduce_own(gradients)
        for part in self._held.dense:
            comm.reduce_scatter(aside, gradients, GRAIN, self._replicas, part.start, part.stop)
        comm.move(gradients, self._gradient_moves)

    def _reduce_own(self, gradients: Tensor) -> None:
        """The sums of the own experts over all replicas into their place."""
        for source, target in self._copies:
            self._slots[target].copy_(self._slots[source])
        total, owners = self._slots[self._left - 1], self._experts.owners
        if owners is not None:
            aside = self._slots.narrow(0, 0, self._left - 1) if self._left > 1 else None
            owners.reduce_scatter(aside, total, GRAIN, self._replicas)
            owners.all_gather(total, 4 * GRAIN)
        first = 0
        for part in self._held.own:
            gradients.narrow(0, part.start, len(part)).copy_(total.narrow(0, first, len(part)))
            first += len(part)

    def share_weights(self, comm: Comm, weights: Tensor) -> None:
        """Brings what the ranks have updated to those that compute with it."""
        comm.move(weights, self._weight_moves)
