"""Tokenizers of GGUF files and of folders: text comes back as it went in. What is wrong in one: tests/fuzz."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from nncuda.bench import random_tokenizer
from nncuda.formats import FormatError
from nncuda.formats.gguf import open_gguf
from nncuda.formats.gguf_writer import write_gguf
from nncuda.tokenizer import StreamDecoder, Tokenizer
from nncuda.tokenizer.cuts import CUTS
from nncuda.tokenizer.folder import tokenizer_from_folder
from nncuda.tokenizer.gguf import tokenizer_from_gguf
from nncuda.tokenizer.json_tokenizer import JsonTokenizer
from nncuda.tokenizer.sentencepiece_model import USER_DEFINED, PieceModel
from nncuda.tokenizer.to_gguf import tokenizer_metadata
from nncuda.tokenizer.tokenizer import TextTokenizer

TEXTS = ("Hello, world!", "  two  spaces\n\ttab\r\n", "ünï 日本語 🙂 e\u0301", "a\0b", "")


@pytest.fixture(scope="module")
def model() -> bytes:
    return random_tokenizer.sentencepiece_model(500)


@pytest.fixture(scope="module")
def sentencepiece(model: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "tokenizer.model").write_bytes(model)
    return tokenizer_metadata(folder, 500)


def byte_level_folder(folder: Path, cut: str = "", **described: Any) -> Path:
    """A folder with a byte-level BPE tokenizer of the 256 bytes, "ab", "abc" and three added tokens, which cuts as
    GPT-2 does or by a name of `CUTS`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, "ab", "abc"])}
    tokenizer = LibraryTokenizer(models.BPE(vocabulary, [("a", "b"), ("ab", "c")]))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not cut)
    steps = [pre_tokenizers.Split(Regex(one), "isolated") for one in CUTS[cut].expressions] if cut else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, level]) if cut else level
    if cut and CUTS[cut].nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<|eot_id|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", **described}))
    return folder


def through_a_file(tmp_path: Path, metadata: dict[str, Any]) -> TextTokenizer | None:
    path = tmp_path / "t.gguf"
    with write_gguf(path, metadata, []):
        pass
    return tokenizer_from_gguf(open_gguf(path).metadata, path)


def test_a_sentencepiece_model_is_the_same_from_metadata(
    model: bytes, sentencepiece: dict[str, Any], tmp_path: Path
) -> None:
    ours, theirs = Tokenizer(model), through_a_file(tmp_path, sentencepiece)
    assert theirs is not None
    assert (theirs.begin_id, theirs.end_ids, theirs.adds_begin, theirs.vocab_size) == (1, {2}, True, 500)
    for text in (*TEXTS, random_tokenizer.text(500)):
        ids = ours.encode(text)
        assert theirs.encode(text) == ids and theirs.decode(ids) == ours.decode(ids) == text
    assert ours.encode("a</s>", special=True)[-1] == 2 and 2 not in ours.encode("a</s>")
    assert theirs.encode("x", begin=True)[0] == 1 and theirs.piece(2) == "</s>"


def test_the_file_of_a_sentencepiece_model_is_read_and_written(model: bytes) -> None:
    parts = PieceModel.from_bytes(model)
    again = PieceModel.from_bytes(parts.to_bytes())
    assert again == parts and len(parts.pieces) == 500 and not parts.normalises
    for at in range(0, len(model), 97):
        try:
            PieceModel.from_bytes(model[:at])
        except ValueError:
            pass  # UnicodeDecodeError is one


@pytest.mark.parametrize("kind", ["json", "gguf"])
def test_byte_level_bpe(kind: str, tmp_path: Path) -> None:
    folder = byte_level_folder(tmp_path, add_bos_token=True)
    if kind == "json":
        tokenizer = tokenizer_from_folder(folder)
    else:
        tokenizer = through_a_file(tmp_path, tokenizer_metadata(folder, 261))
    assert tokenizer is not None
    # In a GGUF file the end of a turn is known by its name.
    assert tokenizer.begin_id == 258 and tokenizer.end_ids == ({259} if kind == "json" else {259, 260})
    assert tokenizer.adds_begin and tokenizer.vocab_size == 261
    assert tokenizer.encode("abcab") == [257, 256] and tokenizer.encode("a", begin=True)[0] == 258
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("a</s>", special=True)[1:] == [259]
    plain = tokenizer.encode("a</s>")
    assert 259 not in plain and tokenizer.decode(plain) == "a</s>"
    assert tokenizer.decode([257, 259, 256]) == "abcab"
    for ids, words in (([261], r"ids\[0\] is 261; it must be 0 to 260"), ([0, -1], r"ids\[1\] is -1")):
        with pytest.raises(ValueError, match=words):
            tokenizer.decode(ids)


def test_streams_of_byte_level_tokens_hold_back_what_is_not_whole(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_folder(byte_level_folder(tmp_path))
    assert tokenizer is not None
    decoder = StreamDecoder(tokenizer)
    text = "é 日🙂!"
    pieces = [decoder.push(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) == text and decoder.flush() == ""
    assert pieces.count("") == 1 + 2 + 3  # all bytes but the last of each character
    half = tokenizer.encode("🙂")[:2]
    assert [decoder.push(token) for token in half] == ["", ""] and "\N{REPLACEMENT CHARACTER}" in decoder.flush()
    assert decoder.push(5000) == ""  # of a model whose vocabulary was filled up


def test_unused_tokens_fill_the_vocabulary_of_the_model(tmp_path: Path) -> None:
    metadata = tokenizer_metadata(byte_level_folder(tmp_path), 300)
    assert metadata["tokenizer.ggml.tokens"][261:263] == ["[PAD261]", "[PAD262]"]
    assert len(metadata["tokenizer.ggml.tokens"]) == len(metadata["tokenizer.ggml.token_type"]) == 300
    with pytest.raises(FormatError, match="has a tokenizer of 261 tokens for a model of 260"):
        tokenizer_metadata(tmp_path, 260)
    tokenizer = through_a_file(tmp_path, metadata)
    assert tokenizer is not None and tokenizer.vocab_size == 300


def test_sentencepiece_in_the_form_of_merges(tmp_path: Path) -> None:
    """Folders that transformers 5 writes have no tokenizer.model; a GGUF file has scores in place of merges."""
    names = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "▁a",
        "ab",
        "▁ab",
        "ba",
    ]
    vocabulary = {name: token for token, name in enumerate(names)}
    merges = [("a", "b"), ("▁", "a"), ("▁", "ab"), ("▁a", "b"), ("b", "a")]
    library = LibraryTokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.add_special_tokens(["<s>", "</s>"])
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    ours = through_a_file(tmp_path, tokenizer_metadata(tmp_path, len(names)))
    theirs = tokenizer_from_folder(tmp_path)
    assert isinstance(ours, Tokenizer) and isinstance(theirs, JsonTokenizer)
    for text in ("ab", "a ab ba", "bab aab", "é!", "🙂 b"):
        ids = theirs.encode(text)
        assert ours.encode(text) == ids and ours.decode(ids) == theirs.decode(ids) == text
    assert ours.encode("ab ba") == [vocabulary[name] for name in ("▁ab", "▁", "ba")]
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["unk_token"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match="unknown token '', which is none of its tokens"):
        tokenizer_metadata(tmp_path, len(names))


def test_added_tokens_are_of_the_kind_that_a_folder_says(model: bytes, tmp_path: Path) -> None:
    """What tokenizer.json says of a piece that tokenizer.model has counts, as in the folder; a control token is text
    unless it is asked for, a user-defined one never is."""
    pieces = PieceModel.from_bytes(model)
    names, kinds = [*pieces.pieces[:498], "▁▁", "<turn>"], [*pieces.kinds[:498], USER_DEFINED, USER_DEFINED]
    (tmp_path / "tokenizer.model").write_bytes(replace(pieces, pieces=names, kinds=kinds).to_bytes())
    library = LibraryTokenizer(models.BPE({name: token for token, name in enumerate(names)}, [], unk_token="<unk>"))
    library.add_special_tokens(["<unk>", "<turn>"])
    library.add_tokens(["▁▁", "<|tool|>"])
    library.add_special_tokens(["<|x|>"])
    library.save(str(tmp_path / "tokenizer.json"))
    metadata = tokenizer_metadata(tmp_path, 502)
    assert metadata["tokenizer.ggml.token_type"][498:].tolist() == [4, 3, 4, 3]
    assert metadata["tokenizer.ggml.unknown_token_id"] == names.index("<unk>")
    assert metadata["tokenizer.ggml.tokens"][498:] == ["  ", "<turn>", "<|tool|>", "<|x|>"]  # as in a text
    tokenizer = through_a_file(tmp_path, metadata)
    assert tokenizer is not None
    for text, usual, special in (
        ("a  b", {498}, {498}),
        ("<turn><|x|>", set(), {499, 501}),
        ("<|tool|>", {500}, {500}),
    ):
        for asked, found in ((False, usual), (True, special)):
            assert {token for token in tokenizer.encode(text, special=asked) if token >= 498} == found
        assert tokenizer.decode(tokenizer.encode(text)) == text
    whole = PieceModel.from_bytes((tmp_path / "tokenizer.model").read_bytes())
    fewer = replace(whole, pieces=names[:498], scores=whole.scores[:498], kinds=kinds[:498])
    (tmp_path / "tokenizer.model").write_bytes(fewer.to_bytes())
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["added_tokens"] = content["added_tokens"][-1:]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match="has tokens whose ids leave gaps"):
        tokenizer_metadata(tmp_path, 510)


@pytest.mark.parametrize(("name", "said"), [("default", "'default'"), ("", "missing")])
def test_a_file_that_does_not_name_its_cut(name: str, said: str, tmp_path: Path) -> None:
    metadata = tokenizer_metadata(byte_level_folder(tmp_path), 261) | {"tokenizer.ggml.pre": name}
    words = (
        rf"does not name how it cuts text \(tokenizer.ggml.pre is {said}\): convert the model anew, or set it to one of"
    )
    with pytest.raises(FormatError, match=words):
        through_a_file(tmp_path, metadata)


@pytest.mark.parametrize(
    ("cut", "changes", "words"),
    [
        (
            "qwen2",
            {"normalizer": None},
            "as qwen2 does and does not normalise it; .* for that cut with NFC \\(qwen2\\)",
        ),
        ("llama-bpe", {"normalizer": {"type": "NFC"}}, "as dbrx does and normalises it by NFC; .* with no normaliser"),
        (
            "gpt-2",
            {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}},
            "as gpt-2 does and normalises it by NFC, Lowercase; .* no normaliser \\(gpt-2\\) and with NFC \\(olmo\\)",
        ),
        ("qwen2", {"ignore_merges": True}, "cuts text in a way that has no name in GGUF files here"),
        ("tekken", {}, "cuts text in a way that has no name in GGUF files here"),
        ("gpt-2", {"behavior": "Removed"}, "cuts text in a way that has no name in GGUF files here"),
        ("smollm", {"behavior": "Removed", "invert": True}, "cuts text in a way that has no name in GGUF files here"),
    ],
)
def test_a_cut_without_a_name(cut: str, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    """A name stands for expressions, the words that are taken whole, and the normaliser, all three."""
    path = byte_level_folder(tmp_path, cut) / "tokenizer.json"
    content = json.loads(path.read_text())
    for key, value in changes.items():
        place = {"normalizer": content, "ignore_merges": content["model"]}
        place.get(key, content["pre_tokenizer"]["pretokenizers"][0])[key] = value
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=words):
        tokenizer_metadata(tmp_path, 261)


def test_files_without_a_tokenizer(tmp_path: Path) -> None:
    assert through_a_file(tmp_path, {}) is None
    assert tokenizer_from_folder(tmp_path) is None
    assert tokenizer_metadata(tmp_path, 10) == {"tokenizer.ggml.model": "none"}
    assert through_a_file(tmp_path, {"tokenizer.ggml.model": "none"}) is None


def test_what_ends_an_answer_stands_in_several_files(tmp_path: Path) -> None:
    folder = byte_level_folder(tmp_path)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 259, "bos_token_id": 258}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [259, 260]}))
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer is not None and tokenizer.end_ids == {259, 260} and not tokenizer.adds_begin
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ["</s>"]}))
    with pytest.raises(FormatError, match=r"generation_config.json: eos_token_id is \['</s>'\]"):
        tokenizer_from_folder(folder)


def test_a_file_cannot_ask_for_filled_up_or_cut_texts(tmp_path: Path) -> None:
    path = byte_level_folder(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    content["padding"] = {
        "strategy": {"Fixed": 10**9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    content["truncation"] = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(content))
    assert JsonTokenizer.load(path).encode("abcab") == [257, 256]
    for wrong in ("{}", "[1, 2]", "nothing", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'):
        path.write_text(wrong)
        with pytest.raises(FormatError, match=r"tokenizer\.json: is"):
            JsonTokenizer.load(path)


def test_an_added_token_of_normalised_text_is_decoded(tmp_path: Path) -> None:
    path = byte_level_folder(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    content["normalizer"], content["pre_tokenizer"] = {"type": "ByteLevel"}, None
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    content["added_tokens"].append({"id": 261, "content": "é!", **flags})
    path.write_text(json.dumps(content))
    tokenizer = JsonTokenizer.load(path)
    assert tokenizer.encode("aé!") == [*tokenizer.encode("a"), 261] and tokenizer.piece(261) == "é!"
    assert tokenizer.decode(tokenizer.encode("aé!")) == "aé!"
