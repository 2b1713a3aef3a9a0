"""Every function of bindings.h can be called from every language: read from what each language compiles."""

from __future__ import annotations

import re
from pathlib import Path

import languages
import pytest

from nncuda import kernels
from nncuda.binding import header, library

#: Where a language's sources lie, and how a call of the library looks in them. Go calls through C functions, of which
#: a copy to the device and one from it are two; the table of pointers, in Rust's generated files, calls nothing.
CALLS = {
    "go": ("go", "*.go", re.compile(r"C\.call_(\w+?)(?:_to|_from)?\(")),
    "rust": ("rust", "nn-*/src/**/*.rs", re.compile(r"\.(n?n?cuda_\w+)\)?\s*\(")),
}
#: What Rust's enums know from the header without asking: the size of a dtype, the name of a status.
KNOWN_FROM_THE_HEADER = {"rust": {"nncuda_dtype_size", "nncuda_status_name"}}
#: Where a kernel is a function of tensors, and how one is declared.
KERNELS = {
    "go": ("go/tensor", "*_gen.go", re.compile(r"^func (\w+)\(", re.MULTILINE)),
    "rust": ("rust/nn-ffi/src/kernels", "*.rs", re.compile(r"^pub fn (\w+)(?:<.*?>)?\(", re.MULTILINE)),
}


def found(place: tuple[str, str, re.Pattern[str]]) -> set[str]:
    folder, files, pattern = place
    paths = [path for path in (languages.ROOT / folder).rglob(files) if path.parent.name != "bindings"]
    return {name for path in paths for name in pattern.findall(path.read_text(encoding="utf-8"))}


@pytest.fixture(scope="module")
def contract() -> header.Header:
    return header.parse(languages.ROOT / "bindings.h")


@pytest.mark.case("functions of bindings.h: each is called")
def test_every_function_is_called(contract: header.Header, language: languages.Language) -> None:
    expected = set(contract.functions)
    assert len(expected) > 80
    if language.name == "python":
        lib = library.load().lib
        assert expected == {name for name in expected if hasattr(lib, name)}
        return
    assert found(CALLS[language.name]) == expected - KNOWN_FROM_THE_HEADER.get(language.name, set())
    if language.name == "rust":
        # The raw crate offers all of them.
        table = (languages.ROOT / "rust/nn-cuda/src/bindings/table.rs").read_text(encoding="utf-8")
        assert set(re.findall(r"^    pub (\w+): functions::", table, re.MULTILINE)) == expected


@pytest.mark.case("kernels of bindings.h: a function of tensors each")
def test_every_kernel_is_a_function_of_tensors(contract: header.Header, language: languages.Language) -> None:
    expected = {name.removeprefix("cuda_") for name in contract.kernels}
    if language.name == "python":
        assert expected == {name for name in expected if callable(getattr(kernels, name, None))}
        return
    names = {name.lower().replace("_", "") for name in found(KERNELS[language.name])}
    assert {name.replace("_", "") for name in expected} <= names


def test_headers_are_one(contract: header.Header) -> None:
    """Go's module carries a copy, so that it can be used alone; Rust's bindings name the header that they are from."""
    import hashlib

    source = (languages.ROOT / "bindings.h").read_bytes()
    assert (languages.ROOT / "go/cuda/bindings.h").read_bytes() == source
    digest = hashlib.sha256(source).hexdigest()
    for file in ("go/cuda/table_gen.go", "rust/nn-cuda/src/bindings/mod.rs"):
        assert digest in Path(languages.ROOT / file).read_text(encoding="utf-8"), f"{file} is stale: make generate"
