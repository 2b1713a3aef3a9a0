"""Mapping a file for reading."""

from __future__ import annotations

import mmap
import os

from .errors import FormatError
from .regular import open_regular


def map_file(path: str | os.PathLike[str], kind: str, least: int) -> mmap.mmap:
    """The whole of a file, mapped read-only; FormatError when it cannot be, or has fewer than `least` bytes, the fewest
    that a file of this `kind` has.

    The size is that of the descriptor which is mapped. A file that somebody cuts afterwards cannot be told from here:
    reading what is gone ends the process (SIGBUS). Writers that replace files by renaming never do that.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < least:
            raise FormatError(path, f"has {size} bytes; a {kind} has {least} or more")
        try:
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise FormatError(path, f"cannot be mapped: {error.strerror or error}") from error
