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
    _write(folder, tokenizer, tokenizer.end_id, None)


def write_gguf_tokenizer(metadata: Mapping[str, Any], source: Path, folder: Path) -> None:
    """Writes the tokenizer of a GGUF file into `folder`: tokenizer.json or tokenizer.model, tokenizer_config.json with
    the chat template, and generation_config.json; nothing when there is no tokenizer. FormatError when it is wrong."""
    tokenizer = tokenizer_from_gguf(metadata, source)
    if tokenizer is not None:
        end = metadata.get("tokenizer.ggml.eos_token_id", -1)
        _write(folder, tokenizer, end, template_from_gguf(metadata, source))


def _write(folder: Path, tokenizer: TextTokenizer, end: int, template: str | None) -> None:
    def name(token: int) -> str | None:
        return tokenizer.piece(token) if token >= 0 else None

    described: dict[str, Any] = {"add_bos_token": tokenizer.adds_begin, "add_eos_token": False}
    described |= {"bos_token": name(tokenizer.begin_id), "eos_token": name(end)}
    if isinstance(tokenizer, Tokenizer):
        (folder / "tokenizer.model").write_bytes(tokenizer.model)
        described |= {"unk_token": name(tokenizer.unknown_id), "pad_token": name(tokenizer.pad_id)}
        # transformers 4 puts a space before every text unless told otherwise, whatever the model's file says; "legacy"
        # has it begin again after a control token, as SentencePiece does.
        described["add_prefix_space"] = PieceModel.from_bytes(tokenizer.model).add_dummy_prefix
        described |= {"legacy": True, "clean_up_tokenization_spaces": False}
    else:
        (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")  # type: ignore[attr-defined]
    described["tokenizer_class"] = transformers_class(tokenizer)
    if template is not None:
        described["chat_template"] = template
    _write_json(folder / "tokenizer_config.json", described)
    _write_json(folder / "generation_config.json", special_ids(tokenizer))


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
