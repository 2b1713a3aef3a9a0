"""The products of a Llama's layers, dense or with experts: weights multiplied as their file has them."""

from __future__ import annotations

from .. import kernels
from ..device import Context, Tensor
from ..models.llama import LlamaConfig
from .divided_experts import DividedExperts
from .watch import Watch
from .weight_reader import Weight
from .weights import Gated, Layer, Mixture


class StoredLayers:
    """Runs what of a layer lies around its attention. Results lie in buffers made for `rows` tokens, so that no call
    allocates; x f32 [tokens, hidden] is the residual stream. `divided` has the experts where this rank has but some."""

    def __init__(self, ctx: Context, config: LlamaConfig, rows: int, divided: DividedExperts | None = None):
        self._ctx, self._config, self._divided = ctx, config, divided
        self._normed = ctx.empty((rows, config.hidden_size))
        self._qkv = ctx.empty((rows, (config.num_heads + 2 * config.num_kv_heads) * config.head_dim))
        experts, k = config.num_experts, config.experts_per_token
        slots = rows * k if experts else rows
        if not experts or divided is not None:
            self._inner = ctx.empty((slots, config.ffn_size))
        if experts:
            self._router = ctx.empty((rows, experts))
            self._probs = ctx.empty((rows, experts))
            self._weights = ctx.empty((rows, k))
            self._indices = ctx.empty((rows, k), "i32")
            self._slot_row = ctx.empty((rows, k), "i32")
            self._row_slot = ctx.empty((slots,), "i32")
            self._counts = ctx.empty((experts,), "i32")
            self._offsets = ctx.empty((experts + 1,), "i32")
        if divided is not None:
            self._gathered = ctx.empty((slots, config.hidden_size))

    def qkv(self, layer: Layer, x: Tensor, watch: Watch | None) -> Tensor:
        """Queries, keys and values of the normed rows, side by side: f32 [tokens, (heads + 2 kv_heads) * head_dim]."""
        qkv = self._qkv.narrow(0, 0, x.shape[0])
        if watch is not None:
            watch("attn_norm", self._norm(x, layer.input_norm))  # the fused product keeps no norm, and has these bits
        kernels.gemm_quant_qkv(
            x,
            layer.q.data,
            layer.k.data,
            layer.v.data,
            layer.qkv_bias,
            layer.input_norm,
            eps=self._config.norm_eps,
            format_q=layer.q.format,
            format_k=layer.k.format,
            format_v=layer.v.format,
            y=qkv,
        )
        return qkv

    def attended(self, layer: Layer, heads: Tensor, x: Tensor, watch: Watch | None) -> None:
        """x += the projection of what attention gave, f32 [tokens, heads * head_dim]."""
        self._add_product(heads, layer.o, layer.o_bias, x, "attn_output", watch)

    def feed_forward(self, layer: Layer, x: Tensor, watch: Watch | None) -> None:
        """x += the feed-forward network, or the mixture of experts, of the normed rows."""
        if isinstance(layer.ffn, Mixture):
            self._mixture(layer.ffn, layer.post_norm, x, watch)
        else:
            self._gated(layer.ffn, layer.post_norm, x, watch)

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return kernels.rmsnorm(x, gain, eps=self._config.norm_eps, y=self._normed.narrow(0, 0, x.shape[0]))

    def _gated(self, ffn: Gated, gain: Tensor, x: Tensor, watch: Watch | None) -> None:
        inner = self._inner.narrow(0, 0, x.shape[0])
        gate, up = ffn.gate, ffn.up
        kernels.gemm_quant_swiglu(
            x, gate.data, up.data, None, gain, eps=self._config.norm_eps, format_gate=gate.format, format_up=up.format,
            y=inner,
        )  # fmt: skip
        if watch is not None:
            # The fused product keeps neither the norm nor its factors; each row of these has the bits that it used.
            normed = self._norm(x, gain)
            watch("ffn_norm", normed)
            for name, weight in (("gate", gate), ("up", up)):
                y = self._ctx.empty(inner.shape)
                watch(name, kernels.gemm_quant(normed, weight.data, format=weight.format, y=y))
            watch("ffn_inner", inner)
        self._add_product(inner, ffn.down, None, x, "ffn", watch)

    def _mixture(self, ffn: Mixture, gain: Tensor, x: Tensor, watch: Watch | None) -> None:
        """x += sum over each token's experts of weight * W2 (silu(W1 h) * (W3 h)), h the normed rows."""
        config, tokens = self._config, x.shape[0]
        k = config.experts_per_token
        normed, router, probs, weights, indices, slot_row = (
            buffer.narrow(0, 0, tokens)
            for buffer in (self._normed, self._router, self._probs, self._weights, self._indices, self._slot_row)
        )
        row_slot = self._row_slot.narrow(0, 0, tokens * k)
        kernels.gemm_quant_route(
            x, gain, ffn.router.data, k=k, eps=config.norm_eps, norm=config.norm_topk_prob, format=ffn.router.format,
            y=normed, logits=router, weights=weights, indices=indices, probs=probs, counts=self._counts,
            offsets=self._offsets, slot_row=slot_row, row_slot=row_slot,
        )  # fmt: skip

        w1, w3, w2 = ffn.experts
        rows = None
        if self._divided is not None:
            rows, inner = (buffer.narrow(0, 0, tokens * k) for buffer in (self._gathered, self._inner))
            kernels.moe_gather(normed, row_slot, y=rows)
            self._divided.products(ffn.experts, rows, self._offsets, inner, rows)

        def add_experts(residual: Tensor | None, out: Tensor) -> Tensor:
            if rows is not None:
                return kernels.moe_combine(rows, weights, slot_row, residual, out=out)
            return kernels.gemm_quant_experts(
                normed, w1.data, w3.data, w2.data, weights, self._offsets, slot_row, row_slot, residual,
                format_gate=w1.format, format_up=w3.format, format_down=w2.format, y=out,
            )  # fmt: skip

        if watch is not None:
            shown = {"ffn_norm": normed, "router": router, "experts": indices, "expert_weights": weights}
            for name, tensor in shown.items():
                watch(name, tensor)
            watch("ffn", add_experts(None, self._ctx.empty(x.shape)))
        add_experts(x, x)

    def _add_product(
        self, rows: Tensor, weight: Weight, bias: Tensor | None, x: Tensor, name: str, watch: Watch | None
    ) -> None:
        """x += rows * W^T + bias. Whoever watches is shown a product of their own: no other call changes."""
        if watch is not None:
            product = self._ctx.empty(x.shape)
            watch(name, kernels.gemm_quant(rows, weight.data, None, bias, format=weight.format, y=product))
        kernels.gemm_quant(rows, weight.data, None, bias, x, format=weight.format, y=x)
