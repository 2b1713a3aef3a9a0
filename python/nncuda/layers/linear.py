"""The linear layer without a bias."""

from __future__ import annotations

from .. import kernels
from ..device import Tensor


class Linear:
    """y = x W^T for a weight [out, in]."""

    def __init__(self, weight: Tensor, grad: Tensor | None = None):
        self.weight = weight
        self.grad = grad

    def forward(self, x: Tensor, y: Tensor | None = None, dtype: str | None = None) -> Tensor:
        """x [rows, in] to y [rows, out], which may be given; of x's dtype, or f32 when `dtype` says so."""
        return kernels.gemm(x, self.weight, trans_b=True, dtype_c=dtype, c=y)

    def backward(self, dy: Tensor, x: Tensor, dx: Tensor | None = None, beta: float = 1.0) -> Tensor:
        """Gradient of x [rows, in] from dy [rows, out]. dx may be x itself, whose values are then spent."""
        kernels.gemm_beta(dy, x, self.grad, trans_a=True, beta=beta)
        return kernels.gemm(dy, self.weight, c=dx)
