"""The formats of stored weights: their names, their codes in the ABI and in GGUF files, and the sizes of their blocks.

A stored matrix is rows of blocks, the last dimension inside the blocks, bytes as they are in a file
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "ggml_type"; the blocks are described in `bindings.h`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class BlockFormat:
    """`code` is NNCUDA_FORMAT_*, `gguf_type` the number of the type in a GGUF file, `file_type` the number by which
    general.file_type names a model of this format; -1 of a format that is in no file."""

    name: str
    code: int
    gguf_type: int
    file_type: int
    elements: int  # of a block
    bytes: int  # of a block
    stores: bool = True  # whether numbers can be stored in it (`kernels.quantize`); if not, it is read

    @property
    def bits(self) -> float:
        """Bits an element."""
        return 8 * self.bytes / self.elements

    @property
    def numpy(self) -> np.dtype | None:
        """The NumPy dtype of a format without blocks, None of the others."""
        return _NUMPY.get(self.name)

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row; ValueError when it does not end with a whole block."""
        if elements < 0 or elements % self.elements:
            raise ValueError(f"a row of {elements} elements is not whole blocks of {self.name} ({self.elements} each)")
        return elements // self.elements * self.bytes

    def tensor_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor in a GGUF file; ValueError as of `row_bytes`."""
        return math.prod(shape[:-1]) * self.row_bytes(shape[-1])


@dataclass(frozen=True)
class TernaryFormat:
    """A type of GGUF files for matrices of -1, 0 and 1 (`formats.ternary_blocks`). `gguf_type`, `file_type`, `elements`
    and `bytes` as of a `BlockFormat`; `tail` bytes follow the last row."""

    name: str
    gguf_type: int
    file_type: int
    elements: int  # of a block
    bytes: int  # of a block
    tail: int = 0

    def tensor_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor; ValueError when its rows are not whole blocks."""
        if shape[-1] % self.elements:
            raise ValueError(f"a row of {shape[-1]} elements is not whole blocks of {self.name} ({self.elements} each)")
        return math.prod(shape) // self.elements * self.bytes + self.tail


#: By name: llama.cpp's two, and the one of bitnet.cpp.
TERNARY_FORMATS: dict[str, TernaryFormat] = {
    entry.name: entry
    for entry in (
        TernaryFormat("tq1_0", 34, 36, 256, 54),
        TernaryFormat("tq2_0", 35, 37, 256, 66),
        TernaryFormat("i2_s", 36, 40, 128, 32, 32),
    )
}

#: By name.
FORMATS: dict[str, BlockFormat] = {
    entry.name: entry
    for entry in (
        BlockFormat("f32", 0, 0, 0, 1, 4),
        BlockFormat("f16", 1, 1, 1, 1, 2),
        BlockFormat("bf16", 2, 30, 32, 1, 2),
        BlockFormat("q4_0", 10, 2, 2, 32, 18),
        BlockFormat("q4_1", 11, 3, 3, 32, 20),
        BlockFormat("q5_0", 12, 6, 8, 32, 22),
        BlockFormat("q5_1", 13, 7, 9, 32, 24),
        BlockFormat("q8_0", 14, 8, 7, 32, 34),
        BlockFormat("q4_k", 15, 12, 14, 256, 144),
        BlockFormat("q5_k", 16, 13, 16, 256, 176),
        BlockFormat("q6_k", 17, 14, 18, 256, 210),
        BlockFormat("iq4_nl", 18, 20, 25, 32, 18, stores=False),
        BlockFormat("mxfp4", 19, 39, 38, 32, 17, stores=False),
        BlockFormat("iq4_xs", 21, 23, 30, 256, 136, stores=False),
        BlockFormat("q2_k", 22, 10, 21, 256, 84),
        BlockFormat("q3_k", 23, 11, 11, 256, 110),
    )
}
#: OCP 8-bit floating point, in which caches may be kept; no file has tensors of it.
E4M3 = BlockFormat("e4m3", 20, -1, -1, 1, 1)
_NUMPY = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype(ml_dtypes.bfloat16)}

#: The codes of formats that have a form with sixteen rows side by side (`kernels.interleave_rows`), and of that form.
INTERLEAVED = {entry.code: entry.code + 20 for entry in FORMATS.values() if entry.elements > 1}
INTERLEAVED_ROWS = 16

#: By the number of the type in a GGUF file.
FORMAT_OF_GGUF_TYPE: dict[int, BlockFormat] = {entry.gguf_type: entry for entry in FORMATS.values()}
TERNARY_FORMAT_OF_GGUF_TYPE: dict[int, TernaryFormat] = {entry.gguf_type: entry for entry in TERNARY_FORMATS.values()}

#: Types of GGUF files that this program only names: their numbers, names, and elements and bytes of a block.
OTHER_GGUF_TYPES: dict[int, tuple[str, int, int]] = {
    9: ("q8_1", 32, 40),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    40: ("nvfp4", 64, 36),
}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a file has it: `data` u8 [bytes] over the file's pages, `shape` with the blocks along its last
    dimension. Reading `data` after the file was cut by someone else ends the process (SIGBUS), as with every mapping.
    Where a file has the elements in another order, `made` gives the bytes in this one, and `data` what of the file they
    are made of: nothing is read, nor kept, before somebody asks.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    data: np.ndarray
    made: Callable[[], np.ndarray] | None = None

    @property
    def code(self) -> int:
        """NNCUDA_FORMAT_* of its format."""
        return FORMATS[self.format].code

    @property
    def columns(self) -> int:
        """Elements of a row: the last dimension, 1 of a scalar."""
        return self.shape[-1] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        return FORMATS[self.format].row_bytes(self.columns)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes if self.made is None else FORMATS[self.format].tensor_bytes(self.shape)

    def bytes(self) -> np.ndarray:
        """The bytes, u8; no copy unless they are `made`, then a new one with each call."""
        return self.data if self.made is None else self.made()

    def rows(self) -> np.ndarray:
        """The same as u8 [rows, row_bytes], all dimensions but the last flattened."""
        return self.bytes().reshape(-1, self.row_bytes)

    def numbers(self) -> np.ndarray:
        """The elements of a format without blocks, in its NumPy dtype and in `shape`; a copy where `bytes` is one.
        TypeError for other formats."""
        dtype = FORMATS[self.format].numpy
        if dtype is None:
            raise TypeError(
                f"tensor {self.name} is in {self.format}, a block format; kernels.dequantize converts it to numbers"
            )
        return self.bytes().view(dtype).reshape(self.shape)

    def f32(self) -> np.ndarray:
        """A copy of the elements of a format without blocks, in f32 and in `shape`: for norms, biases, routers."""
        return self.numbers().astype(np.float32)
