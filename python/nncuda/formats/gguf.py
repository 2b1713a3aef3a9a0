"""Reading GGUF files, version 2 and 3, little-endian.

A file is a header, entries of metadata, descriptions of the tensors, then their bytes from the next multiple of
`general.alignment` on (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). All of it but the values is checked
on opening: every count, length, offset and size against the bytes that are there, before anything is made from it. So
what opening takes is bounded by the size of the file, whatever the file says. Tensors and arrays of metadata are views
of the mapped file.
"""

from __future__ import annotations

import bisect
import functools
import math
import mmap
import os
import re
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .block_formats import FORMAT_OF_GGUF_TYPE, OTHER_GGUF_TYPES, TERNARY_FORMAT_OF_GGUF_TYPE, StoredTensor
from .errors import FormatError
from .mapped import map_file
from .named import Joined, Named

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
ALIGNMENT_KEY = "general.alignment"
ARCHITECTURE_KEY = "general.architecture"

#: Types of values by their number in the file, and the struct format of those of fixed size.
VALUE_TYPES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
SCALARS = {
    "u8": "<B",
    "i8": "<b",
    "u16": "<H",
    "i16": "<h",
    "u32": "<I",
    "i32": "<i",
    "f32": "<f",
    "bool": "<B",
    "u64": "<Q",
    "i64": "<q",
    "f64": "<d",
}
_HEADER_BYTES = 24
_LONGEST_KEY = 65535
_LONGEST_NAME = 64
_MOST_DIMENSIONS = 4
_MOST_ENTRIES = 65536  # of metadata, and tensors: each becomes an object here, larger than the least entry of a file
_LENGTH = struct.Struct("<Q")
_LEAST_ENTRY = 8 + 1 + 4 + 1  # a key of one byte, its type and a value of one byte
_LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8  # a name of one byte, one dimension
_SPLIT_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class StringArray(Sequence[str]):
    """An array of strings of a file, each decoded when it is asked for."""

    def __init__(self, path: Path, key: str, data: mmap.mmap, starts: array[int]):
        self._path, self._key, self._data, self._starts = path, key, data, starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        return _text(self._path, self.bytes(index), f"string {index} of {self._key}")

    def bytes(self, index: int) -> bytes:
        """String `index` as the file has it."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self._key} has {len(self)} strings; there is none with index {index}")
        start = self._starts[index]
        (length,) = _LENGTH.unpack_from(self._data, start - _LENGTH.size)
        return self._data[start : start + length]


@dataclass(frozen=True)
class Value:
    """A value of metadata and its type: one of `VALUE_TYPES`, of an array that of its elements with `[]` after it."""

    type: str
    value: Any


@dataclass(frozen=True)
class TensorEntry:
    """A file's description of a tensor. `shape` is row-major, the file's dimensions reversed; `offset` is that in the
    file, `nbytes` -1 where the type is unknown."""

    type_name: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def usable(self) -> bool:
        """Whether this program computes with this type."""
        return self.type_name in _USABLE


_USABLE = {entry.name for entry in FORMAT_OF_GGUF_TYPE.values()}


class GGUFFile(Named[StoredTensor]):
    """A GGUF file as a mapping from name to `StoredTensor`; `entries` describes all tensors, `typed` all metadata.

    The file must stay as it is while the mapping lives (see `map_file`).
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._map = map_file(self.path, "GGUF file", _HEADER_BYTES)
        self._bytes = np.frombuffer(self._map, np.uint8)
        reader = _Reader(self.path, self._map)
        self.version = reader.header()
        tensors = reader.count("tensors", _LEAST_TENSOR)
        entries = reader.count("entries of metadata", _LEAST_ENTRY)
        self.typed: dict[str, Value] = {}
        for _ in range(entries):
            key, value = reader.entry()
            if key in self.typed:
                raise reader.wrong(f"the key {key!r} of metadata is there twice")
            self.typed[key] = value
        self.alignment = self._alignment()
        self.entries = reader.tensors(tensors, self.alignment)

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """Values by key: int, float, bool, str; arrays as read-only NumPy arrays or as `StringArray`."""
        return {key: entry.value for key, entry in self.typed.items()}

    def _alignment(self) -> int:
        entry = self.typed.get(ALIGNMENT_KEY, Value("u32", DEFAULT_ALIGNMENT))
        if entry.type != "u32" or entry.value < 8 or entry.value & (entry.value - 1):
            raise FormatError(
                self.path,
                f"{ALIGNMENT_KEY} is {entry.value!r} ({entry.type}); it must be a power of two (u32), 8 or more",
            )
        return entry.value

    def __getitem__(self, name: str) -> StoredTensor:
        entry = self.entries[name]
        if not entry.usable:
            raise FormatError(
                self.path,
                f"tensor {name!r} is of type {entry.type_name}; this program reads {', '.join(sorted(_USABLE))}",
            )
        return StoredTensor(name, entry.type_name, entry.shape, self.mapped(name))

    def mapped(self, name: str) -> np.ndarray:
        """The bytes of a tensor of a known type, u8 [bytes], over the mapped pages of the file."""
        entry = self.entries[name]
        return self._bytes[entry.offset : entry.offset + max(entry.nbytes, 0)]


class SplitGGUF(Joined[StoredTensor]):
    """The parts of a split model as one mapping. Metadata are those of the first part."""

    def __init__(self, parts: Sequence[GGUFFile]):
        self.path = parts[0].path
        self.parts = parts
        self.version, self.typed, self.metadata = parts[0].version, parts[0].typed, parts[0].metadata
        for number, part in enumerate(parts):
            for key, right in (("split.no", number), ("split.count", len(parts))):
                found = part.metadata.get(key)
                if found != right:
                    raise FormatError(part.path, f"{key} is {found!r}; the name of this part makes it {right}")
        super().__init__(parts)
        total = self.metadata.get("split.tensors.count", len(self.entries))
        if total != len(self.entries):
            raise FormatError(
                self.path, f"split.tensors.count is {total!r}, but the parts have {len(self.entries)} tensors"
            )


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile | SplitGGUF:
    """Opens a GGUF file; of the first part of a split model (`NAME-00001-of-0000N.gguf`), all its parts."""
    path = Path(path)
    first = GGUFFile(path)
    count = first.metadata.get("split.count", 1)
    if type(count) is not int or not 0 <= count <= 99999:
        raise FormatError(path, f"split.count is {count!r}; it must be a whole number, at most 99999")
    if count <= 1:
        return first
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None or int(match[2]) != 1 or int(match[3]) != count:
        raise FormatError(
            path, f"is a part of a split model; open the part whose name ends with -00001-of-{count:05d}.gguf"
        )
    others = [path.with_name(f"{match[1]}-{number:05d}-of-{count:05d}.gguf") for number in range(2, count + 1)]
    return SplitGGUF([first, *map(GGUFFile, others)])


def _text(path: Path, raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(path, f"{what} is not UTF-8 ({error.reason} at its byte {error.start})") from error


class _Reader:
    """The part of the file that was read so far, and checked reading of what follows."""

    def __init__(self, path: Path, data: mmap.mmap):
        self.path, self.data, self.size, self.at = path, data, len(data), 0

    def wrong(self, problem: str) -> FormatError:
        return FormatError(self.path, f"at byte {self.at}: {problem}")

    def need(self, count: int, what: str) -> None:
        left = self.size - self.at
        if count > left:
            raise self.wrong(f"{what} takes {count} bytes, but only {left} are left in the file")

    def scalar(self, form: str, what: str) -> Any:
        self.need(struct.calcsize(form), what)
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self, what: str, longest: int | None = None) -> str:
        length = self.scalar("<Q", f"the length of {what}")
        if longest is not None and not 1 <= length <= longest:
            raise self.wrong(f"{what} has {length} bytes; it may have 1 to {longest}")
        self.need(length, what)
        raw = self.data[self.at : self.at + length]
        text = _text(self.path, raw, f"{what} at byte {self.at}")
        self.at += length
        return text

    def header(self) -> int:
        magic = self.data[:4]
        if magic != MAGIC:
            raise FormatError(self.path, f"begins with {magic!r}; a GGUF file begins with {MAGIC!r}")
        self.at = 4
        version = self.scalar("<I", "the version")
        if version in (2, 3):
            return version
        if version in (2 << 24, 3 << 24):
            raise FormatError(self.path, "is a big-endian GGUF file; this program reads little-endian ones")
        raise FormatError(self.path, f"is a GGUF file of version {version}; this program reads versions 2 and 3")

    def count(self, what: str, least: int) -> int:
        value = self.scalar("<Q", f"the number of {what}")
        most = (self.size - self.at) // least
        if value > most:
            raise self.wrong(f"the header promises {value} {what}; the rest of the file has room for {most} at most")
        if value > _MOST_ENTRIES:
            raise self.wrong(f"the header promises {value} {what}; this program reads {_MOST_ENTRIES} at most")
        return value

    def entry(self) -> tuple[str, Value]:
        key = self.string("a key of metadata", _LONGEST_KEY)
        kind = self.kind(f"the type of {key}")
        if kind == "array":
            return key, self.array(key)
        if kind == "string":
            return key, Value(kind, self.string(key))
        value = self.scalar(SCALARS[kind], key)
        if kind == "bool":
            if value > 1:
                raise self.wrong(f"{key} is {value}; as a bool it must be 0 or 1")
            value = bool(value)
        return key, Value(kind, value)

    def kind(self, what: str) -> str:
        number = self.scalar("<I", what)
        if number >= len(VALUE_TYPES):
            raise self.wrong(f"{what} is {number}; it must be 0 to {len(VALUE_TYPES) - 1}")
        return VALUE_TYPES[number]

    def array(self, key: str) -> Value:
        kind = self.kind(f"the element type of the array {key}")
        if kind == "array":
            raise self.wrong(f"{key} is an array of arrays; this program reads arrays of numbers, bools and strings")
        length = self.scalar("<Q", f"the length of the array {key}")
        if kind == "string":
            return Value("string[]", self.strings(key, length))
        dtype = np.dtype(np.bool_ if kind == "bool" else SCALARS[kind])
        self.need(length * dtype.itemsize, f"the array {key} of {length} × {kind}")
        raw = np.frombuffer(self.data, np.uint8, length * dtype.itemsize, self.at)
        if kind == "bool" and length and raw.max() > 1:
            raise self.wrong(f"the array {key} has a bool of {raw.max()}; it must be 0 or 1")
        self.at += raw.size
        return Value(f"{kind}[]", raw.view(dtype))

    def strings(self, key: str, length: int) -> StringArray:
        self.need(8 * length, f"the array {key} of {length} strings")
        # As many bytes as the lengths alone take in the file.
        starts, at, size, data, unpack = (
            array("Q", bytes(8 * length)),
            self.at,
            self.size,
            self.data,
            _LENGTH.unpack_from,
        )
        for index in range(length):
            if size - at < 8:
                self.at = at
                self.need(8, f"the length of string {index} of {key}")
            start = at + 8
            at = start + unpack(data, at)[0]
            if at > size:
                self.at = start
                self.need(at - start, f"string {index} of {key}")
            starts[index] = start
        self.at = at
        return StringArray(self.path, key, data, starts)

    def tensors(self, count: int, alignment: int) -> dict[str, TensorEntry]:
        described: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        for _ in range(count):
            name = self.string("the name of a tensor", _LONGEST_NAME)
            if name in described:
                raise self.wrong(f"tensor {name!r} is described twice")
            described[name] = self.tensor(name, alignment)
        start = -(-self.at // alignment) * alignment
        entries = {}
        for name, (kind, shape, offset, nbytes) in described.items():
            if start + offset + max(nbytes, 0) > self.size:
                place = f"has {max(nbytes, 0)} bytes from byte {start + offset} on"
                raise FormatError(self.path, f"tensor {name!r} {place}, but the file ends at byte {self.size}")
            entries[name] = TensorEntry(kind, shape, start + offset, nbytes)
        end, before = start, ""
        for name, entry in sorted(entries.items(), key=lambda item: item[1].offset):
            if entry.offset < end:
                raise FormatError(
                    self.path, f"tensor {name!r} begins at byte {entry.offset}, inside tensor {before!r} before it"
                )
            end, before = entry.offset + max(entry.nbytes, 1), name
        self._check_i2_s(entries, alignment)
        return entries

    def _check_i2_s(self, entries: Mapping[str, TensorEntry], alignment: int) -> None:
        # Number 36 has been another type in other programs. As an i2_s, a tensor ends where the next begins.
        starts = [*sorted(entry.offset for entry in entries.values()), self.size]
        for name, entry in entries.items():
            if entry.type_name == "i2_s":
                room = starts[bisect.bisect_right(starts, entry.offset)] - entry.offset
                if room >= entry.nbytes + alignment:
                    raise FormatError(
                        self.path,
                        f"tensor {name!r} of type 36 has {room} bytes to the next tensor; as i2_s it takes "
                        f"{entry.nbytes}, so that this is another type of this number",
                    )

    def tensor(self, name: str, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
        dimensions = self.scalar("<I", f"the number of dimensions of tensor {name!r}")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise self.wrong(f"tensor {name!r} has {dimensions} dimensions; it may have 1 to {_MOST_DIMENSIONS}")
        sizes = [self.scalar("<Q", f"a dimension of tensor {name!r}") for _ in range(dimensions)]
        if min(sizes) < 1:
            raise self.wrong(f"tensor {name!r} has the dimensions {sizes}; each must be 1 or more")
        elements = math.prod(sizes)  # whole numbers of Python: nothing wraps
        number = self.scalar("<I", f"the type of tensor {name!r}")
        offset = self.scalar("<Q", f"the offset of tensor {name!r}")
        if offset % alignment:
            raise self.wrong(f"tensor {name!r} has the offset {offset}; it must be a multiple of {alignment}")
        tail = 0
        if number in FORMAT_OF_GGUF_TYPE:
            known = FORMAT_OF_GGUF_TYPE[number]
            kind, block, block_bytes = known.name, known.elements, known.bytes
        elif number in TERNARY_FORMAT_OF_GGUF_TYPE:
            ternary = TERNARY_FORMAT_OF_GGUF_TYPE[number]
            kind, block, block_bytes, tail = ternary.name, ternary.elements, ternary.bytes, ternary.tail
        elif number in OTHER_GGUF_TYPES:
            kind, block, block_bytes = OTHER_GGUF_TYPES[number]
        else:
            return f"unknown ({number})", tuple(reversed(sizes)), offset, -1
        if sizes[0] % block:
            raise self.wrong(f"tensor {name!r} has rows of {sizes[0]} elements; blocks of {kind} have {block}")
        return kind, tuple(reversed(sizes)), offset, elements // block * block_bytes + tail
