"""Layers whose weights are -1, 0 and 1 times a number: made anew from their master weights whenever they are used, or
as they are, with an adapter beside them.

Activations are rounded to 8 bits row by row. Both roundings count as the identity in the backward direction: the
gradient of a product goes to the master weights as if it had taken them, with the rows and weights that it did take.
(Bengio, Léonard, Courville 2013, "Estimating or Propagating Gradients Through Stochastic Neurons", section 4; Ma et al.
2024, "The Era of 1-bit LLMs", section 2; Ma et al. 2025, "BitNet b1.58 2B4T Technical Report", section 2)
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import kernels
from ..device import Tensor
from ..formats.ternary import tern2_shape
from .dense import DenseKept, DenseLayer, gates
from .expert_products import halves
from .linear import FrozenLinear, LowRank
from .norm import RMSNorm


class TernaryLinear:
    """y = x W^T with the bits of the engine, of master weights f32 [out, in] with their gradient.

    The rows of several matrices may lie one below the other, `heights` of them each, with a scale each. With a `norm`
    rows are normed before they are rounded.
    """

    def __init__(
        self, weight: Tensor, grad: Tensor | None, heights: Sequence[int], norm: RMSNorm | None = None
    ) -> None:
        self.weight = weight
        self.grad = grad
        self.norm = norm
        self._heights = heights

    def forward(self, x: Tensor) -> Tensor:
        """x [rows, in] to y [rows, out]."""
        gain, eps = (None, 0.0) if self.norm is None else (self.norm.weight, self.norm.eps)
        return kernels.bitlinear_norm(x, gain, *self._rounded(), eps=eps)

    def backward(self, dy: Tensor, x: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x [rows, in] from dy [rows, out]. What the product made of both factors is made again: that takes
        little beside the products, and less memory. The master weights' gradient is added to `beta` times what is
        there."""
        normed, rstd = (x, None) if self.norm is None else self.norm.forward_keeping(x)
        taken = kernels.act_dequant_i8(*kernels.act_quant_i8(normed), dtype=x.dtype)
        del normed
        kernels.gemm_beta(dy, taken, self.grad, trans_a=True, beta=beta)
        del taken
        dnormed = kernels.bitlinear_backward(dy, *self._rounded(), k=x.shape[1])
        return dnormed if self.norm is None or rstd is None else self.norm.backward(dnormed, x, rstd)

    def _rounded(self) -> tuple[Tensor, Tensor]:
        """The weights of this moment, packed, and the scale of each output."""
        ctx, (rows, columns) = self.weight.ctx, self.weight.shape
        codes, scales = ctx.empty((rows, columns), "i8"), ctx.empty((len(self._heights), 1))
        owner = ctx.empty((rows,), "i32")  # which matrix an output is of
        first = 0
        for matrix, height in enumerate(self._heights):
            part, scale = codes.narrow(0, first, height), scales.narrow(0, matrix, 1).view(1)
            kernels.ternary_quantize(self.weight.narrow(0, first, height), codes=part, scale=scale)
            kernels.fill(y=owner.narrow(0, first, height), value=float(matrix))
            first += height
        stored, row_bytes = tern2_shape((rows, columns))
        packed = kernels.ternary_pack(codes, stored=stored, row_bytes=row_bytes)
        return packed, kernels.embedding(scales, owner).view(rows)


class FrozenTernary(FrozenLinear):
    """A `FrozenLinear` of weights that are ternary, packed u8 [stored, row_bytes] with a scale an output, f32 [out].
    What the adapter adds is of x as it is, before it is rounded for the other product."""

    def __init__(self, weight: Tensor, scale: Tensor, low_rank: LowRank | None = None):
        self.weight = weight
        self.scale = scale
        self.low_rank = low_rank

    def _product(self, x: Tensor, y: Tensor | None) -> Tensor:
        return kernels.bitlinear_norm(x, None, self.weight, self.scale, y=y)

    def _product_backward(self, dy: Tensor, dx: Tensor, beta: float) -> None:
        kernels.bitlinear_backward(dy, self.weight, self.scale, dx, beta=beta)


class NormedLinear:
    """A product with a norm of its rows before it: that of a BitNet's projections back to the stream. The norm is made
    again in the backward direction, where it takes little beside the product."""

    def __init__(self, norm: RMSNorm, product: FrozenLinear):
        self.norm = norm
        self.product = product

    def forward(self, x: Tensor) -> Tensor:
        """x [rows, in] to y [rows, out]."""
        return self.product.forward(self.norm.forward(x))

    def backward(self, dy: Tensor, x: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x [rows, in] from dy [rows, out]; `beta` as of `FrozenLinear.backward`."""
        normed, rstd = self.norm.forward_keeping(x)
        return self.norm.backward(self.product.backward(dy, normed, beta=beta), x, rstd)


class TernaryLayer(DenseLayer):
    """out = residual + W2 norm(max(W1 x, 0)^2 * (W3 x)), or silu(W1 x) in place of the squared ReLU.

    gate_up     the product with W1 and W3, one below the other, of rows that are normed
    down        that with W2, which has the norm
    """

    def __init__(self, gate_up: TernaryLinear, down: TernaryLinear, squared_relu: bool):
        self.gate_up = gate_up
        self.down = down
        self.recompute = False
        self._gate, self._gate_backward = gates(squared_relu)

    def _outputs(self, active: Tensor) -> Tensor:
        return self.down.forward(active)

    def _inside(self, x: Tensor) -> tuple[Tensor, ...]:
        gate_up = self.gate_up.forward(x)
        return gate_up, self._gate(*halves(gate_up))

    def backward(self, dout: Tensor, x: Tensor, kept: DenseKept, aux_factor: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself."""
        (inside,) = kept.take()
        gate_up, active = inside or self._inside(x)
        del inside
        dactive = self.down.backward(dout, active, beta)
        del active
        gate, up = halves(gate_up)
        self._gate_backward(dactive, gate, up, dgate=gate, dup=up)
        del dactive
        return self.gate_up.backward(gate_up, x, beta)
