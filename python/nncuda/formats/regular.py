"""Opening what has to be a regular file: a pipe or device in a folder from elsewhere must not stop a reader."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from .errors import FormatError, cannot_read, unreadable


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, open for reading in bytes. FormatError when it cannot be opened, or is a folder, pipe or device."""
    try:
        # A pipe is opened at once, and not when somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise cannot_read(path, error) from error
    except ValueError as error:  # a zero byte in the name
        raise FormatError(repr(os.fspath(path)), f"cannot be read: {error}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        problem = "cannot be read: it is not a regular file"
        raise unreadable(path, problem, errno.EISDIR) if stat.S_ISDIR(mode) else FormatError(path, problem)
    return open(descriptor, "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """All of the file's bytes; FormatError as of `open_regular`."""
    with open_regular(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise cannot_read(path, error) from error
