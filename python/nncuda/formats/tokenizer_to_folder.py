"""The tokenizer of a GGUF file as the files of a Hugging Face folder: the other direction of `tokenizer_to_gguf`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .chat_template import template_from_gguf
from .tokenizer import Tokenizer
from .tokenizer_gguf import tokenizer_from_gguf


def write_tokenizer(metadata: Mapping[str, Any], source: Path, folder: Path) -> None:
    """Writes into `folder` tokenizer.json or tokenizer.model, tokenizer_config.json with the chat template, and
    generation_config.json with what ends a text; nothing when there is no tokenizer. FormatError when it is wrong."""
    tokenizer = tokenizer_from_gguf(metadata, source)
    if tokenizer is None:
        return
    described: dict[str, Any] = {"add_bos_token": tokenizer.adds_begin, "add_eos_token": False}
    begin = tokenizer.piece(tokenizer.begin_id) if tokenizer.begin_id >= 0 else None
    end = metadata.get("tokenizer.ggml.eos_token_id")
    described |= {"bos_token": begin, "eos_token": None if end is None else tokenizer.piece(end)}
    if isinstance(tokenizer, Tokenizer):
        (folder / "tokenizer.model").write_bytes(tokenizer.model)
        described["tokenizer_class"] = "LlamaTokenizer"
    else:
        (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")  # type: ignore[attr-defined]
        described["tokenizer_class"] = "PreTrainedTokenizerFast"
    template = template_from_gguf(metadata, source)
    if template is not None:
        described["chat_template"] = template
    _write_json(folder / "tokenizer_config.json", {key: found for key, found in described.items() if found is not None})
    ends: dict[str, Any] = {"eos_token_id": sorted(tokenizer.end_ids)}
    if begin is not None:
        ends["bos_token_id"] = tokenizer.begin_id
    _write_json(folder / "generation_config.json", ends)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
