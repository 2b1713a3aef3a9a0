"""Rust source as text: comments, and calls and signatures laid out as rustfmt lays them out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

#: `max_width` in rust/rustfmt.toml; its `use_small_heuristics = "Max"` lets everything else be as wide.
WIDTH = 120

GENERATED = "Generated from bindings.h by `make generate`. Do not edit."


def mark(text: str) -> list[str]:
    """The first lines of a generated file: what it is, and that it is generated."""
    return [f"// {GENERATED}", "", *comment(text, "//!")]


def comment(text: str, prefix: str, escaped: bool = True) -> list[str]:
    """Text as comment lines; paragraphs are kept, lines are filled. Documentation needs what Markdown would read as
    markup escaped."""
    lines = []
    for index, paragraph in enumerate(text.strip().split("\n\n")):
        if index:
            lines.append(prefix)
        words = " ".join(paragraph.split())
        words = markdown(words) if escaped and prefix != "//" else words
        lines += [
            f"{prefix} {line}"
            for line in textwrap.wrap(words, WIDTH - 5 - len(prefix), break_long_words=False, break_on_hyphens=False)
        ]
    return lines


def markdown(text: str) -> str:
    """Text with the signs that Markdown or rustdoc would take for markup escaped; what stands in backticks stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*\[\]<>])", r"\\\1", part) for part in parts)


def call(head: str, arguments: Iterable[str], tail: str, depth: int = 0) -> list[str]:
    """`head(arguments)tail` on one line where it fits, else an argument a line. The lines are for a place `depth`
    columns in, where the caller puts them."""
    return _list(head + "(", list(arguments), ")" + tail, depth)


def array_call(head: str, items: Iterable[str], tail: str, depth: int = 0) -> list[str]:
    """`call` with one argument, a slice of an array."""
    return _list(head + "(&[", list(items), "])" + tail, depth)


def binding(head: str, opening: str, items: Iterable[str], closing: str, depth: int = 0) -> list[str]:
    """`head = opening items closing` on one line where it fits, else with the right side on a line of its own where
    that fits, else an item a line."""
    items = list(items)
    lines = _list(f"{head} = {opening}", items, closing, depth)
    right = _list(opening, items, closing, depth + 4)
    return [f"{head} =", *indented(right)] if len(lines) > 1 and len(right) == 1 else lines


def indented(lines: Iterable[str], columns: int = 4) -> list[str]:
    return [" " * columns + line for line in lines]


def _list(opening: str, items: list[str], closing: str, depth: int) -> list[str]:
    line = opening + ", ".join(items) + closing
    if len(line) + depth <= WIDTH:
        return [line]
    return [opening, *(f"    {item}," for item in items), closing]
