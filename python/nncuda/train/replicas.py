"""The replicas of a job: whose micro-batches a rank runs, and the order in which their gradients are added.

Replica v runs the micro-batches v, v + V, ... of an update. Ranks share the V replicas out in runs of neighbours, and
their gradients are added in one fixed binary tree, whoever computed them: so no bit knows how many ranks there are.
`bindings.h`, section comm, has the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import kernels
from ..device import Context, Tensor, replica_merges, shard
from ..models import MoEConfig, ParameterLayout
from ..models.held import joined
from ..models.partitioned import PartitionedGradients
from .config import ReduceDtype, TrainConfig


def check_ranks(ranks: int, replicas: int) -> None:
    """ValueError for more ranks than there are replicas to share out."""
    if ranks > replicas:
        raise ValueError(f"{ranks} ranks share out replicas: replicas must be at least {ranks}, and is {replicas}")


def sums_left(replicas: int, parts: int, part: int) -> int:
    """Sums of gradients that the replicas of one of so many ranks, or groups of ranks, end with."""
    own = range(*shard(replicas, 1, parts, part))
    return sum(1 - replica_merges(replicas, own.start, replica) for replica in own)


def one_micro_batch_each(config: TrainConfig, ranks: int) -> bool:
    """Whether each rank runs one of an update, and so needs a layer's gradients only until others have them."""
    return ranks == config.replicas == config.micro_batches


def partitions_gradients(
    model: MoEConfig, config: TrainConfig, device: str, ranks: int, expert_parallel: int = 1
) -> bool:
    """Whether the ranks' models are to partition their gradients: where they can, and it is less memory. Ranks that
    share the experts out have parts of most of them anyway; a tied head's are needed from the first layer to the last;
    and it has not been tried on a GPU."""
    if device != "cpu" or ranks == 1 or expert_parallel > 1 or model.tie_embeddings:
        return False
    return one_micro_batch_each(config, ranks) and PartitionedGradients.saves(ParameterLayout(model), ranks)


class Replicas:
    """Those of `total` replicas that this rank computes, `own`, and the sums of their gradients that wait for others.

    After the last one, the gradients hold a sum, and `aside` has those that are left, the oldest first, f32 [left,
    size]: what a reduction over the ranks takes. A rank alone has none left, but the one of all.
    """

    def __init__(
        self,
        ctx: Context,
        size: int,
        total: int,
        ranks: int = 1,
        rank: int = 0,
        dense: Sequence[range] | None = None,
        wire: ReduceDtype = "f32",
    ):
        """With `dense`, only these elements of the gradients are added up here, and only they have memory. With a
        `wire` of 16 bits, each replica's gradient is rounded to it, and each sum of them but that of all."""
        check_ranks(ranks, total)
        self.total = total
        self.own = range(*shard(total, 1, ranks, rank))
        self._merges: dict[int, tuple[int, int]] = {}  # of a replica: sums aside before it, and how many it takes
        depth = deepest = 0
        for replica in self.own:
            merges = replica_merges(total, self.own.start, replica)
            self._merges[replica] = depth, merges
            depth -= merges
            if replica != self.own[-1]:
                depth += 1
            deepest = max(deepest, depth)
        self._left = depth
        self._dense = dense
        self.wire = wire
        self._sums: Tensor | None = None
        if deepest and dense is None:
            self._sums = ctx.empty((deepest, size))
        elif deepest and dense is not None:
            rows = [range(at * size + one.start, at * size + one.stop) for at in range(deepest) for one in dense]
            ends = [(one.start, one.stop) for one in joined(rows)]
            self._sums = ctx.zeros_parts((deepest, size), "f32", ends)
        #: Memory of the sums that wait, in bytes.
        self.nbytes = 4 * deepest * (size if dense is None else sum(map(len, dense)))

    @property
    def aside(self) -> Tensor | None:
        return self._sums.narrow(0, 0, self._left) if self._sums is not None and self._left else None

    def micro_batches(self, count: int) -> list[int]:
        """Which of the `count` micro-batches of an update this rank runs, in ascending order."""
        return [index for index in range(count) if index % self.total in self.own]

    def add(self, replica: int, gradients: Tensor, within: Sequence[range] | None = None) -> None:
        """Adds to the complete gradient of an own `replica` what waits for it; sets the sum aside for a later one. Of
        some elements with `within`, one part of them after the other."""
        within = self._dense if within is None else within
        depth, merges = self._merges[replica]
        if self.total > 1:
            self._round(gradients, within)
        for at in range(depth - 1, depth - merges - 1, -1):
            for one, part in zip(_parts(self._sum(at), within), _parts(gradients, within), strict=True):
                kernels.add(one, part, y=part)
            if at > 0 or self.own != range(self.total) or replica != self.own[-1]:  # the sum of all stays
                self._round(gradients, within)
        if replica != self.own[-1]:
            for one, part in zip(_parts(self._sum(depth - merges), within), _parts(gradients, within), strict=True):
                one.copy_(part)

    def _round(self, gradients: Tensor, within: Sequence[range] | None) -> None:
        """Rounds a sum to what goes over the wire, whether or not it does."""
        if self.wire != "f32":
            for part in _parts(gradients, within):
                kernels.round(part, y=part, dtype=self.wire)

    def _sum(self, at: int) -> Tensor:
        assert self._sums is not None  # or nothing is ever put aside
        return self._sums.narrow(0, at, 1).view(-1)


def _parts(x: Tensor, ranges: Sequence[range] | None) -> list[Tensor]:
    """These elements of f32 [size], or all."""
    return [x] if ranges is None else [x.narrow(0, one.start, len(one)) for one in ranges]
