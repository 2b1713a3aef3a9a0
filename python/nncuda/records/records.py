"""Records of JSONL files as training takes them: a document each, which is a text or a conversation.

    {"text": "..."}
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}], "tools": [...]}

`messages` have the form that `nncuda serve` takes, and `tools`, which may be left out, goes to the chat template. Other
keys of a record (its source, its number) are not looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..formats.errors import FormatError, shown
from ..formats.json_values import json_value, read_json
from ..formats.limits import TEMPLATE_BYTES
from ..formats.regular import present, read_regular
from ..formats.shards import tokenizer_digest
from ..serve.api import ApiError
from ..serve.messages import plain_messages
from ..tokenizer.answers import encode_conversation
from ..tokenizer.chat_template import ChatTemplate, special_names, template_from_folder
from ..tokenizer.folder import tokenizer_from_folder
from ..tokenizer.tokenizer import TextTokenizer, Tokenizer


class RecordEncoder:
    """The tokenizer and the chat template of a model, from a SentencePiece model or a folder of either kind that
    `tokenizer_from_folder` knows; `template_path` has another template. FormatError for what is none.

    `vocab_size` is the model's where the folder has its config.json, and `digest` is what shards keep of a tokenizer.
    """

    def __init__(self, path: Path, template_path: Path | None = None):
        if path.is_dir():
            found = tokenizer_from_folder(path)
            if found is None:
                raise FormatError(path, "has no tokenizer: neither tokenizer.json nor tokenizer.model")
            self.tokenizer: TextTokenizer = found
            names, template = special_names(path), template_from_folder(path)
            file = path / "tokenizer.json"
            self.digest = tokenizer_digest(read_regular(file if present(file) else path / "tokenizer.model"))
            self.vocab_size = max(found.vocab_size, _vocabulary(path))
        else:
            model = Tokenizer.load(path)
            self.tokenizer, template = model, None
            self.digest, self.vocab_size = tokenizer_digest(model.model), model.vocab_size
            ids = {"begin": model.begin_id, "end": model.end_id}
            names = {name: model.piece(token) if token >= 0 else "" for name, token in ids.items()}
        if template_path is not None:
            try:
                template = read_regular(template_path, TEMPLATE_BYTES).decode("utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(template_path, f"is not UTF-8 ({error.reason} at byte {error.start})") from error
        self.template = ChatTemplate(template, template_path or path, **names)
        end = self.tokenizer.encode(names["end"], special=True) if names["end"] else []
        self._end = end if len(end) == 1 else []
        self._begin = [self.tokenizer.begin_id] if self.tokenizer.adds_begin else []

    def encode(self, line: bytes) -> tuple[np.ndarray, np.ndarray]:
        """The ids of the record on a line, int64, and which of them count as targets, bool: of a conversation those of
        the assistant, of a text all. ValueError or FormatError for what is no such record."""
        try:
            record = json_value(line)
        except ValueError as error:
            raise ValueError(f"it is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise ValueError(f"it is {shown(record)}; it must be an object with a text or messages")
        if ("text" in record) == ("messages" in record):
            many = "both of text and messages" if "text" in record else "neither text nor messages"
            raise ValueError(f"it has {many}; it must have one of them")
        if "text" in record:
            ids = self._text(record["text"])
            return ids, np.ones(len(ids), bool)
        return self._conversation(record["messages"], record.get("tools"))

    def text_part(self, part: str, begins: bool, ends: bool) -> np.ndarray:
        """The ids of a part of a text, int64, which begins and ends the text or does not."""
        begin, end = self._begin if begins else (), self._end if ends else ()
        return np.array([*begin, *self.tokenizer.encode(part), *end], np.int64)

    def _text(self, text: Any) -> np.ndarray:
        if not isinstance(text, str):
            raise ValueError(f"text is {shown(text)}; it must be a text")
        _check_characters(text)
        ids = self.text_part(text, True, True)
        if len(ids) < 2:
            raise ValueError(f"text gives {len(ids)} tokens; a document has two at least")
        return ids

    def _conversation(self, messages: Any, tools: Any) -> tuple[np.ndarray, np.ndarray]:
        if not isinstance(messages, list) or not messages:
            raise ValueError(f"messages is {shown(messages)}; it must be a list of messages")
        if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            raise ValueError(f"tools is {shown(tools)}; it must be a list of objects")
        try:
            plain = plain_messages(messages)
        except ApiError as error:
            raise ValueError(error.sentence) from None
        for value in (plain, tools):
            _check_characters(value)
        return encode_conversation(self.template, self.tokenizer, plain, {"tools": tools} if tools else None)


def _vocabulary(folder: Path) -> int:
    """The vocabulary's size in the config.json of a folder; 0 where it says none."""
    path = folder / "config.json"
    size = read_json(path).get("vocab_size", 0) if present(path) else 0
    if type(size) is not int or not 0 <= size < 1 << 31:
        raise FormatError(path, f"vocab_size is {shown(size)}; it must be a whole number")
    return size


def _check_characters(value: Any) -> None:
    """ValueError for half of a pair of characters, which JSON can have and UTF-8 cannot, anywhere in a value."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"it has {value[error.start]!r}, which is half a character") from None
    elif isinstance(value, list):
        for entry in value:
            _check_characters(entry)
    elif isinstance(value, dict):
        for entry in (*value, *value.values()):
            _check_characters(entry)
