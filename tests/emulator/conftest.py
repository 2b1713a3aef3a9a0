"""Builds small CUDA programs for the emulator, so that they can be run without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
sys.path.append(str(ROOT / "tests/gpu"))  # test_session.py: what a session is made of


class Emulator:
    """A C++ compiler and the emulator's objects, each built once a session."""

    def __init__(self, compiler: str, folder: Path) -> None:
        self.compiler = compiler
        self.folder = folder
        clang = "clang" in subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        trap = ["-fsanitize-trap=all"] if clang else ["-fsanitize-undefined-trap-on-error"]
        self.checks = ["-fsanitize=alignment,bounds", *trap]

    def compile(self, source: Path, arch: int, *options: str) -> Path:
        target = self.folder / f"{source.stem}_{arch}.o"
        if not target.exists():
            include = [f"-I{FOLDER / 'include'}", f"-I{ROOT / 'cuda'}", f"-I{ROOT}"]
            flags = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-D__CUDA_ARCH__={arch}0", *include]
            command = [self.compiler, *flags, *options, "-x", "c++", "-c", str(source), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        return target

    def program(self, source: Path, arch: int = 90) -> Path:
        """The path of the program that `source`, a .cu file, and the emulator of that architecture make."""
        target = self.folder / f"{source.stem}_{arch}"
        if not target.exists():
            machine = [self.compile(part, arch) for part in sorted(FOLDER.glob("*.cpp"))]
            own = self.compile(source, arch, "-Wno-unknown-pragmas", *self.checks)
            command = [self.compiler, str(own), *map(str, machine), "-o", str(target), "-ldl", "-lm", "-pthread"]
            subprocess.run(command, check=True)
        return target

    def run(self, source: str, *arguments: str, arch: int = 90, **settings: object) -> subprocess.CompletedProcess[str]:
        """Runs a program; `settings` are the NNCUDA_EMULATOR_ variables, in small letters."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NNCUDA_EMULATOR_")}
        environment |= {f"NNCUDA_EMULATOR_{name.upper()}": str(value) for name, value in settings.items()}
        command = [str(self.program(FOLDER / source, arch)), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    return Emulator(compiler, tmp_path_factory.mktemp("emulator"))
