"""GGUF files: what is written is read again, and what is wrong is refused with a sentence that says so."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

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


# Files made by hand, to be wrong in one place each.


def string(text: bytes | str) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, body: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + body


def tensor(name: str = "t", sizes: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def made(
    entries: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    *,
    data: int = 16,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    align: int = 32,
) -> bytes:
    counted = counts or (len(tensors), len(entries))
    head = b"GGUF" + struct.pack("<IQQ", version, *counted) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % align) + bytes(data)


U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
HUGE = 2**64 - 1
ONE = entry("a", U32, struct.pack("<I", 1))


def array_of(kind: int, length: int, body: bytes = b"") -> bytes:
    return entry("k", ARRAY, struct.pack("<IQ", kind, length) + body)


def alignment(value: int) -> bytes:
    return entry("general.alignment", U32, struct.pack("<I", value))


WRONG: dict[str, tuple[bytes, str]] = {
    "no GGUF": (b"GGML" + bytes(60), "begins with b'GGML'"),
    "too short": (b"GGUF" + bytes(10), "has 14 bytes; a GGUF file has 24 or more"),
    "version 1": (made(version=1), "version 1; this program reads versions 2 and 3"),
    "big-endian": (made(version=3 << 24), "big-endian"),
    "too many tensors": (made(counts=(HUGE, 0)), f"promises {HUGE} tensors; the rest of the file has room for"),
    "too many entries": (made(counts=(0, 2**40)), "promises 1099511627776 entries of metadata"),
    "one entry too many": (made((ONE,), counts=(0, 2), data=0, align=1), "room for 1 at most"),
    "a key longer than the file": (made((struct.pack("<Q", HUGE),), data=64), "a key of metadata has"),
    "an empty key": (made((entry("", U32, bytes(4)),)), "a key of metadata has 0 bytes"),
    "a key that is not UTF-8": (made((string(b"\xff") + bytes(8),)), "a key of metadata at byte 32 is not UTF-8"),
    "an unknown type of value": (made((entry("k", 13, bytes(8)),)), "the type of k is 13; it must be 0 to 12"),
    "a bool of 2": (made((entry("k", BOOL, b"\2"),)), "k is 2; as a bool it must be 0 or 1"),
    "a string longer than the file": (
        made((entry("k", STRING, struct.pack("<Q", HUGE)),)),
        f"k takes {HUGE} bytes, but only",
    ),
    "a string that is not UTF-8": (made((entry("k", STRING, string(b"\xc3")),)), "k at byte 45 is not UTF-8"),
    "an array of arrays": (made((array_of(ARRAY, 1, bytes(12)),)), "k is an array of arrays"),
    "an array of an unknown type": (made((array_of(99, 1, bytes(8)),)), "the element type of the array k is 99"),
    "an array longer than the file": (
        made((array_of(U32, 2**62),)),
        f"the array k of {2**62} × u32 takes {2**64} bytes",
    ),
    "an array of strings longer than the file": (made((array_of(STRING, 2**61),)), "the array k of"),
    "a string of an array beyond the end": (
        made((array_of(STRING, 2, string("a") + struct.pack("<Q", HUGE)),), data=64),
        f"string 1 of k takes {HUGE} bytes",
    ),
    "an array with a bool of 2": (made((array_of(BOOL, 2, b"\1\2"),)), "has a bool of 2"),
    "a key twice": (made((ONE, ONE)), "the key 'a' of metadata is there twice"),
    "an entry that the file cuts": (made((entry("k", 12, bytes(4)),), data=0, align=1), "k takes 8 bytes, but only 4"),
    "alignment 0": (made((alignment(0),)), "general.alignment is 0 (u32); it must be a power of two"),
    "alignment 24": (made((alignment(24),)), "general.alignment is 24"),
    "alignment of another type": (made((entry("general.alignment", F32, bytes(4)),)), "general.alignment is 0.0 (f32)"),
    "no dimensions": (made((), (tensor(sizes=()),)), "has 0 dimensions; it may have 1 to 4"),
    "five dimensions": (made((), (tensor(sizes=(1,) * 5),)), "has 5 dimensions"),
    "a dimension of 0": (made((), (tensor(sizes=(4, 0)),)), "has the dimensions [4, 0]; each must be 1 or more"),
    "dimensions whose product wraps": (
        made((), (tensor(sizes=(2**32, 2**32, 2, 1)),)),
        f"has {2**67} bytes from byte",
    ),
    "rows that are not whole blocks": (made((), (tensor(sizes=(48,), kind=2),)), "rows of 48 elements; blocks of q4_0"),
    "an offset off the alignment": (made((), (tensor(offset=4),)), "has the offset 4; it must be a multiple of 32"),
    "an offset past the end": (made((), (tensor(offset=2**63),)), f"from byte {2**63 + 64} on, but the file ends"),
    "an offset that wraps": (made((), (tensor(offset=HUGE - 31),)), "but the file ends"),
    "data cut off": (made((), (tensor(),), data=15), "has 16 bytes from byte 64 on, but the file ends at byte 79"),
    "tensors that overlap": (
        made((), (tensor("a", (16,)), tensor("b", (4,), offset=32)), data=64),
        "tensor 'b' begins at byte 128, inside tensor 'a' before it",
    ),
    "a tensor twice": (made((), (tensor(), tensor()), data=64), "tensor 't' is described twice"),
    "a name of 65 bytes": (made((), (tensor("n" * 65),)), "the name of a tensor has 65 bytes; it may have 1 to 64"),
    "an unknown type beyond the end": (made((), (tensor(kind=99, offset=64),)), "but the file ends"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused(case: str, tmp_path: Path) -> None:
    content, words = WRONG[case]
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        open_gguf(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("change", [lambda raw, at: raw[:at], lambda raw, at: raw[:at] + b"\xff" + raw[at + 1 :]])
def test_a_file_cut_or_changed_anywhere_opens_or_is_refused(change: Callable, tmp_path: Path) -> None:
    whole = made(
        (ONE, entry("s", STRING, string("text")), array_of(STRING, 2, string("a") + string("bc"))),
        (tensor("a", (2, 2)), tensor("b", (32,), 8, 32)),
        data=66,
    )
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
        path.write_bytes(
            made((), (tensor("odd", (elements,), number), tensor("even", (4,), 0, -(-size // 32) * 32)), data=1024)
        )
        file = GGUFFile(path)
        assert not file.entries["odd"].usable and file.entries["odd"].nbytes == size
        np.testing.assert_array_equal(file["even"].f32(), np.zeros(4))
        with pytest.raises(FormatError, match=f"tensor 'odd' is of type {name}; this program reads bf16, f16"):
            file["odd"]
    path.write_bytes(made((), (tensor("odd", (7,), 77),)))
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
    path.write_bytes(made((array_of(STRING, 3, string("a") + string(b"\xff") + string("ü")),)))
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
