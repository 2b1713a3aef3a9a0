"""The first program of each language's page runs as it stands there, and prints what the page and the README say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import languages
import pytest
from conftest import find
from fenced import blocks, commands
from runs import Workshop

from nncuda.train import list_checkpoints

ROOT = languages.ROOT


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
    program, inference = blocks("docs/go.md", "go")
    example = (ROOT / "go/infer/example_test.go").read_text(encoding="utf-8")
    for line in filter(str.strip, inference.splitlines()):  # the example says what it does with an error, and ctx
        assert line.strip().replace("(ctx,", "(context.Background(),") in example or line.strip() == "return err", line
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


@pytest.mark.parametrize("page", ["README.md", "docs/go.md", "docs/rust.md"])
def test_commands(workshop: Workshop, page: str, tmp_path: Path) -> None:
    """The block that trains with several languages, or with the page's own, as it stands there but for its steps."""
    for name in ("go", "rust"):
        find(name)
    (block,) = (
        block
        for block in commands(page)
        if {one.words[:2] for one in block} & {(f"nncuda-{x}", "train") for x in ("go", "rs")}
    )
    for name, copied in (("words.tokens", "train.tokens"), ("tokenizer.model", "tokenizer.model")):
        shutil.copy(workshop.folder / name, tmp_path / copied)
    for command in block:
        checkpoints = list_checkpoints(tmp_path / "run/checkpoints")
        if "--resume" in command.words and len(checkpoints) > 1:
            shutil.rmtree(checkpoints[-1])  # as an interrupt before it would have had it
        instead = {"--steps": "4", "--save-every": "2"}
        done = command.run(tmp_path, {flag: new for flag, new in instead.items() if flag in command.words},
                           **languages.environment())  # fmt: skip
        assert "generate" not in command.words or done.stdout.strip(), command
    assert [folder.name for folder in list_checkpoints(tmp_path / "run/checkpoints")][-1] == "step-00000004"
