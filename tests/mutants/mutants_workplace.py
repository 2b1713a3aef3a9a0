"""A copy of the sources in which mistakes are planted, and what becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mutants_near
from mutations import Mutation

ROOT = Path(__file__).resolve().parents[2]
#: Longer than that, in multiples of what the unchanged sources take, and a test hangs.
PATIENCE = 5
#: Arguments of other types are for the compiler to find.
FLAGS = "-Werror=int-conversion -Werror=incompatible-pointer-types"

FOUND, HANGING, SURVIVED = "found", "found, by hanging", "survived"
#: What is no mistake that a test could notice.
UNBUILT, SAME = "does not compile", "the same code"


class SetupError(Exception):
    """The unchanged sources do not build, or do not pass."""


class Workplace:
    """A copy of the files that git knows, the library built from them, and the tests of that copy."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.build = folder / "tree", folder / "build"
        self.library = self.build / "libnncuda.so"
        self._seconds: dict[tuple[str, ...], float] = {}
        self._stale = True  # whether the library may be another than that of the sources as they are
        self._copy()
        self.configure()
        self._refresh()
        self._original = self.library.read_bytes()

    def _copy(self) -> None:
        """Writes what differs, so that what is built already is built again only where it has to be."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        wanted = {name for name in listed if name and (ROOT / name).is_file()}
        for path in list(self.tree.rglob("*")):
            if path.is_file() and path.relative_to(self.tree).as_posix() not in wanted:
                path.unlink()
        for name in wanted:
            source, target = (ROOT / name).read_bytes(), self.tree / name
            if not target.is_file() or target.read_bytes() != source:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source)

    def _run(self, command: list[str], seconds: float | None = None) -> tuple[bool, str]:
        """Whether a command succeeds, and what it says."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.tree / "python"),
            "NNCUDA_LIBRARY": str(self.library),
            "PYTHONDONTWRITEBYTECODE": "1",  # its times are whole seconds, too coarse here
        }
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "errors": "replace"}
        with subprocess.Popen(command, cwd=self.tree, env=environment, start_new_session=True, **pipes) as process:
            try:
                said, _ = process.communicate(timeout=seconds)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # with all that the tests started
                raise
        return process.returncode == 0, said

    def configure(self) -> None:
        options = ["-DNNCUDA_CUDA=OFF", "-DCMAKE_C_FLAGS_RELEASE=-O1", f"-DCMAKE_C_FLAGS={FLAGS}"]
        made, said = self._run(["cmake", "-S", str(self.tree), "-B", str(self.build), *options])
        if not made:
            raise SetupError(f"the unchanged sources cannot be configured\n{said[-3000:]}")

    def compile(self) -> tuple[bool, str]:
        return self._run(["cmake", "--build", str(self.build), "--target", "nncuda"])

    def _refresh(self) -> None:
        if self._stale:
            built, said = self.compile()
            if not built:
                raise SetupError(f"the unchanged sources do not build\n{said[-3000:]}")
        self._stale = False

    def _test(self, patterns: list[str], seconds: float | None = None) -> tuple[bool, str]:
        """Whether the tests pass, and what they say; at the first failure they end."""
        folder = self.tree / "tests"
        named = patterns.index("-k") if "-k" in patterns else len(patterns)
        found = [path for pattern in patterns[:named] for path in folder.glob(f"{pattern}.py")]
        files = sorted({str(path) for path in found if path.name.startswith("test_")})
        options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", *patterns[named:]]
        return self._run([sys.executable, "-m", "pytest", *options, *files], seconds)

    def limit(self, patterns: list[str]) -> float:
        """Seconds that tests may take. The first time they run on the unchanged sources, which have to pass."""
        key = tuple(patterns)
        if key not in self._seconds:
            self._refresh()
            begin = time.monotonic()
            passed, said = self._test(patterns)
            if not passed:
                raise SetupError(f"the unchanged sources do not pass {' '.join(patterns)}\n{said[-3000:]}")
            self._seconds[key] = time.monotonic() - begin
        return PATIENCE * self._seconds[key] + 10

    def judge(self, mutation: Mutation, far: bool) -> str:
        """What becomes of a mutation. The sources are as they were afterwards."""
        stages = [mutants_near.near(mutation.path), *([mutants_near.far(mutation.path)] if far else [])]
        limits = [self.limit(patterns) for patterns in stages]
        file = self.tree / mutation.path
        original = file.read_bytes()
        try:
            file.write_bytes(mutation.apply(original))
            if mutation.path.endswith(".py"):
                self._refresh()
            else:
                self._stale = True
                if not self.compile()[0]:
                    return UNBUILT
                if self.library.read_bytes() == self._original:
                    return SAME
            for patterns, seconds in zip(stages, limits, strict=True):
                if not self._test(patterns, seconds)[0]:
                    return FOUND
        except subprocess.TimeoutExpired:
            return HANGING
        finally:
            file.write_bytes(original)
        return SURVIVED
