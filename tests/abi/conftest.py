from __future__ import annotations

from collections.abc import Iterator

import pytest
from raw import Context


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(threads=2) as made:
        yield made
