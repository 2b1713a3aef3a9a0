"""A context on a GPU, real or emulated (docs/emulator.md). Without one the tests that ask for it are skipped.

`make test` runs them on each emulated architecture.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from devices import CUDA, gpus

import nncuda
from nncuda.binding import library
from nncuda.golden import Runner


@pytest.fixture(scope="session")
def found() -> None:
    if not gpus():
        pytest.skip(f"no GPU: {library.load().why_no_device(CUDA, 0)}")


@pytest.fixture
def gpu(found: None) -> Iterator[nncuda.Context]:
    with nncuda.Context("cuda") as ctx:
        yield ctx


@pytest.fixture(scope="module")
def runner(found: None) -> Iterator[Runner]:
    with Runner("cuda") as made:
        yield made


@pytest.fixture(scope="module")
def cpu() -> Iterator[nncuda.Context]:
    """The engine that a GPU is compared with."""
    with nncuda.Context("cpu") as ctx:
        yield ctx


@pytest.fixture(scope="module")
def one_gpu(found: None) -> Iterator[nncuda.Context]:
    """For inputs that many cases share."""
    with nncuda.Context("cuda") as ctx:
        yield ctx


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--digests", help="a file that test_digests of the fixtures' outputs writes, or compares with")
