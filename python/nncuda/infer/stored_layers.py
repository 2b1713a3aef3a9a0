"""The products of a Llama's layers, dense or with experts: weights multiplied as their file has them."""

from __future__ import annotations

from .. import kernels
from ..device import Context, Tensor
from ..models.llama import LlamaConfig
from .divided_experts import DividedExperts, expert_products
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
            self._gathered = ctx.empty((slots, config.hidden_size))
            self._outputs = ctx.empty((slots, config.hidden_size))

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
            normed = self._norm(x, layer.post_norm)
            if watch is not None:
                watch("ffn_norm", normed)
            self._mixture(layer.ffn, normed, x, watch)
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

    def _mixture(self, ffn: Mixture, normed: Tensor, x: Tensor, watch: Watch | None) -> None:
        """x += sum over each token's experts of weight * W2 (silu(W1 h) * (W3 h)), h the normed rows."""
        config, tokens = self._config, x.shape[0]
        k, experts = config.experts_per_token, config.num_experts
        router, probs, weights, indices, slot_row = (
            buffer.narrow(0, 0, tokens)
            for buffer in (self._router, self._probs, self._weights, self._indices, self._slot_row)
        )
        row_slot, gathered, inner, outputs = (
            buffer.narrow(0, 0, tokens * k) for buffer in (self._row_slot, self._gathered, self._inner, self._outputs)
        )
        kernels.gemm_quant(normed, ffn.router.data, format=ffn.router.format, y=router)
        kernels.softmax_topk(router, k=k, norm=config.norm_topk_prob, weights=weights, indices=indices, probs=probs)
        kernels.moe_plan(
            indices, experts=experts, counts=self._counts, offsets=self._offsets, slot_row=slot_row, row_slot=row_slot
        )
        kernels.moe_gather(normed, row_slot, y=gathered)
        products = expert_products if self._divided is None else self._divided.products
        products(ffn.experts, gathered, self._offsets, inner, outputs)
        if watch is not None:
            for name, tensor in (("router", router), ("experts", indices), ("expert_weights", weights)):
                watch(name, tensor)
            zero = self._ctx.zeros(x.shape)
            watch("ffn", kernels.moe_combine(outputs, weights, slot_row, zero))
        kernels.moe_combine(outputs, weights, slot_row, x, out=x)

    def _add_product(
        self, rows: Tensor, weight: Weight, bias: Tensor | None, x: Tensor, name: str, watch: Watch | None
    ) -> None:
        """x += rows * W^T + bias. Whoever watches is shown a product of their own: no other call changes."""
        if watch is not None:
            product = self._ctx.empty(x.shape)
            watch(name, kernels.gemm_quant(rows, weight.data, None, bias, format=weight.format, y=product))
        kernels.gemm_quant(rows, weight.data, None, bias, x, format=weight.format, y=x)
