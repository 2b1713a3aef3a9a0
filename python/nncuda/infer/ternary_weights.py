"""The weights of a model with ternary weights: packed as products read them, whatever form the files have.

They are always copied: matrices that are multiplied with the same rows are one, packed again with a scale an output.
One matrix at a time is read, and the file's pages are given back behind it, so that loading takes hardly more memory
than running.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import kernels
from ..binding import exchange
from ..context import Context
from ..errors import OutOfRangeError
from ..formats.mapped import release
from ..formats.ternary import TernaryMatrix, tern2_shape
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..models.stored import StoredModel

#: Rows that lie side by side in a packed matrix; matrices of whole such groups are packed on their own.
_SIDE = 16


class TernaryWeight(NamedTuple):
    """A matrix from `kernels.ternary_pack`, u8 [stored, row_bytes], and the scale of each of its outputs, f32 [n]."""

    data: Tensor
    scale: Tensor

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.scale.nbytes


@dataclass(frozen=True)
class TernaryLayer:
    """A block's weights. `qkv` and `gate_up` are several matrices, one below the other; the norms are f32, and those
    before `o` and `down` None in a model that lacks them."""

    input_norm: Tensor
    qkv: TernaryWeight
    attention_norm: Tensor | None
    o: TernaryWeight
    post_norm: Tensor
    gate_up: TernaryWeight
    ffn_norm: Tensor | None
    down: TernaryWeight

    @property
    def matrices(self) -> list[TernaryWeight]:
        return [self.qkv, self.o, self.gate_up, self.down]


def ternary_layers(ctx: Context, model: StoredModel) -> Iterator[TernaryLayer]:
    """The layers of a model, one after the other. FormatError for a matrix whose bytes are wrong."""

    def vector(name: str) -> Tensor:
        return ctx.tensor(model.tensors[f"{name}.weight"].f32().ravel())

    for number in range(model.config.num_layers):
        block = f"model.layers.{number}"
        attention, ffn = f"{block}.self_attn", f"{block}.mlp"

        def weight(module: str, parts: str) -> TernaryWeight:
            return packed(ctx, [model.ternary(f"{module}.{part}_proj.weight") for part in parts.split()])

        yield TernaryLayer(
            input_norm=vector(f"{block}.input_layernorm"),
            qkv=weight(attention, "q k v"),
            attention_norm=vector(f"{attention}.attn_sub_norm") if model.config.sub_norms else None,
            o=weight(attention, "o"),
            post_norm=vector(f"{block}.post_attention_layernorm"),
            gate_up=weight(ffn, "gate up"),
            ffn_norm=vector(f"{ffn}.ffn_sub_norm") if model.config.sub_norms else None,
            down=weight(ffn, "down"),
        )


def packed(ctx: Context, matrices: Sequence[TernaryMatrix]) -> TernaryWeight:
    """Matrices of as many columns as one, the rows of the first on top."""
    heights, columns = [matrix.shape[0] for matrix in matrices], matrices[0].shape[1]
    data = ctx.empty(tern2_shape((sum(heights), columns)), "u8")
    scales = []
    apart = all(height % _SIDE == 0 for height in heights[:-1])
    first = 0
    for group in [[matrix] for matrix in matrices] if apart else [list(matrices)]:
        rows = sum(matrix.shape[0] for matrix in group)
        stored, row_bytes = tern2_shape((rows, columns))
        place = data.narrow(0, first, stored)
        first += stored
        if group[0].form == "tern2" and len(group) == 1:
            place.copy_(group[0].tern2())
            scales.append(group[0].scale)
        else:
            codes = ctx.empty((rows, columns), "i8")
            at = 0
            for matrix in group:
                scales.append(_codes(ctx, matrix, codes.narrow(0, at, matrix.shape[0])))
                at += matrix.shape[0]
            kernels.ternary_pack(codes, stored=stored, row_bytes=row_bytes, w=place)
        for matrix in group:
            release(matrix.data)  # so that the file's pages do not count beside the copy
    return TernaryWeight(data, ctx.tensor(np.repeat(np.array(scales, np.float32), heights)))


def _codes(ctx: Context, matrix: TernaryMatrix, codes: Tensor) -> float:
    """Puts a matrix's codes into `codes`, i8 [n, k], and gives its scale."""
    master = matrix.master
    if master is None:
        codes.copy_(matrix.codes())
        return matrix.scale
    if master.ctypes.data % master.itemsize:  # files put tensors anywhere
        master = master.copy()
    x = ctx.from_numpy(master) if ctx.device_type == exchange.CPU else ctx.tensor(master)
    try:
        return float(kernels.ternary_quantize(x, codes=codes)[1])
    except OutOfRangeError:
        raise matrix.wrong("has values that are not finite; they have no mean") from None
