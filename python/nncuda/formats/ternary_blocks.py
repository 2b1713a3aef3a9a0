"""The types of GGUF files for ternary matrices: tq1_0 and tq2_0 of llama.cpp, i2_s of bitnet.cpp.

tq1_0, 256 elements in 54 bytes: 48 bytes and 4 bytes of digits base 3, code + 1, the first digit the most significant,
as ceil(256/243 times the number), so that multiplying by 3 brings up one digit after the other; then the scale, f16.
Digit d of byte b is element 32d + b for the first 32 bytes, 160 + 16d + b for the next 16, 240 + 4d + b for the last
four, which have 4 digits in the place of 5. tq2_0, 256 in 66 bytes: 64 bytes with two bits a code, plus 1, then the
scale, f16; bits 2i of byte 32h + b are element 128h + 32i + b. (https://github.com/ggml-org/ggml, `ggml-common.h`)

i2_s: 128 elements in 32 bytes, bits 6 - 2i of byte b being code + 1 of element 32i + b; after the last block one scale,
f32, and 28 bytes of padding. (https://github.com/microsoft/BitNet, `utils/convert-hf-to-gguf-bitnet.py`)
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from .block_formats import TERNARY_FORMATS, StoredTensor
from .ternary import TernaryMatrix, check_bits, checked_scale, codes_of_bits

#: Of a block of tq1_0: bytes of digits, elements before them, digits a byte.
TQ1_0_PARTS = ((slice(0, 32), 0, 5), (slice(32, 48), 160, 5), (slice(48, 52), 240, 4))


def _codes_of_digit(packed: np.ndarray, digit: int) -> np.ndarray:
    """For each byte of tq1_0 the code in a digit, 0 the most significant, i8."""
    fraction = (packed * np.uint8(3**digit)).astype(np.uint16)  # the byte wraps: what stood before the point is gone
    fraction *= 3
    fraction >>= 8
    codes = fraction.astype(np.uint8)
    codes -= 1
    return codes.view(np.int8)


def _tq1_0_codes(blocks: np.ndarray) -> np.ndarray:
    codes = np.empty((len(blocks), 256), np.int8)
    for part, first, digits in TQ1_0_PARTS:
        width = part.stop - part.start
        for digit in range(digits):
            at = first + digit * width
            codes[:, at : at + width] = _codes_of_digit(blocks[:, part], digit)
    return codes


def from_blocks(
    path: str | os.PathLike[str],
    name: str,
    format_name: str,
    shape: tuple[int, int],
    data: np.ndarray,
    factor: float = 1.0,
) -> TernaryMatrix:
    """A matrix in a format of `TERNARY_FORMATS`; its scale is what the format has, times `factor`."""

    def decode(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
        codes, scale = _DECODERS[format_name](matrix)
        with np.errstate(over="ignore"):
            whole = float(np.float32(scale) * np.float32(factor))
        return codes.reshape(shape), checked_scale(whole, matrix.wrong, "scale")

    return TernaryMatrix(path, name, format_name, shape, data, decode)


def _i2_s(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
    tail = TERNARY_FORMATS["i2_s"].tail
    scale = checked_scale(float(matrix.data[-tail:][:4].view("<f4")[0]), matrix.wrong, "scale")
    packed = matrix.data[:-tail].reshape(-1, 32)
    check_bits(matrix, packed)
    return codes_of_bits(packed, 1, (6, 4, 2, 0)), scale


def _tq1_0(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
    blocks = matrix.data.reshape(-1, 54)
    return _scaled(matrix, _tq1_0_codes(blocks), blocks)


def _tq2_0(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
    blocks = matrix.data.reshape(-1, 66)
    check_bits(matrix, blocks[:, :64])
    return _scaled(matrix, codes_of_bits(blocks[:, :64].reshape(-1, 2, 32), 2).reshape(-1, 256), blocks)


def _scaled(matrix: TernaryMatrix, codes: np.ndarray, blocks: np.ndarray) -> tuple[np.ndarray, float]:
    """The codes of blocks, those in blocks of scale 0 being 0, and the scale that all others share."""
    scales = np.ascontiguousarray(blocks[:, -2:]).view("<f2")[:, 0].astype(np.float32)
    if not (np.isfinite(scales).all() and (scales >= 0).all()):
        raise matrix.wrong("has a block whose scale is not finite, or below 0")
    if scales.size and scales[0] > 0 and (scales == scales[0]).all():
        return codes, float(scales[0])  # as files of one scale have it; what follows takes as long as the codes did
    codes[scales == 0] = 0
    used = np.unique(scales[codes.any(axis=1)])
    if len(used) > 1:
        raise matrix.wrong(
            f"has blocks of {len(used)} scales, {used[0]} to {used[-1]}; a matrix is multiplied with one scale here"
        )
    return codes, float(used[0] if len(used) else scales.max(initial=0) or 1)


_DECODERS: dict[str, Callable[[TernaryMatrix], tuple[np.ndarray, float]]] = {
    "i2_s": _i2_s,
    "tq1_0": _tq1_0,
    "tq2_0": _tq2_0,
}


def from_multiples(path: str | os.PathLike[str], stored: StoredTensor, factor: float = 1.0) -> TernaryMatrix:
    """A matrix in f32, f16 or bf16 all of whose values are 0 or of one magnitude."""

    def decode(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
        values = stored.f32()
        largest = np.abs(values).max(initial=0)
        codes = (values == largest).astype(np.int8) - (values == -largest)
        if not np.isfinite(largest) or np.count_nonzero(codes) != np.count_nonzero(values):
            raise matrix.wrong(
                "has values of more than one magnitude; the weights of a GGUF file must be ternary already"
            )
        with np.errstate(over="ignore"):
            whole = float(np.float32(largest or 1) * np.float32(factor))
        return codes, checked_scale(whole, matrix.wrong, "scale")

    rows, columns = stored.shape
    return TernaryMatrix(path, stored.name, "codes", (rows, columns), stored.data, decode)
