"""Tokenizers of our checkpoints against transformers' AutoTokenizer, from what `make interop` recorded: the same ids,
the begin id before them. transformers takes the name of a control token for the token; ours does so only if asked."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import mixtral_tokenizers
import pytest

from nncuda.tokenizer import Tokenizer
from nncuda.tokenizer.to_folder import write_tokenizer

RECORDED = Path(__file__).parent / "recorded" / "tokens_by_transformers.json"


def check(record: dict[str, Any], kind: str, folder: Path) -> None:
    """That our ids are those of the record, and that what transformers read then is what is written now."""
    case = record["kinds"][kind]
    tokenizer = Tokenizer(base64.b64decode(case["model"]))
    for text, theirs in zip(record["texts"], case["ids"], strict=True):
        assert tokenizer.encode(text, begin=True, special=True) == theirs, text
    assert case["special"] == [tokenizer.begin_id, tokenizer.end_id, tokenizer.unknown_id, tokenizer.pad_id]
    folder.mkdir()
    write_tokenizer(folder, tokenizer)
    assert json.loads((folder / "tokenizer_config.json").read_text()) == case["described"]
    ends = json.loads((folder / "generation_config.json").read_text())
    assert [ends[f"{name}_token_id"] for name in ("bos", "eos", "pad")] == case["ends"]


@pytest.mark.parametrize("kind", mixtral_tokenizers.KINDS)
def test_ids_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    record = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert len(record["texts"]) == len(mixtral_tokenizers.TEXTS)
    check(record, kind, tmp_path / kind)
