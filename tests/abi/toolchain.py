"""Compilers on this machine, and what is built with them: the tests of the header, the packages and the C programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from raw import PATH

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def program(*names: str) -> str:
    """The first of these programs that is installed; skips the test when none is."""
    for name in names:
        if shutil.which(name):
            return name
    pytest.skip(f"needs {' or '.join(names)}, which is not installed")


def run(*command: str | Path, environment: dict[str, str] | None = None, timeout: int = 900) -> str:
    """The output of a command that must succeed."""
    result = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        env=os.environ | (environment or {}),
        check=False,
    )
    assert result.returncode == 0, f"{' '.join(map(str, command))}\n{result.stdout}"
    return result.stdout


def configure(build: Path, *options: str) -> str:
    """Configures a build of the library, without the GPU engine; warnings are errors in it."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    return run(program("cmake"), "-S", ROOT, "-B", build, *generator, "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
               "-DNNCUDA_CUDA=OFF", *options)  # fmt: skip


def link(source: Path, out: Path, *more: Path) -> Path:
    """Compiles a C program of these tests, of one file or more, against the library under test."""
    library = Path(PATH).resolve()
    compiler = program("cc", "gcc", "clang")
    run(compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-I", ROOT, "-I", ROOT / "cuda", source, *more,
        library, "-pthread", "-ldl", f"-Wl,-rpath,{library.parent}", "-o", out)  # fmt: skip
    return out
