"""Writing a safetensors file tensor by tensor, for models that are larger than the memory.

(https://github.com/huggingface/safetensors, section "Format")
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .piece_writer import PieceWriter
from .safetensors import DTYPES

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class NewArray:
    """A tensor to be written."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@contextlib.contextmanager
def write_in_pieces(path: str | os.PathLike[str], tensors: Sequence[NewArray]) -> Iterator[PieceWriter]:
    """Yields a writer for the bytes of the tensors of `tensors`. The caller sees to atomicity.

    Raises OSError when the system refuses, ValueError when bytes do not fit or are missing at the end.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.nbytes
        header[tensor.name] = {
            "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]
        }  # fmt: skip
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        writer = PieceWriter(file, tensors)
        yield writer
        writer.check_whole()
