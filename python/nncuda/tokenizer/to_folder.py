"""Tokenizers as the files of a Hugging Face folder: what `folder` reads.

Beside the tokenizer stand tokenizer_config.json, by which transformers gives a text the ids that it has here, the begin
id before them, and generation_config.json with what ends a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .chat_template import template_from_gguf
from .gguf import tokenizer_from_gguf
from .sentencepiece_model import PieceModel
from .tokenizer import TextTokenizer, Tokenizer


def special_ids(tokenizer: TextTokenizer) -> dict[str, Any]:
    """The ids of begin, end and padding as config.json and generation_config.json have them; None for none, and a list
    of several ends."""
    ends = sorted(tokenizer.end_ids)
    return {
        "bos_token_id": tokenizer.begin_id if tokenizer.begin_id >= 0 else None,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": tokenizer.pad_id if isinstance(tokenizer, Tokenizer) and tokenizer.pad_id >= 0 else None,
    }


def transformers_class(tokenizer: TextTokenizer) -> str:
    """The class of transformers that reads the files of a tokenizer."""
    return "LlamaTokenizer" if isinstance(tokenizer, Tokenizer) else "PreTrainedTokenizerFast"


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Writes into `folder` tokenizer.model, tokenizer_config.json and generation_config.json."""
    _write(folder, _files(tokenizer, tokenizer.end_id, None))


def write_gguf_tokenizer(metadata: Mapping[str, Any], source: Path, folder: Path) -> None:
    """Writes into `folder` the `gguf_tokenizer_files`; nothing when there is no tokenizer."""
    tokenizer = tokenizer_from_gguf(metadata, source)
    if tokenizer is not None:
        _write(folder, gguf_tokenizer_files(tokenizer, metadata, source))


def gguf_tokenizer_files(tokenizer: TextTokenizer, metadata: Mapping[str, Any], source: Path) -> dict[str, bytes]:
    """The files by name of the tokenizer that a GGUF file has: tokenizer.json or tokenizer.model, tokenizer_config.json
    with the chat template, and generation_config.json. FormatError for a template that is none."""
    end = metadata.get("tokenizer.ggml.eos_token_id", -1)
    return _files(tokenizer, end, template_from_gguf(metadata, source))


def _files(tokenizer: TextTokenizer, end: int, template: str | None) -> dict[str, bytes]:
    def name(token: int) -> str | None:
        return tokenizer.piece(token) if token >= 0 else None

    files: dict[str, bytes] = {}
    described: dict[str, Any] = {"add_bos_token": tokenizer.adds_begin, "add_eos_token": False}
    described |= {"bos_token": name(tokenizer.begin_id), "eos_token": name(end)}
    if isinstance(tokenizer, Tokenizer):
        files["tokenizer.model"] = tokenizer.model
        described |= {"unk_token": name(tokenizer.unknown_id), "pad_token": name(tokenizer.pad_id)}
        # transformers 4 puts a space before every text unless told otherwise, whatever the model's file says; "legacy"
        # has it begin again after a control token, as SentencePiece does.
        described["add_prefix_space"] = PieceModel.from_bytes(tokenizer.model).add_dummy_prefix
        described |= {"legacy": True, "clean_up_tokenization_spaces": False}
    else:
        files["tokenizer.json"] = tokenizer.to_json().encode("utf-8")  # type: ignore[attr-defined]
    described["tokenizer_class"] = transformers_class(tokenizer)
    if template is not None:
        described["chat_template"] = template
    files["tokenizer_config.json"] = _json(described)
    files["generation_config.json"] = _json(special_ids(tokenizer))
    return files


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)
