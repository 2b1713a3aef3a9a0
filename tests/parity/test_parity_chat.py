"""`chat` says the same in every language that has it, and a template of a stranger does no harm there."""

from __future__ import annotations

import time
from pathlib import Path

import languages
import pytest
from conftest import find

from nncuda.bench.random_model import Shape, write_folder

SHAPE = Shape(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=256)
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}\n[{{ m.role | upper }}] {{ m['content'].strip() }}{% if not loop.last %}"
    "{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}\n[ASSISTANT]{% endif %}"
)
LINES = (
    "hello\n/system be brief\n\n/system\nand more\n/stats\n/nothing\n/clear\nhello\n"
    + "word " * 400
    + "\n/exit\nunread\n"
)
OPTIONS = ("--max-tokens", 24, "--seed", 5, "--cache-format", "f32", "--threads", 1)


@pytest.fixture(scope="module", params=["plain", "template"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    write_folder(path, SHAPE)
    if request.param == "template":
        (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


@pytest.mark.case("conversations")
@pytest.mark.parametrize("language", languages.CHATTING)
def test_conversations(folder: Path, language: str) -> None:
    expected = find("python").run("chat", folder, *OPTIONS, "--system", "say a word", stdin=LINES)
    found = find(language).run("chat", "--model", folder, *OPTIONS, "--system", "say a word", stdin=LINES)
    assert found.stdout == expected.stdout and found.stdout.count("\n") >= 4
    # What it took differs, and what else is told does not.
    told, wanted = (
        [line for line in text.stderr.splitlines() if "token" not in line or "room" in line]
        for text in (found, expected)
    )
    assert [line for line in told if not line.startswith("memory")] == [
        line for line in wanted if not line.startswith("memory")
    ]
    assert "the context has room for 256" in found.stderr and "There is no command /nothing." in found.stderr
    greedy = [
        find(name).run("chat", folder, *OPTIONS, "--temperature", 0, stdin="hello\nagain\n").stdout
        for name in ("python", language)
    ]
    assert greedy[0] == greedy[1] != expected.stdout


@pytest.mark.parametrize("language", languages.CHATTING)
def test_a_long_conversation_drops_its_beginning(folder: Path, language: str) -> None:
    lines = "".join(f"turn {turn} and some more words\n" for turn in range(8))
    found, expected = (find(name).run("chat", folder, *OPTIONS, stdin=lines) for name in (language, "python"))
    assert found.stdout == expected.stdout
    assert found.stderr == expected.stderr and "messages were dropped" in found.stderr


@pytest.mark.parametrize("language", languages.CHATTING)
@pytest.mark.parametrize(
    "use", ["x.a | string | length", "x.a == x.b", "'%s' | format(x.a) | length", "{x.a: 1} | length", "x.a in [x.b]"]
)
def test_a_template_is_ended_in_time(tmp_path: Path, language: str, use: str) -> None:
    write_folder(tmp_path, SHAPE)
    shared = "{% set x.a = [x.a, x.a] %}{% set x.b = [x.b, x.b] %}"
    template = "{% set x = namespace(a=['a'], b=['a']) %}{% for i in range(60) %}" + shared + "{% endfor %}{{ " + use
    (tmp_path / "chat_template.jinja").write_text(template + " }}")
    start = time.monotonic()
    said = find(language).run("chat", tmp_path, code=3, stdin="hello\n").stderr
    assert "the chat template ran for more than 10 s" in said or "perhaps because it ran out of memory" in said
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("language", languages.CHATTING)
def test_refusals(tmp_path: Path, language: str) -> None:
    write_folder(tmp_path, SHAPE)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no talk today') }}")
    assert find(language).run("chat", tmp_path, code=3).stderr.endswith("the chat template fails: no talk today\n")
    assert "name one MODEL" in find(language).run("chat", code=2).stderr
    assert find(language).run("chat", tmp_path, "--model", tmp_path, code=2).stderr
    assert find(language).run("chat", tmp_path, "--max-tokens", 0, code=2).stderr
