"""GGUF files: what is written is read again. What is wrong in one: tests/fuzz/seeds_gguf.py."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from seeds_gguf import ARRAY, STRING, U32, gguf, pair, tensor

from nncuda.binding import library
from nncuda.cli import main
from nncuda.cli.terminal import spoken
from nncuda.formats import FormatError
from nncuda.formats.block_formats import FORMATS, OTHER_GGUF_TYPES, StoredTensor
from nncuda.formats.gguf import VALUE_TYPES, GGUFFile, SplitGGUF, StringArray, Value, open_gguf
from nncuda.formats.gguf_writer import NewTensor, value_of, write_gguf

NUMBERS = {
    "u8": [0, 255],
    "i8": [-128, 127],
    "u16": [0, 65535],
    "i16": [-32768, 32767],
    "u32": [0, 2**32 - 1],
    "i32": [-(2**31), 2**31 - 1],
    "f32": [0.5, -1.25],
    "bool": [True, False],
    "string": ["", "ü 🙂"],
    "u64": [0, 2**64 - 1],
    "i64": [-(2**63), 2**63 - 1],
    "f64": [0.1, -1e300],
}


def write(path: Path, metadata: dict, tensors: dict[str, tuple[str, tuple[int, ...], np.ndarray]]) -> Path:
    plan = [NewTensor(name, format_name, shape) for name, (format_name, shape, _) in tensors.items()]
    with write_gguf(path, metadata, plan) as writer:
        for name, (_, _, data) in tensors.items():
            writer.write(name, data)
    return path


def test_every_type_of_value_comes_back(tmp_path: Path) -> None:
    values = {f"one.{kind}": Value(kind, values[1]) for kind, values in NUMBERS.items()}
    values |= {f"many.{kind}": Value(f"{kind}[]", values) for kind, values in NUMBERS.items()}
    values |= {f"none.{kind}": Value(f"{kind}[]", []) for kind in NUMBERS}
    assert {value.type for value in values.values()} == {
        *(set(VALUE_TYPES) - {"array"}),
        *(f"{kind}[]" for kind in NUMBERS),
    }
    file = GGUFFile(write(tmp_path / "a.gguf", values, {}))
    assert file.version == 3
    for key, value in values.items():
        found = file.typed[key]
        assert found.type == value.type
        if value.type.endswith("[]"):
            assert list(found.value) == list(value.value), key
        else:
            assert found.value == value.value and type(found.value) is type(value.value), key


def test_plain_values_get_the_usual_types() -> None:
    kinds = {True: "bool", 7: "u32", -7: "i32", 2**40: "u64", -(2**40): "i64", 0.5: "f32", "x": "string"}
    assert {value: value_of(value).type for value in kinds} == kinds
    assert value_of([1, -2]).type == "i32[]" and value_of(["a"]).type == "string[]" and value_of([0.5]).type == "f32[]"
    assert value_of(np.arange(3, dtype=np.uint64)).type == "u64[]"
    for value in (None, [], [1, "x"], {}, np.zeros((2, 2), np.float32)):
        with pytest.raises(TypeError, match="no type in GGUF"):
            value_of(value)
    with pytest.raises(ValueError, match="64 bits"):
        value_of(2**64)


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tensors = {}
    for name, entry in FORMATS.items():
        shape = (2, 3, 2 * entry.elements)
        size = 6 * entry.row_bytes(shape[-1])
        tensors[name] = (name, shape, random.integers(0, 256, size, np.uint8))
    tensors["vector"] = ("f32", (5,), np.arange(5, dtype="<f4").view(np.uint8))
    path = write(tmp_path / "a.gguf", {"general.alignment": 64}, tensors)
    file = open_gguf(path)
    assert list(file) == list(tensors)
    for name, (format_name, shape, data) in tensors.items():
        stored = file[name]
        assert (stored.format, stored.shape, stored.code) == (format_name, shape, FORMATS[format_name].code)
        np.testing.assert_array_equal(stored.data, data)
        np.testing.assert_array_equal(stored.rows(), data.reshape(stored.elements // shape[-1], stored.row_bytes))
        assert stored.data.base is file._bytes and not stored.data.flags.writeable
        assert file.entries[name].offset % 64 == 0
    np.testing.assert_array_equal(file["vector"].f32(), np.arange(5))
    assert file["bf16"].numbers().shape == (2, 3, 2)
    with pytest.raises(TypeError, match="block format"):
        file["q4_0"].numbers()


def test_a_writer_leaves_a_whole_file_or_none(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    plan = [NewTensor("a", "f32", (4,)), NewTensor("b", "q8_0", (1, 32))]
    piece = np.zeros(8, np.uint8)
    with pytest.raises(ValueError, match="8 of 16 bytes of a"), write_gguf(path, {}, plan) as writer:
        writer.write("a", piece)
    with pytest.raises(ValueError, match="24 bytes for a, which has 16"), write_gguf(path, {}, plan) as writer:
        writer.write("a", np.zeros(24, np.uint8))
    with pytest.raises(ValueError, match="dense u8 of a come next"), write_gguf(path, {}, plan) as writer:
        writer.write("b", piece)
    with pytest.raises(ValueError, match="after the last tensor"), write_gguf(path, {}, []) as writer:
        writer.write("b", piece)
    for wrong, words in (
        ([NewTensor("a", "q8_0", (1, 33))], "not whole blocks"),
        ([NewTensor("a", "f32", (4,)), NewTensor("a", "f32", (4,))], "same name"),
        ([NewTensor("", "f32", (4,))], "1 to 64 bytes"),
        ([NewTensor("a", "f32", (0, 4))], "1 or more"),
        ([NewTensor("a", "f32", (1,) * 5)], "1 to 4 dimensions"),
    ):
        with pytest.raises(ValueError, match=words), write_gguf(path, {}, wrong):
            pass
    with pytest.raises(ValueError, match="power of two"), write_gguf(path, {"general.alignment": 48}, []):
        pass
    assert list(tmp_path.iterdir()) == []


def test_split_models_are_one(tmp_path: Path) -> None:
    data = np.arange(4, dtype="<f4").view(np.uint8)
    for number, name in enumerate("ab"):
        metadata = {"split.no": Value("u16", number), "split.count": Value("u16", 2)}
        metadata["split.tensors.count"] = Value("i32", 2)
        write(tmp_path / f"m-0000{number + 1}-of-00002.gguf", metadata, {name: ("f32", (4,), data)})
    model = open_gguf(tmp_path / "m-00001-of-00002.gguf")
    assert isinstance(model, SplitGGUF) and list(model) == ["a", "b"]
    np.testing.assert_array_equal(model["b"].f32(), np.arange(4))
    with pytest.raises(FormatError, match="open the part whose name ends with -00001-of-00002"):
        open_gguf(tmp_path / "m-00002-of-00002.gguf")
    (tmp_path / "m-00002-of-00002.gguf").write_bytes((tmp_path / "m-00001-of-00002.gguf").read_bytes())
    with pytest.raises(FormatError, match=r"split.no is 0; the name of this part makes it 1"):
        open_gguf(tmp_path / "m-00001-of-00002.gguf")
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(FormatError, match=r"00002-of-00002\.gguf: cannot be read"):
        open_gguf(tmp_path / "m-00001-of-00002.gguf")


@pytest.mark.parametrize("change", [lambda raw, at: raw[:at], lambda raw, at: raw[:at] + b"\xff" + raw[at + 1 :]])
def test_a_file_cut_or_changed_anywhere_opens_or_is_refused(change: Callable, tmp_path: Path) -> None:
    metadata = [pair("a", U32, 1), pair("s", STRING, "text"), pair("k", ARRAY, (STRING, ["a", "bc"]))]
    whole = gguf(metadata, [tensor("a", (2, 2), 0, 0), tensor("b", (32,), 8, 32)], bytes(66))
    path = tmp_path / "a.gguf"
    path.write_bytes(whole)
    assert len(GGUFFile(path)) == 2
    refused = 0
    for at in range(len(whole)):
        path.write_bytes(change(whole, at))
        try:
            file = GGUFFile(path)
            for name in file:
                stored = file[name]
                assert stored.data.nbytes == stored.nbytes <= len(whole)
            for value in file.metadata.values():
                if isinstance(value, StringArray):
                    assert all(len(text) <= len(whole) for text in value)
        except FormatError:
            refused += 1
    assert refused > 100


def test_types_of_others_are_refused_when_used(tmp_path: Path) -> None:
    for number, (name, elements, size) in OTHER_GGUF_TYPES.items():
        path = tmp_path / f"{name}.gguf"
        tensors = [tensor("odd", (elements,), number, 0), tensor("even", (4,), 0, -(-size // 32) * 32)]
        path.write_bytes(gguf([], tensors, bytes(1024)))
        file = GGUFFile(path)
        assert not file.entries["odd"].usable and file.entries["odd"].nbytes == size
        np.testing.assert_array_equal(file["even"].f32(), np.zeros(4))
        with pytest.raises(FormatError, match=f"tensor 'odd' is of type {name}; this program reads bf16, f16"):
            file["odd"]
    path.write_bytes(gguf([], [tensor("odd", (7,), 77, 0)], bytes(16)))
    with pytest.raises(FormatError, match=r"is of type unknown \(77\)"):
        GGUFFile(path)["odd"]


def test_no_file_is_no_reason_to_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for path, words in (
        (tmp_path / "pipe.gguf", "regular file"),
        (tmp_path, "regular file"),
        (tmp_path / "no.gguf", "No such file"),
    ):
        with pytest.raises(FormatError, match=words):
            open_gguf(path)


def test_strings_are_decoded_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf([pair("k", ARRAY, (STRING, ["a", b"\xff", "ü"]))]))
    strings = GGUFFile(path).metadata["k"]
    assert strings[0] == "a" and strings[-1] == "ü" and strings[2:] == ["ü"] and strings.bytes(1) == b"\xff"
    with pytest.raises(FormatError, match="string 1 of k is not UTF-8"):
        strings[1]
    with pytest.raises(IndexError):
        strings[3]


def test_sizes_of_blocks_are_those_of_the_library() -> None:
    loaded = library.load()
    size = loaded.ffi.new("int64_t *")
    for entry_ in FORMATS.values():
        assert loaded.lib.nncuda_format_row_bytes(entry_.code, 2 * entry_.elements, size) == 0
        assert size[0] == entry_.row_bytes(2 * entry_.elements) == 2 * entry_.bytes
    with pytest.raises(ValueError, match="not whole blocks of q4_k"):
        FORMATS["q4_k"].row_bytes(128)
    scalar = StoredTensor("x", "f32", (), np.zeros(4, np.uint8))
    assert scalar.columns == 1 and scalar.elements == 1 and scalar.row_bytes == 4


def test_what_a_file_says_gives_no_orders_to_the_terminal(tmp_path: Path) -> None:
    """Neither escape sequences nor rich's markup, of which a closing tag alone would end the command."""
    name = "[/b]\x1b[2J\x07[link=x]"
    path = write(tmp_path / "a.gguf", {"general.name": name, name: 1}, {name: ("f32", (1,), np.zeros(4, np.uint8))})
    result = CliRunner().invoke(main, ["inspect", str(path)])
    assert result.exit_code == 0 and "\x1b" not in result.output and "\x07" not in result.output
    assert result.output.count(r"[/b]\x1b[2J\x07[link=x]") == 3
    data = path.read_bytes()
    at = data.rindex(name.encode())  # the name of the tensor; its type is behind one dimension
    kind = at + len(name) + 4 + 8
    path.write_bytes(data[: kind - 8] + struct.pack("<QI", 99, 8) + data[kind + 4 :])  # rows of 99 elements of q8_0
    with pytest.raises(FormatError) as caught:
        GGUFFile(path)
    assert "rows of 99" in str(caught.value) and "\x1b" not in str(caught.value)


def test_what_a_model_writes_gives_no_orders_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a\tb\n\x1b]0;title\x07é"
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    assert spoken(text) == "a\tb\n\\x1b]0;title\\x07é"
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: False))
    assert spoken(text) == text
