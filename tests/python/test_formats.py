"""Files: what is written is read back, here and by other software; what is broken is refused with one clear error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from nncuda import shard
from nncuda.formats import (
    FormatError,
    SafetensorsFile,
    TokenShard,
    find_texts,
    read_safetensors_folder,
    read_text,
    split_held_out,
    write_file,
    write_folder,
    write_safetensors,
    write_safetensors_folder,
    write_shard,
)
from nncuda.formats.safetensors import DTYPES, SafetensorsLayout
from nncuda.tokenizer import StreamDecoder, Tokenizer, encode_texts, train_tokenizer

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "c": np.array(7, np.int64),
    "empty": np.empty((0, 4), np.float16),
    "strided": np.arange(12, dtype=np.int32).reshape(3, 4)[:, ::2],
}


def assert_same(found: object, expected: dict[str, np.ndarray]) -> None:
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)


def test_safetensors_round_trip(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", TENSORS, {"format": "pt"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert_same(file, TENSORS)
    assert file.metadata == {"format": "pt"}
    theirs = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert set(theirs) == set(TENSORS)
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(theirs[name], array)


def test_safetensors_of_the_package(tmp_path: Path) -> None:
    expected = {name: np.array(array, order="C") for name, array in TENSORS.items()}
    safetensors.numpy.save_file(expected, tmp_path / "x.safetensors")
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert_same(file, {name: expected[name].reshape(TENSORS[name].shape) for name in file})


def test_safetensors_have_the_bytes_of_the_package(tmp_path: Path) -> None:
    """Every dtype in one file, and names that JSON or an order by characters might change."""
    tensors = {f"{name} of all": np.ones((2, 3), dtype) for name, dtype in reversed(DTYPES.items())}
    tensors |= {name: np.ones(3, np.float32) for name in ("b", 'a\n\x01"\\/', "é", "\U0001f600", "\uffff", "\x7f", "")}
    for metadata in (None, {}, {"ä": "\t"}):
        for content in (tensors, dict(reversed(tensors.items()))):
            write_safetensors(tmp_path / "ours", content, metadata)
            safetensors.numpy.save_file(content, tmp_path / "theirs", metadata)
            assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_parts_of_tensors(tmp_path: Path) -> None:
    """Files that several writers fill are those of one, and can be read in part."""
    whole = {"a": np.arange(10, dtype=np.float32), "b": np.arange(7, dtype=np.int8), "c": np.arange(4, dtype=np.int64)}
    write_safetensors(tmp_path / "whole", whole)
    layout = SafetensorsLayout({name: (array.dtype, array.shape) for name, array in whole.items()})
    layout.create(tmp_path / "parts")
    for part in range(3):
        shares = {name: range(*shard(array.size, 1, 3, part)) for name, array in whole.items()}
        own = [(name, share.start, whole[name][share.start : share.stop]) for name, share in shares.items()]
        layout.write(tmp_path / "parts", own)
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
    file = SafetensorsFile(tmp_path / "parts")
    np.testing.assert_array_equal(file.part("a", 3, 4), whole["a"][3:7])
    assert file.part("b", 7, 0).size == 0 and file.part("c", 1, 1).tolist() == [1]


def test_safetensors_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_safetensors(tmp_path / name, TENSORS, {"format": "pt"})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with pytest.raises(ValueError, match="at most one"):
        write_safetensors(tmp_path / "three", TENSORS, {"a": "1", "b": "2"})


def test_whether_a_tensor_is_there_is_told_without_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"x": np.zeros(3, np.float32)})
    monkeypatch.setattr(SafetensorsFile, "__getitem__", None)
    for file in (SafetensorsFile(tmp_path / "model.safetensors"), read_safetensors_folder(tmp_path)):
        assert "x" in file and "y" not in file


def test_truncated_safetensors(tmp_path: Path) -> None:
    """Cut at every byte: each is an error, none a crash or a wrong tensor."""
    write_safetensors(tmp_path / "whole", {"x": np.arange(8, dtype=np.float32)})
    whole = (tmp_path / "whole").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(FormatError):
            SafetensorsFile(tmp_path / "cut")
    with pytest.raises(FormatError, match="cannot be read"):
        SafetensorsFile(tmp_path / "absent")
    with pytest.raises(FormatError, match="cannot be read"):
        SafetensorsFile(tmp_path)


@pytest.mark.parametrize(("limit", "files"), [(10**9, 1), (1000, 4), (1, 6)])
def test_sharded_folders(tmp_path: Path, limit: int, files: int) -> None:
    tensors = {f"t{number}": np.full((100,), number, np.float32) for number in range(6)}
    tensors["t5"] = np.full((300,), 5, np.float32)  # larger than a shard of 1000 bytes
    write_safetensors_folder(tmp_path, tensors, max_shard_bytes=limit)
    assert len(list(tmp_path.glob("*.safetensors"))) == files
    folder = read_safetensors_folder(tmp_path)
    assert set(folder) == set(tensors)
    for name, array in tensors.items():
        np.testing.assert_array_equal(folder[name], array)


def test_write_folder_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with pytest.raises(RuntimeError), write_folder(target) as temporary:
        (temporary / "x").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with write_folder(target) as temporary:
        (temporary / "x").write_text("1")
        assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(FileExistsError), write_folder(target):
        pass
    assert (target / "x").read_text() == "1"
    write_file(tmp_path / "y", "ä")
    write_file(tmp_path / "y", b"2")
    assert (tmp_path / "y").read_bytes() == b"2"


# Token shards


@pytest.mark.parametrize(("vocab", "dtype"), [(48, "<u2"), (65536, "<u2"), (65537, "<u4")])
def test_shard_round_trip(tmp_path: Path, vocab: int, dtype: str) -> None:
    ids = np.random.default_rng(0).integers(0, vocab, 1000)
    ids[-1] = vocab - 1
    assert write_shard(tmp_path / "x.tokens", [ids[:10], ids[10:]], vocab, bytes(range(32))) == 1000
    shard = TokenShard(tmp_path / "x.tokens")
    assert shard.read().dtype == np.dtype(dtype) and len(shard) == 1000 and shard.vocab_size == vocab
    assert shard.tokenizer == bytes(range(32))
    np.testing.assert_array_equal(shard.read(), ids)
    shard.check_ids()


def test_empty_shard(tmp_path: Path) -> None:
    assert write_shard(tmp_path / "x.tokens", [], 10) == 0
    assert len(TokenShard(tmp_path / "x.tokens").read()) == 0


def test_shards_refuse_foreign_ids(tmp_path: Path) -> None:
    write_shard(tmp_path / "x.tokens", [np.array([1, 2])], 10)
    before = (tmp_path / "x.tokens").read_bytes()
    for ids in ([10], [-1]):
        with pytest.raises(ValueError, match="vocabulary of 10"):
            write_shard(tmp_path / "x.tokens", [np.array([1]), np.array(ids)], 10)
    assert (tmp_path / "x.tokens").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_shards_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "x.tokens"
    write_shard(path, [np.arange(10)], 48)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError):
            TokenShard(path)


# Tokenizers and text

TEXT = "def f(x):\n\treturn  x + 1  # größer, 日本 🎉\r\n" * 30 + "".join(
    f"the quick brown fox number {number} jumps over the lazy dogs of {name}, who sleep\n"
    for number, name in enumerate(["Anna", "Bertha", "Caesar", "Dora", "Emil", "Friedrich", "Gustav"] * 5)
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer([TEXT], vocab_size=320, threads=1))


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_tokenizer_gives_every_text_back(model_type: str) -> None:
    tokenizer = Tokenizer(train_tokenizer([TEXT], vocab_size=320, model_type=model_type, threads=1))
    assert tokenizer.vocab_size == 320
    assert (tokenizer.begin_id, tokenizer.end_id) == (2, 3)
    for text in (TEXT, "", " ", "  a  ", "\n\n", "\t", "\r\n", "né 🎈 ☃", "▁", "<s>", "\x01\x7f", "<0x0A>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text.replace(
            "▁", " "
        )  # SentencePiece's own sign for a space
    assert tokenizer.encode("x", begin=True, end=True)[0::2] == [2, 3]
    assert tokenizer.decode([2, *tokenizer.encode("fox"), 3, 0]) == "fox"


def test_the_same_text_gives_the_same_tokenizer_in_every_process() -> None:
    program = """
import hashlib, random
from nncuda.tokenizer import train_tokenizer
draw = random.Random(1)
lines = [" ".join("".join(draw.choices("aeioustrnl", k=4)) for _ in range(8)) for _ in range(400)]
for sample in (0, 150):
    print(hashlib.sha256(train_tokenizer(["\\n".join(lines)], vocab_size=320, sample=sample)).hexdigest())
"""
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in "ab"]
    assert runs[0].stdout == runs[1].stdout
    everything, drawn = runs[0].stdout.split()
    assert everything != drawn


def test_stream_decoder(tokenizer: Tokenizer) -> None:
    text = "né 🎈🎈 ☃ fox\n  dog 日"
    ids = tokenizer.encode(text)
    assert len(ids) > len(text), "no character is spelled in bytes: nothing is tested"
    decoder = StreamDecoder(tokenizer)
    pieces = [decoder.push(token) for token in ids]
    assert "".join(pieces) + decoder.flush() == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    # A character that never becomes complete is shown at the end rather than swallowed.
    decoder.push(tokenizer.encode("🎈")[0])
    assert decoder.flush() == "\N{REPLACEMENT CHARACTER}"


def test_bad_tokenizers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    for content in (b"", b"no model", tokenizer.model[: len(tokenizer.model) // 2]):
        (tmp_path / "tokenizer.model").write_bytes(content)
        with pytest.raises(FormatError, match="not a SentencePiece model"):
            Tokenizer.load(tmp_path / "tokenizer.model")
    with pytest.raises(FormatError, match="cannot be read"):
        Tokenizer.load(tmp_path / "absent")
    with pytest.raises(ValueError, match="no tokenizer of 5000 pieces"):
        train_tokenizer(["too little text"], vocab_size=5000)
    with pytest.raises(ValueError, match="'unigram' or 'bpe'"):
        train_tokenizer([TEXT], model_type="word")
    with pytest.raises(ValueError, match=r"ids\[1\] is 320; it must be 0 to 319"):
        tokenizer.decode([5, 320])


def test_encoding_in_blocks_changes_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [2, *tokenizer.encode(TEXT), 3]
    monkeypatch.setattr("nncuda.tokenizer.tokenizer._BLOCK", 50)
    assert np.concatenate(list(encode_texts(tokenizer, [TEXT]))).tolist() == whole


def test_texts_are_found_and_split(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "a.txt", "sub/c.py", "skip/d.py", ".hidden/e.py", "sub/.f.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = find_texts([tmp_path], ["*.py"], ["skip"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a.py", "b.py", "sub/c.py"]
    assert find_texts([tmp_path / "a.txt", tmp_path / "a.txt"]) == [tmp_path / "a.txt"]
    with pytest.raises(FormatError, match="neither a file nor a folder"):
        find_texts([tmp_path / "absent"])
    with pytest.raises(FormatError, match=r"no files match \*.c"):
        find_texts([tmp_path], ["*.c"])
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "latin").write_bytes("ä".encode("latin-1"))
    assert read_text(tmp_path / "binary") is None and read_text(tmp_path / "latin") is None

    files = [tmp_path / f"{number}.txt" for number in range(400)]
    train, held_out = split_held_out(files, 0.1)
    assert sorted(train + held_out) == sorted(files)
    assert 20 <= len(held_out) <= 60  # 40 expected, standard deviation 6
    assert set(split_held_out(files[:200], 0.1)[1]) == set(held_out) & set(files[:200])
    for share in (1e-9, 1 - 1e-9):
        assert all(split_held_out(files[:2], share))
