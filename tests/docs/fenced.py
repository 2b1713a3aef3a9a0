"""The commands that the pages show: read from their fenced blocks, and run as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Every page, as its path in the repository.
PAGES = [
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "docs/*.md", "examples/*/README.md")
    for path in sorted(ROOT.glob(pattern))
]
#: What stands for a program of this repository; a program that is not here is looked for in the PATH.
PROGRAMS = {
    "nncuda": [sys.executable, "-m", "nncuda"],
    "python": [sys.executable],
    "nncuda-go": [str(ROOT / "build/bin/nncuda-go")],
    "nncuda-rs": [str(ROOT / "build/bin/nncuda-rs")],
}


@dataclass(frozen=True)
class Command:
    """A command of a page: the line that it begins in, and its words without the comment."""

    page: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"

    def run(
        self, folder: Path, instead: Mapping[str, str] | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs it in a folder; it must succeed. `instead` has other values of its options, by flag: an option that it
        has not is an error, so that what is replaced is what the page shows."""
        words = list(self.words)
        for flag, value in (instead or {}).items():
            words[words.index(flag) + 1] = value
        line = [*PROGRAMS.get(words[0], words[:1]), *words[1:]]
        done = subprocess.run(line, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
        assert done.returncode == 0, f"{self}\nexit code {done.returncode}\n{done.stderr}{done.stdout[-2000:]}"
        return done


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [text for _, of, text in numbered(ROOT / page) if of == language]


def commands(page: str) -> list[list[Command]]:
    """The commands of a page, those of a block together, which go on from one another."""
    return [_of_block(page, first, text) for first, language, text in numbered(ROOT / page) if language == "sh"]


def numbered(page: Path) -> list[tuple[int, str, str]]:
    """The fenced blocks of a page: the line that each begins in, its language, its text."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```([a-z+]+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(2)) + 1, match[1], match[2]) for match in found]


def lines(text: str, first: int = 1) -> list[tuple[int, str]]:
    """The lines of a block of commands, those that a backslash continues put together, each with its number."""
    found: list[tuple[int, str]] = []
    held, begun = "", first
    for number, line in enumerate(text.splitlines(), first):
        begun = begun if held else number
        held += line
        if held.endswith("\\"):
            held = held[:-1]
            continue
        found.append((begun, held))
        held = ""
    assert not held, f"line {begun}: the block ends in the middle of a command"
    return found


def _of_block(page: str, first: int, text: str) -> list[Command]:
    words = ((number, shlex.split(line, comments=True)) for number, line in lines(text, first))
    return [Command(page, number, tuple(of)) for number, of in words if of]
