"""The weights of a stored model as tensors of a context: on the CPU copied once or in place, on a GPU copied once.

The copy on a CPU has the rows of q4_0, q8_0 and q6_k matrices side by side, as products read them fastest: the same
bytes, the same results to the bit. A table of embeddings, of which a token reads one row, stays as it is.

Pages of a file are of 4 KiB, the context's memory has pages of 2 MiB: decoding, which reads all weights a token, is a
fifth faster from those, and reading a file that the system holds in memory costs as much as some 30 tokens. In place, a
model may be larger than the memory, and programs that run the same file share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import kernels
from ..binding import exchange
from ..device import INSTRUCTION_SETS, Context, Tensor
from ..formats.block_formats import INTERLEAVED, INTERLEAVED_ROWS
from ..formats.mapped import release
from .ternary_weights import TernaryLayer, ternary_layers

if TYPE_CHECKING:
    from ..formats.block_formats import StoredTensor
    from ..models.stored import StoredModel


#: Bytes of a file that are read before their pages are given back.
_PIECE = 1 << 24

#: Where the weights lie on a CPU.
PLACES = ("auto", "memory", "file")


class Weight(NamedTuple):
    """A stored matrix: u8 [rows, row_bytes] and its NNCUDA_FORMAT_*."""

    data: Tensor
    format: int

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


@dataclass(frozen=True)
class Gated:
    """A feed-forward network: down (silu(gate x) * (up x))."""

    gate: Weight
    up: Weight
    down: Weight


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts: the matrices of all experts, one below the other."""

    router: Weight
    w1: Weight
    w3: Weight
    w2: Weight


@dataclass(frozen=True)
class Layer:
    """A block's weights; the norms and the bias are f32."""

    input_norm: Tensor
    q: Weight
    k: Weight
    v: Weight
    qkv_bias: Tensor | None
    o: Weight
    o_bias: Tensor | None
    post_norm: Tensor
    ffn: Gated | Mixture

    @property
    def matrices(self) -> list[Weight]:
        ffn = self.ffn
        inner = [ffn.router, ffn.w1, ffn.w3, ffn.w2] if isinstance(ffn, Mixture) else [ffn.gate, ffn.up, ffn.down]
        return [self.q, self.k, self.v, self.o, *inner]


class Weights:
    """All weights of a model.

    `place` is "memory" (copied into the context's), "file" (the pages of the mapped file) or "auto": in memory unless
    that would take more than half of what is free. On a GPU they are in its memory. `in_memory` says what it came to.
    Ternary weights are always packed into the context's memory, so of such a model this is about the embedding and the
    head alone.
    """

    def __init__(self, ctx: Context, model: StoredModel, place: str = "auto"):
        if place not in PLACES:
            raise ValueError(f"weights is {place!r}; it must be one of {', '.join(PLACES)}")
        on_gpu = ctx.device_type != exchange.CPU
        fits = model.tensors.nbytes <= ctx.memory_info()[0] // 2
        self.in_memory = on_gpu or place == "memory" or (place == "auto" and fits)
        self._ctx = ctx
        self._tensors = model.tensors
        self._config = model.config
        tied = model.config.tie_embeddings
        self.embedding = self._table("model.embed_tokens.weight", tied)
        self.layers: list[Layer] | list[TernaryLayer]
        if model.config.ternary:
            self.layers = list(ternary_layers(ctx, model))
            ctx.trim()  # what was needed to pack them
        else:
            self.layers = [self._layer(f"model.layers.{number}") for number in range(model.config.num_layers)]
        self.norm = self._vector("model.norm.weight")
        self.head = self._head() if tied else self._matrix("lm_head.weight")
        del self._tensors
        mixtures = [layer.ffn for layer in self.layers if isinstance(layer, Layer) and isinstance(layer.ffn, Mixture)]
        self._expert_bytes = sum(w.data.nbytes for ffn in mixtures for w in (ffn.w1, ffn.w3, ffn.w2))
        every = sum(weight.nbytes for layer in self.layers for weight in layer.matrices)
        self._common_bytes = every - self._expert_bytes + self.head.data.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices, of a tied embedding once."""
        embedding = 0 if self._config.tie_embeddings else self.embedding.data.nbytes
        return self._common_bytes + self._expert_bytes + embedding

    def bytes_per_step(self, tokens: int) -> int:
        """Bytes that so many tokens need at least in one call: a row of the embedding each, and every matrix, of the
        experts' as many as the tokens meet if none meets another's."""
        config, embedding = self._config, self.embedding.data
        met = min(1.0, tokens * config.experts_per_token / config.num_experts) if config.num_experts else 0.0
        return self._common_bytes + int(met * self._expert_bytes) + tokens * embedding.shape[1]

    def _layer(self, block: str) -> Layer:
        attention, mixture, dense = f"{block}.self_attn", f"{block}.block_sparse_moe", f"{block}.mlp"
        qkv_bias = o_bias = None
        if self._config.attention_bias:
            parts = [self._tensors[f"{attention}.{name}_proj.bias"].f32().ravel() for name in "qkv"]
            qkv_bias = self._ctx.tensor(np.concatenate(parts))
            o_bias = self._vector(f"{attention}.o_proj.bias")
        ffn: Gated | Mixture
        if self._config.num_experts:
            names = ("gate", "w1", "w3", "w2")
            ffn = Mixture(*(self._matrix(f"{mixture}.{name}.weight") for name in names))
        else:
            ffn = Gated(*(self._matrix(f"{dense}.{name}_proj.weight") for name in ("gate", "up", "down")))
        return Layer(
            self._vector(f"{block}.input_layernorm.weight"),
            *(self._matrix(f"{attention}.{name}_proj.weight") for name in "qkv"),
            qkv_bias,
            self._matrix(f"{attention}.o_proj.weight"),
            o_bias,
            self._vector(f"{block}.post_attention_layernorm.weight"),
            ffn,
        )

    def _table(self, name: str, tied: bool) -> Weight:
        """The embeddings. Where a tied head is a copy with its rows side by side, they stay in the file: so little of
        them is read."""
        stored = self._tensors[name]
        alone = tied and self._is_interleaved(stored)
        return Weight(self._ctx.from_numpy(stored.rows()) if alone else self._bytes(stored), stored.code)

    def _head(self) -> Weight:
        """The output matrix of a tied model: the table of embeddings, or its copy with rows side by side."""
        name = "model.embed_tokens.weight"
        return self._matrix(name) if self._is_interleaved(self._tensors[name]) else self.embedding

    def _is_interleaved(self, stored: StoredTensor) -> bool:
        """Whether a matrix is copied with its rows side by side."""
        vectors = self._ctx.device_type == exchange.CPU and self._ctx.isa != INSTRUCTION_SETS[0]
        return vectors and self.in_memory and stored.code in INTERLEAVED and stored.shape[-2] % INTERLEAVED_ROWS == 0

    def _matrix(self, name: str) -> Weight:
        stored = self._tensors[name]
        if not self._is_interleaved(stored):
            return Weight(self._bytes(stored), stored.code)
        sides = self._ctx.empty(stored.rows().shape, "u8")
        for rows, place in _pieces(stored.rows(), sides):
            kernels.interleave_rows(self._ctx.from_numpy(rows), format=stored.code, k=stored.columns, y=place)
        return Weight(sides, INTERLEAVED[stored.code])

    def _vector(self, name: str) -> Tensor:
        """A norm's gain, or a bias, in f32."""
        return self._ctx.tensor(self._tensors[name].f32().ravel())

    def _bytes(self, stored: StoredTensor) -> Tensor:
        rows = stored.rows()
        if not self.in_memory:
            return self._ctx.from_numpy(rows)
        tensor = self._ctx.empty(rows.shape, "u8")
        for source, place in _pieces(rows, tensor):
            place.copy_(source)
        return tensor


def _pieces(rows: np.ndarray, target: Tensor) -> Iterator[tuple[np.ndarray, Tensor]]:
    """A matrix of a file in pieces of whole groups of rows, each with its place in a copy. Behind a piece the file's
    pages are given back, so that they do not count beside the copy."""
    step = max(1, _PIECE // (INTERLEAVED_ROWS * rows.shape[1])) * INTERLEAVED_ROWS
    for first in range(0, len(rows), step):
        piece = rows[first : first + step]
        yield piece, target.narrow(0, first, len(piece))
        release(piece)
