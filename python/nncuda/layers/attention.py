"""Causal self-attention with rotary embedding and shared key heads, in training and over a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..device import Tensor
from .kept import Kept
from .linear import FrozenLinear, Linear
from .norm import RMSNorm
from .rope import RopeTables
from .ternary import NormedLinear, TernaryLinear


class KVCache:
    """Keys and values of past tokens, one layer after the other, with room for `capacity` tokens per sequence, and all
    else that running a model over them needs from step to step.

    starts     i32 [batch] on the device: the tokens of each sequence, which is the position of its next one
    lengths    i32 [batch] on the device: starts + 1, what the next token looks at, itself included
    used       the tokens of each sequence as the host knows them, so that it need not read them back

    The rotary embedding's tables are the cache's own, so that sequences of any length can be run in turns.
    """

    def __init__(
        self, rope: RopeTables, num_layers: int, batch: int, capacity: int, num_kv_heads: int, dtype: str = "f32"
    ):
        ctx, shape = rope.ctx, (batch, capacity, num_kv_heads, rope.head_dim)
        self.keys = [ctx.empty(shape, dtype) for _ in range(num_layers)]
        self.values = [ctx.empty(shape, dtype) for _ in range(num_layers)]
        self.capacity = capacity
        self.used = [0] * batch
        self._counters = ctx.tensor(np.repeat(np.array([[0], [1]], np.int32), batch, axis=1))
        self.starts, self.lengths = (self._counters.narrow(0, row, 1).view(batch) for row in (0, 1))
        self.cosine, self.sine = rope.tables(capacity)
        self.positions = ctx.tensor(np.arange(capacity, dtype=np.int32))

    def require_room(self, tokens: int, row: int | None = None) -> None:
        """ValueError when so many more tokens of one sequence, or of each, do not fit."""
        for at in self._rows(row):
            if self.used[at] + tokens > self.capacity:
                raise ValueError(
                    f"sequence {at} would have {self.used[at] + tokens} tokens; the cache has room for {self.capacity}"
                )

    def advance(self, tokens: int, row: int | None = None) -> None:
        """Counts tokens that are in the cache now: on the device, where a graph can capture it, and on the host."""
        if row is None:
            kernels.increment(self._counters, by=tokens)
        else:
            for counter in (self.starts, self.lengths):
                kernels.increment(counter.narrow(0, row, 1), by=tokens)
        self.count(tokens, row)

    def count(self, tokens: int, row: int | None = None) -> None:
        """The host's part of `advance`, for when a graph did the device's."""
        for at in self._rows(row):
            self.used[at] += tokens

    def _rows(self, row: int | None) -> Sequence[int]:
        return range(len(self.used)) if row is None else (row,)


def split_heads(qkv: Tensor, num_heads: int, num_kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views of the queries, keys and values in their common product, [tokens, heads, head_dim] each."""
    tokens, dim = qkv.shape[0], qkv.shape[1] // (num_heads + 2 * num_kv_heads)
    q_width, kv_width = num_heads * dim, num_kv_heads * dim
    q = qkv.narrow(1, 0, q_width).view(tokens, num_heads, dim)
    k = qkv.narrow(1, q_width, kv_width).view(tokens, num_kv_heads, dim)
    v = qkv.narrow(1, q_width + kv_width, kv_width).view(tokens, num_kv_heads, dim)
    return q, k, v


class Documents(NamedTuple):
    """Where the documents of packed sequences begin, so that none sees another.

    starts     i32 [batch, length]: the first token of each token's document
    positions  i32 [batch*length]: how far each token is from there, which is where its rotation begins
    """

    starts: Tensor
    positions: Tensor

    @classmethod
    def ended_by(cls, separator: int, ids: Tensor, batch: int) -> Documents:
        """Those of ids i32 [batch*length], each of which ends with the separator."""
        starts, positions = kernels.document_starts(ids.view(batch, -1), separator=separator)
        return cls(starts, positions.view(-1))


#: Queries, keys and values as they were rotated, what attention gives, its log-sum-exp, and of `HeadNorms` what they
#: keep.
AttentionKept = Kept[tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor, tuple[Tensor, ...]]]


#: Of queries, keys and values.
HeadProducts = tuple[Linear, Linear, Linear] | tuple[FrozenLinear, FrozenLinear, FrozenLinear]


class Heads:
    """Queries, keys and values by products of their own: each weight may be stored in a form of its own, and have an
    adapter."""

    def __init__(self, products: HeadProducts, head_dim: int):
        self.products = products
        self.head_dim = head_dim

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [tokens, hidden] to q, k, v [tokens, heads, head_dim]."""
        q, k, v = (self._by_token(x, product.forward(x)) for product in self.products)
        return q, k, v

    def forward_keeping(self, x: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, ...]]:
        """As `forward`, and what `backward` needs beside x."""
        return self.forward(x), ()

    def backward(self, dq: Tensor, dk: Tensor, dv: Tensor, x: Tensor, kept: tuple[Tensor, ...], beta: float) -> Tensor:
        """Gradient of x from those of q, k and v, which are spent."""
        dx = self.products[0].backward(dq.view(x.shape[0], -1), x, beta=beta)
        self.products[1].backward(dk.view(x.shape[0], -1), x, dx, beta, add=True)
        return self.products[2].backward(dv.view(x.shape[0], -1), x, dx, beta, add=True)

    def _by_token(self, x: Tensor, part: Tensor) -> Tensor:
        return part.view(x.shape[0], -1, self.head_dim)


class HeadNorms(Heads):
    """The same with queries and keys normed head by head, as in Qwen3; `norms`, of both, have gains [head_dim]."""

    def __init__(self, products: HeadProducts, norms: tuple[RMSNorm, RMSNorm], head_dim: int):
        super().__init__(products, head_dim)
        self.norms = norms

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [tokens, hidden] to q, k, v [tokens, heads, head_dim]."""
        q, k, v = (product.forward(x).view(-1, self.head_dim) for product in self.products)
        q, k = (norm.forward(part) for norm, part in zip(self.norms, (q, k), strict=True))
        return self._by_token(x, q), self._by_token(x, k), self._by_token(x, v)

    def forward_keeping(self, x: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, ...]]:
        """As `forward`, and what `backward` needs: queries and keys before their norms, and of each norm its own."""
        q, k, v = (product.forward(x).view(-1, self.head_dim) for product in self.products)
        (normed_q, rstd_q), (normed_k, rstd_k) = self.norms[0].forward_keeping(q), self.norms[1].forward_keeping(k)
        parts = self._by_token(x, normed_q), self._by_token(x, normed_k), self._by_token(x, v)
        return parts, (q, rstd_q, k, rstd_k)

    def backward(self, dq: Tensor, dk: Tensor, dv: Tensor, x: Tensor, kept: tuple[Tensor, ...], beta: float) -> Tensor:
        """Gradient of x from those of q, k and v, which are spent."""
        q, rstd_q, k, rstd_k = kept
        self.norms[0].backward(dq.view(-1, self.head_dim), q, rstd_q)
        self.norms[1].backward(dk.view(-1, self.head_dim), k, rstd_k)
        return super().backward(dq, dk, dv, x, (), beta)


class Attention:
    """out = softmax(q k^T / sqrt(head_dim)) v, through W_o; q, k, v come from one product with W_qkv.

    Weights: qkv [(num_heads + 2 num_kv_heads) * head_dim, hidden], which may have a bias, output [hidden, num_heads *
    head_dim]. With `Heads` in place of the product each has its own, with `HeadNorms` the former two are normed before
    they are rotated.
    (Vaswani et al. 2017, eq. 1; Shazeer 2019, multi-query; Su et al. 2021, rotary)
    """

    def __init__(
        self,
        qkv: Linear | TernaryLinear | Heads,
        output: Linear | FrozenLinear | NormedLinear | TernaryLinear,
        rope: RopeTables,
        num_heads: int,
        num_kv_heads: int,
    ):
        self.qkv = qkv
        self.output = output
        self.rope = rope
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads

    def forward(self, x: Tensor, batch: int, documents: Documents | None = None) -> Tensor:
        """x [batch*length, hidden], sequences one after the other, to the same shape."""
        return self.forward_keeping(x, batch, documents)[0]

    def forward_keeping(
        self, x: Tensor, batch: int, documents: Documents | None = None
    ) -> tuple[Tensor, AttentionKept]:
        """As `forward`, and what `backward` needs."""
        length = x.shape[0] // batch
        if isinstance(self.qkv, Heads):
            (q, k, v), of_norms = self.qkv.forward_keeping(x)
        else:
            (q, k, v), of_norms = self._split(self.qkv.forward(x)), ()
        cosine, sine = self.rope.tables(length)
        starts, positions = documents or (None, self.rope.positions(batch, length))
        kernels.rope_qk(q, k, cosine, sine, positions)
        heads, lse = kernels.flash_attention(
            q, k, v, starts, lse=True, batch=batch, q_len=length, kv_len=length, causal=True
        )
        heads = heads.view(x.shape[0], -1)
        return self.output.forward(heads), Kept(((q, k, v), heads, lse, of_norms))

    def backward(
        self,
        dy: Tensor,
        x: Tensor,
        kept: AttentionKept,
        batch: int,
        beta: float = 1.0,
        documents: Documents | None = None,
    ) -> Tensor:
        """Gradient of x from dy, both [batch*length, hidden]; `documents` as in the forward call."""
        (q, k, v), heads, lse, of_norms = kept.take()
        rows, length = x.shape[0], x.shape[0] // batch
        dheads = self.output.backward(dy, heads, beta=beta)
        if isinstance(self.qkv, Heads):
            dq, dk, dv = (x.ctx.empty(part.shape, part.dtype) for part in (q, k, v))
        else:
            dqkv = x.ctx.empty((rows, (self.num_heads + 2 * self.num_kv_heads) * self.rope.head_dim), x.dtype)
            dq, dk, dv = self._split(dqkv)
        shape = (rows, self.num_heads, self.rope.head_dim)
        starts, positions = documents or (None, self.rope.positions(batch, length))
        kernels.flash_attention_backward(
            dheads.view(*shape), q, k, v, heads.view(*shape), lse, starts, dq=dq, dk=dk, dv=dv, causal=True
        )
        cosine, sine = self.rope.tables(length)
        kernels.rope_backward(dq, cosine, sine, positions, dx=dq)
        kernels.rope_backward(dk, cosine, sine, positions, dx=dk)
        if isinstance(self.qkv, Heads):
            return self.qkv.backward(dq, dk, dv, x, of_norms, beta)
        return self.qkv.backward(dqkv, x, beta=beta)

    def prefill(self, x: Tensor, cache: KVCache, layer: int, row: int) -> Tensor:
        """As forward for the next tokens of one sequence, x [length, hidden], which follow those in row `row`."""
        length, before = x.shape[0], cache.used[row]
        q, k, v = self._project(x)
        kernels.rope_qk(q, k, cache.cosine, cache.sine, cache.positions.narrow(0, before, length))
        keys, values = (cached[layer].narrow(0, row, 1) for cached in (cache.keys, cache.values))
        kernels.kv_append(k, v, cache.starts.narrow(0, row, 1), keys, values)
        if before > 0:
            k, v = (cached.view(*cached.shape[1:]).narrow(0, 0, before + length) for cached in (keys, values))
        heads = kernels.flash_attention(q, k, v, batch=1, q_len=length, kv_len=before + length, causal=True)
        return self.output.forward(heads.view(length, -1))

    def decode(self, x: Tensor, cache: KVCache, layer: int) -> Tensor:
        """One new token a sequence, x [batch, hidden]."""
        q, k, v = self._project(x)
        kernels.rope_qk(q, k, cache.cosine, cache.sine, cache.starts)
        keys, values = cache.keys[layer], cache.values[layer]
        kernels.kv_append(k, v, cache.starts, keys, values)
        heads = kernels.attention_decode(q, keys, values, cache.lengths)
        return self.output.forward(heads.view(x.shape[0], -1))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.qkv.forward(x) if isinstance(self.qkv, Heads) else self._split(self.qkv.forward(x))

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return split_heads(qkv, self.num_heads, self.num_kv_heads)
