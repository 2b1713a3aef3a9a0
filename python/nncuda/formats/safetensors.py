"""safetensors files and folders of them; they are read through the `safetensors` package.

A file is eight bytes of header length (little-endian), that many bytes of JSON, then the tensors' bytes, row-major and
little-endian, without holes (https://github.com/huggingface/safetensors, section "Format"). A folder holds either
`model.safetensors` or shards with `model.safetensors.index.json`, as transformers writes them.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from .atomic import naming
from .block_formats import FORMATS, StoredTensor
from .errors import FormatError, cannot_read, excerpt, missing_file, shown
from .json_values import check_marks, parse_json, read_json
from .limits import FILE_TENSORS, HEADER_BYTES, INDEX_BYTES, JSON_MARKS, NAME_BYTES
from .mapped import map_file
from .named import Joined, Named
from .regular import open_regular, present

#: By the name that files have for them.
DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
#: In which dtypes follow one another in a file.
_ORDER = ["U64", "I64", "F64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "I8", "U8", "BOOL"]

_FORMAT_OF_DTYPE = {entry.numpy: entry.name for entry in FORMATS.values() if entry.numpy is not None}

DEFAULT_SHARD_BYTES = 5_000_000_000


class _Entry(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    first: int  # where its bytes begin and end, counted from the end of the header
    last: int


class SafetensorsFile(Named[np.ndarray]):
    """A safetensors file as a mapping from name to array; each look-up reads that tensor alone.

    The header is checked in full on opening, and that the tensors cover the data exactly, so a truncated or foreign
    file raises FormatError here and not later. `metadata` is the file's own text entries.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        try:
            with open_regular(self.path) as file:  # the package's errors do not tell what the system said
                self._header = _read_header(file)
                again = Path(f"/proc/self/fd/{file.fileno()}")  # this very file, whatever has its name by now
                self._file = safe_open(again if again.exists() else self.path, "np")
        except FormatError:
            raise
        except OSError as error:
            raise cannot_read(path, error) from error
        except ValueError as error:
            raise FormatError(path, f"is truncated, or not a safetensors file ({error})") from error
        except SafetensorError as error:
            raise FormatError(path, f"is truncated, or not a safetensors file ({excerpt(str(error))})") from error
        names = self._file.keys()
        if len(names) > FILE_TENSORS:
            raise FormatError(path, f"has {len(names)} tensors; a file may have at most {FILE_TENSORS}")
        # What follows is as the package checked it, if each name is there once: it takes the last of two.
        header = parse_json(path, self._header)
        self.metadata: dict[str, str] = dict(self._file.metadata() or {})
        self.entries = {name: self._entry(name, header[name]) for name in names}

    def _entry(self, name: str, values: Any) -> _Entry:
        dtype, shape = DTYPES.get(values["dtype"]), tuple(values["shape"])
        if dtype is None:
            problem = f"has dtype {excerpt(values['dtype'])}, which this program cannot use"
        elif math.prod(max(size, 1) for size in shape) * dtype.itemsize >= 2**63:  # beside a 0 the package allows it
            problem = f"has shape {shown(list(shape))}, which is larger than any memory"
        else:
            return _Entry(dtype, shape, *values["data_offsets"])
        raise FormatError(self.path, f"tensor {shown(name)} {problem}")

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.entries:
            raise KeyError(name)
        return self._file.get_tensor(name)

    def dtype(self, name: str) -> np.dtype:
        """The dtype of a tensor, without reading it."""
        return self.entries[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return self.entries[name].shape

    def part(self, name: str, first: int, count: int) -> np.ndarray:
        """So many elements of a tensor, from the first given on, one after the other; no others are read."""
        size = self.dtype(name).itemsize
        return self.mapped(name)[first * size : (first + count) * size].copy().view(self.dtype(name))

    def stored(self, name: str) -> StoredTensor:
        """A tensor of f32, f16 or bf16 over the mapped pages of the file; FormatError for another dtype."""
        entry = self.entries[name]
        format_name = _FORMAT_OF_DTYPE.get(entry.dtype)
        if format_name is None:
            problem = f"has dtype {entry.dtype}; weights are f32, f16 or bf16"
            raise FormatError(self.path, f"tensor {shown(name)} {problem}")
        return StoredTensor(name, format_name, entry.shape, self.mapped(name))

    def mapped(self, name: str) -> np.ndarray:
        """The bytes of a tensor of any dtype, u8 [bytes], over the mapped pages of the file."""
        entry = self.entries[name]
        return self._bytes[entry.first : entry.last]

    @functools.cached_property
    def _bytes(self) -> np.ndarray:
        raw = np.frombuffer(map_file(self.path, "safetensors file", 8), np.uint8)
        start = 8 + len(self._header)
        size = start + max((entry.last for entry in self.entries.values()), default=0)
        if raw.size != size or raw[8:start].tobytes() != self._header:
            raise FormatError(self.path, "has changed since it was opened")
        return raw[start:]


def _read_header(file: BinaryIO) -> bytes:
    """The JSON of a file's header, small enough to be parsed. ValueError when the file has none such."""
    length = int.from_bytes(file.read(8), "little")
    if length > HEADER_BYTES:
        raise ValueError(f"a header of {length} bytes; it may have at most {HEADER_BYTES}")
    if length > os.fstat(file.fileno()).st_size - 8:  # and not after memory for it was taken
        raise ValueError(f"a header of {length} bytes does not fit into the file")
    header = file.read(length)
    check_marks(header, JSON_MARKS)
    return header


class SafetensorsLayout:
    """Where each tensor of a file will lie, from dtypes and shapes: so that several programs can write into one file.

    The same tensors give the same bytes, in whatever order they come: those of the `safetensors` package, which has the
    widest dtypes first, so that every tensor is aligned to its elements, and then the names in their order. At most one
    entry of metadata, since the package writes several in an order that changes from run to run.
    """

    def __init__(
        self, tensors: Mapping[str, tuple[np.dtype, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
    ):
        if metadata is not None and len(metadata) > 1:
            raise ValueError(
                f"{len(metadata)} entries of metadata; at most one, or the bytes of the file are not determined"
            )
        for name, (dtype, _) in tensors.items():
            if dtype not in _NAMES:
                raise TypeError(f"tensor {name!r} has dtype {dtype}, which safetensors does not know")
        header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
        self._first: dict[str, int] = {}  # by name, in the order of the file
        end = 0
        for name in sorted(tensors, key=lambda name: (_ORDER.index(_NAMES[tensors[name][0]]), name.encode())):
            dtype, shape = tensors[name]
            self._first[name], end = end, end + math.prod(shape) * dtype.itemsize
            header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [self._first[name], end]}
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._header = len(text).to_bytes(8, "little") + text
        self._bytes = len(self._header) + end

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def __iter__(self) -> Iterator[str]:
        """The names in the order of the file."""
        return iter(self._first)

    def create(self, path: str | os.PathLike[str]) -> None:
        """Makes the file, in its full length, with all tensors zero."""
        with naming(path), open(path, "wb") as file:
            file.write(self._header)
            file.truncate(self._bytes)

    def write(self, path: str | os.PathLike[str], parts: Iterable[tuple[str, int, np.ndarray]]) -> None:
        """Writes parts of its tensors into the file, straight from their memory, and waits until they are on the disk:
        of each its name, the first of its elements, and those from there on."""
        with naming(path), open(path, "r+b", buffering=0) as file:
            for name, first, array in parts:
                data = np.ascontiguousarray(array).reshape(-1)
                rest = memoryview(data.view(np.uint8))
                file.seek(len(self._header) + self._first[name] + first * data.itemsize)
                while rest:  # the system takes at most 2 GiB at once
                    rest = rest[file.write(rest) :]
            os.fsync(file.fileno())


def _described(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    return {name: (array.dtype, array.shape) for name, array in tensors.items()}


def write_safetensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes arrays straight from their memory: the same arrays give the same bytes. The caller sees to atomicity.

    Raises OSError when the system refuses. At most one entry of metadata.
    """
    layout = SafetensorsLayout(_described(tensors), metadata)
    layout.create(path)
    layout.write(path, ((name, 0, array) for name, array in tensors.items()))


class SafetensorsFolderLayout:
    """The same for `model.safetensors`, or for shards of at most `max_shard_bytes` with their index when one would be
    larger. A tensor that is larger than a shard gets a shard of its own."""

    def __init__(
        self,
        tensors: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
        metadata: Mapping[str, str] | None = None,
        max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    ):
        shards: list[dict[str, tuple[np.dtype, tuple[int, ...]]]] = [{}]
        filled = total = 0
        for name, (dtype, shape) in tensors.items():
            nbytes = math.prod(shape) * dtype.itemsize
            total += nbytes
            if shards[-1] and filled + nbytes > max_shard_bytes:
                shards.append({})
                filled = 0
            shards[-1][name] = dtype, shape
            filled += nbytes
        names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
        if len(shards) == 1:
            names = ["model.safetensors"]
        self._files = {name: SafetensorsLayout(shard, metadata) for name, shard in zip(names, shards, strict=True)}
        self._home = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
        self._total = total

    def create(self, folder: Path) -> None:
        """Makes the files, and the index where there is one."""
        for name, file in self._files.items():
            file.create(folder / name)
        if len(self._files) > 1:
            index = {"metadata": {"total_size": self._total}, "weight_map": self._home}
            text = json.dumps(index, indent=2) + "\n"
            (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")

    def write(self, folder: Path, parts: Iterable[tuple[str, int, np.ndarray]]) -> None:
        """Writes parts of tensors into the files. Those of a file stand one after the other, as the tensors did."""
        for name, of_file in itertools.groupby(parts, key=lambda part: self._home[part[0]]):
            self._files[name].write(folder / name, of_file)


def write_safetensors_folder(
    folder: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> None:
    """Writes `model.safetensors`, or shards of at most `max_shard_bytes` with their index when one would be larger."""
    layout = SafetensorsFolderLayout(_described(tensors), metadata, max_shard_bytes)
    layout.create(Path(folder))
    layout.write(Path(folder), ((name, 0, array) for name, array in tensors.items()))


class SafetensorsFolder(Joined[np.ndarray]):
    """The tensors of several safetensors files as one mapping; `dtype`, `shape` and `stored` as of one."""

    def dtype(self, name: str) -> np.dtype:
        return self.entries[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self.entries[name].shape

    def stored(self, name: str) -> StoredTensor:
        return self._home[name].stored(name)

    def file_name(self, name: str) -> str:
        """The file that holds a tensor."""
        return self._home[name].path.name


def read_safetensors_folder(folder: str | os.PathLike[str]) -> SafetensorsFolder:
    """Opens `model.safetensors`, or all shards that `model.safetensors.index.json` names."""
    folder = Path(folder)
    single, index_path = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if present(single):
        return SafetensorsFolder([SafetensorsFile(single)])
    if not present(index_path):
        raise missing_file(folder, "holds neither model.safetensors nor model.safetensors.index.json")
    weight_map = read_json(index_path, INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(value, str) for value in weight_map.values()):
        raise FormatError(index_path, "has no weight_map from tensor names to file names")
    for file_name in weight_map.values():
        if Path(file_name).name != file_name or file_name in ("", "..") or "\0" in file_name:
            raise FormatError(index_path, f"names the file {shown(file_name)}, which is outside its folder")
        if len(file_name.encode("utf-8", "surrogatepass")) > NAME_BYTES:
            raise FormatError(index_path, f"names the file {shown(file_name)}, longer than a name can be")
    tensors = SafetensorsFolder(SafetensorsFile(folder / name) for name in sorted(set(weight_map.values())))
    for name, file_name in weight_map.items():
        if name not in tensors or tensors.file_name(name) != file_name:
            raise FormatError(index_path, f"says that tensor {shown(name)} is in {excerpt(file_name)}, which lacks it")
    return tensors
