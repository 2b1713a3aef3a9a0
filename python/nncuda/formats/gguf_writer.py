"""Writing GGUF files, version 3, little-endian, tensor by tensor.

The header with all descriptions comes first, so formats and shapes are given beforehand; then the bytes of each tensor
as they are made. No more than one piece of a tensor is in memory, and the file appears under its name when it is whole.
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .atomic import replace_file
from .block_formats import FORMATS, TERNARY_FORMATS, BlockFormat, TernaryFormat
from .gguf import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, SCALARS, VALUE_TYPES, Value
from .piece_writer import PieceWriter

VERSION = 3
_DTYPES = {np.dtype(form): kind for kind, form in SCALARS.items() if kind != "bool"} | {np.dtype(np.bool_): "bool"}


@dataclass(frozen=True)
class NewTensor:
    """A tensor to be written: `format` a name of `FORMATS` or `TERNARY_FORMATS`, `shape` row-major."""

    name: str
    format: str
    shape: tuple[int, ...]

    @property
    def layout(self) -> BlockFormat | TernaryFormat:
        """Its format."""
        return FORMATS.get(self.format) or TERNARY_FORMATS[self.format]

    @property
    def nbytes(self) -> int:
        """ValueError when the rows are not whole blocks."""
        return self.layout.tensor_bytes(self.shape)


def value_of(value: Any) -> Value:
    """A value with the type that such values usually have in GGUF files: an int u32 where it fits, a float f32, lists
    of them i32 and f32; NumPy arrays keep theirs. TypeError for what has none."""
    if isinstance(value, Value):
        return value
    if isinstance(value, bool):
        return Value("bool", value)
    if isinstance(value, int):
        for kind, least, most in (("u32", 0, 2**32), ("i32", -(2**31), 0), ("u64", 0, 2**64), ("i64", -(2**63), 0)):
            if least <= value < most:
                return Value(kind, value)
        raise ValueError(f"{value} does not fit into 64 bits")
    if isinstance(value, float):
        return Value("f32", value)
    if isinstance(value, str):
        return Value("string", value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype in _DTYPES:
        return Value(f"{_DTYPES[value.dtype]}[]", value)
    if isinstance(value, Sequence) and value:
        for python, kind in ((bool, "bool"), (int, "i32"), (float, "f32"), (str, "string")):
            if all(type(element) is python for element in value):
                return Value(f"{kind}[]", value)
    raise TypeError(f"{value!r} has no type in GGUF files; it must be a bool, number, string or a list of one of them")


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _encoded(entry: Value) -> bytes:
    kind, is_array, _ = entry.type.partition("[]")
    if not is_array:
        body = _string(entry.value) if kind == "string" else struct.pack(SCALARS[kind], entry.value)
        return struct.pack("<I", VALUE_TYPES.index(kind)) + body
    if kind == "string":
        body = b"".join(map(_string, entry.value))
    else:
        body = np.asarray(entry.value, np.bool_ if kind == "bool" else SCALARS[kind]).tobytes()
    head = struct.pack("<IIQ", VALUE_TYPES.index("array"), VALUE_TYPES.index(kind), len(entry.value))
    return head + body


@contextlib.contextmanager
def write_gguf(
    path: str | os.PathLike[str], metadata: Mapping[str, Any], tensors: Sequence[NewTensor]
) -> Iterator[PieceWriter]:
    """Yields a writer for the bytes of the tensors of `tensors`; at the end the file is whole and has its name.

    Values of metadata are plain ones (see `value_of`) or `Value`s. Raises OSError when the system refuses, ValueError
    for tensors or bytes that do not fit; then nothing is left.
    """
    typed = {key: value_of(value) for key, value in metadata.items()}
    alignment = typed[ALIGNMENT_KEY].value if ALIGNMENT_KEY in typed else DEFAULT_ALIGNMENT
    if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
        raise ValueError(f"{ALIGNMENT_KEY} is {alignment!r}; it must be a power of two, 8 or more")
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise ValueError("two tensors have the same name")
    with replace_file(path) as file:
        head = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(typed))]
        head += [part for key, entry in typed.items() for part in (_string(key), _encoded(entry))]
        offset = 0
        for tensor in tensors:
            sizes = tuple(reversed(tensor.shape))
            if not 1 <= len(sizes) <= 4 or min(sizes) < 1 or not 1 <= len(tensor.name.encode("utf-8")) <= 64:
                raise ValueError(
                    f"tensor {tensor.name!r} of shape {list(tensor.shape)}: a name has 1 to 64 bytes, "
                    f"a shape 1 to 4 dimensions of 1 or more"
                )
            number = tensor.layout.gguf_type
            head.append(_string(tensor.name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, number, offset))
            offset += -(-tensor.nbytes // alignment) * alignment
        size = sum(map(len, head))
        file.writelines([*head, bytes(-size % alignment)])
        writer = PieceWriter(file, tensors, alignment)
        yield writer
        writer.check_whole()
