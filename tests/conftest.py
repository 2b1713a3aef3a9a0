"""What a session ends with. It stands here since a session of several workers reads no conftest further down."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

_BEGIN = pytest.StashKey[float]()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_BEGIN] = time.time()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Removes what MPICH leaves in memory when a job of a test ends otherwise than in order; after all workers, since
    a job of another one may be about to map its own."""
    if hasattr(session.config, "workerinput"):
        return
    for path in Path("/dev/shm").glob("mpich_shm_*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime >= session.config.stash[_BEGIN] and not _mapped(path):
                path.unlink()


def _mapped(path: Path) -> bool:
    """Whether a process uses the file."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if str(path) in maps.read_text():
                return True
    return False


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The golden tests: how much of a tolerance the worst output used, on each instruction set."""
    worst: dict[str, tuple[float, str]] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, value in getattr(report, "user_properties", ()):
            if name == "share of a tolerance":
                isa, share, kernel = value
                worst[isa] = max(worst.get(isa, (0.0, "")), (share, kernel))
    for isa, (share, kernel) in worst.items():
        terminalreporter.write_line(f"golden fixtures, {isa}: at most {share:.0%} of a tolerance was used ({kernel})")
