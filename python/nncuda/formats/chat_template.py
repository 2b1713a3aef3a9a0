"""Chat templates: how the turns of a conversation become the text that a model was trained on.

A template is a program in Jinja from a file of strangers. It runs in a process of its own, in Jinja's sandbox, with
limits of memory, time and output, so that the worst it can do is to fail.
(https://huggingface.co/docs/transformers/chat_templating)
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import FormatError
from .regular import read_regular
from .tokenizer import TextTokenizer
from .tokenizer_folder import optional_json, token_name

#: For models without a template: each turn as `User: …` or `Assistant: …` on its own line, the system's text above.
PLAIN = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'system' -%}{{ message['content'] + '\\n\\n' }}"
    "{%- else -%}{{ message['role'] | capitalize + ': ' + message['content'] + '\\n' }}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}"
)

LONGEST_TEMPLATE = 1 << 20  # characters
LONGEST_TEXT = 1 << 22  # characters: about a million tokens
_MEMORY = 1 << 29  # bytes
_WORKER = Path(__file__).with_name("chat_template_worker.py")


class ChatTemplate:
    """A template, ready to render. `begin` and `end` are the names of the tokens that it knows as bos_token and
    eos_token. `plain` tells that the model has none, and `PLAIN` stands in."""

    def __init__(
        self,
        template: str | None,
        source: str | os.PathLike[str],
        *,
        begin: str = "",
        end: str = "",
        seconds: float = 10.0,
    ):
        self.plain = template is None
        self.template = PLAIN if template is None else template
        if len(self.template) > LONGEST_TEMPLATE:
            problem = f"has {len(self.template)} characters; it may have {LONGEST_TEMPLATE}"
            raise FormatError(source, f"the chat template {problem}")
        self._source, self._variables, self._seconds = source, {"bos_token": begin, "eos_token": end}, seconds
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a conversation. Each message has `role` and `content`; `add_generation_prompt` opens the turn of
        the model; `variables` are further ones that the template asks for. FormatError when the template fails, or
        takes too much time, memory or text."""
        values = {**self._variables, **(variables or {}), "messages": list(messages)}
        values["add_generation_prompt"] = add_generation_prompt
        request = {"template": self.template, "values": values, "most": LONGEST_TEXT}
        with self._lock:
            answer = self._ask(json.dumps(request).encode() + b"\n")
        if "error" in answer:
            raise FormatError(self._source, f"the chat template fails: {answer['error']}")
        return answer["text"]

    def ids(self, tokenizer: TextTokenizer, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Ids of the rendered text, its control tokens recognised; the begin id once, where the tokenizer adds it or
        the template wrote it. Options as of `render`."""
        text = self.render(messages, **options)
        written = bool(self._variables["bos_token"]) and text.startswith(self._variables["bos_token"])
        return tokenizer.encode(text, begin=tokenizer.adds_begin and not written, special=not self.plain)

    def _ask(self, request: bytes) -> dict[str, Any]:
        if self._worker is None or self._worker.poll() is not None:
            # Isolated from the user's paths; the worker needs nothing but jinja2.
            command = [sys.executable, "-I", str(_WORKER), str(_MEMORY)]
            self._worker = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # an interrupt of the terminal is not for it
            )
            weakref.finalize(self, _end, self._worker)
        try:
            answer = _exchange(self._worker, request, time.monotonic() + self._seconds)
        except TimeoutError:
            _end(self._worker)
            raise FormatError(self._source, f"the chat template ran for more than {self._seconds} s") from None
        except BaseException:  # an answer that comes later must not be taken for that of another request
            _end(self._worker)
            raise
        if not answer:
            _end(self._worker)
            raise FormatError(self._source, "the chat template ended its process, perhaps for want of memory")
        return json.loads(answer)


def _exchange(worker: subprocess.Popen[bytes], request: bytes, deadline: float) -> bytes:
    """One line for one line; an empty one when the worker ended."""
    assert worker.stdin is not None and worker.stdout is not None
    inlet, outlet = worker.stdin.fileno(), worker.stdout.fileno()
    os.set_blocking(inlet, False)
    left, answer = memoryview(request), []
    while True:
        readable, writable, _ = select.select(
            [outlet], [inlet] if left else [], [], max(deadline - time.monotonic(), 0)
        )
        if not readable and not writable:
            raise TimeoutError
        if writable:
            try:
                left = left[os.write(inlet, left[:65536]) :]
            except BrokenPipeError:
                return b""
        if readable:
            part = os.read(outlet, 1 << 20)
            answer.append(part)
            if not part:
                return b""
            if part.endswith(b"\n"):
                return b"".join(answer)


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            pipe.close()


def template_from_gguf(metadata: Mapping[str, Any], source: str | os.PathLike[str]) -> str | None:
    """The chat template in the metadata of a GGUF file."""
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise FormatError(source, "tokenizer.chat_template is no string")
    return template


def template_from_folder(folder: Path) -> str | None:
    """The chat template of a folder: chat_template.jinja, or that of tokenizer_config.json (the default of several)."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return read_regular(path).decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(path, f"is not UTF-8 ({error.reason} at byte {error.start})") from error
    path = folder / "tokenizer_config.json"
    template = optional_json(path).get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        if not named:
            raise FormatError(path, "has several chat templates, none of them named 'default'")
        template = named[0].get("template")
    if template is not None and not isinstance(template, str):
        raise FormatError(path, "chat_template is neither a string nor a list of named ones")
    return template


def special_names(folder: Path) -> dict[str, str]:
    """`begin` and `end` of a `ChatTemplate`, from the tokenizer_config.json of a folder."""
    described = optional_json(folder / "tokenizer_config.json")
    return {"begin": token_name(described, "bos_token"), "end": token_name(described, "eos_token")}
