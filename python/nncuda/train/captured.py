"""The kernel calls of a training step for one shape of batch: made from Python at first, then replayed as a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from .. import errors, kernels
from ..device import Comm, Graph
from ..layers import ExpertUse
from ..layers.expert_parallel import Add, Round, Rounding, Run
from ..models.transformer import Transformer
from .backward_sums import BackwardSums
from .expert_gradients import ExpertGradients
from .replicas import Replicas
from .scaling import LossScaling


class _MicroBatch(NamedTuple):
    """Where a micro-batch that this rank runs has its rows, and the partial sums of its loss."""

    start: int
    size: int
    piece: int
    pieces: int


class _Piece(NamedTuple):
    """What is run: a micro-batch, one of a guest's rounds where there are none, or a round with both. It stands for
    these micro-batches of this rank, and for so many `times`; only one it is, unless a plan asks what a step takes.
    `sums`: those of gradients over the ranks are begun in its backward pass."""

    micro_batches: list[int]
    round: Round | None
    times: int
    sums: bool


class CapturedStep:
    """What a step of this shape reads and writes, in memory that stays, and its calls.

    A first step runs call by call: whatever is made once (tables of the rotary embedding) is made there. The second is
    captured, and replayed from then on with the same bits: between its calls the host has nothing to do. When the
    library cannot capture it, `failure` is what it said, and the step continues call by call.

    With `scaling`, the gradients are those of the losses times its scale. Of `batch` sequences it takes the rows that
    the replicas of this rank have; `losses` and `aux` are those of all, which the ranks tell each other.
    """

    def __init__(
        self,
        model: Transformer,
        batch: int,
        length: int,
        micro: int,
        replicas: Replicas,
        comm: Comm | None,
        capture: bool,
        scaling: LossScaling | None = None,
        experts: ExpertGradients | None = None,
        each_kind: bool = False,
        sums: BackwardSums | None = None,
        has_documents: bool = False,
    ) -> None:
        """With `has_documents`, a step is told where those of its sequences end. `sums` brings the gradients to the
        ranks that update them. With `each_kind`, of micro-batches and rounds that make the same calls only the first is
        run."""
        ctx = model.ctx
        self._model = model
        self._capture = capture
        self._replicas = replicas
        self._backward_sums = sums
        self._comm = comm
        assert model.gradients is not None  # it trains
        self._gradients = model.gradients.data
        self._sizes = [min(micro, batch - start) for start in range(0, batch, micro)]
        pieces = [model.loss_pieces(size * length) for size in self._sizes]
        places = list(accumulate(pieces, initial=0))
        rows = replicas.micro_batches(len(self._sizes))
        starts = dict(zip(rows, accumulate((self._sizes[number] for number in rows), initial=0), strict=False))
        self._own = {  # in the order in which they run
            number: _MicroBatch(starts[number], self._sizes[number], places[number], pieces[number])
            for replica in replicas.own
            for number in range(replica, len(self._sizes), replicas.total)
        }
        self.shape = sum(one.size for one in self._own.values()), length
        self.has_documents = has_documents
        self._inputs, self._targets = ctx.empty(self.shape, "i32"), ctx.empty(self.shape, "i32")
        self._ends = ctx.empty(self.shape, "i32") if has_documents else None
        self._one = ctx.tensor(np.ones(1, np.float32))
        self.sizes = ctx.tensor(np.array(self._sizes, np.int32))
        self._loss_factor, self._aux_factors = ctx.empty((1,)), ctx.empty((len(self._sizes),))
        for at in range(len(self._sizes)):
            part = self.sizes.narrow(0, at, 1), self._aux_factors.narrow(0, at, 1)
            kernels.weighted_mean(self._one, part[0], y=part[1], divisor=batch)
        rounds = ((number, None) for number in self._own)
        if experts is not None:
            rounds = experts.rounds(model.config, self._sizes, length)
        self._pieces = [_Piece([] if own is None else [own], happens, 1, False) for own, happens in rounds]
        self._pieces[-1] = self._pieces[-1]._replace(sums=sums is not None)
        self._sums: list[tuple[Round, Add | Rounding, int]] = []
        if each_kind:
            self._keep_each_kind()
        self._scaling = scaling
        self._factors = self._loss_factor, self._aux_factors  # of the gradients
        if scaling is not None:
            self._factors = ctx.empty((1,)), ctx.empty((len(self._sizes),))
        self.losses, self.aux = ctx.empty((places[-1],)), ctx.empty((len(self._sizes),))
        self._runs = 0
        self._graph: Graph | None = None
        self.failure: str | None = None
        self._uses: list[ExpertUse] | None = None

    @property
    def captured(self) -> bool:
        """Whether the last step was replayed."""
        return self._graph is not None

    def run(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        ends: np.ndarray | None,
        tokens: int,
        update: Callable[[], None],
    ) -> None:
        """A step on ids, targets and perhaps ends of documents, int32 of this shape, `tokens` of which count; `update`
        is its last part."""
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
        if self._ends is not None and ends is not None:
            self._ends.copy_(ends)
        kernels.weighted_mean(self._one, y=self._loss_factor, divisor=tokens)
        self._runs += 1
        if self._graph is None and self._runs > 1 and self._capture:
            # Others may have run since, of other lengths: what is made once must not be made inside the graph.
            self._model.rope.tables(self.shape[1])
            self._model.rope.positions(max(self._sizes), self.shape[1])
            try:
                with self._model.ctx.capture() as graph:
                    self._calls()
                    update()
            except errors.Error as error:
                self.failure, self._capture = error.message, False
            else:
                self._graph = graph
                self._uses = self._model.expert_uses
        if self._graph is None:
            self._calls()
            update()
            return
        self._graph.launch()
        self._model.expert_uses = self._uses

    def _calls(self) -> None:
        self.aux.zero_()
        if self._comm is not None:
            self.losses.zero_()
        if self._scaling is not None:
            self._scaling.begin()
            self._scaling.scaled(self._loss_factor, self._factors[0])
            self._scaling.scaled(self._aux_factors, self._factors[1])
        if self._backward_sums is not None:
            self._backward_sums.start()
        for piece in self._pieces:
            self._run(piece)
            for number in piece.micro_batches:
                added = self._backward_sums is not None and self._is_last(number)
                if number + self._replicas.total >= len(self._sizes) and not added:
                    self._replicas.add(number % self._replicas.total, self._gradients)
        for happens, event, _ in self._sums:
            self._add_up(happens, event)
        if self._comm is not None:
            self._comm.all_reduce(self.losses)
            self._comm.all_reduce(self.aux)

    def _run(self, piece: _Piece) -> None:
        experts = self._model.experts
        with nullcontext() if experts is None or piece.round is None else experts.in_round(piece.round):
            completed = self._backward_sums.next if self._backward_sums is not None and piece.sums else None
            if piece.micro_batches:
                self._micro_batch(piece.micro_batches[0], completed)
            else:
                self._model.serve_forward_backward(completed)

    def _add_up(self, happens: Round, event: Add | Rounding) -> None:
        assert self._model.experts is not None  # as there are rounds
        with self._model.experts.in_round(happens):
            self._model.add_up(event)

    def _keep_each_kind(self) -> None:
        """Makes the first piece of a kind stand for all of them; what becomes of sums in rounds is kept apart. The kind
        of the last piece, which leaves something behind, stays the last."""
        kinds: dict[Hashable, _Piece] = {}
        sums: dict[type, tuple[Round, Add | Rounding, int]] = {}
        for piece in self._pieces:
            happens, runs = piece.round, ()
            if happens is not None:
                runs = tuple(event for event in happens.events if isinstance(event, Run))
                for event in happens.events:
                    if not isinstance(event, Run):
                        *first, times = sums.get(type(event), (happens, event, 0))
                        sums[type(event)] = *first, times + 1
                happens = happens._replace(events=runs)
            own = tuple((self._own[number].size, number >= self._replicas.total) for number in piece.micro_batches)
            kind = own, None if happens is None else happens.rows, tuple(run.accumulate for run in runs), piece.sums
            first = kinds.pop(kind, _Piece([], happens, 0, piece.sums))
            kinds[kind] = _Piece(first.micro_batches + piece.micro_batches, first.round, first.times + 1, piece.sums)
        self._pieces, self._sums = list(kinds.values()), list(sums.values())

    def left_out(self) -> Iterator[tuple[Callable[[], None], int]]:
        """With `each_kind`, calls that a step makes, and how many times more than they were run."""
        for piece in self._pieces:
            yield partial(self._run, piece), piece.times - 1
        for happens, event, times in self._sums:
            yield partial(self._add_up, happens, event), times - 1

    def _micro_batch(self, number: int, completed: Callable[[], None] | None) -> None:
        """Gradients of a micro-batch, added to those of its replica; `completed` as of `forward_backward`."""
        one = self._own[number]
        self._model.forward_backward(
            self._inputs.narrow(0, one.start, one.size),
            self._targets.narrow(0, one.start, one.size),
            self._factors[0],
            self._factors[1].narrow(0, number, 1),
            self.losses.narrow(0, one.piece, one.pieces),
            self.aux.narrow(0, number, 1),
            accumulate=number >= self._replicas.total,
            completed=completed,
            document_ends=None if self._ends is None else self._ends.narrow(0, one.start, one.size),
        )

    def _is_last(self, number: int) -> bool:
        """Whether a micro-batch is the last that this rank runs."""
        return number == next(reversed(self._own))
