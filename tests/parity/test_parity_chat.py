"""`chat` says the same in every language that has it, and a template of a stranger does no harm there."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import languages
import pytest
from conftest import find
from small_models import write_adapter

from nncuda import LanguageModel
from nncuda.bench.random_model import Shape, write_folder
from nncuda.models.stored import StoredModel

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


@pytest.mark.case("conversations")
@pytest.mark.parametrize("language", languages.CHATTING)
def test_a_conversation_with_an_adapter(folder: Path, language: str, tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter", StoredModel.open(folder).config, ("self_attn.v_proj", "mlp.up_proj"))
    options = [*OPTIONS, "--temperature", 0]
    with LanguageModel.load(folder, cache_format="f32", threads=1, adapter=tmp_path / "adapter") as model:
        answer = "".join(model.chat([{"role": "user", "content": "hello"}], 24))
    answer = answer.replace("\r\n", "\n").replace("\r", "\n")  # as what a command writes is read
    found = [
        find(language).run("chat", folder, *options, *more, stdin="hello\n").stdout
        for more in ((), ("--adapter", tmp_path / "adapter"))
    ]
    assert found[1].strip() == answer.strip() and found[0] != found[1]
    assert "does not exist" in find(language).run("chat", folder, "--adapter", tmp_path / "none", code=2).stderr


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
def test_a_template_of_shared_lists_is_ended_in_time(tmp_path: Path, language: str, use: str) -> None:
    steps = "{% set x.a = [x.a, x.a] %}{% set x.b = [x.b, x.b] %}"
    said = refused(tmp_path, language, 60, steps, use)
    ends = ("ran for more than 10 s", "perhaps because it ran out of memory", "it takes more than", "unhashable type")
    assert any(words in said for words in ends), said


@pytest.mark.parametrize("language", languages.CHATTING)
@pytest.mark.parametrize("use", ["x.a", "x.a == [x.a]", "1"])
def test_a_template_of_nested_lists_harms_nobody(tmp_path: Path, language: str, use: str) -> None:
    said = refused(tmp_path, language, 99999, "{% set x.a = [x.a] %}", use + " }}{{ raise_exception('survived')")
    ends = ("the chat template ended its process", "nested too deeply", "survived")
    assert any(words in said for words in ends), said


def refused(folder: Path, language: str, times: int, steps: str, use: str) -> str:
    """What is said of a template that takes steps so many times and then uses what came of them."""
    write_folder(folder, SHAPE)
    begin = "{% set x = namespace(a=['a'], b=['a']) %}{% for i in range(" + str(times) + ") %}"
    (folder / "chat_template.jinja").write_text(begin + steps + "{% endfor %}{{ " + use + " }}")
    start = time.monotonic()
    said = find(language).run("chat", folder, code=3, stdin="hello\n").stderr
    assert time.monotonic() - start < 60
    return said


@pytest.mark.parametrize("language", languages.CHATTING)
def test_refusals(tmp_path: Path, language: str) -> None:
    write_folder(tmp_path, SHAPE)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no talk today') }}")
    assert find(language).run("chat", tmp_path, code=3).stderr.endswith("no talk today\n")
    assert "name one MODEL" in find(language).run("chat", code=2).stderr
    assert find(language).run("chat", tmp_path, "--model", tmp_path, code=2).stderr
    assert find(language).run("chat", tmp_path, "--max-tokens", 0, code=2).stderr


@pytest.mark.parametrize("language", languages.CHATTING)
def test_interrupts_in_a_terminal(folder: Path, language: str) -> None:
    """Ctrl-C stops the answer and not the program; at the prompt, twice, it leaves."""
    command, (master, slave) = find(language).command, pty.openpty()
    process = subprocess.Popen(
        [*command, "chat", str(folder), "--max-tokens", "200"],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=languages.environment(),
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(slave)
    seen = ""

    def wait_for(text: str, after: int = 0) -> int:
        nonlocal seen
        end = time.monotonic() + 60
        while text not in seen[after:] and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 4096).decode("utf-8", "replace")
        assert text in seen[after:], seen
        return seen.index(text, after) + len(text)

    try:
        wait_for("> ")
        os.write(master, b"hello\n")
        at = wait_for("hello\r\n")
        while len(seen) < at + 5:  # the answer runs
            seen += os.read(master, 4096).decode("utf-8", "replace")
        os.kill(process.pid, signal.SIGINT)
        at = wait_for("\n> ", at)
        end = (
            time.monotonic() + 3
        )  # the answer may have ended by then, and what the interrupt says to the prompt be late
        while "to exit" not in seen and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 4096).decode("utf-8", "replace")
        if "to exit" not in seen:
            os.kill(process.pid, signal.SIGINT)
        at = wait_for("> ", wait_for("to exit"))
        os.write(master, b"/system\n")
        at = wait_for("\n> ", wait_for("there is none", at))
        os.kill(process.pid, signal.SIGINT)
        wait_for("> ", wait_for("to exit", at))
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)
