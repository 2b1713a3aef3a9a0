"""Ternary matrices on a device, packed as products read them, whatever form the files have.

They are always copied, and the file's pages are given back after each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..binding import exchange
from ..device import Context, Tensor
from ..errors import OutOfRangeError
from ..formats.mapped import release
from ..formats.ternary import TernaryMatrix, tern2_shape

#: Rows that lie side by side in a packed matrix; matrices of whole such groups are packed on their own.
_GROUP_ROWS = 16


class PackedTernary(NamedTuple):
    """A matrix from `kernels.ternary_pack`, u8 [stored, row_bytes], and the scale of each of its outputs, f32 [n]."""

    data: Tensor
    scale: Tensor


def codes_to_pack(matrix: TernaryMatrix) -> np.ndarray | None:
    """A matrix's codes; None where a kernel makes them, or none are needed."""
    return None if matrix.master is not None or matrix.form == "tern2" else matrix.codes()


def packed(
    ctx: Context, matrices: Sequence[TernaryMatrix], decoded: Iterator[np.ndarray | None] | None = None
) -> PackedTernary:
    """Matrices of as many columns as one, the rows of the first on top; `decoded` is what `codes_to_pack` gives of each
    in turn, if somebody has it. FormatError for a matrix whose bytes are wrong."""
    decoded = map(codes_to_pack, matrices) if decoded is None else decoded
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
    return PackedTernary(data, ctx.tensor(np.repeat(np.array(scales, np.float32), heights)))


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
