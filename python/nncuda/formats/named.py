"""Mappings from names to tensors, of one file or of several; names are known without reading a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from .errors import FormatError, shown

Read = TypeVar("Read")


class Named(Mapping[str, Read]):
    """A mapping with the names of `entries`, the descriptions of a file's tensors."""

    entries: Mapping[str, Any]

    def __contains__(self, name: object) -> bool:
        return name in self.entries  # without reading it, as a Mapping's own would

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class Joined(Named[Read]):
    """The tensors of several files of one kind as one mapping. FormatError for one that two of them have."""

    def __init__(self, files: Iterable[Any]):
        self.entries: dict[str, Any] = {}
        self._home: dict[str, Any] = {}
        for file in files:
            for name, entry in file.entries.items():
                if name in self._home:
                    raise FormatError(file.path, f"tensor {shown(name)} is in {self._home[name].path.name} as well")
                self._home[name], self.entries[name] = file, entry

    def __getitem__(self, name: str) -> Read:
        found: Read = self._home[name][name]
        return found

    def mapped(self, name: str) -> np.ndarray:
        """The bytes of a tensor of any dtype, u8 [bytes], over the mapped pages of its file."""
        mapped: np.ndarray = self._home[name].mapped(name)
        return mapped
