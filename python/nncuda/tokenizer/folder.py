"""Tokenizers of Hugging Face folders and of checkpoints.

tokenizer.json where there is one, since that is what transformers uses, else tokenizer.model; what begins a text and
what ends it is also in tokenizer_config.json, generation_config.json and config.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..formats.errors import FormatError, shown
from ..formats.json_values import read_json
from ..formats.regular import present
from .tokenizer import TextTokenizer, Tokenizer


def tokenizer_from_folder(folder: Path) -> TextTokenizer | None:
    """The tokenizer of a folder; None when it has none, FormatError when it is wrong."""
    described = optional_json(folder / "tokenizer_config.json")
    adds_begin = described.get("add_bos_token")
    if adds_begin not in (None, True, False):
        raise FormatError(
            folder / "tokenizer_config.json", f"add_bos_token is {shown(adds_begin)}; it must be true or false"
        )
    path = folder / "tokenizer.json"
    if present(path):
        from .json_tokenizer import JsonTokenizer  # the library is loaded where it is needed

        tokenizer: TextTokenizer = (library := JsonTokenizer.load(path))
        begin, end = (library.id_of(token_name(described, name)) for name in ("bos_token", "eos_token"))
        begin = next(_ids(folder / "config.json", "bos_token_id"), -1) if begin is None else begin
        ends = {end} - {None}
        usual = library.first_id == begin >= 0
    elif present(folder / "tokenizer.model"):
        tokenizer = Tokenizer.load(folder / "tokenizer.model")
        begin, ends, usual = tokenizer.begin_id, tokenizer.end_ids, tokenizer.adds_begin
    else:
        return None
    for name in ("config.json", "generation_config.json"):
        ends |= set(_ids(folder / name, "eos_token_id"))
    size = tokenizer.vocab_size
    tokenizer.begin_id = begin if begin < size else -1
    tokenizer.end_ids = frozenset(token for token in ends if token < size)
    tokenizer.adds_begin = usual if adds_begin is None else adds_begin
    return tokenizer


def optional_json(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one when there is no such file."""
    return read_json(path) if present(path) else {}


def token_name(described: Mapping[str, Any], key: str) -> str:
    """The name of a token in a tokenizer_config.json, which has it alone or in an object; empty without."""
    value = described.get(key)
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _ids(path: Path, key: str) -> Iterator[int]:
    value = optional_json(path).get(key)
    for token in value if isinstance(value, list) else [value]:
        if token is None:
            continue
        if type(token) is not int or token < 0:
            raise FormatError(path, f"{key} is {shown(value)}; it must be an id or a list of them")
        yield token
