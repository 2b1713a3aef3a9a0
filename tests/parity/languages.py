"""The languages that are compared: how each one's command is called, and how it is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nncuda.binding import library
from tools import language_bench

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build" / "bin"

#: Set to "required" by `make parity`: a language that is missing is then a failure, else a reason to skip.
ENVIRONMENT_VARIABLE = "NNCUDA_PARITY"


class MissingLanguageError(Exception):
    """A language's command is not built. The message says what builds it."""


@dataclass(frozen=True)
class Language:
    """A language by its command: `train`, `generate` and `inspect` behind `command`, the benchmark's worker behind
    `bench`."""

    name: str
    command: tuple[str, ...]
    bench: tuple[str, ...]

    def run(
        self, *arguments: object, code: int | None = 0, stdin: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end. Another exit code than `code` (None: any) is a failure with all it wrote."""
        line = self._line(arguments)
        done = subprocess.run(line, input=stdin, capture_output=True, text=True, env=environment(), timeout=timeout)
        said = f"exit code {done.returncode}, not {code}\n{done.stderr}{done.stdout[-2000:]}"
        assert code is None or done.returncode == code, f"{self.name}: {' '.join(line)}\n{said}"
        return done

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Starts the command; its output is read by the caller."""
        line = self._line(arguments)
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())

    def _line(self, arguments: tuple[object, ...]) -> list[str]:
        """Where there is an inference engine, `generate` runs on it, unless `--contiguous` asks for the path that the
        three share, the layers that train. So `generate` is that path here, and `engine` is it on the engine."""
        shared = []
        if self.name in ("python", *ENGINES) and arguments[0] == "generate" and "--help" not in arguments:
            shared = ["--contiguous"]
        if arguments[0] == "engine":
            arguments = ("generate", *arguments[1:])
        return [*self.command, *map(str, arguments[:1]), *shared, *map(str, arguments[1:])]

    def __str__(self) -> str:
        return self.name


def environment() -> dict[str, str]:
    """All languages load the one library that this process has."""
    return {**os.environ, library.ENVIRONMENT_VARIABLE: str(Path(library.load().path).resolve())}


def _built(name: str, binary: str) -> Language:
    path = str(BINARIES / binary)
    return Language(name, (path,), (path, "bench"))


_PYTHON = (sys.executable, "-m", "nncuda")

LANGUAGES = {
    language.name: language
    for language in (
        Language("python", _PYTHON, language_bench.PYTHON),
        _built("go", "nncuda-go"),
        _built("rust", "nncuda-rs"),
    )
}
NAMES: Sequence[str] = tuple(LANGUAGES)

#: Those that have the inference engine beside Python: stored models, `generate` on it, `bench engine`.
ENGINES: Sequence[str] = ("go", "rust")

#: Those of them whose engine has penalties, biases, masks and log-probabilities.
DRAWING: Sequence[str] = ("go", "rust")

#: Those that have `chat` beside Python.
CHATTING: Sequence[str] = ("go", "rust")

#: Those that have `serve`.
SERVING: Sequence[str] = ("python", "go", "rust")


def required() -> bool:
    return os.environ.get(ENVIRONMENT_VARIABLE) == "required"


def find(name: str) -> Language:
    """A language whose command is there. Raises MissingLanguageError when it is not."""
    language = LANGUAGES[name]
    if not os.access(language.command[0], os.X_OK):
        raise MissingLanguageError(f"{language.command[0]} is not built; `make parity` builds it and runs these tests")
    return language
