"""The page of tuning constants: every constant of the GPU engine whose comment says how it was chosen, in one table.

A comment with the words "by count" (from bytes, registers, clocks) or "measured on" (a GPU that it names) stands before
the constants, or behind them on their line. What it says is the row's reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nncuda.binding import header

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/gpu-tuning.md"
OWNED = (PAGE,)

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CHOSEN = re.compile(r"\bby (?:this )?count\b|\bmeasured on\b", re.IGNORECASE)
DECLARES = re.compile(r"\b(?:constexpr|enum|using|struct)\b")
#: A name and a value: one with a number in it, since what is made of other names alone follows from those.
CONSTANT = re.compile(
    r"\busing (?P<alias>\w+) = (?P<type>[^;]*\d[^;]*);"
    r"|\bstruct (?P<struct>\w+<[\w, ]+>)"
    r"|\b(?P<name>[A-Z]\w*) = (?P<value>(?:\([^()]*\)|[^,;{}()])*)(?=[,;}])"
)

INTRODUCTION = """\
<!-- Generated from the sources by `make generate`. Do not edit. -->
# Tuning constants of the GPU engine

Tiles, threads of a block, loads under way, and the sizes from which another kernel serves: the constants that decide
speed, with what chose them. The table is made of the comments beside them. "By count" means from bytes, registers,
shared memory and clocks, without a measurement; of a constant that a GPU has measured the reason says so, and names it.
A constant that decides how a sum is cut follows from sizes alone, never from the GPU
([the same bits](gpu.md#the-same-bits)): changing it changes bits, and belongs in the changelog.

Other tiles are tried on a GPU by `tests/gpu/variants.py`
([a session on a bare machine](gpu.md#a-session-on-a-bare-machine)).

| file | constants | what chose them |
|---|---|---|
"""


@dataclass(frozen=True)
class Choice:
    """Constants that one comment explains."""

    file: str
    constants: tuple[str, ...]
    reason: str


def paragraphs(comment: str) -> Iterator[str]:
    """Those of a comment that say what chose something, each on one line."""
    text = re.sub(r"\n[ \t]*\*[ \t]?", "\n", comment[2:-2]).strip()
    for part in re.split(r"\n\s*\n", text):
        line = " ".join(part.split())
        if CHOSEN.search(line):
            yield line


def declared(code: str) -> tuple[str, ...]:
    """The constants in the first declarations of some code, up to an empty line."""
    for block in re.split(r"\n\s*\n", COMMENT.sub("", code)):
        text = " ".join(block.split()) if DECLARES.search(block) else ""
        found: list[str] = []
        label = ""
        for match in CONSTANT.finditer(text):
            if match["struct"]:
                label = f"{match['struct']}: "
            name, value = match["alias"] or match["name"], match["type"] or match["value"] or ""
            if re.search(r"\d", re.sub(r"[A-Za-z]\w*", "", value)):
                found.append(f"{label}{name} = {value.strip()}")
        if found:
            return tuple(found)
    return ()


def choices(text: str, file: str) -> Iterator[Choice]:
    """Of one source file."""
    for match in COMMENT.finditer(text):
        reason = " ".join(paragraphs(match[0]))
        if not reason:
            continue
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        constants = declared(before if before.strip() else text[match.end() :])
        if not constants:
            raise ValueError(f"{file}: no constants follow a comment that says what chose them: {reason}")
        yield Choice(file, constants, reason[0].upper() + reason[1:])


def line_of(row: Choice) -> str:
    constants = ", ".join(f"`{constant}`" for constant in row.constants)
    cells = (text.replace("|", "\\|") for text in (row.file, constants, row.reason))
    return f"| {' | '.join(cells)} |"


def files(_contract: header.Header, _source: bytes) -> dict[str, str]:
    """The page, by its path; it does not depend on the ABI."""
    rows = []
    for path in sorted(path for folder in ("abi", "kernels") for path in (ROOT / "cuda" / folder).rglob("*")):
        if path.suffix in (".cu", ".cuh", ".h"):
            rows += list(choices(path.read_text(encoding="utf-8"), path.relative_to(ROOT / "cuda").as_posix()))
    return {PAGE: INTRODUCTION + "\n".join(map(line_of, rows)) + "\n"}
