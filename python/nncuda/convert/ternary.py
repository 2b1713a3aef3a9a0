"""The bytes of ternary matrices in each form that files have, from their codes: the other direction of
`formats.ternary` and `formats.ternary_blocks`."""

from __future__ import annotations

import numpy as np

from ..formats.block_formats import TERNARY_FORMATS
from ..formats.ternary import tern2_shape
from ..formats.ternary_blocks import TQ1_0_PARTS


def _four_in_a_byte(codes: np.ndarray, axis: int) -> np.ndarray:
    """Codes + 1, two bits each, the first of an axis of four in the lowest bits."""
    first, second, third, fourth = np.moveaxis((codes + 1).view(np.uint8), axis, 0)
    return first | second << 2 | third << 4 | fourth << 6


def packed_rows(codes: np.ndarray) -> np.ndarray:
    """The bytes of Hugging Face's packing, u8 [n/4, k], of codes i8 [n, k], n a multiple of 4."""
    return _four_in_a_byte(codes.reshape(4, -1, codes.shape[1]), 0)


def tern2_bytes(codes: np.ndarray) -> np.ndarray:
    """The bytes of tern2, u8 [stored, row_bytes], of codes i8 [n, k]: those of `kernels.ternary_pack`."""
    stored, row_bytes = tern2_shape(codes.shape)  # type: ignore[arg-type]
    whole = np.pad(codes, ((0, stored - codes.shape[0]), (0, row_bytes * 4 - codes.shape[1])))
    words = _four_in_a_byte(whole.reshape(stored // 16, 16, row_bytes // 4, 4, 4), 3)
    return np.ascontiguousarray(words.swapaxes(1, 2)).reshape(stored, row_bytes)


def _tq1_0_bytes(codes: np.ndarray) -> np.ndarray:
    blocks = np.empty((len(codes), 54), np.uint8)
    for part, first, digits in TQ1_0_PARTS:
        width = part.stop - part.start
        number = np.zeros((len(codes), width), np.uint16)
        for digit in range(5):
            at = first + digit * width
            number *= 3
            if digit < digits:
                number += (codes[:, at : at + width] + 1).astype(np.uint16)
        blocks[:, part] = (number * 256 + 242) // 243
    return blocks


def ternary_bytes(format_name: str, codes: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """The bytes, u8 in one dimension, of codes i8 [n, k] in a format of `TERNARY_FORMATS`. ValueError when the rows are
    not whole blocks. tq1_0 and tq2_0 round `scale` to f16, in which 1 is exact."""
    entry = TERNARY_FORMATS[format_name]
    size = entry.tensor_bytes(codes.shape)
    blocks = np.ascontiguousarray(codes).reshape(-1, entry.elements)
    if format_name == "i2_s":
        out = np.zeros(size, np.uint8)
        out[: -entry.tail] = _four_in_a_byte(blocks.reshape(-1, 4, 32)[:, ::-1], 1).reshape(-1)
        out[-entry.tail :][:4] = np.array([scale], "<f4").view(np.uint8)
        return out
    if format_name == "tq1_0":
        out = _tq1_0_bytes(blocks)
    else:
        out = np.empty((len(blocks), 66), np.uint8)
        out[:, :64] = _four_in_a_byte(blocks.reshape(-1, 2, 4, 32), 2).reshape(-1, 64)
    out[:, -2:] = np.array([scale], "<f2").view(np.uint8)
    return out.reshape(-1)
