from __future__ import annotations

from collections.abc import Iterator

import pytest
from raw import C, Context, gpus


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(threads=2) as made:
        yield made


@pytest.fixture(params=["cpu", "cuda"] if gpus() else ["cpu"])
def engine(request: pytest.FixtureRequest) -> Iterator[Context]:
    """A context of each engine that finds a device here."""
    on_gpu = request.param == "cuda"
    with Context(device=C.DEVICE_CUDA) if on_gpu else Context(threads=2) as made:
        yield made


@pytest.fixture(scope="module")
def cpu() -> Iterator[Context]:
    """What a GPU's refusals are compared with."""
    with Context(threads=1) as made:
        yield made
