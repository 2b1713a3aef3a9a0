"""`chat` writes the same in every language that has it."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import languages
import pytest
from conftest import find
from runs import Workshop
from test_parity_engine import model

from nncuda.bench.random_model import Shape, write_folder

TOKENIZERS = languages.ROOT / "tests" / "tokenizer"
SHAPE = Shape(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=512)
LINES = "hello\n\n/system be kind\n/system\n/what\nWhy? <|eot_id|>\n/clear\n  hello ü 日本\n/exit\nnever read\n"

pytestmark = pytest.mark.case("chat writes the same conversation", *languages.CHATTING)


def folder(path: Path, kind: str) -> Path:
    """A model with the tokenizer and chat template of a published kind."""
    write_folder(path, SHAPE)
    (path / "tokenizer.model").unlink()
    for file in (TOKENIZERS / "library" / kind).iterdir():
        shutil.copy(file, path)
    template = {"llama3": "headers", "gemma": "roles", "qwen": "marks"}[kind]
    (path / "chat_template.jinja").write_text(
        json.loads((TOKENIZERS / "chat" / f"{template}.json").read_text())["template"]
    )
    return path


@pytest.mark.parametrize("name", languages.CHATTING)
@pytest.mark.parametrize("options", [("--temperature", 0), ("--seed", 7, "--top-k", 50, "--system", "Be brief.")])
@pytest.mark.parametrize("kind", ["llama3", "gemma", "qwen"])
def test_templates(tmp_path: Path, kind: str, options: tuple[object, ...], name: str) -> None:
    path = folder(tmp_path / kind, kind)
    wanted, found = (find(one).run("chat", path, "--max-tokens", 20, *options, stdin=LINES) for one in ("python", name))
    assert (found.stdout, found.stderr) == (wanted.stdout, wanted.stderr) and len(wanted.stdout.splitlines()) > 3


@pytest.mark.parametrize("name", languages.CHATTING)
@pytest.mark.parametrize("stored", ["llama-q8_0.gguf", "run"])
def test_without_a_template(workshop: Workshop, stored: str, name: str) -> None:
    path = workshop.reference("small") if stored == "run" else model(workshop, stored)
    wanted, found = (find(one).run("chat", path, "--max-tokens", 5, stdin=LINES) for one in ("python", name))
    assert (found.stdout, found.stderr) == (wanted.stdout, wanted.stderr)
    assert "no chat template" in wanted.stderr


@pytest.mark.parametrize("name", languages.CHATTING)
@pytest.mark.parametrize(
    ("template", "code", "problem"),
    [
        ("{{ raise_exception('never') }}", 3, "the chat template fails: TemplateError: never"),
        ("{% for m in messages %}", 3, "the chat template fails: TemplateSyntaxError"),
        ("{{ 'x' * 2000000000 }}", 3, "the chat template fails: "),
        ("{% if messages | length > 2 %}{{ raise_exception('no turns') }}{% endif %}", 0, "Error: "),
    ],
)
def test_templates_that_fail(tmp_path: Path, template: str, code: int, problem: str, name: str) -> None:
    path = folder(tmp_path / "model", "llama3")
    (path / "chat_template.jinja").write_text(template)
    for one in ("python", name):
        done = find(one).run("chat", path, "--max-tokens", 8, stdin="hello\nagain\n", code=code)
        assert problem in done.stderr, done.stderr


@pytest.mark.parametrize("name", languages.CHATTING)
def test_interrupts_in_a_terminal(tmp_path: Path, name: str) -> None:
    """Ctrl-C stops the answer and not the program; at the prompt, twice, it leaves."""
    write_folder(tmp_path / "model", SHAPE)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*find(name).command, "chat", tmp_path / "model", "--max-tokens", "400"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        env={**languages.environment(), "TERM": "dumb"},
    )
    os.close(slave)
    seen = ""

    def wait_for(text: str, after: int = 0, more: int = 0) -> int:
        """Where the text begins, once so many more characters have come after it."""
        nonlocal seen
        end = time.monotonic() + 60
        while (at := seen.find(text, after)) < 0 or len(seen) < at + len(text) + more:
            assert time.monotonic() < end, seen
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 4096).decode("utf-8", "replace")
        return at + len(text)

    try:
        at = wait_for("> ")
        os.write(master, b"hello\n")
        at = wait_for("hello", at, more=20)  # the answer runs
        os.kill(process.pid, signal.SIGINT)
        at = wait_for("\n> ", at)
        os.kill(process.pid, signal.SIGINT)
        wait_for("to exit", at)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 0, seen
    finally:
        process.kill()
        process.wait()
        os.close(master)
