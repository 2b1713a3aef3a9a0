"""The first program of each language's page runs as it stands there, and prints what the page and the README say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import languages
import pytest
from conftest import find

ROOT = languages.ROOT


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, env=languages.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def of_python() -> tuple[str, list[str]]:
    """What the README's program prints: the loss, to the last digit, and the ids."""
    (program,) = blocks("README.md", "python")
    loss, tokens = run(ROOT, sys.executable, "-c", program).split(" ", 1)
    return loss, re.findall(r"\d+", tokens)


def check(printed: str, page: str, of_python: tuple[str, list[str]]) -> None:
    """It prints what the page says, up to digits that depend on the instruction set, and those are Python's."""
    loss, tokens = of_python
    last = printed.splitlines()[-1]
    assert last == f"loss {loss}, then {' '.join(tokens)}"
    (said,) = blocks(page, "text")
    assert re.sub(r"(0\.\d{5})\d+", r"\1", printed) == re.sub(r"(0\.\d{5})\d+", r"\1", said)


@pytest.mark.case("the first program of the language's page", "go")
def test_first_program_in_go(tmp_path: Path, of_python: tuple[str, list[str]]) -> None:
    find("go")
    (program,) = blocks("docs/go.md", "go")
    (tmp_path / "main.go").write_text(program)
    check(run(ROOT / "go", "go", "run", str(tmp_path / "main.go")), "docs/go.md", of_python)
    unformatted = subprocess.run(["gofmt", "-l", str(tmp_path)], capture_output=True, text=True).stdout
    assert not unformatted


@pytest.mark.case("the first program of the language's page", "rust")
def test_first_program_in_rust(of_python: tuple[str, list[str]]) -> None:
    find("rust")
    program, shared = blocks("docs/rust.md", "rust")
    assert program == (ROOT / "rust/nn-core/examples/first_program.rs").read_text(encoding="utf-8")
    assert shared in (ROOT / "rust/nn-core/examples/share_model.rs").read_text(encoding="utf-8")
    example = ["cargo", "run", "--quiet", "--locked", "--package", "nn-core", "--example", "first_program"]
    check(run(ROOT / "rust", *example), "docs/rust.md", of_python)
