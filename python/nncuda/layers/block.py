"""One block: h = x + attention(norm(x)); out = h + moe(norm(h)), or a dense network in place of the mixture."""

from __future__ import annotations

from typing import NamedTuple

from ..device import Tensor
from .attention import Attention, AttentionKept, Documents, KVCache
from .dense import DenseKept, DenseLayer
from .expert_parallel import Add, Arrived, ParallelMoELayer, Rounding
from .kept import Kept
from .moe import ExpertUse, MoEKept, MoELayer
from .norm import RMSNorm


class Attended(NamedTuple):
    """The stream between the two halves of a block, and what else its first half leaves for backward."""

    normed: Tensor
    rstd: Tensor
    attention: AttentionKept
    middle: Tensor
    post_normed: Tensor
    post_rstd: Tensor


class Again(NamedTuple):
    """What finds the rest again: the capacity that the experts had."""

    capacity: int


#: The block's input, which is the output of the block before, and the rest, unless `backward` is to find that again.
BlockKept = Kept[tuple[Tensor, tuple[Attended, MoEKept | DenseKept] | Again]]


class TransformerBlock:
    """Pre-norm attention and mixture of experts, or dense network, around the residual stream.

    With `recompute` a block keeps its input alone, and `backward` finds the rest again, by the same calls.
    (Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4) `name` is what a trace calls it.
    """

    def __init__(
        self, name: str, input_norm: RMSNorm, attention: Attention, post_norm: RMSNorm, moe: MoELayer | DenseLayer
    ):
        self._halves = f"{name}.self_attn", f"{name}.{'mlp' if isinstance(moe, DenseLayer) else 'block_sparse_moe'}"
        self.input_norm = input_norm
        self.attention = attention
        self.post_norm = post_norm
        self.moe = moe
        self.recompute = False

    def forward(
        self,
        x: Tensor,
        batch: int,
        capacity: int = 0,
        aux: Tensor | None = None,
        documents: Documents | None = None,
    ) -> tuple[Tensor, ExpertUse | None]:
        """x [batch*length, hidden] to the same shape, and how the experts were used; see `MoELayer.forward`."""
        x.ctx.label(self._halves[0])
        attended = self.attention.forward(self.input_norm.forward(x), batch, documents)
        return self._mix(attended, x, capacity, aux)

    def _mix(
        self, attended: Tensor, x: Tensor, capacity: int = 0, aux: Tensor | None = None
    ) -> tuple[Tensor, ExpertUse | None]:
        x.ctx.label(self._halves[1])
        middle, normed = self.post_norm.forward_residual(attended, x)
        return self.moe.forward(normed, middle, capacity, aux)

    def forward_keeping(
        self, x: Tensor, batch: int, capacity: int, aux: Tensor, documents: Documents | None = None
    ) -> tuple[Tensor, ExpertUse | None, BlockKept]:
        """As `forward`, with what `backward` needs."""
        if self.recompute:
            return *self.forward(x, batch, capacity, aux, documents), Kept((x, Again(capacity)))
        attended = self._attend(x, batch, documents)
        out, use, moe = self.moe.forward_keeping(attended.post_normed, attended.middle, capacity, aux)
        return out, use, Kept((x, (attended, moe)))

    def _attend(self, x: Tensor, batch: int, documents: Documents | None) -> Attended:
        x.ctx.label(self._halves[0])
        normed, rstd = self.input_norm.forward_keeping(x)
        attended, attention = self.attention.forward_keeping(normed, batch, documents)
        x.ctx.label(self._halves[1])
        middle, post_normed, post_rstd = self.post_norm.forward_residual_keeping(attended, x)
        return Attended(normed, rstd, attention, middle, post_normed, post_rstd)

    def backward(
        self,
        dout: Tensor,
        kept: BlockKept,
        batch: int,
        aux_factor: Tensor,
        beta: float = 1.0,
        documents: Documents | None = None,
    ) -> Tensor:
        """Gradient of the block's input from dout, both [batch*length, hidden]; `documents` as in the forward call."""
        x, rest = kept.take()
        if isinstance(rest, Again):
            attended = self._attend(x, batch, documents)
            moe = self.moe.forward_again(attended.post_normed, rest.capacity)
        else:
            attended, moe = rest
        normed, rstd, attention, middle, post_normed, post_rstd = attended
        del attended, rest
        x.ctx.label(f"backward of {self._halves[1]}")
        dnormed = self.moe.backward(dout, post_normed, moe, aux_factor, beta)
        del post_normed
        dmiddle = self.post_norm.backward(dnormed, middle, post_rstd, dout)
        del middle, post_rstd, dout
        x.ctx.label(f"backward of {self._halves[0]}")
        dnormed = self.attention.backward(dmiddle, normed, attention, batch, beta, documents)
        return self.input_norm.backward(dnormed, x, rstd, dmiddle)

    # On a rank that computes for others with the experts that it holds, while they run this block.

    def serve_forward(self, keeping: bool = False) -> Arrived | None:
        """While others run `forward`, or, `keeping`, `forward_keeping`: with what `serve_backward` takes."""
        return self._serving.serve_forward(keeping and not self.recompute and not self.moe.recompute)

    def serve_backward(self, arrived: Arrived | None) -> None:
        """While others run `backward`."""
        self._serving.serve_backward(self._serving.serve_forward(True) if self.recompute else arrived)

    def add_up(self, event: Add | Rounding) -> None:
        """Carries out what becomes of sums of the experts' gradients in a round."""
        self._serving.add_up(event)

    @property
    def _serving(self) -> ParallelMoELayer:
        assert isinstance(self.moe, ParallelMoELayer)  # or nobody else needs the experts
        return self.moe

    def prefill(self, x: Tensor, cache: KVCache, layer: int, row: int) -> Tensor:
        """The next tokens of one sequence into row `row` of the cache, x [length, hidden]."""
        x.ctx.label(self._halves[0])
        return self._mix(self.attention.prefill(self.input_norm.forward(x), cache, layer, row), x)[0]

    def decode(self, x: Tensor, cache: KVCache, layer: int) -> Tensor:
        """One new token a sequence, x [batch, hidden]."""
        x.ctx.label(self._halves[0])
        return self._mix(self.attention.decode(self.input_norm.forward(x), cache, layer), x)[0]
