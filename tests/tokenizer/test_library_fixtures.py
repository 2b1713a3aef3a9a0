"""The fixtures of tokenizer.json and GGUF tokenizers say what Python says."""

from __future__ import annotations

import library_generate as generate
import pytest

FILES = generate.files()


@pytest.mark.parametrize("name", FILES)
def test_expectations_are_those_of_python(name: str) -> None:
    assert (generate.FOLDER / name).read_text(encoding="ascii") == FILES[name]


def test_no_file_lies_here_without_a_maker() -> None:
    found = {path.name for path in generate.FOLDER.iterdir()}
    assert found == FILES.keys() | generate.FOLDERS.keys() | {f"{name}.json" for name in generate.METADATA}
