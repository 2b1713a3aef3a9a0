"""JSON from files: one set of rules for all of them, and for all languages of this project.

A key stands once in an object, since readers differ in which of two they take. Nesting, digits and the number of values
are bounded, so that a text takes memory and time in proportion to its size. NaN and Infinity are read, as they may
stand where a loss does; who uses a number checks it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from .errors import FormatError, cannot_read, shown
from .limits import JSON_BYTES, JSON_DEPTH, JSON_DIGITS, JSON_MARKS, LINE_BYTES
from .regular import open_regular, read_regular

_STRING = re.compile(rb'"[^"]*(?:"|\Z)')  # in a text without escapes
_PIECE = 1 << 20  # bytes that are looked at together


def read_json(path: str | os.PathLike[str], most: int = JSON_BYTES, marks: int = JSON_MARKS) -> dict[str, object]:
    """A JSON file that holds an object, of at most so many bytes. FormatError when it is none."""
    return parse_json(path, read_regular(path, most), marks)


def parse_json(path: str | os.PathLike[str], text: bytes, marks: int = JSON_MARKS) -> dict[str, object]:
    """The object of a JSON text that came from `path`. FormatError when it is none."""
    try:
        value = json_value(text, marks)
    except ValueError as error:
        raise FormatError(path, f"is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FormatError(path, "is not a JSON object")
    return value


def json_value(text: bytes, marks: int = JSON_MARKS) -> object:
    """The value of a JSON text. ValueError when it is none, or breaks the rules above."""
    check_marks(text, marks)
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise ValueError(f"a whole number has more than {JSON_DIGITS} digits") from error
        raise
    if text.count(b"[") + text.count(b"{") > JSON_DEPTH and not _depth_is_allowed(value):
        raise ValueError(_TOO_DEEP)
    return value


def check_marks(text: bytes, most: int) -> None:
    """ValueError when a JSON text has more than so many brackets, braces, commas and colons outside its strings."""
    if _marks(text) <= most:
        return
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    marks, start = 0, b""
    for at in range(0, len(plain), _PIECE):
        piece = start + plain[at : at + _PIECE]
        marks += _marks(_STRING.sub(b"", piece))
        if marks > most:
            raise ValueError(f"it has more than {most} brackets, commas and colons")
        start = b'"' if piece.count(b'"') % 2 else b""  # the next piece begins inside a string, or does not


def json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[bytes, dict[str, object] | None]]:
    """The lines of a JSONL file with their ends, each with its object; None where it holds none, or one that breaks the
    rules. FormatError as of `numbered_lines`."""
    for _, line in numbered_lines(path):
        try:
            value = json_value(line)
        except ValueError:
            value = None
        yield line, value if isinstance(value, dict) else None


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """The lines of a JSONL file with their ends, from number 1 on. FormatError when the file cannot be read, or a line
    is longer than any record."""
    with open_regular(path) as file:
        number = 0
        while True:
            number += 1
            try:
                line = file.readline(LINE_BYTES + 1)
            except OSError as error:
                raise cannot_read(path, error) from error
            if not line:
                return
            if len(line) > LINE_BYTES:
                raise FormatError(path, f"line {number} has more than {LINE_BYTES} bytes")
            yield number, line


_TOO_DEEP = f"it is nested deeper than {JSON_DEPTH} levels"


def _marks(text: bytes) -> int:
    return sum(text.count(mark) for mark in b"[{,:")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {shown(key)} is twice in one object")
            seen.add(key)
    return values


def _depth_is_allowed(value: object) -> bool:
    level, depth = [value], 0
    while level and depth <= JSON_DEPTH:
        inner = [part for part in level if isinstance(part, list | dict)]
        level = [entry for part in inner for entry in (part.values() if isinstance(part, dict) else part)]
        depth += 1
    return not level
