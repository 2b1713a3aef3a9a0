"""Our tokenizers against llama.cpp's, from what `make interop` recorded: the same ids for the same GGUF metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import token_cases

from nncuda.formats.gguf import open_gguf
from nncuda.tokenizer.gguf import tokenizer_from_gguf

RECORDED = Path(__file__).parent / "recorded"
RECORD = json.loads((RECORDED / "tokens_by_llama_cpp.json").read_text(encoding="utf-8"))


def _typed(key: str, value: Any) -> Any:
    return np.array(value, np.float32) if key == "tokenizer.ggml.scores" else value


@pytest.mark.parametrize("kind", token_cases.KINDS)
def test_ids_are_those_of_llama_cpp(kind: str, tmp_path: Path) -> None:
    case = RECORD["kinds"][kind]
    path = tmp_path / "tokenizer.gguf"
    token_cases.write(path, {key: _typed(key, value) for key, value in case["metadata"].items()})
    tokenizer = tokenizer_from_gguf(open_gguf(path).metadata, path)
    assert tokenizer is not None and tokenizer.adds_begin
    unknown = case["metadata"].get("tokenizer.ggml.unknown_token_id")
    compared = 0
    for name, special in (("text", False), ("special", True)):
        for text, theirs in zip(RECORD["texts"], case[name], strict=True):
            if kind == "unigram" and unknown in theirs:
                continue  # llama.cpp's unigram tokenizer spells nothing in bytes
            assert tokenizer.encode(text, special=special) == theirs, (text, special)
            compared += 1
    assert compared == 2 * len(RECORD["texts"]) if kind != "unigram" else compared > 10


@pytest.mark.parametrize("name", token_cases.CUT_CASES["cuts"])
def test_cuts_are_those_of_llama_cpp(name: str) -> None:
    """But where it has another rule than the model's own file. All languages give these ids: tests/tokenizer."""
    theirs = json.loads((RECORDED / "cuts_by_llama_cpp.json").read_text(encoding="ascii"))["ids"][name]
    ours, texts = token_cases.CUT_CASES["cuts"][name]["ids"], token_cases.CUT_CASES["texts"]
    for text, wanted, found in zip(texts, theirs, ours, strict=True):
        assert (found != wanted) == token_cases.differs(name, text), text
