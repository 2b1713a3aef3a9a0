"""What only the Python package does: the other commands say so, and name the command that does it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import languages
import pytest
from conftest import find
from runs import Workshop

from nncuda import cli
from nncuda.train import resolve_checkpoint

USAGE, WRONG_FILE = 2, 3
BUILT = [name for name in languages.NAMES if name != "python"]
#: Those without an inference engine, and the options of `generate` that need one.
WITHOUT_ENGINE = [name for name in BUILT if name not in languages.ENGINES]
OF_ENGINE = ("--contiguous", "--context", "--cache-format", "--weights", "--stats")

pytestmark = pytest.mark.case("what only Python's command does is said by the others", *BUILT)


@pytest.fixture(params=BUILT)
def other(request: pytest.FixtureRequest) -> languages.Language:
    return find(request.param)


@pytest.mark.parametrize("command", sorted(cli._COMMANDS))
def test_commands(other: languages.Language, command: str) -> None:
    """Each command of Python's is one of the other's, too, or the other says who has it."""
    done = other.run(command, "--model", "x", code=USAGE)
    own = Path(other.command[0]).name
    error, instead = done.stderr.splitlines()[-1], f"nncuda {command}"
    if other.run(command, "--help", code=None).returncode != 0:
        assert own in error and error.endswith(instead), error
    shared = ["train", "plan", "generate", "inspect", "report", "shadow", "bench", "merge", "adapter"]
    shared += ["chat"] if other.name in languages.CHATTING else []
    shared += ["serve"] if other.name in languages.SERVING else []
    assert (command in shared) == (not error.endswith(instead))


def test_the_table_of_the_readme() -> None:
    """It has every command of Python's, and "yes" where a language has it."""
    page = (languages.ROOT / "README.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")
    ]
    told: dict[str, dict[str, bool]] = {}
    for first, _, *others in rows:
        for command in re.findall(r"`([a-z-]+)`", first):
            told[command] = {name: cell != "no" for name, cell in zip(BUILT, others, strict=True)}
    assert set(told) == set(cli._COMMANDS)
    for command, has in told.items():
        for name in BUILT:
            assert (find(name).run(command, "--help", code=None).returncode == 0) == has[name], (command, name)


@pytest.mark.parametrize(
    ("name", "command", "flag"),
    [(name, "generate", flag) for name in WITHOUT_ENGINE for flag in OF_ENGINE]
    + [(name, "generate", "--expert-parallel") for name in languages.ENGINES]
    + [(name, "inspect", "--ternary") for name in BUILT],
)
def test_options(name: str, command: str, flag: str) -> None:
    other = find(name)
    done = other.run("engine" if command == "generate" else command, "x", flag, "1", code=USAGE)
    own = Path(other.command[0]).name
    error = done.stderr.splitlines()[-1]
    assert own in error and error.count(flag) == 2 and error.endswith(f"nncuda {command} {flag}"), error


@pytest.mark.parametrize("name", WITHOUT_ENGINE)
@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_a_gguf_file(name: str, command: str, tmp_path: Path) -> None:
    other = find(name)
    path = tmp_path / "a model.gguf"
    path.write_bytes(b"GGUF" + bytes(60))
    prompt = ["PROMPT"] if command == "generate" else []
    error = other.run(command, path, *prompt, code=WRONG_FILE).stderr
    instead = f"nncuda {command} '{path}'{' PROMPT' if prompt else ''}\n"
    assert str(path) in error and "GGUF" in error and error.endswith(instead), error
    with_flags = other.run("generate", "--model", path, "--prompt", "x", code=WRONG_FILE).stderr
    assert "GGUF" in with_flags
    assert_python_knows(instead)


@pytest.mark.parametrize("name", WITHOUT_ENGINE)
@pytest.mark.parametrize("kind", ["llama", "bitnet"])
@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_folders_of_other_models(workshop: Workshop, name: str, command: str, kind: str, tmp_path: Path) -> None:
    other = find(name)
    folder = shutil.copytree(resolve_checkpoint(workshop.reference("ragged")), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": kind}))
    prompt = ["PROMPT"] if command == "generate" else []
    error = other.run(command, folder, *prompt, code=WRONG_FILE).stderr
    own, instead = Path(other.command[0]).name, f"nncuda {command} {folder}{' PROMPT' if prompt else ''}\n"
    assert all(fact in error for fact in (str(folder / "config.json"), "model_type", kind, own, "mixtral")), error
    assert error.endswith(instead), error


def assert_python_knows(line: str) -> None:
    """The command that is named is one, with these arguments; what it says of the model is another matter."""
    done = subprocess.run([sys.executable, "-m", *shlex.split(line)], capture_output=True, text=True, timeout=120)
    assert done.returncode == WRONG_FILE, done.stderr


def test_model_and_prompt_as_flags(workshop: Workshop, other: languages.Language) -> None:
    """As Python's command takes them, as arguments or as flags: the same tokens."""
    run = workshop.reference("ragged")
    ways = (
        [run, "2 50"], ["--model", run, "2 50"], [run, "--prompt", "2 50"], ["--model", run, "--prompt", "2 50"],
        ["--prompt", "2 50", run],
    )  # fmt: skip
    written = {other.run("generate", *way, "--ids", "--max-tokens", 4, "--greedy").stdout for way in ways}
    assert len(written) == 1 and len(written.pop().split()) == 4
    assert "there is no MODEL" in other.run("generate", code=USAGE).stderr
    assert "there is no PROMPT" in other.run("generate", run, code=USAGE).stderr
