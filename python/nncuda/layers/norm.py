"""RMSNorm, alone or with the residual sum before it."""

from __future__ import annotations

from .. import kernels
from ..device import Tensor


class RMSNorm:
    """y = x / sqrt(mean(x^2) + eps) * weight, row by row. (Zhang, Sennrich 2019, eq. 4)

    Kept for backward: the reciprocal of each row's root mean square, f32 [rows].
    """

    def __init__(self, weight: Tensor, grad: Tensor | None = None, eps: float = 1e-5):
        self.weight = weight
        self.grad = grad
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [rows, cols] to y."""
        return kernels.rmsnorm(x, self.weight, eps=self.eps)

    def forward_keeping(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """As `forward`, and what `backward` needs."""
        return kernels.rmsnorm(x, self.weight, eps=self.eps, rstd=True)

    def forward_residual(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The sum x + residual, which takes the place of x, and its norm."""
        return kernels.rmsnorm_residual(x, residual, self.weight, eps=self.eps, sum=x)

    def forward_residual_keeping(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `forward_residual`, and what `backward` needs."""
        return kernels.rmsnorm_residual(x, residual, self.weight, eps=self.eps, sum=x, rstd=True)

    def backward(self, dy: Tensor, x: Tensor, rstd: Tensor, dresidual: Tensor | None = None) -> Tensor:
        """Gradient of x, plus `dresidual` if given; it takes the place of dy."""
        kernels.rmsnorm_backward(dy, x, self.weight, rstd, dresidual, self.grad, dx=dy)
        return dy
