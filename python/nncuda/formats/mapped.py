"""Mapping a file for reading."""

from __future__ import annotations

import mmap
import os

import numpy as np

from .errors import FormatError, unreadable
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
            raise unreadable(path, f"cannot be mapped: {error.strerror or error}", error.errno) from error


def release(array: np.ndarray) -> None:
    """Gives the whole pages under a view of a mapped file back to the system: they are read again when they are looked
    at. Nothing happens to an array that is no such view, or where the system cannot."""
    root: object = array
    while isinstance(root, np.ndarray):
        root = root.base
    mapped = root.obj if isinstance(root, memoryview) else root
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    begin = array.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    start = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (begin + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        mapped.madvise(mmap.MADV_DONTNEED, start, end - start)
