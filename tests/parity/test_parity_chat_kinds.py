"""`chat` writes the same with the tokenizers and chat templates of published kinds."""

from __future__ import annotations

import json
import shutil
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

pytestmark = pytest.mark.case("conversations by tokenizers and templates of published kinds", *languages.CHATTING)


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
        ("{{ raise_exception('never') }}", 3, "never"),
        ("{% for m in messages %}", 3, "the chat template "),
        ("{{ 'x' * 2000000000 }}", 3, "the chat template "),
        ("{% if messages | length > 2 %}{{ raise_exception('no turns') }}{% endif %}", 0, "Error: "),
    ],
)
def test_templates_that_fail(tmp_path: Path, template: str, code: int, problem: str, name: str) -> None:
    path = folder(tmp_path / "model", "llama3")
    (path / "chat_template.jinja").write_text(template)
    for one in ("python", name):
        done = find(one).run("chat", path, "--max-tokens", 8, stdin="hello\nagain\n", code=code)
        assert problem in done.stderr, done.stderr
