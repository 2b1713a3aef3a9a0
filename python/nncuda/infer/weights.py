"""The weights of a stored model as tensors of a context: on the CPU copied once or in place, on a GPU copied once.
Those of a model in memory are on its device already, where they are copied or used in place.

The copy on a CPU has the rows of q4_0, q8_0 and q6_k matrices side by side, as products read them fastest: the same
bytes, the same results to the bit. A table of embeddings, of which a token reads one row, stays as it is.

Pages of a file are of 4 KiB, the context's memory has pages of 2 MiB: decoding, which reads all weights a token, is a
fifth faster from those, and reading a file that the system holds in memory costs as much as some 30 tokens. In place, a
model may be larger than the memory, and programs that run the same file share it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

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
    "file" of a model in memory is its arena, in which the matrices of all experts must follow one another to be used in
    place: W2 does, W1 and W3 lie in pairs, since training multiplies with both at once, and are copied. Ternary weights
    are always packed into the context's memory, so of such a model this is about the embedding and the head alone.
    """

    def __init__(self, ctx: Context, model: StoredModel, place: str = "auto"):
        if place not in PLACES:
            raise ValueError(f"weights is {place!r}; it must be one of {', '.join(PLACES)}")
        elsewhere = ctx.device_type != exchange.CPU and model.arena is None
        fits = model.tensors.nbytes <= ctx.memory_info()[0] // 2
        self.in_memory = elsewhere or place == "memory" or (place == "auto" and fits)
        self._ctx = ctx
        self._tensors, self._arena = model.tensors, model.arena
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
        del self._tensors, self._arena
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
        (stored,) = self._tensors.parts(name)
        alone = tied and self._is_interleaved(stored)
        return Weight(self._ctx.from_numpy(stored.rows()) if alone else self._rows(name), stored.code)

    def _head(self) -> Weight:
        """The output matrix of a tied model: the table of embeddings, or its copy with rows side by side."""
        name = "model.embed_tokens.weight"
        return self._matrix(name) if self._is_interleaved(self._tensors.parts(name)[0]) else self.embedding

    def _is_interleaved(self, stored: StoredTensor) -> bool:
        """Whether a matrix, or each expert's, is copied with its rows side by side."""
        vectors = self._ctx.device_type == exchange.CPU and self._ctx.isa != INSTRUCTION_SETS[0]
        return vectors and self.in_memory and stored.code in INTERLEAVED and stored.shape[-2] % INTERLEAVED_ROWS == 0

    def _matrix(self, name: str) -> Weight:
        stored = self._tensors.parts(name)[0]
        if not self._is_interleaved(stored):
            return Weight(self._rows(name), stored.code)

        def interleave(rows: np.ndarray, place: Tensor) -> None:
            kernels.interleave_rows(self._ctx.from_numpy(rows), format=stored.code, k=stored.columns, y=place)

        return Weight(self._copied(name, interleave), INTERLEAVED[stored.code])

    def _vector(self, name: str) -> Tensor:
        """A norm's gain, or a bias, in f32."""
        return self._ctx.tensor(self._tensors[name].f32().ravel())

    def _rows(self, name: str) -> Tensor:
        """The rows of a matrix, of all experts one below the other: u8 [rows, row_bytes]."""
        whole = None if self.in_memory else self._in_place(name)
        return self._copied(name, lambda rows, place: place.copy_(rows)) if whole is None else whole

    def _in_place(self, name: str) -> Tensor | None:
        """They themselves; None of experts' that do not follow one another in an arena."""
        if self._arena is None:
            return self._ctx.from_numpy(self._tensors[name].rows())
        specs = [self._arena.layout[part.name] for part in self._tensors.parts(name)]
        if any(after.offset != before.offset + before.size for before, after in itertools.pairwise(specs)):
            return None
        rows = sum(spec.shape[0] for spec in specs)
        return self._arena.fused(specs[0].name, rows, *specs[0].shape[1:]).as_bytes()

    def _copied(self, name: str, copy: Callable[[Any, Tensor], object]) -> Tensor:
        """A copy, piece by piece; `copy` puts some rows into their place."""
        parts = self._tensors.parts(name)
        whole = self._ctx.empty((sum(len(part.rows()) for part in parts), parts[0].row_bytes), "u8")
        first = 0
        for part in parts:
            place = whole.narrow(0, first, len(part.rows()))
            first += len(place)
            if self._arena is not None:
                copy(self._arena[part.name].as_bytes(), place)
                continue
            for rows, there in _pieces(part.rows(), place):
                copy(rows, there)
        return whole


def _pieces(rows: np.ndarray, target: Tensor) -> Iterator[tuple[np.ndarray, Tensor]]:
    """A matrix of a file in pieces of whole groups of rows, each with its place in a copy. Behind a piece the file's
    pages are given back, so that they do not count besides the copy."""
    step = max(1, _PIECE // (INTERLEAVED_ROWS * rows.shape[1])) * INTERLEAVED_ROWS
    for first in range(0, len(rows), step):
        piece = rows[first : first + step]
        yield piece, target.narrow(0, first, len(piece))
        release(piece)
