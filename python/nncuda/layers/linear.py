"""The linear layer."""

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
