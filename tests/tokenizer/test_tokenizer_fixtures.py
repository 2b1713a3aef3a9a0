"""The fixtures say what SentencePiece says."""

from __future__ import annotations

import base64
import json

import pytest
import tokenizer_generate as generate

from nncuda.formats import FormatError
from nncuda.tokenizer import Tokenizer

FILES = generate.files()


@pytest.mark.parametrize("name", FILES)
def test_expectations_are_those_of_sentencepiece(name: str) -> None:
    assert (generate.FOLDER / name).read_text(encoding="ascii") == FILES[name]


def test_no_file_stands_here_without_a_maker() -> None:
    found = {path.name for path in generate.FOLDER.iterdir() if path.suffix in (".json", ".model")}
    assert found == FILES.keys() | {f"{name}.model" for name in generate.MODELS}


def test_own_tokenizers_give_every_text_back() -> None:
    # All but the sign that stands for a space inside pieces, which comes back as a space.
    texts = {case["name"]: case["text"] for case in json.loads(FILES["texts.json"])}
    for name in ("own_unigram", "own_bpe"):
        changed = {
            text
            for text, expected in json.loads(FILES[f"{name}.json"])["encode"].items()
            if {"decoded", "decoded_sha256"} & expected.keys()
        }
        assert changed == {text for text, content in texts.items() if "\N{LOWER ONE EIGHTH BLOCK}" in content}


@pytest.mark.parametrize("case", json.loads(FILES["refused.json"]), ids=lambda case: case["name"])
def test_refused(case: dict[str, str]) -> None:
    with pytest.raises(FormatError, match=r"is not a SentencePiece model"):
        Tokenizer(base64.b64decode(case["model"]))
