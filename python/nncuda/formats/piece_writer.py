"""Writing the tensors of a file one after the other, without having one of them whole in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Protocol

import numpy as np


class New(Protocol):
    """A tensor that is to be written."""

    @property
    def name(self) -> str:
        """Of the tensor in the file."""

    @property
    def nbytes(self) -> int:
        """How many bytes it gets."""


class PieceWriter:
    """Takes the bytes of tensors in their order, each in pieces of any size, and fills each up with zeros
    to a multiple of `alignment`."""

    def __init__(self, file: BinaryIO, tensors: Sequence[New], alignment: int = 1):
        self._file, self._tensors, self._alignment = file, list(tensors), alignment
        self._current = self._written = 0

    def write(self, name: str, data: np.ndarray) -> None:
        """Appends bytes (u8, dense) to tensor `name`, which is the next of them until all its bytes are there."""
        if self._current == len(self._tensors):
            raise ValueError(f"the bytes of {name} come after the last tensor")
        tensor = self._tensors[self._current]
        if name != tensor.name or data.dtype != np.uint8 or not data.flags.c_contiguous:
            raise ValueError(f"{data.dtype} of {name} do not fit; dense u8 of {tensor.name} come next")
        if self._written + data.nbytes > tensor.nbytes:
            raise ValueError(f"{self._written + data.nbytes} bytes for {name}, which has {tensor.nbytes}")
        self._file.write(data.data)
        self._written += data.nbytes
        if self._written == tensor.nbytes:
            self._file.write(bytes(-tensor.nbytes % self._alignment))
            self._current, self._written = self._current + 1, 0

    def check_whole(self) -> None:
        """Raises ValueError unless all bytes of all tensors were written."""
        if self._current != len(self._tensors):
            tensor = self._tensors[self._current]
            raise ValueError(f"{self._written} of {tensor.nbytes} bytes of {tensor.name} were written")
