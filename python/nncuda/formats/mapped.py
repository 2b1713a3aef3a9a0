"""Mapping a file for reading."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from .errors import FormatError


def map_file(path: str | os.PathLike[str], kind: str, least: int) -> mmap.mmap:
    """The whole of a file, mapped read-only; FormatError when it cannot be, or has fewer than `least` bytes, the fewest
    that a file of this `kind` has.

    The size is that of the descriptor which is mapped. A file that somebody cuts afterwards cannot be told from here:
    reading what is gone ends the process (SIGBUS). Writers that replace files by renaming never do that.
    """
    path = Path(path)
    try:
        # Not to wait for the other end when the name is that of a pipe.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(path, f"is not a file, and so not a {kind}")
        if status.st_size < least:
            raise FormatError(path, f"has {status.st_size} bytes; a {kind} has {least} or more")
        return mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FormatError(path, f"cannot be mapped: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
