"""A context for each test, closed at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nncuda


@pytest.fixture
def ctx() -> Iterator[nncuda.Context]:
    with nncuda.Context(threads=2) as context:
        yield context
