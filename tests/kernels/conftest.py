"""The engine under test: each instruction set whose kernels differ outside matrix products."""

from __future__ import annotations

import pytest
from engine import Engine, isas


@pytest.fixture(scope="module", params=isas(), ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)
