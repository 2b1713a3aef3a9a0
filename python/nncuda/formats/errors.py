"""What every reader raises when a file is not what it should be."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from os import PathLike
from typing import Any

from .limits import PROBLEM_CHARACTERS, SHOWN_CHARACTERS


def printable(text: str) -> str:
    """Text from a file, fit for a terminal: what is not a printable character, such as the start of an escape sequence
    that clears the screen or renames the window, is spelled as in Python."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def shown(value: object) -> str:
    """A value from a file as messages quote it: in Python's notation, cut off where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # the former for a whole number of more than 4300 digits
        text = f"a {type(value).__name__} that is too large to show"
    return excerpt(text)


def excerpt(text: str) -> str:
    """A text from a file as messages show it, cut off where it is long."""
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


class FormatError(ValueError):
    """A file is corrupt, truncated, or of another kind. The message names the file and what is wrong with it.

    Where the system is the reason, it is the OSError of that reason as well, with `errno` and `filename`: a file that
    is missing is a FileNotFoundError.
    """

    def __init__(self, path: str | PathLike[str], problem: str):
        if len(problem) > PROBLEM_CHARACTERS:
            problem = f"{problem[: PROBLEM_CHARACTERS // 2]} … {problem[-PROBLEM_CHARACTERS // 2 :]}"
        super().__init__(f"{path}: {printable(problem)}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.problem)


class UnreadableError(FormatError, OSError):
    """A file that the system does not let us read."""

    def __new__(cls, path: str | PathLike[str], problem: str, number: int = errno.EIO) -> UnreadableError:
        # Without arguments: OSError would take the first for its number, and look for a subclass of its own.
        return OSError.__new__(cls)

    def __init__(self, path: str | PathLike[str], problem: str, number: int = errno.EIO):
        super().__init__(path, problem)
        self.errno, self.strerror, self.filename = number, os.strerror(number), os.fspath(path)

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.problem, self.errno)


class MissingFileError(UnreadableError, FileNotFoundError):
    """A file or folder, or something that it should hold, is not there."""


class NotAFileError(UnreadableError, IsADirectoryError):
    """A folder is where a file should be."""


class NotAFolderError(UnreadableError, NotADirectoryError):
    """A file is where a folder should be."""


class ForbiddenFileError(UnreadableError, PermissionError):
    """A file that this user may not read."""


_BY_NUMBER: dict[int | None, type[UnreadableError]] = {
    errno.ENOENT: MissingFileError,
    errno.EISDIR: NotAFileError,
    errno.ENOTDIR: NotAFolderError,
    errno.EACCES: ForbiddenFileError,
    errno.EPERM: ForbiddenFileError,
}


def unreadable(path: str | PathLike[str], problem: str, number: int | None) -> FormatError:
    """The error of a file for which the system has that error number, in other words than its own."""
    return _BY_NUMBER.get(number, UnreadableError)(path, problem, errno.EIO if number is None else number)


def cannot_read(path: str | PathLike[str], error: OSError) -> FormatError:
    """The error of a file that the system does not let us read; a FormatError stays what it is."""
    if isinstance(error, FormatError):
        return error
    return unreadable(path, f"cannot be read: {error.strerror or error}", error.errno)


@contextlib.contextmanager
def told_of(path: str | PathLike[str]) -> Iterator[None]:
    """What reads the content of a file: a ValueError from in here is that file's, a FormatError stays what it is."""
    try:
        yield
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(path, str(error)) from error


def missing_file(path: str | PathLike[str], problem: str) -> FormatError:
    """The error of a file or folder that should hold something which is not there."""
    return unreadable(path, problem, errno.ENOENT)
