"""A mixture whose router and experts have biases and clipped gates, as gpt-oss has it.

Its steps are calls of their own: the fused ones have neither biases nor bounds.
"""

from __future__ import annotations

from .. import kernels
from ..device import Context, Tensor
from ..models.llama import LlamaConfig
from .watch import Watch
from .weights import ExpertBiases, Mixture


class BiasedExperts:
    """Runs such mixtures. Results lie in buffers made for `rows` tokens."""

    def __init__(self, ctx: Context, config: LlamaConfig, rows: int):
        experts, k = config.num_experts, config.experts_per_token
        self._ctx, self._k, self._norm = ctx, k, config.norm_topk_prob
        self._router, self._probs = (ctx.empty((rows, experts)) for _ in range(2))
        self._weights = ctx.empty((rows, k))
        self._indices, self._slot_row = (ctx.empty((rows, k), "i32") for _ in range(2))
        self._row_slot = ctx.empty((rows * k,), "i32")
        self._counts, self._offsets = ctx.empty((experts,), "i32"), ctx.empty((experts + 1,), "i32")
        self._rows = ctx.empty((rows * k, config.hidden_size))
        self._gate, self._up, self._inner = (ctx.empty((rows * k, config.ffn_size)) for _ in range(3))

    def add(self, ffn: Mixture, biases: ExpertBiases, normed: Tensor, x: Tensor, watch: Watch | None) -> None:
        """x += the sum over each token's experts of weight * (W2 (g sigmoid(1.702 g) (u + 1)) + b2), where g and u are
        W1 h + b1 and W3 h + b3, bounded by 7, and h f32 [tokens, hidden] the normed rows. A token's weights are the
        softmax of the router's largest logits. (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.3)"""
        tokens = x.shape[0]
        logits, probs, weights, indices, slot_row = (
            buffer.narrow(0, 0, tokens)
            for buffer in (self._router, self._probs, self._weights, self._indices, self._slot_row)
        )
        row_slot, rows, gate, up, inner = (
            buffer.narrow(0, 0, tokens * self._k)
            for buffer in (self._row_slot, self._rows, self._gate, self._up, self._inner)
        )
        kernels.gemm_quant(normed, ffn.router.data, None, biases.router, format=ffn.router.format, y=logits)
        # The softmax of all logits, divided by the sum of the largest: that of these alone.
        kernels.moe_route(
            logits, normed, k=self._k, norm=self._norm, weights=weights, indices=indices, probs=probs,
            counts=self._counts, offsets=self._offsets, slot_row=slot_row, row_slot=row_slot, y=rows,
        )  # fmt: skip
        w1, w3, w2 = ffn.experts
        for weight, bias, y in ((w1, biases.w1, gate), (w3, biases.w3, up)):
            kernels.gemm_quant(rows, weight.data, self._offsets, format=weight.format, y=y)
            kernels.grouped_bias(y, bias, self._offsets, y=y)
        kernels.swiglu_clipped(gate, up, y=inner)
        kernels.gemm_quant(inner, w2.data, self._offsets, format=w2.format, y=rows)
        kernels.grouped_bias(rows, biases.w2, self._offsets, y=rows)
        if watch is not None:
            shown = {"ffn_norm": normed, "router": logits, "experts": indices, "expert_weights": weights}
            for name, tensor in shown.items():
                watch(name, tensor)
            watch("ffn", kernels.moe_combine(rows, weights, slot_row, None, out=self._ctx.empty(x.shape)))
        kernels.moe_combine(rows, weights, slot_row, x, out=x)
