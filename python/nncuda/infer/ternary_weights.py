"""The weights of a model with ternary weights: packed as products read them, whatever form the files have.

Matrices that are multiplied with the same rows are one, packed again with a scale an output, unless an adapter is
beside one of them. One matrix at a time is packed, while a thread decodes the next, and the file's pages are given back
after it, so that loading takes less memory than running.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..device import Context, Tensor
from ..models.packed import codes_to_pack, packed

if TYPE_CHECKING:
    from ..models.stored import StoredModel
    from .low_rank import Adapters, LowRank

#: The matrices of a layer as they are read: those of each product together.
_READ = (("self_attn.q", "self_attn.k", "self_attn.v"), ("self_attn.o",), ("mlp.gate", "mlp.up"), ("mlp.down",))


class TernaryWeight(NamedTuple):
    """A matrix from `kernels.ternary_pack`, u8 [stored, row_bytes], the scale of each of its outputs, f32 [n], and what
    each adapter adds to its product, by number; empty where none does."""

    data: Tensor
    scale: Tensor
    low_rank: tuple[LowRank | None, ...] = ()

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.scale.nbytes


@dataclass(frozen=True)
class TernaryLayer:
    """A block's weights. `qkv` and `gate_up` are one matrix, with those of these one below the other, or each by
    itself, where one of them has an adapter; the norms are f32, and those before `o` and `down` None in a model that
    lacks them."""

    input_norm: Tensor
    qkv: tuple[TernaryWeight, ...]
    attention_norm: Tensor | None
    o: TernaryWeight
    post_norm: Tensor
    gate_up: tuple[TernaryWeight, ...]
    ffn_norm: Tensor | None
    down: TernaryWeight

    @property
    def matrices(self) -> list[TernaryWeight]:
        return [*self.qkv, self.o, *self.gate_up, self.down]


def ternary_layers(ctx: Context, model: StoredModel, adapters: Adapters) -> Iterator[TernaryLayer]:
    """The layers of a model, one after the other. FormatError for a matrix whose bytes are wrong."""

    def vector(name: str) -> Tensor:
        return ctx.tensor(model.tensors[f"{name}.weight"].f32().ravel())

    def block(number: int) -> str:
        return f"model.layers.{number}"

    layers = [
        [_as_one([f"{block(number)}.{name}_proj.weight" for name in names], adapters) for names in _READ]
        for number in range(model.config.num_layers)
    ]
    with ThreadPoolExecutor(1) as beside:
        weights = _packed(
            ctx, model, adapters, [one for layer in layers for product in layer for one in product], beside
        )
        for number, products in enumerate(layers):
            qkv, (o,), gate_up, (down,) = (tuple(itertools.islice(weights, len(product))) for product in products)
            attention, ffn = f"{block(number)}.self_attn", f"{block(number)}.mlp"
            yield TernaryLayer(
                input_norm=vector(f"{block(number)}.input_layernorm"),
                qkv=qkv,
                attention_norm=vector(f"{attention}.attn_sub_norm") if model.config.sub_norms else None,
                o=o,
                post_norm=vector(f"{block(number)}.post_attention_layernorm"),
                gate_up=gate_up,
                ffn_norm=vector(f"{ffn}.ffn_sub_norm") if model.config.sub_norms else None,
                down=down,
            )


def _as_one(names: list[str], adapters: Adapters) -> list[list[str]]:
    """Which of the matrices that are multiplied with the same rows are packed as one: all, or none with another."""
    return [[name] for name in names] if any(adapters.of(name) for name in names) else [names]


def _packed(
    ctx: Context, model: StoredModel, adapters: Adapters, groups: Sequence[list[str]], beside: Executor
) -> Iterator[TernaryWeight]:
    """The weights of all layers, each of the matrices of one group; while one matrix is packed, the next is decoded."""
    matrices = [model.ternary(name) for names in groups for name in names]
    ahead = [beside.submit(codes_to_pack, matrices[0])] if matrices else []

    def decoded(at: int) -> np.ndarray | None:
        codes = ahead.pop().result()
        if at + 1 < len(matrices):
            ahead.append(beside.submit(codes_to_pack, matrices[at + 1]))
        return codes

    at = 0
    for names in groups:
        end = at + len(names)
        weight = packed(ctx, matrices[at:end], map(decoded, range(at, end)))
        yield TernaryWeight(*weight, adapters.of(names[0]) if len(names) == 1 else ())
        at = end
