"""The ways to cut that GGUF files have names for: the ids of the library, from a folder, its GGUF file, and back."""

from __future__ import annotations

import json
from pathlib import Path

import cuts_generate as generate
import library_generate
import pytest
from tokenizers import Tokenizer

from nncuda.tokenizer.cuts import CUTS
from nncuda.tokenizer.gguf import tokenizer_from_gguf
from nncuda.tokenizer.to_folder import write_gguf_tokenizer
from nncuda.tokenizer.to_gguf import tokenizer_metadata

CONTENT = generate.content()
CASES = json.loads(CONTENT)


def test_the_file_is_that_of_the_library() -> None:
    assert generate.PATH.read_text(encoding="ascii") == CONTENT
    assert [name for case in CASES["cuts"].values() for name in case["names"]] == list(CUTS)


def test_the_texts_tell_all_cuts_apart() -> None:
    ids = [case["ids"] for case in CASES["cuts"].values()]
    assert all(one != other for at, one in enumerate(ids) for other in ids[:at])


@pytest.mark.parametrize("name", CASES["cuts"])
def test_ids_through_a_gguf_file_and_back(name: str, tmp_path: Path) -> None:
    """From a tokenizer.json as published; what it becomes again, the library runs."""
    case, size = CASES["cuts"][name], len(CASES["metadata"]["tokenizer.ggml.tokens"])
    folder, back = tmp_path / "folder", tmp_path / "back"
    for path in (folder, back):
        path.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(generate.tokenizer_json(name)), encoding="utf-8")
    metadata = library_generate.metadata_of(tokenizer_metadata(folder, size))
    write_gguf_tokenizer(metadata, Path(name), back)
    made, carried = tokenizer_from_gguf(metadata, name), Tokenizer.from_file(str(back / "tokenizer.json"))
    assert made is not None
    assert [made.encode(text, special=True) for text in CASES["texts"]] == case["ids"]
    assert [carried.encode(text).ids for text in CASES["texts"]] == case["ids"]
    assert json.loads((back / "tokenizer.json").read_text(encoding="utf-8"))["normalizer"] == case["normalizer"]
    again = tokenizer_metadata(back, size)
    assert metadata["tokenizer.ggml.pre"] == again["tokenizer.ggml.pre"] == name
    for key in ("tokens", "merges", "token_type"):
        assert list(again[f"tokenizer.ggml.{key}"]) == list(metadata[f"tokenizer.ggml.{key}"])


def test_all_names() -> None:
    """Where a file does not say whether texts begin with the begin token, its cut does."""
    for case in CASES["cuts"].values():
        for name in case["names"]:
            metadata = library_generate.metadata_of(CASES["metadata"] | {"tokenizer.ggml.pre": name})
            made = tokenizer_from_gguf(metadata, name)
            assert made is not None and made.adds_begin == case["begins"]
            assert [made.encode(text, special=True) for text in CASES["texts"]] == case["ids"]
