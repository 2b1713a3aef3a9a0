"""Names that nobody has: what was meant."""

from __future__ import annotations

from collections.abc import Iterable

from .formats.errors import shown

_LONGEST = 64  # characters; no name of ours has as many


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that was meant, None when there is none: one that a change of a letter makes of it (from six letters on
    two), or one that it is a part of or that is a part of it; of several the one with the fewest changes, then the
    first. Go and Rust find the same."""
    if len(name) > _LONGEST:
        return None
    wanted = name.lower().replace("-", "_")
    most = 2 if len(wanted) >= 6 else 1
    best, fewest = None, 0
    for candidate in known:
        changes = _changes(wanted, candidate)
        part = min(len(wanted), len(candidate)) >= 3 and (wanted in candidate or candidate in wanted)
        if (changes <= most or part) and (best is None or changes < fewest):
            best, fewest = candidate, changes
    return best


def unknown_option(kind: str, name: object, known: Iterable[str]) -> str:
    """What to say of an option of the model or of training that there is not."""
    near = nearest(name, known) if isinstance(name, str) else None
    rest = "`train --help` lists them" if near is None else f"did you mean {near}?"
    return f"there is no {kind} option {shown(name)}; {rest}"


def _changes(a: str, b: str) -> int:
    """How many letters must be put in, left out, replaced, or exchanged with the next (Damerau 1964)."""
    rows = [list(range(len(b) + 1))]
    for i, letter in enumerate(a, 1):
        row, above = [i], rows[-1]
        for j, other in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (letter != other)))
            if i > 1 and j > 1 and a[i - 2] == other and letter == b[j - 2]:
                row[j] = min(row[j], rows[-2][j - 2] + 1)
        rows.append(row)
    return rows[-1][-1]
