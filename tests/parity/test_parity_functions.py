"""Every function of bindings.h is called from every language: read from what each language compiles.

That all of them are declared, and a function of tensors for each kernel, is what tests/tools holds the generators to.
"""

from __future__ import annotations

import re

import languages
import pytest

from nncuda.binding import header, library

#: Where a language's sources lie, and how a call of the library looks in them. Go calls through C functions, of which
#: a copy to the device and one from it are two; the table of pointers, in Rust's generated files, calls nothing.
CALLS = {
    "go": ("go", "*.go", re.compile(r"C\.call_(\w+?)(?:_to|_from)?\(")),
    "rust": ("rust", "nn-*/src/**/*.rs", re.compile(r"\.(n?n?cuda_\w+)\)?\s*\(")),
}
#: What Rust's enums know from the header without asking: the size of a dtype, the name of a status.
KNOWN_FROM_THE_HEADER = {"rust": {"nncuda_dtype_size", "nncuda_status_name"}}


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
