"""One block: h = x + attention(norm(x)); out = h + moe(norm(h))."""

from __future__ import annotations

from ..tensor import Tensor
from .attention import Attention, KVCache
from .moe import MoELayer
from .norm import RMSNorm


class TransformerBlock:
    """Pre-norm attention and mixture of experts around the residual stream.

    Kept for backward: the block's input (which is the output of the block before), the stream between its two halves,
    the norms' outputs, and what the two halves keep. With `recompute` the input alone is kept, and `backward` finds the
    rest again, by the same calls. (Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4)
    """

    def __init__(self, input_norm: RMSNorm, attention: Attention, post_norm: RMSNorm, moe: MoELayer):
        self.input_norm = input_norm
        self.attention = attention
        self.post_norm = post_norm
        self.moe = moe
        self.recompute = False
        self._kept: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self._input: tuple[Tensor, int] | None = None  # of a block to recompute, with the capacity of its experts

    def forward(
        self, x: Tensor, batch: int, capacity: int = 0, aux: Tensor | None = None, keep: bool = False
    ) -> Tensor:
        """x [batch*length, hidden] to the same shape."""
        if keep and self.recompute:
            self._input = x, capacity
            keep = False
        middle, post_normed = self._attend(x, batch, keep)
        return self.moe.forward(post_normed, middle, capacity, aux, keep)

    def _attend(self, x: Tensor, batch: int, keep: bool) -> tuple[Tensor, Tensor]:
        """The stream behind attention, and its norm."""
        normed = self.input_norm.forward(x, keep)
        attended = self.attention.forward(normed, batch, keep)
        middle, post_normed = self.post_norm.forward_residual(attended, x, keep)
        if keep:
            self._kept = x, normed, middle, post_normed
        return middle, post_normed

    def backward(self, dout: Tensor, batch: int, aux_factor: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of the block's input from dout, both [batch*length, hidden]."""
        if self._input is not None:
            x, capacity = self._input
            self._input = None
            self.moe.forward_again(self._attend(x, batch, keep=True)[1], capacity)
        x, normed, middle, post_normed = self._kept
        self._kept = None
        dnormed = self.moe.backward(dout, post_normed, aux_factor, beta)
        del post_normed
        dmiddle = self.post_norm.backward(dnormed, middle, dout)
        del middle, dout
        dnormed = self.attention.backward(dmiddle, normed, batch, beta)
        return self.input_norm.backward(dnormed, x, dmiddle)

    def prefill(self, x: Tensor, cache: KVCache, layer: int, row: int) -> Tensor:
        """The next tokens of one sequence into row `row` of the cache, x [length, hidden]."""
        attended = self.attention.prefill(self.input_norm.forward(x), cache, layer, row)
        middle, normed = self.post_norm.forward_residual(attended, x)
        return self.moe.forward(normed, middle)

    def decode(self, x: Tensor, cache: KVCache, layer: int) -> Tensor:
        """One new token a sequence, x [batch, hidden]."""
        attended = self.attention.decode(self.input_norm.forward(x), cache, layer)
        middle, normed = self.post_norm.forward_residual(attended, x)
        return self.moe.forward(normed, middle)
