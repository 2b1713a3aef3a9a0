"""A TOML file with options: its tables, and where in it an entry stands, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..formats import FormatError


class ConfigFile(dict[str, Any]):
    """The tables of a file by their names; those of no file when nothing is given."""

    def __init__(self, path: Path = Path(), text: str = "", tables: dict[str, Any] | None = None):
        super().__init__(tables or {})
        self.path, self._text = path, text

    def wrong(self, problem: str, table: str, name: str = "") -> FormatError:
        """The error of an entry of a table, or of the table itself."""
        line = self._line(table, name)
        return FormatError(self.path, f"line {line}: {problem}" if line else problem)

    def _line(self, table: str, name: str) -> int:
        """Where `name` is set, else where its table begins; 0 when neither is found, as in unusual notations."""
        first = 0
        for number, keys in self._keys():
            if keys[:2] == [table, name]:
                return number
            if keys[0] == table:
                first = first or number
        return first

    def _keys(self) -> Iterator[tuple[int, list[str]]]:
        """The whole name of the table or entry of each line that has one."""
        table: list[str] = []
        for number, line in enumerate(self._text.split("\n"), 1):
            line = line.strip()
            if line.startswith("["):
                table = _parts(line.lstrip("[").partition("]")[0])
                yield number, table
            elif "=" in line:
                yield number, table + _parts(line.partition("=")[0])


def _parts(key: str) -> list[str]:
    return [part.strip(" \t\"'") for part in key.split(".")]
