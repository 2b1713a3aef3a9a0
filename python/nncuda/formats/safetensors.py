"""safetensors files and folders of them, read by memory map and written without a second copy in memory.

A file is eight bytes of header length (little-endian), that many bytes of JSON, then the tensors' bytes, row-major and
little-endian, without holes (https://github.com/huggingface/safetensors, section "Format"). A folder holds either
`model.safetensors` or shards with `model.safetensors.index.json`, as transformers writes them.

Own code rather than the `safetensors` package, because that one builds a whole file in memory before writing it, which
a model of several gigabytes cannot afford, and because its errors do not name the file. The tests use both.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from .errors import FormatError

_DTYPES: dict[str, np.dtype] = {
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
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MAX_HEADER = 100_000_000  # the format's own limit

DEFAULT_SHARD_BYTES = 5_000_000_000


class SafetensorsFile(Mapping[str, np.ndarray]):
    """A safetensors file as a mapping from name to a read-only array over the mapped file.

    The header is checked in full on opening: names, dtypes, shapes, and that the tensors cover the data exactly, so a
    truncated or foreign file raises FormatError here and not later. `metadata` is the file's own text entries.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.metadata: dict[str, str] = {}
        self._entries: dict[str, tuple[np.dtype, tuple[int, ...], int]] = {}
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < 8:
                    raise FormatError(path, f"is {size} bytes long; a safetensors file has at least 8")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
        length = int.from_bytes(self._map[:8], "little")
        if length > min(_MAX_HEADER, size - 8):
            raise FormatError(
                path,
                f"claims a header of {length} bytes in a file of {size}: it is truncated, or not a safetensors file",
            )
        self._parse(self._map[8 : 8 + length], 8 + length, size)

    def _parse(self, text: bytes, data_start: int, size: int) -> None:
        def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
            found: dict[str, object] = {}
            for key, value in pairs:
                if key in found:
                    raise FormatError(self.path, f"its header has {key!r} twice")
                found[key] = value
            return found

        try:
            header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise FormatError(
                self.path, f"its header is not JSON, so it is not a safetensors file ({error})"
            ) from error
        if not isinstance(header, dict):
            raise FormatError(self.path, "its header is not a JSON object, so it is not a safetensors file")
        spans = []
        for name, entry in header.items():
            if name == "__metadata__":
                if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
                    raise FormatError(self.path, "its __metadata__ is not a map from text to text")
                self.metadata = entry
                continue
            dtype, shape, begin, end = self._check_entry(name, entry, size - data_start)
            self._entries[name] = (dtype, shape, data_start + begin)
            spans.append((begin, end, name))
        position = 0
        for begin, end, name in sorted(spans):
            if begin != position:
                raise FormatError(self.path, f"tensor {name!r} begins at byte {begin} of the data, expected {position}")
            position = end
        if position != size - data_start:
            raise FormatError(
                self.path, f"holds {size - data_start} bytes of data, but its header describes {position}"
            )

    def _check_entry(self, name: str, entry: object, room: int) -> tuple[np.dtype, tuple[int, ...], int, int]:
        def whole(value: object) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0

        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
            raise FormatError(self.path, f"tensor {name!r} lacks dtype, shape or data_offsets")
        dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if dtype is None:
            raise FormatError(self.path, f"tensor {name!r} has the unknown dtype {entry['dtype']!r}")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not isinstance(shape, list) or not all(map(whole, shape)):
            raise FormatError(self.path, f"tensor {name!r} has the impossible shape {shape!r}")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(whole, offsets)):
            raise FormatError(self.path, f"tensor {name!r} has the impossible data_offsets {offsets!r}")
        begin, end = offsets
        bytes_needed = dtype.itemsize
        for extent in shape:
            bytes_needed *= extent
        if end - begin != bytes_needed:
            raise FormatError(self.path, f"tensor {name!r} takes {bytes_needed} bytes but is given {end - begin}")
        if end > room:
            raise FormatError(
                self.path, f"tensor {name!r} ends at byte {end} of the data, which has {room}: truncated?"
            )
        return dtype, tuple(shape), begin, end

    def __getitem__(self, name: str) -> np.ndarray:
        dtype, shape, offset = self._entries[name]
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.empty(shape, dtype)
        return np.frombuffer(self._map, dtype, count, offset).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def dtype(self, name: str) -> np.dtype:
        """The dtype of a tensor, without reading it."""
        return self._entries[name][0]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return self._entries[name][1]


def write_safetensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes arrays, in the order of the mapping, straight from their memory. The caller sees to atomicity."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, array in tensors.items():
        if array.dtype not in _NAMES:
            raise TypeError(f"tensor {name!r} has dtype {array.dtype}, which safetensors does not know")
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # so that the data is aligned for whoever maps the file
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


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


class SafetensorsFolder(Mapping[str, np.ndarray]):
    """The tensors of several safetensors files as one mapping."""

    def __init__(self, files: Iterable[SafetensorsFile]):
        self._home: dict[str, SafetensorsFile] = {}
        for file in files:
            for name in file:
                if name in self._home:
                    raise FormatError(file.path, f"tensor {name!r} is in {self._home[name].path.name} as well")
                self._home[name] = file

    def __getitem__(self, name: str) -> np.ndarray:
        return self._home[name][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def __len__(self) -> int:
        return len(self._home)

    def dtype(self, name: str) -> np.dtype:
        """The dtype of a tensor, without reading it."""
        return self._home[name].dtype(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return self._home[name].shape(name)

    def file_name(self, name: str) -> str:
        """The file that holds a tensor."""
        return self._home[name].path.name


def read_safetensors_folder(folder: str | os.PathLike[str]) -> SafetensorsFolder:
    """Opens `model.safetensors`, or all shards that `model.safetensors.index.json` names."""
    folder = Path(folder)
    single, index_path = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return SafetensorsFolder([SafetensorsFile(single)])
    if not index_path.exists():
        raise FormatError(folder, "holds neither model.safetensors nor model.safetensors.index.json")
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(value, str) for value in weight_map.values()):
        raise FormatError(index_path, "has no weight_map from tensor names to file names")
    for file_name in weight_map.values():
        if Path(file_name).name != file_name:
            raise FormatError(index_path, f"names the file {file_name!r}, which is outside its folder")
    tensors = SafetensorsFolder(SafetensorsFile(folder / name) for name in sorted(set(weight_map.values())))
    for name, file_name in weight_map.items():
        if name not in tensors or tensors.file_name(name) != file_name:
            raise FormatError(index_path, f"says that tensor {name!r} is in {file_name}, which lacks it")
    return tensors


def read_json(path: str | os.PathLike[str]) -> dict[str, object]:
    """A JSON file that holds an object."""
    try:
        value = json.loads(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FormatError(path, f"is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FormatError(path, "is not a JSON object")
    return value
