"""The fixtures say what the library `tokenizers` says."""

from __future__ import annotations

import pipeline_generate


def test_expectations_are_those_of_the_library() -> None:
    assert pipeline_generate.PATH.read_text(encoding="ascii") == pipeline_generate.content()
