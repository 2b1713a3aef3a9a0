"""Plain text on disk: which files there are, their content, and the split into training and held-out files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from .errors import FormatError, missing_file
from .regular import read_regular


def find_texts(
    paths: Iterable[str | os.PathLike[str]], patterns: Sequence[str] = ("*",), skip_folders: Sequence[str] = ()
) -> list[Path]:
    """The files given, and those in the folders given whose names match a pattern, in the order of their paths.

    Hidden files and folders and those named in `skip_folders` are left out of folders. Raises FormatError when nothing
    is left.
    """
    found: dict[Path, None] = {}
    paths = [Path(path) for path in paths]
    for path in paths:
        if path.is_file():
            found[path] = None
        elif path.is_dir():
            matches = {file for pattern in patterns for file in path.rglob(pattern)}
            for file in sorted(matches, key=lambda file: file.relative_to(path).parts):
                inside = file.relative_to(path).parts
                hidden = any(part.startswith(".") for part in inside)
                if not hidden and not set(inside[:-1]) & set(skip_folders) and file.is_file():
                    found[file] = None
        else:
            problem = "is neither a file nor a folder"
            raise FormatError(path, problem) if path.exists() else missing_file(path, problem)
    if not found:
        raise FormatError(", ".join(map(str, paths)), f"no files match {', '.join(patterns)}")
    return list(found)


def read_text(path: str | os.PathLike[str]) -> str | None:
    """The text of a file; None when it is not text: not UTF-8, or with zero bytes in it."""
    try:
        text = read_regular(path).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def split_held_out(files: Sequence[Path], share: float) -> tuple[list[Path], list[Path]]:
    """Training and held-out files: each file falls to one side by a hash of its name, about `share` to the second.

    The split does not depend on which other files there are, nor on where their folder lies, unless one side would get
    none: then the file whose hash is nearest goes there.
    """
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; it must be between 0 and 1")
    if len(files) < 2:
        raise ValueError("a split into training and held-out text needs at least two files")
    root = os.path.commonpath([file.parent for file in files])
    names = {file: file.relative_to(root).as_posix().encode("utf-8", "surrogateescape") for file in files}
    draw = {file: int.from_bytes(hashlib.sha256(name).digest()[:8], "big") / 2**64 for file, name in names.items()}
    held_out = [file for file in files if draw[file] < share] or [min(files, key=draw.__getitem__)]
    if len(held_out) == len(files):
        held_out.remove(max(files, key=draw.__getitem__))
    chosen = set(held_out)
    return [file for file in files if file not in chosen], held_out
