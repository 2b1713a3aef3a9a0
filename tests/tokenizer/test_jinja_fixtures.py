"""The fixtures say what Python's Jinja says."""

from __future__ import annotations

import jinja_generate


def test_expectations_are_those_of_jinja() -> None:
    assert jinja_generate.PATH.read_text(encoding="ascii") == jinja_generate.content()
