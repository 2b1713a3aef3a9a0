"""What tests of ranks that are killed leave behind, and nobody else removes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def mapped(path: Path) -> bool:
    """Whether a process uses the file."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if str(path) in maps.read_text():
                return True
    return False


@pytest.fixture(autouse=True, scope="session")
def shared_memory() -> Iterator[None]:
    """Removes what MPICH leaves in memory when a job ends otherwise than in order."""
    begin = time.time()
    yield
    for path in Path("/dev/shm").glob("mpich_shm_*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime >= begin and not mapped(path):
                path.unlink()
