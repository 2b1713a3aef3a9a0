"""The fixtures of chat templates say what Python says."""

from __future__ import annotations

import chat_generate as generate
import pytest

FILES = generate.files()


@pytest.mark.parametrize("name", FILES)
def test_expectations_are_those_of_python(name: str) -> None:
    assert (generate.FOLDER / name).read_text(encoding="ascii") == FILES[name]


def test_no_file_lies_here_without_a_maker() -> None:
    assert {path.name for path in generate.FOLDER.iterdir()} == FILES.keys()
