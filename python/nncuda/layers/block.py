"""One block: h = x + attention(norm(x)); out = h + moe(norm(h))."""

from __future__ import annotations

from ..tensor import Tensor
from .attention import Attention, KVCache
from .moe import MoELayer
from .norm import RMSNorm


class TransformerBlock:
    """Pre-norm attention and mixture of experts around the residual stream.

    Kept for backward: the block's input (held by the caller anyway, as the output of the block before), the stream
    between its two halves, and what the two halves keep. The norms' outputs are made again: a pass over memory costs
    less than the memory they would take.
    """

    def __init__(self, input_norm: RMSNorm, attention: Attention, post_norm: RMSNorm, moe: MoELayer):
        self.input_norm = input_norm
        self.attention = attention
        self.post_norm = post_norm
        self.moe = moe
        self._kept: tuple[Tensor, Tensor] | None = None

    def forward(
        self, x: Tensor, batch: int, capacity: int = 0, aux: Tensor | None = None, keep: bool = False
    ) -> Tensor:
        """x [batch*length, hidden] to the same shape."""
        attended = self.attention.forward(self.input_norm.forward(x), batch, keep)
        middle, normed = self.post_norm.forward_residual(attended, x)
        if keep:
            self._kept = x, middle
        return self.moe.forward(normed, middle, capacity, aux, keep)

    def backward(self, dout: Tensor, batch: int, aux_scale: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of the block's input from dout, both [batch*length, hidden]."""
        x, middle = self._kept
        self._kept = None
        normed = self.post_norm.forward(middle, keep=True)
        dnormed = self.moe.backward(dout, normed, aux_scale, beta)
        del normed
        dmiddle = self.post_norm.backward(dnormed, middle, dout)
        del middle, dout
        normed = self.input_norm.forward(x, keep=True)
        dnormed = self.attention.backward(dmiddle, normed, batch, beta)
        return self.input_norm.backward(dnormed, x, dmiddle)

    def prefill(self, x: Tensor, cache: KVCache, layer: int, row: int) -> Tensor:
        """One sequence into row `row` of an empty cache, x [length, hidden]."""
        attended = self.attention.prefill(self.input_norm.forward(x), cache, layer, row)
        middle, normed = self.post_norm.forward_residual(attended, x)
        return self.moe.forward(normed, middle)

    def decode(self, x: Tensor, cache: KVCache, layer: int, starts: Tensor, lengths: Tensor) -> Tensor:
        """One new token a sequence, x [batch, hidden]."""
        attended = self.attention.decode(self.input_norm.forward(x), cache, layer, starts, lengths)
        middle, normed = self.post_norm.forward_residual(attended, x)
        return self.moe.forward(normed, middle)
