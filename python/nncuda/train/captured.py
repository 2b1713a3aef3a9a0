"""The kernel calls of a training step for one shape of batch: made from Python at first, then replayed as a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import errors, kernels
from ..device import Graph
from ..layers import ExpertUse
from ..models import MoETransformer
from .scaling import LossScaling


class CapturedStep:
    """What a step of this shape reads and writes, in memory that stays, and its calls.

    A first step runs call by call: whatever is made once (tables of the rotary embedding) is made there. The second is
    captured, and replayed from then on with the same bits: between its calls the host has nothing to do. When the
    library cannot capture it, `failure` is what it said, and the step continues call by call.

    With `scaling`, the gradients are those of the losses times its scale.
    """

    def __init__(
        self,
        model: MoETransformer,
        batch: int,
        length: int,
        micro: int,
        capture: bool,
        scaling: LossScaling | None = None,
    ) -> None:
        ctx = model.ctx
        self.shape = batch, length
        self._model = model
        self._capture = capture
        self._sizes = [min(micro, batch - start) for start in range(0, batch, micro)]
        self._pieces = [model.loss_pieces(size * length) for size in self._sizes]
        self._inputs, self._targets = ctx.empty(self.shape, "i32"), ctx.empty(self.shape, "i32")
        self._one = ctx.tensor(np.ones(1, np.float32))
        self.sizes = ctx.tensor(np.array(self._sizes, np.int32))
        self._loss_factor, self._aux_factors = ctx.empty((1,)), ctx.empty((len(self._sizes),))
        for at in range(len(self._sizes)):
            part = self.sizes.narrow(0, at, 1), self._aux_factors.narrow(0, at, 1)
            kernels.weighted_mean(self._one, part[0], y=part[1], divisor=batch)
        self._scaling = scaling
        if scaling is not None:
            self._scaled_loss_factor, self._scaled_aux_factors = ctx.empty((1,)), ctx.empty((len(self._sizes),))
        self.losses, self.aux = ctx.empty((sum(self._pieces),)), ctx.empty((len(self._sizes),))
        self._runs = 0
        self._graph: Graph | None = None
        self.failure: str | None = None
        self._uses: list[ExpertUse] | None = None

    @property
    def captured(self) -> bool:
        """Whether the last step was replayed."""
        return self._graph is not None

    def run(self, inputs: np.ndarray, targets: np.ndarray, tokens: int, update: Callable[[], None]) -> None:
        """A step on ids and targets, int32 of this shape, `tokens` of which count; `update` is its last part."""
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
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
        loss_factor, aux_factors = self._loss_factor, self._aux_factors
        if self._scaling is not None:
            self._scaling.begin()
            self._scaling.scaled(loss_factor, self._scaled_loss_factor)
            self._scaling.scaled(aux_factors, self._scaled_aux_factors)
            loss_factor, aux_factors = self._scaled_loss_factor, self._scaled_aux_factors
        start = piece = 0
        for index, (size, pieces) in enumerate(zip(self._sizes, self._pieces, strict=True)):
            self._model.forward_backward(
                self._inputs.narrow(0, start, size),
                self._targets.narrow(0, start, size),
                loss_factor,
                aux_factors.narrow(0, index, 1),
                self.losses.narrow(0, piece, pieces),
                self.aux.narrow(0, index, 1),
                accumulate=index > 0,
            )
            start, piece = start + size, piece + pieces
