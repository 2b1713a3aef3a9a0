"""The committed list of the ABI's symbols, one file a major version, and the rule that a change needs a new version.

A minor version only adds, so that its part of the file is what it added to the one before.

`make abi` writes the list of the header's version as long as that is unreleased. It is no part of `make generate`: what
a program may rely on changes only where somebody says so. docs/versioning.md states the rule.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from nncuda.binding import header

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests/abi/symbols"

Version = tuple[int, int]


@dataclass(frozen=True)
class Symbols:
    """What a version of the ABI holds: its lines by name, and the first release with it, or ""."""

    version: Version
    release: str
    lines: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"ABI {self.version[0]}.{self.version[1]}"


def of_header(contract: header.Header, release: str = "") -> Symbols:
    """The symbols of a header."""
    functions = {name: function.declaration for name, function in contract.functions.items()}
    constants = {name: f"{name} = {value}" for name, value in contract.constants.items()}
    return Symbols(contract.abi, release, functions | constants)


def of_text(text: str) -> list[Symbols]:
    """The symbols of the minor versions of a file."""
    found: list[Symbols] = []
    for part in re.split(r"^(?=#)", text, flags=re.M)[1:]:
        first, *lines = part.splitlines()
        match = re.fullmatch(r"# ABI (\d+)\.(\d+), (?:unreleased|released with (\S+))", first)
        if not match:
            raise ValueError(
                f"a version begins with `# ABI 2.0, unreleased` or `# ABI 2.0, released with 0.3.0`, not {first!r}"
            )
        named = {re.search(r"\w+(?=\(| = )", line)[0]: line for line in lines}  # type: ignore[index]
        before = found[-1].lines if found else {}
        found.append(Symbols((int(match[1]), int(match[2])), match[3] or "", {**before, **named}))
    return found


def text(versions: Sequence[Symbols]) -> str:
    """The file of a major version: of each minor one what it adds, functions by name, then constants by name."""
    parts, before = [], set[str]()
    for symbols in versions:
        state = f"released with {symbols.release}" if symbols.release else "unreleased"
        added = sorted(set(symbols.lines) - before, key=lambda name: (name.isupper(), name))
        parts += [f"# {symbols.name}, {state}", *(symbols.lines[name] for name in added)]
        before |= set(added)
    return "\n".join([*parts, ""])


def committed(folder: Path = FOLDER) -> list[Symbols]:
    """The lists of all versions, oldest first."""
    return sorted(
        (symbols for path in folder.glob("*.txt") for symbols in of_text(path.read_text(encoding="utf-8"))),
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
    kept = [symbols for symbols in committed(folder) if symbols.release]
    if sentence := missing_bump(kept[-1], current):
        raise ValueError(sentence)
    if current.version != kept[-1].version:
        kept.append(current)
    files = {path_of(major, folder): text([*of]) for major, of in groupby(kept, lambda symbols: symbols.version[0])}
    for path in set(folder.glob("*.txt")) - set(files):
        path.unlink()
    for path, content in files.items():
        path.write_text(content, encoding="utf-8")


def path_of(major: int, folder: Path = FOLDER) -> Path:
    """The file of a major version."""
    return folder / f"{major}.txt"


def _some(changes: list[str], most: int = 5) -> str:
    rest = f" and {len(changes) - most} others" if len(changes) > most else ""
    return ", ".join(changes[:most]) + rest


if __name__ == "__main__":
    try:
        update(FOLDER, of_header(header.parse(ROOT / "bindings.h")))
    except ValueError as error:
        sys.exit(f"make abi: {error}")
