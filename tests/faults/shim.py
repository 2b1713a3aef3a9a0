"""Builds the preloaded shim that makes the library's allocations fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nncuda.binding import library

SOURCE = Path(__file__).resolve().parent / "allocations.c"

#: Set to "all" by `make faults`: every point and 200 kills, instead of a few of them.
ENVIRONMENT_VARIABLE = "NNCUDA_FAULTS"


def everything() -> bool:
    return os.environ.get(ENVIRONMENT_VARIABLE) == "all"


def build(folder: Path) -> Path:
    """The shim, compiled into `folder`; skips the test where it cannot be built or preloaded."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("needs a C compiler, which is not installed")
    shim = folder / "allocations.so"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    made = subprocess.run([compiler, *flags, SOURCE, "-ldl", "-o", shim], capture_output=True, text=True, check=False)
    if made.returncode and "__libc" in made.stderr:
        pytest.skip("needs glibc's own allocation functions")
    assert made.returncode == 0, made.stderr
    return shim


def environment(shim: Path, **more: object) -> dict[str, str]:
    """Of a process that has the shim, and the library that this one has."""
    path = str(Path(library.load().path).resolve())
    return {**os.environ, library.ENVIRONMENT_VARIABLE: path, "LD_PRELOAD": str(shim)} | {
        name: str(value) for name, value in more.items()
    }
