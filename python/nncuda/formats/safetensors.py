"""safetensors files and folders of them, through the `safetensors` package.

A file is eight bytes of header length (little-endian), that many bytes of JSON, then the tensors' bytes, row-major and
little-endian, without holes (https://github.com/huggingface/safetensors, section "Format"). A folder holds either
`model.safetensors` or shards with `model.safetensors.index.json`, as transformers writes them.
"""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

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


def write_safetensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes arrays straight from their memory: the same arrays give the same bytes. The caller sees to atomicity.

    Raises OSError when the system refuses. At most one entry of metadata, since the package writes several in an order
    that changes from run to run.
    """
    if metadata is not None and len(metadata) > 1:
        raise ValueError(
            f"{len(metadata)} entries of metadata; at most one, or the bytes of the file are not determined"
        )
    for name, array in tensors.items():
        if array.dtype not in DTYPES.values():
            raise TypeError(f"tensor {name!r} has dtype {array.dtype}, which safetensors does not know")
    dense = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    # The package puts a file of its own, which its owner alone may read, in this one's place.
    with open(path, "ab") as file:
        mode = os.fstat(file.fileno()).st_mode
    try:
        save_file(dense, path, metadata=None if metadata is None else dict(metadata))
        os.chmod(path, stat.S_IMODE(mode))
    except SafetensorError as error:  # such as a full disk, of which the package has the system's number in its text
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is None:
            raise OSError(errno.EIO, str(error), str(path)) from error
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error


def write_safetensors_folder(
    folder: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> None:
    """Writes `model.safetensors`, or shards of at most `max_shard_bytes` with their index when one would be larger.

    A tensor that is larger than a shard gets a shard of its own.
    """
    folder = Path(folder)
    shards: list[dict[str, np.ndarray]] = [{}]
    filled = 0
    for name, array in tensors.items():
        if shards[-1] and filled + array.nbytes > max_shard_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = array
        filled += array.nbytes
    if len(shards) == 1:
        write_safetensors(folder / "model.safetensors", shards[0], metadata)
        return
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(folder / file_name, shard, metadata)
        weight_map.update(dict.fromkeys(shard, file_name))
    total = sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


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
