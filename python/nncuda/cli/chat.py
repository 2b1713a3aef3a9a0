"""`nncuda chat`: a conversation with a model in the terminal."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..infer import LanguageModel, Sampling
from ..infer.conversation import Conversation
from ..serve.remote import RemoteConversation, RemoteModel
from .arguments import device_options
from .engine_options import adapter_option, drawing_options, engine_options, stats_option
from .generate import write_statistics
from .terminal import spoken

_HELP = """/clear   forget the conversation, but not the system message
/system  show the system message, or set it: /system TEXT
/stats   show what the conversation has taken so far
/exit    exit, as Ctrl-D does
Ctrl-C stops an answer; pressed twice at the prompt, it exits."""


@click.command()
@click.argument("model", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--model", "model_option", type=click.Path(exists=True, path_type=Path), help="The model.")
@click.option("--system", help="The system message.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    help="Maximum number of tokens of an answer.  [default: what the context leaves]",
)
@click.option("--url", help="Talk with a model on a server of OpenAI's API instead, such as http://127.0.0.1:8000.")
@click.option("--model-name", help="With --url: the model.  [default: the first that the server lists]")
@click.option(
    "--api-key", envvar="NNCUDA_API_KEY", help="With --url: a key of the server.  [default: that in NNCUDA_API_KEY]"
)
@drawing_options(0.7, "0 always picks the most likely token", 0.95, "the same answers")
@engine_options
@adapter_option
@stats_option
@device_options
def chat(
    model: Path | None,
    model_option: Path | None,
    system: str | None,
    max_tokens: int | None,
    url: str | None,
    model_name: str | None,
    api_key: str | None,
    sampling: Sampling,
    stats: bool,
    device: str,
    threads: int | None,
    **options: Any,
) -> None:
    """Talk with MODEL: a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint or a run.

    Each line is a message; messages are formatted with the model's chat template. /help lists the commands. Ctrl-C
    stops an answer; at the prompt, Ctrl-D or a second Ctrl-C exits. With --url, the model is on a server, which
    `nncuda serve` starts, or another one of OpenAI's API.
    """
    if url is not None:
        _check_remote_options()
        conversation = RemoteConversation(RemoteModel(url, model_name, api_key), system, sampling, max_tokens)
        _Session(conversation).run()
        return
    if model_name is not None:
        raise click.UsageError("--model-name needs --url")
    path = model_option or model
    if path is None or (model_option and model):
        raise click.UsageError("name one MODEL, as the argument or with --model")
    start = time.perf_counter()
    with LanguageModel.load(path, device=device, threads=threads, max_batch=1, **options) as loaded:
        seconds = time.perf_counter() - start
        local = Conversation(loaded, system, sampling, max_tokens)
        local.check()
        sampling.check_ids(loaded.config.vocab_size)
        if loaded.stored.chat_template.plain:
            click.echo(
                "The model has no chat template: it is given lines that begin with User: and Assistant:", err=True
            )
        session = _Session(local, seconds)
        session.run()
        if stats:
            session.write_statistics()


def _check_remote_options() -> None:
    """UsageError for options that are of a model which this program runs itself."""
    context = click.get_current_context()
    engine = ("context", "cache_format", "weights", "adapter")
    for name in ("model", "model_option", *engine, "stats", "device", "threads"):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            flag = next(one.opts[-1] for one in context.command.params if one.name == name)
            shown = "MODEL" if name == "model" else flag
            raise click.UsageError(f"--url and {shown} exclude each other: the server runs the model")


class _Session:
    """The terminal's side of a conversation."""

    def __init__(self, conversation: Conversation | RemoteConversation, load_seconds: float = 0.0):
        self._conversation = conversation
        self._load_seconds = load_seconds
        self._first_token = 0.0

    def run(self) -> None:
        """Reads messages and writes answers until the user leaves."""
        if sys.stdin.isatty():
            with contextlib.suppress(ImportError):  # line editing, where Python has it
                import readline  # noqa: F401
        interrupted = False
        while True:
            try:
                line = input("> " if sys.stdin.isatty() else "")
            except EOFError:
                if sys.stdin.isatty():
                    click.echo()
                return
            except KeyboardInterrupt:
                click.echo()
                if interrupted:
                    return
                interrupted = True
                click.echo("Press Ctrl-C again, or Ctrl-D, to exit.", err=True)
                continue
            interrupted = False
            if line.strip() in ("/exit", "/quit"):
                return
            if line.startswith("/"):
                self._command(line)
            elif line.strip():
                self._answer(line)

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == "/clear":
            self._conversation.clear()
        elif name == "/system":
            if rest.strip():
                self._conversation.system = rest.strip()
            else:
                click.echo(self._conversation.system or "there is none")
        elif name == "/stats":
            self.write_statistics()
        elif name == "/help":
            click.echo(_HELP)
        else:
            click.echo(f"There is no command {name}. {_HELP}", err=True)

    def _answer(self, text: str) -> None:
        conversation, left_out = self._conversation, self._conversation.left_out
        start, first = time.perf_counter(), True
        try:
            with _interrupts() as stopped:
                for piece in conversation.answer(text, stopped):
                    if first and self._first_token == 0.0:
                        self._first_token = time.perf_counter() - start
                    # Templates end before the space that many models begin an answer with.
                    click.echo(spoken(piece.lstrip() if first else piece), nl=False)
                    first = False
                    sys.stdout.flush()
        except ValueError as error:
            click.echo(f"Error: {error}", err=True)
            return
        click.echo()
        if conversation.left_out > left_out:
            context = conversation.context
            room = "the context" if context is None else f"{context} tokens"
            dropped = f"its first {conversation.left_out} messages were dropped"
            click.echo(f"(The conversation no longer fits in {room}: {dropped}.)", err=True)

    def write_statistics(self) -> None:
        if isinstance(self._conversation, RemoteConversation):
            click.echo("The server counts: /metrics of it, where it is one of this program.", err=True)
        else:
            write_statistics(self._conversation.model, self._load_seconds, self._first_token)


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """While it lasts, Ctrl-C sets the event instead of ending what runs."""
    event = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
