"""Experts that ranks share out: each holds some of every layer's, and computes with them for all ranks of its group.

Micro-batches run in rounds, in which the ranks of a group go through the layers in step: rows travel to the ranks of
their experts and back. A rank without a micro-batch in a round is a guest, which computes for the others alone.
(Lepikhin et al. 2020, "GShard")
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from .. import kernels
from ..device import Comm, Tensor
from ..dtypes import FloatLike
from ..errors import StateError
from .expert_products import ExpertProducts
from .moe import MoEKept, MoELayer, Router, Routing


class Run(NamedTuple):
    """In a round the group's rank `source` runs a micro-batch, whose gradients of the own experts go to a slot: added
    to what is there, or not. A forward call has no use for the latter two."""

    source: int
    slot: int = 0
    accumulate: bool = False


class Add(NamedTuple):
    """To one slot another is added, which is then free: each has the gradients of neighbouring replicas."""

    slot: int
    other: int


class Rounding(NamedTuple):
    """A slot has a sum that is rounded to what goes over the wire, bf16 or f16."""

    slot: int
    dtype: FloatLike


class Round(NamedTuple):
    """What happens in a round, in order: of each layer after the other. From each rank come at most `rows` to another;
    `slots` f32 [slots, own] have sums of the own experts' gradients, layer by layer those of w13 and of w2."""

    rows: int
    events: tuple[Run | Add | Rounding, ...]
    slots: Tensor | None = None


class ExpertParallel:
    """How the experts of a model are shared out over the ranks of `comm`.

    `size` neighbouring ranks are a group. The one at `position` of it holds as many neighbouring experts of each layer,
    `own`, as any; the ranks of all groups at that position, the `owners`, hold the same ones. A trainer makes these
    communicators, by `join`.
    """

    def __init__(self, comm: Comm, size: int, experts: int):
        check_expert_parallel(size, comm.ranks, experts)
        self.comm = comm
        self.size = size
        self.position = comm.rank % size
        self.first = comm.rank - self.position  # rank of the group
        self.owners: Comm | None = None  # also where there is one group
        count = experts // size
        self.own = range(self.position * count, (self.position + 1) * count)
        self._experts = experts
        self._round: Round | None = None

    @classmethod
    def of(cls, comm: Comm | None, size: int, experts: int) -> ExpertParallel | None:
        """That of a job; None when every rank is to hold all experts. Raises ValueError for a size that divides
        not the ranks, or not the experts."""
        check_expert_parallel(size, 1 if comm is None else comm.ranks, experts)
        return None if comm is None or size == 1 else cls(comm, size, experts)

    def join(self) -> None:
        """Meets the group and the owners, who must have been asked whether they mean the same."""
        self.group = self.comm.part(self.first, 1, self.size)
        if self.size < self.comm.ranks:
            self.owners = self.comm.part(self.position, self.size, self.comm.ranks // self.size)

    def most_rows(self, k: int, tokens: int, capacity: int = 0) -> int:
        """How many rows go to one rank, at most, of so many tokens with `k` experts each, of which none takes more than
        `capacity`; 0 for no limit."""
        return k * tokens if capacity == 0 else min(k * tokens, len(self.own) * capacity)

    @contextlib.contextmanager
    def in_round(self, current: Round) -> Iterator[None]:
        """In here the model's calls are those of this round, on all ranks of the group."""
        self._round = current
        try:
            yield
        finally:
            self._round = None

    @property
    def round(self) -> Round:
        """The round that runs. StateError when there is none: other ranks would not come to it."""
        if self._round is None:
            raise self.partial()
        return self._round

    def sources(self) -> list[int]:
        """The ranks of the group that run a micro-batch in this round: this one, where it does, then the others in the
        order in which their rows come."""
        running = {event.source for event in self.round.events if isinstance(event, Run)}
        order = ((self.position - step) % self.size for step in range(self.size))
        return [source for source in order if source in running]

    @property
    def last_source(self) -> int:
        """The rank of the group whose rows come last."""
        return (self.position + 1) % self.size

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sent to the group and the owners."""
        return self.group.bytes_sent + (0 if self.owners is None else self.owners.bytes_sent)

    def partial(self) -> StateError:
        """What to raise where all experts are needed."""
        return StateError(
            51,
            f"this rank holds experts {self.own[0]} to {self.own[-1]} of {self._experts} alone; "
            "save_checkpoint of its trainer writes all",
        )


def check_expert_parallel(size: int, ranks: int, experts: int) -> None:
    """ValueError unless so many ranks can share the experts out in groups of `size`."""
    if size > 1 and not experts:
        raise ValueError(f"expert_parallel is {size}; a dense model, whose num_experts is 0, has none to share out")
    if size < 1 or ranks % size or experts % size:
        raise ValueError(f"expert_parallel is {size}; it must divide the {ranks} ranks and the {experts} experts")


class Arrived(NamedTuple):
    """Rows of all ranks of the group for the own experts.

    rows       [ranks, slot rows, hidden], of each rank from the start of its slot on, expert by expert
    offsets    i32 [ranks, own + 1], where each expert's rows begin there
    inside     of each rank whose rows are here what the experts' products give between; nothing when that is to be
               found again
    sent       while rows are on the way, those of this rank, None of a guest
    """

    rows: Tensor
    offsets: Tensor
    inside: dict[int, tuple[Tensor, Tensor]]
    sent: list[Tensor | None]


class ParallelMoELayer(MoELayer):
    """The same layer on a rank that holds w13 [own experts, 2*ffn, hidden] and w2 [own experts, hidden, ffn].

    Its calls belong to a round of `experts`, which also says where the gradients of the weights go, as those of the
    layer with this number.
    """

    def __init__(
        self,
        router: Router,
        w13: Tensor,
        w2: Tensor,
        experts: ExpertParallel,
        number: int,
        products: ExpertProducts | None = None,
    ):
        super().__init__(router, w13, w2, products=products)
        self._experts = experts
        self._number = number

    def _run(
        self, x: Tensor, capacity: int, aux: Tensor | None, keep_inside: bool
    ) -> tuple[Routing, Tensor, Arrived | None]:
        routing, rows = self.router.forward(x, capacity, aux)
        arrived = self._outputs(rows, routing, keep_inside)
        return routing, rows, arrived

    def serve_forward(self, keep_inside: bool) -> Arrived | None:
        """What a guest does in a round while others run `forward`, or `forward_keeping`, or find something again."""
        return self._outputs(None, None, keep_inside)

    def backward(self, dout: Tensor, x: Tensor, kept: MoEKept, aux_factor: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself."""
        routing, y, arrived = kept.take()
        if arrived is None:
            arrived = self._arrive(kernels.moe_gather(x, routing.row_slot), routing)
        dy, dlogits = self.router.backward(dout, y, routing, aux_factor)
        self._gradients(arrived, dy, routing)
        del arrived
        return self.router.backward_input(dlogits, x, dy, routing, beta)

    def serve_backward(self, arrived: Arrived | None) -> None:
        """What a guest does while others run `backward`, with what `serve_forward` gave."""
        self._gradients(self._arrive(None, None) if arrived is None else arrived, None, None)

    def _arrive(self, rows: Tensor | None, routing: Routing | None) -> Arrived:
        """Sends rows in the order of experts to their ranks, None of a guest; those for the own experts are on the
        way."""
        experts, hidden, ctx = self._experts, self.w2.shape[1], self.w2.ctx
        arrived = ctx.empty((experts.size, experts.round.rows, hidden), self.w2.dtype)
        offsets = ctx.empty((experts.size, len(experts.own) + 1), "i32")
        experts.group.dispatch_begin(rows, None if routing is None else routing.offsets, arrived, offsets)
        return Arrived(arrived, offsets, {}, [rows])

    def _outputs(self, home: Tensor | None, routing: Routing | None, keep_inside: bool) -> Arrived | None:
        """The experts' outputs for the rows of all ranks; those of the rows `home` take their place.

        While rows travel this rank's own are multiplied, then those of one rank after the other as they come, whose
        outputs go back meanwhile; the last of the own products runs while the last ones do.
        """
        arrived = self._arrive(home, routing)
        rows, offsets = arrived.rows, arrived.offsets
        out = rows.ctx.empty(rows.shape, rows.dtype) if keep_inside else rows
        group, own = self._experts.group, self._experts.position
        own_active = None
        for source in self._experts.sources():
            if source != own:
                group.dispatch_end(rows, source)
            gate_up, active = self._products(arrived, source)
            if keep_inside:
                arrived.inside[source] = gate_up, active
            del gate_up
            if source == own:
                own_active = active
            else:
                self.products.outputs(active, self.w2, offsets[source], out[source])
                group.collect_begin(out, home, source)
            del active
        if own_active is not None:
            self.products.outputs(own_active, self.w2, offsets[own], out[own])
        group.collect_end(out, home)
        arrived.sent.clear()
        return arrived if keep_inside else None

    def _products(self, arrived: Arrived, source: int) -> tuple[Tensor, Tensor]:
        """What the experts' products give between for the rows of one rank."""
        return self.products.gated(arrived.rows[source], self.w13, arrived.offsets[source])

    def _gradients(self, arrived: Arrived, dy: Tensor | None, routing: Routing | None) -> None:
        """Gradients of the experts' weights into the round's slots, and those of the rows from dy into its place."""
        rows, offsets, inside, sent = arrived
        group, own, sources = self._experts.group, self._experts.position, self._experts.sources()
        dys = rows.ctx.empty(rows.shape, rows.dtype)
        group.dispatch_begin(dy, None if routing is None else routing.offsets, dys, offsets, known=True)
        if own in sources:
            inside[own] = self._inner_gradients(arrived, dys, own)
        if sent:
            group.dispatch_end(rows, self._experts.last_source)
            sent.clear()
        for event in self._experts.round.events:
            if not isinstance(event, Run):
                self.add_up(event)
                continue
            source, beta = event.source, 1.0 if event.accumulate else 0.0
            if source != own:
                group.dispatch_end(dys, source)
                inside[source] = self._inner_gradients(arrived, dys, source)
            dgate_up, active = inside.pop(source)
            w13_grad, w2_grad = self._weight_gradients(event.slot)
            self.products.weight_gradient(dys[source], active, offsets[source], w2_grad, beta)
            del active
            self.products.weight_gradient(dgate_up, rows[source], offsets[source], w13_grad, beta)
            self.products.rows_gradient(dgate_up, self.w13, offsets[source], rows[source])
            del dgate_up
            if source != own:
                group.collect_begin(rows, dy, source)
        del dys
        group.collect_end(rows, dy)

    def _inner_gradients(self, arrived: Arrived, dys: Tensor, source: int) -> tuple[Tensor, Tensor]:
        """Of one rank's rows the gradients of what gate and up give, in their place, and what W2 took in."""
        gate_up, active = arrived.inside.pop(source, None) or self._products(arrived, source)
        self.products.inner_gradient(dys[source], self.w2, arrived.offsets[source], gate_up)
        return gate_up, active

    def add_up(self, event: Add | Rounding) -> None:
        """Carries out what becomes of sums in the round."""
        total = self._sum(event.slot)
        if isinstance(event, Add):
            kernels.add(total, self._sum(event.other), y=total)
        else:
            kernels.round(total, y=total, dtype=event.dtype)

    def _sum(self, slot: int) -> Tensor:
        """This layer's part of a slot."""
        slots = self._experts.round.slots
        assert slots is not None  # of a round with backward calls
        size = self.w13.size + self.w2.size
        return slots[slot].narrow(0, self._number * size, size)

    def _weight_gradients(self, slot: int) -> tuple[Tensor, Tensor]:
        both = self._sum(slot)
        w13, w2 = both.narrow(0, 0, self.w13.size), both.narrow(0, self.w13.size, self.w2.size)
        return w13.view(*self.w13.shape), w2.view(*self.w2.shape)
