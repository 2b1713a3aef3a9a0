"""The linear layer, and one whose weight stays as it is stored, with an adapter beside it."""

from __future__ import annotations

from .. import kernels
from ..device import Tensor


class Linear:
    """y = x W^T, or x W^T + b, for a weight [out, in] and a bias [out]."""

    def __init__(
        self,
        weight: Tensor,
        grad: Tensor | None = None,
        bias: Tensor | None = None,
        bias_grad: Tensor | None = None,
    ):
        self.weight = weight
        self.grad = grad
        self.bias = bias
        self.bias_grad = bias_grad

    def forward(self, x: Tensor, y: Tensor | None = None, dtype: str | None = None) -> Tensor:
        """x [rows, in] to y [rows, out], which may be given; of x's dtype, or, without a bias, f32 when `dtype` says
        so."""
        if self.bias is not None:
            return kernels.gemm_epilogue(x, self.weight, self.bias, c=y)
        return kernels.gemm(x, self.weight, trans_b=True, dtype_c=dtype, c=y)

    def backward(self, dy: Tensor, x: Tensor, dx: Tensor | None = None, beta: float = 1.0, add: bool = False) -> Tensor:
        """Gradient of x [rows, in] from dy [rows, out]. dx may be x itself, whose values are then spent; with `add` the
        gradient is added to what is there.

        The weight's gradient is added to `beta` times what is there, the bias's always to what is there, as gains' are.
        """
        kernels.gemm_beta(dy, x, self.grad, trans_a=True, beta=beta)
        if self.bias_grad is not None:
            ones = x.ctx.empty((1, dy.shape[0]), dy.dtype)  # a product with which adds columns up, in f32
            kernels.fill(y=ones.view(-1), value=1.0)
            kernels.gemm_beta(ones, dy, self.bias_grad.view(1, -1), beta=1.0)
            del ones
        return kernels.gemm_beta(dy, self.weight, dx, beta=1.0) if add else kernels.gemm(dy, self.weight, c=dx)


class LowRank:
    """What is trained beside a weight [out, in]: a f32 [rank, in] and b f32 [out, rank], whose product, times `scale`,
    is added to it. (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)"""

    def __init__(self, a: Tensor, b: Tensor, scale: float, a_grad: Tensor | None = None, b_grad: Tensor | None = None):
        self.a, self.b, self.scale = a, b, scale
        self.a_grad, self.b_grad = a_grad, b_grad

    def add(self, x: Tensor, y: Tensor) -> None:
        """y += scale (x A^T) B^T."""
        kernels.gemm_beta(self._inner(x), self.b, y, alpha=self.scale, beta=1.0, trans_b=True)

    def backward(self, dy: Tensor, x: Tensor, beta: float) -> Tensor:
        """To the gradients of both, times `beta`, those of this call; gives scale (dy B) [rows, rank], whose product
        with A is the gradient of x. What A makes of x is found again: little work for much memory."""
        kernels.gemm_beta(dy, self._inner(x), self.b_grad, alpha=self.scale, trans_a=True, beta=beta)
        dinner = kernels.gemm_beta(dy, self.b, alpha=self.scale)
        kernels.gemm_beta(dinner, x, self.a_grad, trans_a=True, beta=beta)
        return dinner

    def _inner(self, x: Tensor) -> Tensor:
        return kernels.gemm(x, self.a, trans_b=True)


class FrozenLinear:
    """y = x W^T, or x W^T + b, and what an adapter adds, for a weight that stays as it is stored: u8 [out, row_bytes]
    in `format`. x, y and the bias are f32. Only the adapter has gradients.

    The product is that of the engine, which for some formats rounds x, so that an adapter is trained for the model as
    it is run; backward takes that rounding as the identity. (Bengio, Léonard, Courville 2013, "Estimating or
    Propagating Gradients Through Stochastic Neurons", section 4)"""

    def __init__(self, weight: Tensor, format: int, bias: Tensor | None = None, low_rank: LowRank | None = None):
        self.weight = weight
        self.format = format
        self.bias = bias
        self.low_rank = low_rank

    def forward(self, x: Tensor, y: Tensor | None = None, dtype: str | None = None) -> Tensor:
        """x [rows, in] to y [rows, out], which may be given."""
        y = self._product(x, y)
        if self.low_rank is not None:
            self.low_rank.add(x, y)
        return y

    def backward(self, dy: Tensor, x: Tensor, dx: Tensor | None = None, beta: float = 1.0, add: bool = False) -> Tensor:
        """As `Linear.backward`; the weight and the bias have no gradients."""
        dinner = None if self.low_rank is None else self.low_rank.backward(dy, x, beta)
        dx = x.ctx.empty(x.shape, x.dtype) if dx is None else dx
        self._product_backward(dy, dx, 1.0 if add else 0.0)
        if self.low_rank is not None and dinner is not None:
            kernels.gemm_beta(dinner, self.low_rank.a, dx, beta=1.0)
        return dx

    # What another kind of weights has of its own: these two.
    def _product(self, x: Tensor, y: Tensor | None) -> Tensor:
        y = x.ctx.empty((x.shape[0], self.weight.shape[0]), x.dtype) if y is None else y
        return kernels.gemm_quant(x, self.weight, None, self.bias, format=self.format, y=y)

    def _product_backward(self, dy: Tensor, dx: Tensor, beta: float) -> None:
        """dx = dy W + beta dx."""
        kernels.gemm_quant_backward(dy, self.weight, None, dx, format=self.format, beta=beta)
