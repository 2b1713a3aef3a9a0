"""The products of a BitNet's layers: activations in 8 bits times weights -1, 0 and 1.

Each row is normed and rounded to 8 bits by its largest magnitude before a product, whose integers are exact. (Ma et al.
2025, "BitNet b1.58 2B4T Technical Report", section 2) What adapters add takes the normed rows before they are rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import kernels
from ..device import Context, Tensor
from ..layers.attention import split_heads
from ..models.llama import LlamaConfig
from .low_rank import Run, adapted_rows
from .stored_layers import Heads
from .ternary_weights import TernaryLayer, TernaryWeight
from .watch import Watch

#: Rows that the feed-forward network takes at a time: its inner width is several times that of the residual stream, and
#: more rows would only need more memory.
_FFN_ROWS = 128


class TernaryLayers:
    """As `StoredLayers`, of a model with ternary weights."""

    def __init__(self, ctx: Context, config: LlamaConfig, rows: int, rank: int = 0):
        self._ctx, self._config = ctx, config
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        ffn_rows = min(rows, _FFN_ROWS)
        self._qkv = ctx.empty((rows, queries + 2 * keys))
        self._gate_up = ctx.empty((ffn_rows, 2 * config.ffn_size))
        self._inner = ctx.empty((ffn_rows, config.ffn_size))
        self._gate = kernels.relu2_gate if config.activation == "relu2" else kernels.swiglu
        self.runs: Sequence[Run] = ()
        if rank:
            self._low_rank = ctx.empty((rows * rank,))
            self._heads_apart = [ctx.empty((rows, width)) for width in (queries, keys, keys)]
            self._gate_up_apart = [ctx.empty((ffn_rows, config.ffn_size)) for _ in range(2)]
            self._normed = ctx.empty((max(rows * max(config.hidden_size, queries), ffn_rows * config.ffn_size),))

    def qkv(self, layer: TernaryLayer, x: Tensor, watch: Watch | None) -> Heads:
        """Queries, keys and values of the normed rows, f32 [tokens, heads or kv_heads, head_dim] each."""
        tokens, config = x.shape[0], self._config
        self._show_rounded(x, layer.input_norm, "attn_norm", watch)
        if len(layer.qkv) == 1:
            qkv = self._qkv.narrow(0, 0, tokens)
            self._product(x, layer.input_norm, layer.qkv[0], qkv)
            return split_heads(qkv, config.num_heads, config.num_kv_heads)
        normed = self._norm(x, layer.input_norm)
        q, k, v = (
            self._product(normed, None, weight, y.narrow(0, 0, tokens)).view(tokens, -1, config.head_dim)
            for weight, y in zip(layer.qkv, self._heads_apart, strict=True)
        )
        return q, k, v

    def attended(self, layer: TernaryLayer, heads: Tensor, x: Tensor, watch: Watch | None) -> None:
        """x += the projection of what attention gave, f32 [tokens, heads * head_dim], normed and rounded."""
        self._show_rounded(heads, layer.attention_norm, "attn_sub_norm", watch)
        self._add_product(heads, layer.attention_norm, layer.o, x, "attn_output", watch)

    def feed_forward(self, layer: TernaryLayer, x: Tensor, watch: Watch | None) -> None:
        """x += the feed-forward network of the normed rows."""
        for first in range(0, x.shape[0], _FFN_ROWS):
            self._feed_forward(layer, x.narrow(0, first, min(_FFN_ROWS, x.shape[0] - first)), first, watch)

    def _feed_forward(self, layer: TernaryLayer, x: Tensor, first: int, watch: Watch | None) -> None:
        tokens, width = x.shape[0], self._config.ffn_size
        self._show_rounded(x, layer.post_norm, "ffn_norm", watch)
        inner = self._inner.narrow(0, 0, tokens)
        if len(layer.gate_up) == 1:
            both = self._gate_up.narrow(0, 0, tokens)
            self._product(x, layer.post_norm, layer.gate_up[0], both)
            gate, up = both.narrow(1, 0, width), both.narrow(1, width, width)
        else:
            normed = self._norm(x, layer.post_norm)
            gate, up = (
                self._product(normed, None, weight, y.narrow(0, 0, tokens), first=first)
                for weight, y in zip(layer.gate_up, self._gate_up_apart, strict=True)
            )
        self._gate(gate, up, y=inner)
        if watch is not None:
            for name, tensor in (("gate", gate), ("up", up), ("ffn_inner", inner)):
                watch(name, tensor)
        self._show_rounded(inner, layer.ffn_norm, "ffn_sub_norm", watch)
        self._add_product(inner, layer.ffn_norm, layer.down, x, "ffn", watch, first)

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        """The normed rows, until the next are; as a product has them that norms its rows itself."""
        y = self._normed.narrow(0, 0, x.size).view(*x.shape)
        return kernels.rmsnorm(x, gain, eps=self._config.norm_eps, y=y)

    def _product(
        self,
        x: Tensor,
        gain: Tensor | None,
        weight: TernaryWeight,
        y: Tensor,
        residual: Tensor | None = None,
        first: int = 0,
    ) -> Tensor:
        """y = the product of the rows, normed where there is a gain and rounded, + residual, and what the adapters of
        the rows add, of which x begins with row `first` of the call."""
        adapted = list(adapted_rows(self.runs, weight.low_rank, first, x.shape[0]))
        if adapted and gain is not None:
            x, gain = self._norm(x, gain), None
        kernels.bitlinear_norm(x, gain, weight.data, weight.scale, residual, eps=self._config.norm_eps, y=y)
        for begin, rows, pair in adapted:
            pair.add(x.narrow(0, begin, rows), self._low_rank, y.narrow(0, begin, rows))
        return y

    def _show_rounded(self, x: Tensor, gain: Tensor | None, name: str, watch: Watch | None) -> None:
        """Shows whoever watches what a product makes of its rows and keeps to itself, with the bits that it uses: the
        norm, codes i8 [tokens, width] and scales f32 [tokens]."""
        if watch is None:
            return
        if gain is None:
            codes, scale = kernels.act_quant_i8(x)
        else:
            eps = self._config.norm_eps
            watch(name, kernels.rmsnorm(x, gain, eps=eps))
            codes, scale = kernels.rmsnorm_quant_i8(x, gain, eps=eps)
        watch(f"{name}_codes", codes)
        watch(f"{name}_scale", scale)

    def _add_product(
        self,
        rows: Tensor,
        gain: Tensor | None,
        weight: TernaryWeight,
        x: Tensor,
        name: str,
        watch: Watch | None,
        first: int = 0,
    ) -> None:
        """x += the product. Whoever watches is shown one of their own: no other call changes."""
        if watch is not None:
            watch(name, self._product(rows, gain, weight, self._ctx.empty(x.shape), None, first))
        self._product(rows, gain, weight, x, x, first)
