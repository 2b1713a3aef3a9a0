"""Matrices of -1, 0 and 1 times one number, in every form in which files have them.

W = codes * scale, whatever a file's own convention is. The number of `weight_scale` in a Hugging Face folder is that
factor or what to divide by, and the forms differ in where a code lies: `docs/formats.md` has all of them. (Ma et al.
2024, "The Era of 1-bit LLMs")
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np

from .block_formats import StoredTensor
from .errors import FormatError

_LANES = 16  # rows and columns of a unit of tern2, and sums of a row of `absmean`
_PIECE_ROWS = 1024  # that are in f32 at a time
_LEAST_SCALE = np.float32(1e-5)


class TernaryMatrix:
    """A stored matrix [n, k] of ternary weights; what is wrong with its bytes is a FormatError where it is found.

    name    of the tensor in its file
    form    "f32", "f16", "bf16": master weights, which become ternary by `absmean`; "packed": Hugging Face's; "codes":
            its codes as numbers; "tern2": this library's; "tq1_0", "tq2_0", "i2_s": those of GGUF files
    shape   (n, k)
    data    u8 [bytes], over the file's pages
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str,
        form: str,
        shape: tuple[int, int],
        data: np.ndarray,
        decode: Callable[[TernaryMatrix], tuple[np.ndarray, float]],
        master: np.ndarray | None = None,
    ):
        self.path, self.name, self.form, self.shape, self.data = path, name, form, shape, data
        self._decode = decode
        self._scale: float | None = None
        #: Master weights as they are stored, [n, k]; None of the other forms. `kernels.ternary_quantize` makes of them
        #: the same codes and scale as this class.
        self.master = master

    @property
    def elements(self) -> int:
        """Weights."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.data.nbytes

    @property
    def scale(self) -> float:
        """W = codes * scale; the value of an f32, above 0."""
        if self._scale is None:
            self.codes()
        assert self._scale is not None
        return self._scale

    def codes(self) -> np.ndarray:
        """-1, 0 and 1, i8 [n, k]; made again by each call."""
        codes, self._scale = self._decode(self)
        return codes

    def tern2(self) -> np.ndarray:
        """The bytes of a matrix in the form "tern2", checked, u8 [stored, row_bytes]; no copy."""
        check_bits(self, self.data)
        packed = self.data.reshape(tern2_shape(self.shape))
        rows, columns = self.shape
        whole = _tern2_whole(packed) if rows % _LANES or columns % _LANES else np.empty((0, 0), np.int8)
        if whole[rows:].any() or whole[:, columns:].any():
            raise self.wrong("has weights other than 0 beyond its last row or column")
        return packed

    def wrong(self, problem: str) -> FormatError:
        """A FormatError about this matrix."""
        return FormatError(self.path, f"tensor {self.name} {problem}")


def checked_scale(value: float, wrong: Callable[[str], FormatError], name: str = "weight_scale") -> float:
    """A scale of a file, which must be finite and above 0."""
    if not math.isfinite(value) or value <= 0:
        raise wrong(f"has the {name} {value}; it must be finite and above 0")
    return value


def absmean(weights: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """Codes, i8 [n, k], and scale of weights [n, k] in f32, f16 or bf16: the bits of `kernels.ternary_quantize`.
    ValueError for a weight that is not finite.

    With s = max(mean |x|, 1e-5), codes = rint(x * (1/s)) cut to -1 .. 1. The mean is taken in f64 and in the order that
    `bindings.h` lays down. (Ma et al. 2024, eqs. 1 to 3)
    """
    rows, columns = weights.shape
    codes = np.empty(weights.shape, np.int8)
    pieces = [slice(first, first + _PIECE_ROWS) for first in range(0, rows, _PIECE_ROWS)]
    total = np.float64(0)
    for piece in pieces:
        values = np.abs(weights[piece].astype(np.float32))
        if not np.isfinite(values).all():
            raise ValueError("has values that are not finite; they have no mean")
        sums = np.zeros((len(values), _LANES))
        for first in range(0, columns, _LANES):
            part = values[:, first : first + _LANES]
            sums[:, : part.shape[1]] += part
        for half in (8, 4, 2, 1):
            sums = sums[:, :half] + sums[:, half:]
        total = np.cumsum([total, *sums[:, 0]])[-1]
    mean = np.float32(total / (rows * columns)) if codes.size else np.float32(0)
    scale = max(mean, _LEAST_SCALE)
    inverse = np.float32(1) / scale
    for piece in pieces:
        values = weights[piece].astype(np.float32)
        values *= inverse
        np.rint(values, out=values)
        codes[piece] = np.clip(values, -1, 1, out=values)
    return codes, scale


def from_master(path: str | os.PathLike[str], stored: StoredTensor) -> TernaryMatrix:
    """Master weights, in f32, f16 or bf16."""

    def decode(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
        try:
            codes, scale = absmean(stored.numbers())
        except ValueError as error:
            raise matrix.wrong(str(error)) from error
        return codes, float(scale)

    rows, columns = stored.shape
    return TernaryMatrix(path, stored.name, stored.format, (rows, columns), stored.data, decode, stored.numbers())


def from_numbers(path: str | os.PathLike[str], stored: StoredTensor, scale: float) -> TernaryMatrix:
    """Codes that are stored as the numbers -1, 0 and 1, in f32, f16 or bf16."""

    def decode(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
        numbers = stored.numbers()
        ones = np.ones((), numbers.dtype)
        codes = (numbers == ones).astype(np.int8) - (numbers == -ones)
        if (np.abs(codes) != (numbers != 0)).any():
            raise matrix.wrong("has values other than -1, 0 and 1 beside its weight_scale")
        return codes, scale

    rows, columns = stored.shape
    return TernaryMatrix(path, stored.name, "codes", (rows, columns), stored.data, decode)


def codes_of_bits(packed: np.ndarray, axis: int, shifts: tuple[int, ...] = (0, 2, 4, 6)) -> np.ndarray:
    """The codes in pairs of bits, each stored as code + 1, i8: those of a byte along a new axis, from `shifts` on."""
    codes = np.empty((*packed.shape[:axis], len(shifts), *packed.shape[axis:]), np.int8)
    parts = np.moveaxis(codes, axis, 0)
    for part, shift in enumerate(shifts):
        bits = packed >> shift
        bits &= 3
        bits -= 1  # 0 to 255, which is -1 in i8
        parts[part] = bits.view(np.int8)
    return codes


def check_bits(matrix: TernaryMatrix, packed: np.ndarray) -> None:
    """FormatError unless all pairs of bits are 0, 1 or 2."""
    if (packed & packed >> 1 & 0x55).any():
        raise matrix.wrong("has a two-bit code 3, which is not a ternary weight")


def from_packed(
    path: str | os.PathLike[str], name: str, shape: tuple[int, int], data: np.ndarray, scale: float
) -> TernaryMatrix:
    """Hugging Face's packed weights: byte [r, c] of u8 [n/4, k] has at bits 2i the code of row r + i * n/4, plus 1."""

    def decode(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
        packed = matrix.data.reshape(shape[0] // 4, shape[1])
        check_bits(matrix, packed)
        return codes_of_bits(packed, 0).reshape(shape), scale

    return TernaryMatrix(path, name, "packed", shape, data, decode)


def tern2_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """Stored rows and bytes a row of a matrix [n, k] in tern2."""
    rows, columns = (-(-size // _LANES) for size in shape)
    return rows * _LANES, columns * 4


def from_tern2(
    path: str | os.PathLike[str], name: str, shape: tuple[int, int], data: np.ndarray, scale: float
) -> TernaryMatrix:
    """This library's packed weights: the bytes that `kernels.ternary_pack` makes."""

    def decode(matrix: TernaryMatrix) -> tuple[np.ndarray, float]:
        return tern2_codes(matrix.tern2(), shape), scale

    return TernaryMatrix(path, name, "tern2", shape, data, decode)


def tern2_codes(data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The codes, i8 [n, k], of the bytes of tern2."""
    return np.ascontiguousarray(_tern2_whole(data.reshape(tern2_shape(shape)))[: shape[0], : shape[1]])


def _tern2_whole(packed: np.ndarray) -> np.ndarray:
    """The codes of u8 [stored, row_bytes] with those that fill up the last sixteen rows and columns: byte j of the word
    of row r and sixteen columns has at bits 2i the weight of column j + 4i; words lie as [row / 16][column / 16][row
    mod 16]."""
    stored, row_bytes = packed.shape
    words = packed.reshape(stored // _LANES, row_bytes // 4, _LANES, 4).swapaxes(1, 2)
    return codes_of_bits(words, 3).reshape(stored, -1)
