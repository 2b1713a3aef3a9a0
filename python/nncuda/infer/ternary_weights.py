"""The weights of a model with ternary weights: packed as products read them, whatever form the files have.

They are always copied: matrices that are multiplied with the same rows are one, packed again with a scale an output.
One matrix at a time is packed, while a thread decodes the next, and the file's pages are given back after it, so that
loading takes less memory than running.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import kernels
from ..binding import exchange
from ..device import Context, Tensor
from ..errors import OutOfRangeError
from ..formats.mapped import release
from ..formats.ternary import TernaryMatrix, tern2_shape

if TYPE_CHECKING:
    from ..models.stored import StoredModel

#: Rows that lie side by side in a packed matrix; matrices of whole such groups are packed on their own.
_GROUP_ROWS = 16

#: The matrices of a layer as they are read, one after the other, and how many of them follow each other in one.
_READ = (*(f"self_attn.{name}" for name in "qkvo"), "mlp.gate", "mlp.up", "mlp.down")
_STACKED = (3, 1, 2, 1)


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

    def block(number: int) -> str:
        return f"model.layers.{number}"

    layers = range(model.config.num_layers)
    matrices = [model.ternary(f"{block(number)}.{name}_proj.weight") for number in layers for name in _READ]
    with ThreadPoolExecutor(1) as beside:
        weights = _packed(ctx, matrices, beside)
        for number in layers:
            qkv, o, gate_up, down = itertools.islice(weights, 4)
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


def _packed(ctx: Context, matrices: Sequence[TernaryMatrix], beside: Executor) -> Iterator[TernaryWeight]:
    """The weights of all layers; while one matrix is packed, the next is decoded."""
    ahead = [beside.submit(_decoded, matrices[0])] if matrices else []

    def decoded(at: int) -> np.ndarray | None:
        codes = ahead.pop().result()
        if at + 1 < len(matrices):
            ahead.append(beside.submit(_decoded, matrices[at + 1]))
        return codes

    at = 0
    while at < len(matrices):
        for count in _STACKED:
            yield packed(ctx, matrices[at : at + count], map(decoded, range(at, at + count)))
            at += count


def _decoded(matrix: TernaryMatrix) -> np.ndarray | None:
    """A matrix's codes; None where a kernel makes them, or none are needed."""
    return None if matrix.master is not None or matrix.form == "tern2" else matrix.codes()


def packed(
    ctx: Context, matrices: Sequence[TernaryMatrix], decoded: Iterator[np.ndarray | None] | None = None
) -> TernaryWeight:
    """Matrices of as many columns as one, the rows of the first on top; `decoded` are their codes in turn, if somebody
    has them."""
    decoded = map(_decoded, matrices) if decoded is None else decoded
    heights, columns = [matrix.shape[0] for matrix in matrices], matrices[0].shape[1]
    data = ctx.empty(tern2_shape((sum(heights), columns)), "u8")
    scales = []
    apart = all(height % _GROUP_ROWS == 0 for height in heights[:-1])
    first = 0
    for group in [[matrix] for matrix in matrices] if apart else [list(matrices)]:
        rows = sum(matrix.shape[0] for matrix in group)
        stored, row_bytes = tern2_shape((rows, columns))
        place = data.narrow(0, first, stored)
        first += stored
        if group[0].form == "tern2" and len(group) == 1:
            next(decoded)
            place.copy_(group[0].tern2())
            scales.append(group[0].scale)
        else:
            parts = [_codes(ctx, matrix, next(decoded)) for matrix in group]
            scales += [scale for _, scale in parts]
            codes = parts[0][0] if len(parts) == 1 else _stacked(ctx, [part for part, _ in parts])
            kernels.ternary_pack(codes, stored=stored, row_bytes=row_bytes, w=place)
        for matrix in group:
            release(matrix.data)  # so that the file's pages do not count besides the copy
    return TernaryWeight(data, ctx.tensor(np.repeat(np.array(scales, np.float32), heights)))


def _stacked(ctx: Context, parts: Sequence[Tensor]) -> Tensor:
    whole = ctx.empty((sum(len(part) for part in parts), parts[0].shape[1]), "i8")
    at = 0
    for part in parts:
        whole.narrow(0, at, len(part)).copy_(part)
        at += len(part)
    return whole


def _codes(ctx: Context, matrix: TernaryMatrix, decoded: np.ndarray | None) -> tuple[Tensor, float]:
    """A matrix's codes on the device, i8 [n, k], and its scale."""
    master = matrix.master
    if master is None:
        codes = matrix.codes() if decoded is None else decoded
        return _given(ctx, codes), matrix.scale
    if master.ctypes.data % master.itemsize:  # files put tensors anywhere
        master = master.copy()
    try:
        codes, scale = kernels.ternary_quantize(_given(ctx, master))
        return codes, float(scale)
    except OutOfRangeError:
        raise matrix.wrong("has values that are not finite; they have no mean") from None


def _given(ctx: Context, array: np.ndarray) -> Tensor:
    """An array for a kernel: in place on a CPU."""
    return ctx.from_numpy(array) if ctx.device_type == exchange.CPU else ctx.tensor(array)
