"""Rust source as text: comments, and calls and signatures laid out as rustfmt lays them out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

#: `max_width` in rust/rustfmt.toml; its `use_small_heuristics = "Max"` lets everything else be as wide.
WIDTH = 120

GENERATED = "Generated from bindings.h by `python -m nncuda.binding.rust rust`. Do not edit."


def mark(text: str) -> list[str]:
    """The first lines of a generated file: what it is, and that it is generated."""
    return [f"// {GENERATED}", "", *comment(text, "//!")]


def comment(text: str, prefix: str, indent: int = 0, escaped: bool = True) -> list[str]:
    """Text as comment lines; paragraphs are kept, lines are filled. Documentation needs what Markdown would read as
    markup escaped."""
    lines = []
    for index, paragraph in enumerate(text.strip().split("\n\n")):
        if index:
            lines.append(" " * indent + prefix)
        words = " ".join(paragraph.split())
        words = markdown(words) if escaped and prefix != "//" else words
        lines += [
            f"{' ' * indent}{prefix} {line}"
            for line in textwrap.wrap(words, WIDTH - indent - len(prefix) - 1, break_long_words=False,
                                      break_on_hyphens=False)  # fmt: skip
        ]
    return lines


def markdown(text: str) -> str:
    """Text with the signs that Markdown or rustdoc would take for markup escaped; what stands in backticks stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*\[\]<>])", r"\\\1", part) for part in parts)


def call(head: str, arguments: Iterable[str], tail: str, indent: int = 0) -> list[str]:
    """`head(arguments)tail` on one line where it fits, else an argument a line."""
    return _list(head + "(", arguments, ")" + tail, indent)


def array(head: str, items: Iterable[str], tail: str, indent: int = 0) -> list[str]:
    """`head[items]tail` on one line where it fits, else an item a line."""
    return _list(head + "[", items, "]" + tail, indent)


def _list(opening: str, items: Iterable[str], closing: str, indent: int) -> list[str]:
    items = list(items)
    line = " " * indent + opening + ", ".join(items) + closing
    if len(line) <= WIDTH:
        return [line]
    inner = " " * (indent + 4)
    return [" " * indent + opening, *(f"{inner}{item}," for item in items), " " * indent + closing]
