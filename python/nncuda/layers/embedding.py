"""The token embedding, trained or as it is stored."""

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


class FrozenEmbedding:
    """Rows of a table that stays as it is stored: u8 [vocab, row_bytes] in `format`, of `dim` numbers a row."""

    grad = None

    def __init__(self, weight: Tensor, format: int, dim: int):
        self.weight = weight
        self.format = format
        self.dim = dim

    def forward(self, ids: Tensor) -> Tensor:
        """ids i32 [tokens] to rows f32 [tokens, dim]."""
        return kernels.embedding_quant(self.weight, ids, format=self.format, dim=self.dim, dtype="f32")

    def backward(self, dy: Tensor, ids: Tensor) -> None:
        """Nothing: the table has no gradient."""
