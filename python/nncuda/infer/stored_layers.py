"""The products of a Llama's layers, dense or with experts: weights multiplied as their file has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..layers.attention import split_heads
from ..models.llama import LlamaConfig
from .biased_experts import BiasedExperts
from .divided_experts import DividedExperts
from .low_rank import Run, adapted_rows
from .watch import Watch
from .weight_reader import Weight
from .weights import Gated, Layer, Mixture, SharedExpert

#: Queries, keys and values, f32 [tokens, heads, head_dim] and twice [tokens, kv_heads, head_dim].
Heads: TypeAlias = tuple[Tensor, Tensor, Tensor]


class StoredLayers:
    """Runs what of a layer lies around its attention. Results lie in buffers made for `rows` tokens, so that no call
    allocates; x f32 [tokens, hidden] is the residual stream. `divided` has the experts where this rank has but some;
    `rank` is the largest of the adapters that weights may have, 0 without any. `runs` says which rows of the calls that
    follow have which adapter; rows that are in none have none."""

    def __init__(
        self, ctx: Context, config: LlamaConfig, rows: int, divided: DividedExperts | None = None, rank: int = 0
    ):
        self._ctx, self._config, self._divided = ctx, config, divided
        self._normed = ctx.empty((rows, config.hidden_size))
        self._qkv = ctx.empty((rows, (config.num_heads + 2 * config.num_kv_heads) * config.head_dim))
        experts, k = config.num_experts, config.experts_per_token
        slots = rows * k if experts else rows
        self.runs: Sequence[Run] = ()
        if rank:
            self._low_rank = ctx.empty((rows * rank,))
        if config.qk_norm != "none" or rank:
            widths = (config.num_heads, config.num_kv_heads, config.num_kv_heads, config.num_heads, config.num_kv_heads)
            self._apart = [ctx.empty((rows, heads * config.head_dim)) for heads in widths]
        if config.activation != "silu" or (rank and not experts):
            self._gate_up = [ctx.empty((rows, config.ffn_size)) for _ in range(2)]
        if not experts or divided is not None:
            self._inner = ctx.empty((slots, config.ffn_size))
        if config.post_norms:
            self._added = ctx.empty((rows, config.hidden_size))
        if config.biased_experts:
            self._biased = BiasedExperts(ctx, config, rows)
        elif experts:
            self._router = ctx.empty((rows, experts))
            self._probs = ctx.empty((rows, experts))
            self._weights = ctx.empty((rows, k))
            self._indices = ctx.empty((rows, k), "i32")
            self._slot_row = ctx.empty((rows, k), "i32")
            self._row_slot = ctx.empty((slots,), "i32")
            self._counts = ctx.empty((experts,), "i32")
            self._offsets = ctx.empty((experts + 1,), "i32")
        if config.shared_ffn_size:
            self._shared_inner = ctx.empty((rows, config.shared_ffn_size))
        if config.shared_gate:
            # A sigmoid is the softmax of a number beside 0: the expert's weight, and a slot that is dropped.
            self._shared_rows = ctx.empty((2 * rows, config.hidden_size))
            self._shared_logits, self._shared_weights = ctx.empty((rows, 2)), ctx.empty((rows, 2))
            slot_row = np.full((rows, 2), -1, np.int32)
            slot_row[:, 0] = np.arange(rows)
            self._shared_slot_row = ctx.tensor(slot_row)
        if divided is not None:
            self._gathered = ctx.empty((slots, config.hidden_size))

    def qkv(self, layer: Layer, x: Tensor, watch: Watch | None) -> Heads:
        """Queries, keys and values of the normed rows, f32 [tokens, heads or kv_heads, head_dim] each, the first two
        with norms of their own where the model has them."""
        if watch is not None:
            watch("attn_norm", self._norm(x, layer.input_norm))  # the fused product keeps no norm, and has these bits
        if layer.q_norm is not None and layer.k_norm is not None:
            return self._normed_heads(layer, layer.q_norm, layer.k_norm, x, watch)
        if self._adapted(x.shape[0], layer.q, layer.k, layer.v):
            q, k, v = (rows.view(len(rows), -1, self._config.head_dim) for rows in self._heads_apart(layer, x))
            return q, k, v
        qkv = self._qkv.narrow(0, 0, x.shape[0])
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
        return split_heads(qkv, self._config.num_heads, self._config.num_kv_heads)

    def _normed_heads(self, layer: Layer, q_norm: Tensor, k_norm: Tensor, x: Tensor, watch: Watch | None) -> Heads:
        config, tokens = self._config, x.shape[0]
        q, k, v = self._heads_apart(layer, x)
        q_normed, k_normed = (buffer.narrow(0, 0, tokens) for buffer in self._apart[3:])
        if watch is not None:
            watch("q_product", q)
            watch("k_product", k)
        for rows, gain, y in ((q, q_norm, q_normed), (k, k_norm, k_normed)):
            # Of each head by itself, or of all together: as many elements as there are gains.
            kernels.rmsnorm(rows.view(-1, gain.shape[0]), gain, eps=config.norm_eps, y=y.view(-1, gain.shape[0]))
        q, k, v = (rows.view(tokens, -1, config.head_dim) for rows in (q_normed, k_normed, v))
        return q, k, v

    def _heads_apart(self, layer: Layer, x: Tensor) -> Heads:
        """Queries, keys and values of the normed rows, by a call for each: f32 [tokens, heads * head_dim]."""
        normed = self._norm(x, layer.input_norm)
        products, first = [buffer.narrow(0, 0, x.shape[0]) for buffer in self._apart[:3]], 0
        for weight, y in zip((layer.q, layer.k, layer.v), products, strict=True):
            bias = None if layer.qkv_bias is None else layer.qkv_bias.narrow(0, first, y.shape[1])
            self._multiply(normed, weight, bias, None, y)
            first += y.shape[1]
        q, k, v = products
        return q, k, v

    def attended(self, layer: Layer, heads: Tensor, x: Tensor, watch: Watch | None) -> None:
        """x += the projection of what attention gave, f32 [tokens, heads * head_dim], normed where there is a norm."""
        self._scale(heads)
        self._add_product(heads, layer.o, layer.o_bias, x, "attn_output", watch, layer.attention_norm)

    def feed_forward(self, layer: Layer, x: Tensor, watch: Watch | None) -> None:
        """x += the feed-forward network, or the mixture of experts, of the normed rows."""
        if isinstance(layer.ffn, Mixture):
            self._mixture(layer.ffn, layer.post_norm, x, watch)
        else:
            self._gated(layer.ffn, layer.post_norm, x, watch, layer.ffn_norm)

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return kernels.rmsnorm(x, gain, eps=self._config.norm_eps, y=self._normed.narrow(0, 0, x.shape[0]))

    def _gated(self, ffn: Gated, gain: Tensor, x: Tensor, watch: Watch | None, norm: Tensor | None) -> None:
        inner = self._inner.narrow(0, 0, x.shape[0])
        if self._config.activation == "silu":
            self._swiglu(ffn, gain, x, inner, watch)
        else:
            self._geglu(ffn, gain, x, inner, watch)
        if watch is not None:
            watch("ffn_inner", inner)
        self._scale(inner)
        self._add_product(inner, ffn.down, None, x, "ffn", watch, norm)

    def _swiglu(self, ffn: Gated, gain: Tensor, x: Tensor, inner: Tensor, watch: Watch | None) -> None:
        gate, up = ffn.gate, ffn.up
        if self._adapted(x.shape[0], gate, up):
            normed, rows = self._norm(x, gain), [buffer.narrow(0, 0, x.shape[0]) for buffer in self._gate_up]
            for weight, y in zip((gate, up), rows, strict=True):
                self._multiply(normed, weight, None, None, y)
            kernels.swiglu(*rows, y=inner)
        else:
            kernels.gemm_quant_swiglu(
                x, gate.data, up.data, None, gain, eps=self._config.norm_eps, format_gate=gate.format,
                format_up=up.format, y=inner,
            )  # fmt: skip
        if watch is not None:
            # The fused product keeps neither the norm nor its factors; each row of these has the bits that it used.
            normed = self._norm(x, gain)
            watch("ffn_norm", normed)
            for name, weight in (("gate", gate), ("up", up)):
                watch(name, self._multiply(normed, weight, None, None, self._ctx.empty(inner.shape)))

    def _geglu(self, ffn: Gated, gain: Tensor, x: Tensor, inner: Tensor, watch: Watch | None) -> None:
        normed = self._norm(x, gain)
        gate, up = (buffer.narrow(0, 0, x.shape[0]) for buffer in self._gate_up)
        for weight, y in ((ffn.gate, gate), (ffn.up, up)):
            self._multiply(normed, weight, None, None, y)
        kernels.geglu(gate, up, y=inner)
        if watch is not None:
            for name, tensor in (("ffn_norm", normed), ("gate", gate), ("up", up)):
                watch(name, tensor)

    def _scale(self, rows: Tensor) -> None:
        """Multiplies what is added to the residual stream by the model's factor, before the last product."""
        if self._config.residual_scale != 1:
            kernels.scale(rows, alpha=self._config.residual_scale, y=rows)

    def _mixture(self, ffn: Mixture, gain: Tensor, x: Tensor, watch: Watch | None) -> None:
        """x += sum over each token's experts of weight * W2 (silu(W1 h) * (W3 h)), h the normed rows."""
        if ffn.biases is not None:
            self._biased.add(ffn, ffn.biases, self._norm(x, gain), x, watch)
            return
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

        self._scale(weights)
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
        if ffn.shared is not None:
            self._add_shared(ffn.shared, normed, x, watch)

    def _add_shared(self, shared: SharedExpert, normed: Tensor, x: Tensor, watch: Watch | None) -> None:
        """x += the expert that every token goes to, weighed by a sigmoid of the token where the model has it so."""
        tokens = x.shape[0]
        gate, up, down = shared.ffn.gate, shared.ffn.up, shared.ffn.down
        inner = self._shared_inner.narrow(0, 0, tokens)
        kernels.gemm_quant_swiglu(normed, gate.data, up.data, format_gate=gate.format, format_up=up.format, y=inner)
        self._scale(inner)
        if shared.gate is None:
            self._add_product(inner, down, None, x, "ffn_shared", watch)
            return
        out = self._shared_rows.narrow(0, 0, 2 * tokens)
        kernels.gemm_quant(inner, down.data, format=down.format, y=out.narrow(0, 0, tokens))
        logits, weights, slot_row = (
            buffer.narrow(0, 0, tokens) for buffer in (self._shared_logits, self._shared_weights, self._shared_slot_row)
        )
        kernels.gemm_quant(normed, shared.gate.data, format=shared.gate.format, y=logits)
        kernels.softmax(logits, y=weights)
        if watch is not None:
            watch("ffn_shared", out.narrow(0, 0, tokens))
            watch("ffn_shared_weights", weights)
        kernels.moe_combine(out, weights, slot_row, x, out=x)

    def _add_product(
        self,
        rows: Tensor,
        weight: Weight,
        bias: Tensor | None,
        x: Tensor,
        name: str,
        watch: Watch | None,
        norm: Tensor | None = None,
    ) -> None:
        """x += rows * W^T + bias, or a norm of that. Whoever watches is shown a product of their own: no other call
        changes."""
        if norm is not None:
            added = self._added.narrow(0, 0, x.shape[0])
            self._multiply(rows, weight, bias, None, added)
            if watch is not None:
                watch(name, added)
            kernels.rmsnorm(added, norm, eps=self._config.norm_eps, y=added)
            kernels.add(x, added, y=x)
            return
        if watch is not None:
            watch(name, self._multiply(rows, weight, bias, None, self._ctx.empty(x.shape)))
        self._multiply(rows, weight, bias, x, x)

    def _multiply(
        self, rows: Tensor, weight: Weight, bias: Tensor | None, residual: Tensor | None, y: Tensor
    ) -> Tensor:
        """y = rows * W^T + bias + residual, and what the adapters of the rows add."""
        kernels.gemm_quant(rows, weight.data, None, bias, residual, format=weight.format, y=y)
        for first, count, pair in adapted_rows(self.runs, weight.low_rank, 0, rows.shape[0]):
            pair.add(rows.narrow(0, first, count), self._low_rank, y.narrow(0, first, count))
        return y

    def _adapted(self, rows: int, *weights: Weight) -> bool:
        """Whether something is added to products of so many rows with these weights. Without, a call may fuse them: the
        bits are the same."""
        return any(any(adapted_rows(self.runs, weight.low_rank, 0, rows)) for weight in weights)
