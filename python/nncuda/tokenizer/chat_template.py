"""Chat templates: how the turns of a conversation become the text that a model was trained on.

A template is a program in Jinja from a file of strangers. It runs in a process of its own, in Jinja's sandbox, with
limits of memory, time and output, so that the worst it can do is to fail.
(https://huggingface.co/docs/transformers/chat_templating)
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..formats.errors import FormatError
from ..formats.limits import TEMPLATE_BYTES
from ..formats.regular import present, read_regular
from .folder import optional_json, token_name
from .sandbox import Sandbox, SandboxError
from .tokenizer import TextTokenizer

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

_GENERATION = re.compile(r"\{%[-+]?\s*generation\b")


class ChatTemplate:
    """A template, ready to render. `begin` and `end` are the names of the tokens that it knows as bos_token and
    eos_token. `plain` says that the model has none, and `PLAIN` is used."""

    def __init__(
        self,
        template: str | None,
        source: str | os.PathLike[str],
        *,
        begin: str = "",
        end: str = "",
        seconds: float = 10.0,
    ):
        self.plain, self.end = template is None, end
        self.template = PLAIN if template is None else template
        if len(self.template) > LONGEST_TEMPLATE:
            problem = f"has {len(self.template)} characters; it may have at most {LONGEST_TEMPLATE}"
            raise FormatError(source, f"the chat template {problem}")
        self._source, self._seconds = source, seconds
        # Templates are written for transformers, which gives them all of these.
        self._variables = {"bos_token": begin, "eos_token": end, "tools": None, "documents": None}
        self._sandbox = Sandbox("chat_template_worker.py", _MEMORY)

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
        return self._ask(messages, add_generation_prompt, variables, {})

    @property
    def marks_answers(self) -> bool:
        """Whether the template says itself, by `{% generation %}`, what of a text the model wrote."""
        return _GENERATION.search(self.template) is not None

    def render_marked(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
    ) -> tuple[str, list[tuple[int, int]]]:
        """The text of a conversation, and the places, first and past the last character, of what the template marks as
        written by the model. FormatError as of `render`, and where such places are inside one another."""
        secret = secrets.token_hex(16)  # which no message can hold
        before, after = f"<{secret}>", f"</{secret}>"
        marked = self._ask(messages, False, variables, {"marks": [before, after]})
        text, spans, opened = "", [], False
        for part in re.split(f"({before}|{after})", marked):
            if part not in (before, after):
                text += part
            elif opened == (part == before):
                raise FormatError(
                    self._source, "the chat template has {% generation %} inside another one, or halves of one"
                )
            else:
                opened = not opened
                spans.append(len(text))
        if opened:
            raise FormatError(self._source, "the chat template begins a {% generation %} that it does not end")
        return text, list(zip(spans[::2], spans[1::2], strict=True))

    def _ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None,
        more: Mapping[str, Any],
    ) -> str:
        values = {**self._variables, **(variables or {}), "messages": list(messages)}
        values["add_generation_prompt"] = add_generation_prompt
        request = {"template": self.template, "values": values, "most": LONGEST_TEXT, **more}
        try:
            return self._sandbox.ask(request, self._seconds)["text"]
        except SandboxError as error:
            raise FormatError(self._source, f"the chat template {error}") from None

    def ids(self, tokenizer: TextTokenizer, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Ids of the rendered text, as of `encode`. Options as of `render`."""
        return self.encode(tokenizer, self.render(messages, **options))

    def encode(self, tokenizer: TextTokenizer, text: str) -> list[int]:
        """Ids of a text of this template, its control tokens recognised; the begin id once, where the tokenizer adds it
        or the template wrote it."""
        begin = "" if self.plain else self._variables["bos_token"]  # a plain one writes none, but strangers may
        written = bool(begin) and text.startswith(begin)
        return tokenizer.encode(text, begin=tokenizer.adds_begin and not written, special=not self.plain)


def template_from_gguf(metadata: Mapping[str, Any], source: str | os.PathLike[str]) -> str | None:
    """The chat template in the metadata of a GGUF file."""
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise FormatError(source, "tokenizer.chat_template is not a string")
    return template


def template_from_folder(folder: Path) -> str | None:
    """The chat template of a folder: chat_template.jinja, or that of tokenizer_config.json (the default of several)."""
    path = folder / "chat_template.jinja"
    if present(path):
        try:
            return read_regular(path, TEMPLATE_BYTES).decode("utf-8")
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
