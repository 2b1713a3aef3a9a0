"""The committed list of the ABI's symbols, one file a version, and the rule that a change of them needs a new version.

`make abi` writes the list of the header's version as long as that is unreleased. It is no part of `make generate`: what
a program may rely on changes only where somebody says so. docs/versioning.md states the rule.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from nncuda.binding import header

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests/abi/symbols"

Version = tuple[int, int]


@dataclass(frozen=True)
class Symbols:
    """What a version of the ABI holds: its lines by name, and the first release with it, empty while there is none."""

    version: Version
    release: str
    lines: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"ABI {self.version[0]}.{self.version[1]}"

    @property
    def text(self) -> str:
        """The file: functions by name, then constants by name."""
        state = f"released with {self.release}" if self.release else "unreleased"
        return "\n".join(
            [f"# {self.name}, {state}", *(self.lines[name] for name in sorted(self.lines, key=_order)), ""]
        )


def of_header(contract: header.Header, release: str = "") -> Symbols:
    """The symbols of a header."""
    functions = {name: function.declaration for name, function in contract.functions.items()}
    constants = {name: f"{name} = {value}" for name, value in contract.constants.items()}
    return Symbols(contract.abi, release, functions | constants)


def of_text(text: str) -> Symbols:
    """The symbols of a file."""
    first, *lines = text.splitlines()
    match = re.fullmatch(r"# ABI (\d+)\.(\d+), (?:unreleased|released with (\S+))", first)
    if not match:
        raise ValueError(
            f"a list begins with `# ABI 2.0, unreleased` or `# ABI 2.0, released with 0.3.0`, not {first!r}"
        )
    named = {re.search(r"\w+(?=\(| = )", line)[0]: line for line in lines}  # type: ignore[index]
    return Symbols((int(match[1]), int(match[2])), match[3] or "", named)


def committed(folder: Path = FOLDER) -> list[Symbols]:
    """The lists of all versions, oldest first."""
    return sorted(
        (of_text(path.read_text(encoding="utf-8")) for path in folder.glob("*.txt")),
        key=lambda symbols: symbols.version,
    )


def difference(old: Symbols, new: Symbols) -> tuple[list[str], list[str]]:
    """What a minor version may bring, and what takes a major one, in words."""
    added = [f"{name} was added" for name in new.lines if name not in old.lines]
    broken = [f"{name} was removed" for name in old.lines if name not in new.lines]
    broken += [f"{name} was changed" for name, line in old.lines.items() if new.lines.get(name, line) != line]
    return added, broken


def missing_bump(old: Symbols, new: Symbols) -> str:
    """What is wrong between a version and a later state of the contract, in a sentence; empty when nothing is."""
    added, broken = difference(old, new)
    same_major = new.version[0] == old.version[0]
    if broken and same_major:
        return (
            f"after {old.name}, {_some(broken)}: that needs NNCUDA_ABI_MAJOR {old.version[0] + 1}, NNCUDA_ABI_MINOR 0"
        )
    if added and new.version == old.version:
        return f"after {old.name}, {_some(added)}: that needs NNCUDA_ABI_MINOR {old.version[1] + 1}"
    following = ((old.version[0], old.version[1] + 1), (old.version[0] + 1, 0))
    if new.version != old.version and new.version not in following:
        return f"{new.name} does not follow {old.name}"
    return ""


def problem(lists: list[Symbols], current: Symbols) -> str:
    """What is wrong with the committed lists and the header, in a sentence; empty when nothing is."""
    released = [symbols for symbols in lists if symbols.release]
    for old, new in pairwise([*released, current]):
        if sentence := missing_bump(old, new):
            return sentence
    planned = [symbols for symbols in lists if not symbols.release]
    if current.version == released[-1].version:
        return f"{planned[0].name} has a list, but bindings.h is of {current.name}: run `make abi`" if planned else ""
    if [symbols.version for symbols in planned] != [current.version]:
        return f"{current.name} has no list: run `make abi`"
    added, broken = difference(planned[0], current)
    return f"in bindings.h, {_some(broken + added)}: if that is meant, run `make abi`" if added or broken else ""


def update(folder: Path, current: Symbols) -> None:
    """Writes the list of the header's version where that is unreleased. ValueError says which version it must have."""
    lists = committed(folder)
    last = [symbols for symbols in lists if symbols.release][-1]
    if sentence := missing_bump(last, current):
        raise ValueError(sentence)
    for symbols in lists:
        if not symbols.release:
            _path(folder, symbols).unlink()
    if current.version != last.version:
        _path(folder, current).write_text(current.text, encoding="utf-8")


def _path(folder: Path, symbols: Symbols) -> Path:
    return folder / f"{symbols.version[0]}.{symbols.version[1]}.txt"


def _order(name: str) -> tuple[bool, str]:
    return name.isupper(), name


def _some(changes: list[str], most: int = 5) -> str:
    rest = f" and {len(changes) - most} others" if len(changes) > most else ""
    return ", ".join(changes[:most]) + rest


if __name__ == "__main__":
    try:
        update(FOLDER, of_header(header.parse(ROOT / "bindings.h")))
    except ValueError as error:
        sys.exit(f"make abi: {error}")
