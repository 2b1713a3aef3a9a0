"""Opening what has to be a regular file of a sane size: a pipe or a device in a folder from elsewhere must not stop a
reader, nor a file without end take its memory."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from .errors import FormatError, cannot_read, unreadable


def present(path: str | os.PathLike[str]) -> bool:
    """Whether a folder has an entry of this name. A link that leads nowhere, or in a circle, is one: to read it is then
    an error, where passing over it would give another model or run than the folder was meant to hold."""
    return os.path.lexists(path)


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


def read_regular(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """All of the file's bytes, at most `most`; FormatError as of `open_regular`, and when there are more."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise FormatError(path, f"has {size} bytes; a file of its kind may have at most {most}")
        try:
            content = file.read(size + 1)
        except OSError as error:
            raise cannot_read(path, error) from error
    if len(content) > size:  # it may be one without end, whose size the system does not know
        raise FormatError(path, f"has more than the {size} bytes that the system gives as its size")
    return content
