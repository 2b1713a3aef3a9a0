"""Low-rank adapters in GGUF files, as llama.cpp reads them.

Such a file has the base's `general.architecture`, `general.type` "adapter", `adapter.type` "lora" and
`adapter.lora.alpha`, and of each matrix that is adapted, under the name that GGUF files have for it,

    NAME.lora_a    [rank, in]
    NAME.lora_b    [out, rank]

The scale is alpha / rank, 1 where alpha is 0 or not there. The rows of lora_b are in the order of the base's GGUF
files, which of queries and keys is another than that of folders in some families.
(llama.cpp: src/llama-adapter.cpp and llama-adapter.h for what is read, convert_lora_to_gguf.py for what is written)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..formats.errors import FormatError, shown
from ..formats.gguf import ARCHITECTURE_KEY, GGUFFile
from ..formats.gguf_writer import NewTensor, write_gguf
from .families import FAMILIES
from .gguf_names import gguf_name, name_of_gguf

if TYPE_CHECKING:
    from ..formats.block_formats import StoredTensor
    from .adapter import Adapter
    from .llama import LlamaConfig

TYPE, KIND, ALPHA = "general.type", "adapter.type", "adapter.lora.alpha"
#: What says something of a file, or of how its users ask, and nothing of what it computes.
_NEUTRAL = re.compile(r"general\..+|adapter\.lora\.(task_name|prompt_prefix)")
_FACTOR = re.compile(r"(.+)\.lora_(a|b)")


class Factor(NamedTuple):
    """A tensor of a file of an adapter: its name there, what that says of its matrix (None: it is no factor of one),
    the matrix's name in `LlamaConfig.shapes` (None: there is no such one), and which of the two it is, "A" or "B"."""

    theirs: str
    module: str | None
    name: str | None
    which: str
    tensor: StoredTensor


class GGUFAdapter:
    """Opens a GGUF file of an adapter of a model with that configuration: `rank`, `scale` and `factors`, whose rows are
    in the order of folders. FormatError when it is of another family, or asks for what this program does not do."""

    def __init__(self, path: Path, config: LlamaConfig):
        self._file, self._config = GGUFFile(path), config
        metadata = self._file.metadata
        family = FAMILIES[config.family]
        for key, values in ((TYPE, ("adapter",)), (KIND, ("lora",)), (ARCHITECTURE_KEY, family.architectures)):
            found = metadata.get(key)
            if type(found) is not str or found not in values:
                wanted = " or ".join(map(repr, values))
                raise FormatError(path, f"{key} is {shown(found)}; an adapter of this model has {wanted}")
        for key, value in metadata.items():
            known = key in (KIND, ALPHA) or _NEUTRAL.fullmatch(key)
            if not known and not (isinstance(value, int | float | str) and not value):
                raise FormatError(path, f"{key} is {shown(value)}; this program does not know that key of an adapter")
        alpha = metadata.get(ALPHA, 0.0)
        if type(alpha) not in (int, float) or not abs(alpha) <= float(np.finfo(np.float32).max):
            raise FormatError(path, f"{ALPHA} is {shown(alpha)}; it must be a finite number of f32")
        self._interleaved = family.interleaved
        first = next((factor.tensor for factor in self.factors() if factor.which == "A"), None)
        #: That of all matrices, or, where these differ, of the first.
        self.rank = 1 if first is None else first.shape[0]
        self.scale = alpha / self.rank if alpha else 1.0

    def factors(self) -> Iterator[Factor]:
        for theirs in self._file:
            match, tensor = _FACTOR.fullmatch(theirs), self._file[theirs]
            if match is None:
                yield Factor(theirs, None, None, "", tensor)
                continue
            name = name_of_gguf(match[1])
            if match[2] == "a" and len(tensor.shape) == 1:  # of rank 1: files may leave such a dimension out
                tensor = dataclasses.replace(tensor, shape=(1, *tensor.shape))
            if match[2] == "b" and name is not None and self._interleaved:
                tensor = _in_order_of_folders(tensor, name, self._config)
            yield Factor(theirs, match[1], name, match[2].upper(), tensor)


def interleaved_order(head_dim: int) -> list[int]:
    """Rows of a head with half-split pairs in the order in which each pair is side by side."""
    return [row for pair in range(head_dim // 2) for row in (pair, pair + head_dim // 2)]


def _in_order_of_folders(tensor: StoredTensor, name: str, config: LlamaConfig) -> StoredTensor:
    """Rows of queries and keys, whose heads have their pairs side by side, in the order of half-split pairs. A tensor
    of a shape that it should not have stays as it is."""
    if not is_rotated(name) or len(tensor.shape) != 2 or tensor.shape[0] % config.head_dim:
        return tensor
    return _ordered(tensor, np.argsort(interleaved_order(config.head_dim)).tolist())


def is_rotated(name: str) -> bool:
    """Whether a matrix is that of queries or keys, by its name."""
    return name.endswith(("q_proj.weight", "k_proj.weight"))


def _ordered(tensor: StoredTensor, order: list[int]) -> StoredTensor:
    heads = tensor.rows().reshape(-1, len(order), tensor.row_bytes)
    return dataclasses.replace(tensor, data=np.ascontiguousarray(heads[:, order]).reshape(-1))


def write_adapter_gguf(path: Path, adapter: Adapter, config: LlamaConfig) -> None:
    """Writes an adapter of a model with that configuration as a GGUF file, each factor in its dtype. The same adapter
    gives the same bytes. ValueError for a scale that such files have no number for, OSError when the system refuses."""
    if not np.isfinite(adapter.alpha) or adapter.alpha == 0:
        raise ValueError(f"the adapter's scale is {adapter.scale:g}; a GGUF file has scale * rank in f32, other than 0")
    family, order = FAMILIES[config.family], interleaved_order(config.head_dim)
    metadata: Mapping[str, Any] = {
        ARCHITECTURE_KEY: family.architectures[0],
        TYPE: "adapter",
        KIND: "lora",
        ALPHA: adapter.alpha,
    }
    tensors: list[tuple[NewTensor, np.ndarray]] = []
    for name, pair in adapter.factors.items():
        b = _ordered(pair.b, order) if family.interleaved and is_rotated(name) else pair.b
        for which, tensor in (("a", pair.a), ("b", b)):
            new = NewTensor(f"{gguf_name(name)}.lora_{which}", tensor.format, tensor.shape)
            tensors.append((new, tensor.data))
    with write_gguf(path, metadata, [new for new, _ in tensors]) as writer:
        for new, data in tensors:
            writer.write(new.name, data)
