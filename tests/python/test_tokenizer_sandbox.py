"""Tokenizers of strangers: what the library makes of their files, from a process that they cannot harm."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from seeds_tokenizers import tokenizer_jsons

from nncuda.formats import FormatError
from nncuda.tokenizer import json_tokenizer
from nncuda.tokenizer.json_tokenizer import JsonTokenizer

TEXTS = ("", "hello", "hell o  ohé 🙂\n", "</s>he<s>llo", "<0x41> ▁ Ġ " + "lo" * 200)
LETTERS = [*"helo ", "Ġ", "▁", "▁he", "he", "ll", "##o", "Ã", "©"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
FALLBACK = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def file(folder: Path, **change: Any) -> Path:
    """A tokenizer.json of BPE over few letters, bytes among them, with changes."""
    vocabulary = {name: at for at, name in enumerate(["<unk>", "<s>", "</s>", *LETTERS, *BYTES])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": at, "content": name, **flags} for at, name in enumerate(["<unk>", "<s>", "</s>"])],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": True, "ignore_merges": False,
            "vocab": vocabulary, "merges": [["h", "e"], ["l", "l"]],
        },
        **change,
    }  # fmt: skip
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(whole))
    return path


@pytest.mark.parametrize(
    ("change", "here"),
    [
        ({}, True),
        ({"pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL}, True),
        ({"pre_tokenizer": METASPACE, "decoder": METASPACE}, True),
        ({"decoder": FALLBACK}, True),
        ({"decoder": {"type": "Replace", "pattern": {"String": "l"}, "content": "L" * 16}}, True),
        ({"decoder": {"type": "Replace", "pattern": {"String": "l"}, "content": "L" * 17}}, False),
        ({"decoder": {"type": "Replace", "pattern": {"String": ""}, "content": "-"}}, False),
        ({"decoder": {"type": "Replace", "pattern": {"Regex": "l+"}, "content": "-"}}, False),
        ({"decoder": {"type": "Sequence", "decoders": [BYTE_LEVEL] * 3}}, False),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, False),
        ({"decoder": {"type": "BPEDecoder", "suffix": ""}}, False),
    ],
)
def test_ids_and_texts_are_those_of_the_library(change: dict[str, Any], here: bool, tmp_path: Path) -> None:
    """Whether the rules that make text of ids are known to be tame, and so run here, or not."""
    path = file(tmp_path, **change)
    theirs, ours = tokenizers.Tokenizer.from_file(str(path)), JsonTokenizer.load(path)
    assert ours.vocab_size == theirs.get_vocab_size() and (ours._decoder is not None) == here
    for text in TEXTS:
        for special in (False, True):
            theirs.encode_special_tokens = not special
            ids = theirs.encode(text, add_special_tokens=False).ids
            assert ours.encode(text, special=special) == ids
            assert ours.decode(ids) == theirs.decode(ids)
    for token in range(ours.vocab_size):
        assert ours.piece(token) == theirs.id_to_token(token) and ours.id_of(ours.piece(token)) == token
        assert ours.decode([token]) == theirs.decode([token])


def test_two_tokens_of_one_name(tmp_path: Path) -> None:
    pieces = [["<unk>", 0.0], ["a", -1.0], ["b", -2.0], ["a", -3.0]]
    model = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
    ours = JsonTokenizer.load(file(tmp_path, model=model, added_tokens=[], decoder={"type": "Fuse"}))
    assert [ours.piece(token) for token in range(ours.vocab_size)] == ["<unk>", "a", "b", "a"]
    assert ours.decode([3, 2, 1]) == "aba"


@pytest.mark.parametrize("name", ["table_of_characters_beyond_its_end", "bytes_doubled_60_times"])
def test_what_the_library_says_when_it_breaks_does_not_come_through(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is refused on opening, with one sentence: that of the fuzz seeds, among which are more of its kind."""
    (seed,) = (seed for seed in tokenizer_jsons() if seed.name == name)
    (tmp_path / "tokenizer.json").write_bytes(seed.data)
    with pytest.raises(FormatError, match=seed.expected) as caught:
        JsonTokenizer.load(tmp_path / "tokenizer.json")
    assert "is not a tokenizer that the tokenizers library can use: it " in str(caught.value)
    assert "RUST_BACKTRACE" not in str(caught.value) and capfd.readouterr().err == ""


def test_a_text_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"type": "Sequence", "normalizers": [{"type": "NFKC"}] * 2000}
    ours = JsonTokenizer.load(file(tmp_path, normalizer=steps))
    monkeypatch.setattr(json_tokenizer, "_SECONDS", 0.5)
    with pytest.raises(FormatError, match=r"tokenizer\.json: cannot encode a text: it ran for more than 0\.7 s"):
        ours.encode("hello" * 40_000)
    monkeypatch.undo()
    assert ours.encode("he") == [ours.id_of("he")]  # in a new process


def test_a_process_that_is_gone_is_started_again(tmp_path: Path) -> None:
    path = file(tmp_path, decoder=FALLBACK)
    ours = JsonTokenizer.load(path)
    path.unlink()  # it is not read again
    ids = ours.encode("hello")
    process = ours._ask.__self__._process  # type: ignore[attr-defined]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert ours.encode("hello") == ids and ours.decode(ids) == "hello"
    process = ours._ask.__self__._process  # type: ignore[attr-defined]
    del ours
    assert process.wait(10) != 0  # nobody needs it any more
