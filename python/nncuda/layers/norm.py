"""RMSNorm, alone or with the residual sum before it."""

from __future__ import annotations

from .. import kernels
from ..tensor import Tensor


class RMSNorm:
    """y = x / sqrt(mean(x^2) + eps) * weight, row by row. (Zhang, Sennrich 2019, eq. 4)"""

    def __init__(self, weight: Tensor, grad: Tensor | None = None, eps: float = 1e-5):
        self.weight = weight
        self.grad = grad
        self.eps = eps
        self._rstd: Tensor | None = None

    def forward(self, x: Tensor, keep: bool = False) -> Tensor:
        """x [rows, cols] to y; `keep` prepares for backward."""
        if not keep:
            return kernels.rmsnorm(x, self.weight, eps=self.eps)
        y, self._rstd = kernels.rmsnorm(x, self.weight, eps=self.eps, rstd=True)
        return y

    def forward_residual(self, x: Tensor, residual: Tensor, keep: bool = False) -> tuple[Tensor, Tensor]:
        """The sum x + residual, which takes the place of x, and its norm."""
        if not keep:
            return kernels.rmsnorm_residual(x, residual, self.weight, eps=self.eps, sum=x)
        total, y, self._rstd = kernels.rmsnorm_residual(x, residual, self.weight, eps=self.eps, sum=x, rstd=True)
        return total, y

    def backward(self, dy: Tensor, x: Tensor, dresidual: Tensor | None = None) -> Tensor:
        """Gradient of x, plus `dresidual` if given; it takes the place of dy."""
        kernels.rmsnorm_backward(dy, x, self.weight, self._rstd, dresidual, self.grad, dx=dy)
        self._rstd = None
        return dy
