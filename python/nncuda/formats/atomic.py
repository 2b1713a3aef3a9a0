"""Writing that a kill at any moment cannot spoil: the file under the final name is always whole.

Everything is written under a temporary name on the same file system, synced to the disk, then renamed, which POSIX
makes one step. The folder that holds the name is synced too, so that the rename itself survives a power cut.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY_PREFIX = ".partial-"


def sync(path: Path) -> None:
    """Makes the contents of a file durable, or the names inside a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Writing to an open file fails without a name; an OSError from in here has that of `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_file(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Replaces `path` by a file that holds `data` (text as UTF-8), in one step."""
    with replace_file(path) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


def temporary_path(path: str | os.PathLike[str], process: int | None = None) -> Path:
    """Under which name `process`, by default this one, writes what becomes `path`."""
    path = Path(path)
    return path.with_name(f"{TEMPORARY_PREFIX}{os.getpid() if process is None else process}-{path.name}")


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yields a new file, which becomes `path` at the end, in one step; nothing is left when the body raises."""
    path = Path(path)
    temporary = temporary_path(path)
    try:
        with naming(path), open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextlib.contextmanager
def write_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields an empty folder beside `path` to write into; at the end it becomes `path`, in one step.

    Raises FileExistsError when `path` exists: a whole folder is never overwritten. When the body raises, nothing is
    left.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    temporary = temporary_path(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        with naming(path):
            yield temporary
        for entry in (*sorted(temporary.rglob("*")), temporary):
            sync(entry)
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(path.parent)


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Removes a folder so that a kill half-way leaves no half folder under its name: it is renamed first."""
    path = Path(path)
    doomed = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-old-{path.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(path, doomed)
    shutil.rmtree(doomed)


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Removes what killed writers left in `folder`. Call it only where no other process writes."""
    for entry in Path(folder).glob(f"{TEMPORARY_PREFIX}*"):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
