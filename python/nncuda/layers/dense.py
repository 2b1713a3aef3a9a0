"""The feed-forward network of a dense model: one SwiGLU for all tokens, without a router."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from .expert_products import ExpertProducts
from .kept import Kept

#: Gate and up, together or each by itself, and what W2 takes in; None when `backward` is to find them again.
DenseKept = Kept[tuple[tuple[Tensor, ...] | None]]


def gates(squared_relu: bool) -> tuple[Callable[..., Tensor], Callable[..., object]]:
    """What makes gate and up one, and its backward: silu(gate) * up, or max(gate, 0)^2 * up."""
    if squared_relu:
        return kernels.relu2_gate, kernels.relu2_gate_backward
    return kernels.swiglu, kernels.swiglu_backward


class AllRows:
    """For products that run over experts: that all rows are of one, the first."""

    def __init__(self, ctx: Context):
        self._ctx = ctx
        self._offsets: dict[int, Tensor] = {}

    def offsets(self, rows: int) -> Tensor:
        """0 and the number of rows, i32 [2]; made once, so that a captured step finds it."""
        if rows not in self._offsets:
            self._offsets[rows] = self._ctx.tensor(np.array([0, rows], np.int32))
        return self._offsets[rows]


class DenseLayer:
    """out = residual + W2 (silu(W1 x) * (W3 x)). (Shazeer 2020, "GLU Variants", eq. 6)

    Weights: w13 [1, 2*ffn, hidden] with the rows of W1 before those of W3, w2 [1, hidden, ffn]: its products are those
    of a mixture with one expert, so that its precisions are theirs.

    With `recompute`, `backward` finds again, by the same calls, what the products give between.
    """

    def __init__(
        self,
        rows: AllRows,
        w13: Tensor,
        w2: Tensor,
        w13_grad: Tensor | None = None,
        w2_grad: Tensor | None = None,
        products: ExpertProducts | None = None,
    ):
        self.rows = rows
        self.w13 = w13
        self.w2 = w2
        self.w13_grad = w13_grad
        self.w2_grad = w2_grad
        self.products = ExpertProducts() if products is None else products
        self.recompute = False

    def forward(self, x: Tensor, residual: Tensor, capacity: int = 0, aux: Tensor | None = None) -> tuple[Tensor, None]:
        """x and residual [tokens, hidden] to the same shape. The rest is for layers of experts."""
        return self._run(x, residual)[0], None

    def forward_keeping(
        self, x: Tensor, residual: Tensor, capacity: int = 0, aux: Tensor | None = None
    ) -> tuple[Tensor, None, DenseKept]:
        """As `forward`, and what `backward` needs."""
        out, inside = self._run(x, residual)
        return out, None, Kept((None if self.recompute else inside,))

    def forward_again(self, x: Tensor, capacity: int) -> DenseKept:
        """All that `backward` needs of x, whose `forward` kept nothing."""
        return Kept((self._inside(x),))

    def _run(self, x: Tensor, residual: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        inside = self._inside(x)
        y = self._outputs(inside[-1])
        return kernels.add(y, residual, y=y), inside

    # What another kind of weights has of its own: these two, and backward.
    def _outputs(self, active: Tensor) -> Tensor:
        return self.products.outputs(active, self.w2, self.rows.offsets(active.shape[0]))

    def _inside(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.products.gated(x, self.w13, self.rows.offsets(x.shape[0]))

    def backward(self, dout: Tensor, x: Tensor, kept: DenseKept, aux_factor: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself."""
        (inside,) = kept.take()
        gate_up, active = inside or self._inside(x)
        del inside
        offsets = self.rows.offsets(x.shape[0])
        self.products.weight_gradient(dout, active, offsets, self.w2_grad, beta)
        del active
        self.products.inner_gradient(dout, self.w2, offsets, gate_up)
        self.products.weight_gradient(gate_up, x, offsets, self.w13_grad, beta)
        return self.products.rows_gradient(gate_up, self.w13, offsets, x.ctx.empty(x.shape, x.dtype))
