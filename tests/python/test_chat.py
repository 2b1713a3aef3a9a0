"""Conversations, and the chat and generate commands on stored models."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fenced
import pytest
from click.testing import CliRunner, Result
from small_models import language_model, save_tiny, write_adapter

import nncuda
from nncuda import LanguageModel, Sampling
from nncuda.bench.random_model import Shape, write_folder
from nncuda.cli import main
from nncuda.infer.conversation import Conversation
from nncuda.models.adapter import Adapter
from nncuda.models.adapter_gguf import write_adapter_gguf
from nncuda.models.stored import StoredModel
from nncuda.tokenizer import Tokenizer

SHAPE = Shape(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    write_folder(path, SHAPE)
    return path


def nncuda_command(*arguments: object, input: str = "") -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=input)


# Conversations


@pytest.fixture
def model(ctx: nncuda.Context, folder: Path) -> Iterator[LanguageModel]:
    with language_model(ctx, Tokenizer.load(folder / "tokenizer.model"), max_batch=1) as made:
        yield made


def test_a_conversation_keeps_its_turns(model: LanguageModel) -> None:
    conversation = Conversation(model, "be brief", max_new_tokens=10)
    first = "".join(conversation.answer("hello"))
    second = "".join(conversation.answer("and more"))
    assert conversation.messages == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": first.strip()},
        {"role": "user", "content": "and more"},
        {"role": "assistant", "content": second.strip()},
    ]
    system = {"role": "system", "content": "be brief"}
    assert second == "".join(model.chat([system, *conversation.messages[:3]], 10))
    conversation.clear()
    assert "".join(conversation.answer("hello")) == first  # greedy: as in the beginning


def test_turns_draw_with_seeds_of_their_own(model: LanguageModel) -> None:
    conversation = Conversation(model, sampling=Sampling(seed=3), max_new_tokens=12)
    first = "".join(conversation.answer("hello"))
    conversation.clear()
    assert "".join(conversation.answer("hello")) != first
    again = Conversation(model, sampling=Sampling(seed=3), max_new_tokens=12)
    assert "".join(again.answer("hello")) == first


def test_the_oldest_turns_are_left_out_when_the_context_is_full(model: LanguageModel) -> None:
    conversation = Conversation(model, "be brief", max_new_tokens=20)
    for turn in range(8):
        assert "".join(conversation.answer(f"turn {turn} " + "word " * 6))
        ids = model.chat_ids(
            [{"role": "system", "content": "be brief"}, *conversation.messages[conversation.left_out : -1]]
        )
        assert len(ids) + 20 <= model.context
    assert len(conversation.messages) == 16
    assert 0 < conversation.left_out < 16 and conversation.left_out % 2 == 0
    with pytest.raises(ValueError, match="the context has room for 256"):
        list(conversation.answer("word " * 300))
    assert len(conversation.messages) == 16  # as if it had not been asked
    conversation.clear()
    alone = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert "".join(conversation.answer("hello")) == "".join(model.chat(alone, 20))


def test_an_answer_that_is_stopped_stays_as_far_as_it_came(model: LanguageModel) -> None:
    conversation = Conversation(model, max_new_tokens=100)
    flag = threading.Event()
    pieces = []
    for piece in conversation.answer("hello", flag):
        pieces.append(piece)
        if len("".join(pieces).strip()) > 3:
            flag.set()
    assert conversation.messages[-1] == {"role": "assistant", "content": "".join(pieces).strip()}
    assert model.engine.cache.used == 0
    assert list(conversation.answer("go on", flag)) == []  # still set: nothing is written
    assert len(conversation.messages) == 2


# Commands


def test_generate_on_the_engine(folder: Path) -> None:
    result = nncuda_command("generate", folder, "some words", "--greedy", "--max-tokens", 12)
    assert result.exit_code == 0, result.output
    with LanguageModel.load(folder) as model:
        assert result.output == model.complete("some words", 12) + "\n"
        both = nncuda_command(
            "generate",
            "--model",
            folder,
            "--prompt",
            "some words",
            "--prompt",
            "others",
            "--seed",
            4,
            "--max-tokens",
            9,
        )
        texts = model.complete(["some words", "others"], 9, Sampling(seed=4))
    assert both.output == f"{texts[0]}\n---\n{texts[1]}\n"
    shown = nncuda_command("generate", folder, "-", "--stats", "--cache-format", "f32", input="some words")
    assert shown.exit_code == 0 and "decode: 127 tokens in 127 steps" in shown.stderr and "GB/s" in shown.stderr
    ids = nncuda_command("generate", folder, "--ids", "5 6, 7", "8", "--max-tokens", 4, "--greedy")
    assert [len(line.split()) for line in ids.stdout.replace("---\n", "").splitlines()] == [4, 4]


def test_generate_from_a_checkpoint_on_both_paths(ctx: nncuda.Context, tmp_path: Path) -> None:
    checkpoint = save_tiny(ctx, tmp_path)
    options = ("--ids", "5 6 7", "--max-tokens", 20, "--greedy")
    trained = nncuda_command("generate", checkpoint, *options, "--contiguous")
    stored = nncuda_command("generate", checkpoint, *options, "--cache-format", "f32")
    assert trained.exit_code == 0 and trained.output == stored.output
    for extra, problem in (
        (("--contiguous", "--context", 32), "none of --context"),
        (("--contiguous", "--stats"), "none of --context"),
        (("--contiguous", "8 9"), "takes one prompt"),
        (("--precision", "bf16"), "--precision needs --contiguous"),
    ):
        result = nncuda_command("generate", checkpoint, *options, *extra)
        assert result.exit_code == 2 and problem in result.stderr


def test_wrong_use_of_generate(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"GGUF")
    for arguments, code, problem in (
        ((), 2, "there is no MODEL"),
        ((folder,), 2, "there is no PROMPT"),
        (("--model", tmp_path / "none", "x"), 2, "does not exist"),
        ((tmp_path / "no.gguf", "x"), 3, "no.gguf"),
        ((folder, "x", "--context", 100000), 3, "context is 100000; this model takes 1 to 512"),
        ((folder, "--ids", "5 x"), 2, "PROMPT has 'x'"),
        ((folder, "--ids", "600"), 3, "PROMPT[0] is 600; it must be 0 to 599"),
    ):
        result = nncuda_command("generate", *arguments)
        assert result.exit_code == code and problem in result.stderr, result.output


def test_chat_from_a_pipe(folder: Path) -> None:
    lines = "hello\n\n/system be kind\n/system\n/what\n/clear\nhello\n/stats\n/exit\nnever read\n"
    result = nncuda_command("chat", folder, "--max-tokens", 8, "--temperature", 0, "--stats", input=lines)
    assert result.exit_code == 0, result.output
    answers = result.stdout.splitlines()
    assert "be kind" in answers
    assert "no command /what" in result.stderr and "no chat template" in result.stderr
    assert result.stderr.count("tokens/s") == 4
    assert nncuda_command("chat").exit_code == 2
    assert nncuda_command("chat", folder, "--model", folder).exit_code == 2


def test_a_model_whose_template_cannot_be_used(folder: Path, tmp_path: Path) -> None:
    """It is refused before the first question, as a wrong file; one without system messages only with --system."""
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    for template, arguments, problem in (
        ("{{ raise_exception('never') }}", (), "the chat template fails: TemplateError: never"),
        ("{% for m in messages %}", (), "the chat template fails: TemplateSyntaxError"),
        ("{{ 'x' * 2000000000 }}", (), "the chat template fails: it needs too much memory"),
        ("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", (), None),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}",
            ("--system", "x"),
            "no sys",
        ),
    ):
        (model / "chat_template.jinja").write_text(template)
        result = nncuda_command("chat", model, *arguments, "--max-tokens", 1, input="")
        assert result.exit_code == (0 if problem is None else 3), result.output
        assert (problem or "") in result.stderr and "Traceback" not in result.stderr


def test_interrupts_in_a_terminal(folder: Path) -> None:
    """Ctrl-C stops the answer and not the program; at the prompt, twice, it leaves."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nncuda", "chat", folder, "--max-tokens", "400"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        env={**os.environ, "TERM": "dumb"},
    )
    os.close(slave)
    seen = ""

    def comes(text: str, after: int, seconds: float) -> bool:
        nonlocal seen
        end = time.monotonic() + seconds
        while text not in seen[after:] and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 4096).decode("utf-8", "replace")
        return text in seen[after:]

    def wait_for(text: str, after: int = 0) -> None:
        assert comes(text, after, 60), seen

    def interrupt(done: Callable[[], bool]) -> None:
        # Python's readline looks at a signal that comes between its prompt and its waiting only when the next one does.
        for _ in range(4):
            os.kill(process.pid, signal.SIGINT)
            if done():
                return
        raise AssertionError(seen)

    def has_ended() -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        return process.poll() is not None

    try:
        wait_for("> ")
        os.write(master, b"hello\n")
        wait_for("hello")
        at = len(seen)
        while len(seen) < at + 20:  # the answer runs
            seen += os.read(master, 4096).decode("utf-8", "replace")
        os.kill(process.pid, signal.SIGINT)
        wait_for("\n> ", at)
        at = len(seen)
        interrupt(lambda: comes("to exit", at, 15))
        wait_for("> ", seen.index("to exit", at))
        interrupt(has_ended)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


# How tokens are drawn


def test_flags_of_drawing(folder: Path) -> None:
    """Each has the effect of its option, in either command."""
    usual = ["generate", folder, "--ids", "1 50 60", "--max-tokens", 12, "--seed", 3]
    with LanguageModel.load(folder) as model:

        def wanted(sampling: Sampling) -> str:
            return " ".join(str(event.token) for event in model.generate([1, 50, 60], 12, sampling, end_ids=()))

        found = set()
        for flags, options in (
            ([], {}),
            (["--min-p", 0.4, "--temperature", 2], {"min_p": 0.4, "temperature": 2.0}),
            (["--presence-penalty", 1.5], {"presence_penalty": 1.5}),
            (["--frequency-penalty=-0.5"], {"frequency_penalty": -0.5}),
            (["--repetition-penalty", 1.8], {"repetition_penalty": 1.8}),
            (["--logit-bias", "77=1e3", "--logit-bias", "78=1e3"], {"logit_bias": {77: 1e3, 78: 1e3}}),
            (["--greedy", "--frequency-penalty", 2], {"temperature": 0.0, "frequency_penalty": 2.0}),
        ):
            result = nncuda_command(*usual, *flags)
            assert result.stdout.strip() == wanted(Sampling(seed=3, **options)), (flags, result.output)  # type: ignore[arg-type]
            found.add(result.stdout)
        assert len(found) >= 5
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    piece = tokenizer.decode([77])
    result = nncuda_command("chat", folder, "--max-tokens", 3, "--logit-bias", "77=1e3", input="hello\n")
    assert result.stdout.count(piece.strip()) >= 3


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--min-p", "1.5"], "--min-p"),
        (["--presence-penalty", "nan"], "presence_penalty is nan; it must be a finite number"),
        (["--repetition-penalty", "0"], "repetition_penalty is 0.0; it must be a finite number above 0"),
        (["--logit-bias", "5"], "is not a valid float"),
        (["--logit-bias", "a=1"], "'a=1' is not ID=BIAS, such as 42=-100"),
        (["--logit-bias", "5=inf"], "logit_bias of token 5 is inf"),
    ],
)
def test_flags_of_drawing_that_are_refused(folder: Path, flags: list[str], problem: str) -> None:
    for command in (["generate", folder, "hello"], ["chat", folder]):
        result = nncuda_command(*command, *flags)
        assert result.exit_code == 2 and problem in result.stderr


def test_a_bias_of_a_token_that_the_model_has_not(folder: Path) -> None:
    for command in (["generate", folder, "hello"], ["chat", folder]):
        result = nncuda_command(*command, "--logit-bias", "600=1")
        assert (
            result.exit_code != 0
            and "logit_bias[0] is 600; it must be 0 to 599" in f"{result.stderr}{result.exception}"
        )


# The page


def test_the_examples_of_the_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = fenced.blocks("docs/inference.md", "python")
    assert examples and '"model.gguf"' in examples[0]
    monkeypatch.chdir(tmp_path)
    config = StoredModel.open(folder).config
    Path("adapters").mkdir()
    write_adapter(Path("adapters/sql"), config, ("self_attn.q_proj",))
    write_adapter_gguf(Path("tales.gguf"), Adapter.open("adapters/sql", config), config)
    for example in examples:
        exec(compile(example.replace('"model.gguf"', repr(str(folder))), "docs/inference.md", "exec"), {})
    assert "0 " in capsys.readouterr().out
