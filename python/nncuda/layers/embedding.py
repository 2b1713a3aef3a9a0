"""The token embedding."""

from __future__ import annotations

from .. import kernels
from ..device import Tensor


class Embedding:
    """Rows of a table [vocab, hidden]."""

    def __init__(self, weight: Tensor, grad: Tensor | None = None):
        self.weight = weight
        self.grad = grad

    def forward(self, ids: Tensor) -> Tensor:
        """ids i32 [tokens] to rows [tokens, hidden]."""
        return kernels.embedding(self.weight, ids)

    def backward(self, dy: Tensor, ids: Tensor) -> None:
        """Adds dy [tokens, hidden] to the rows of the gradient that were taken."""
        kernels.scatter_add(dy, ids, self.grad)
