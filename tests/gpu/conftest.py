"""A context on a GPU, real or emulated (docs/emulator.md). Without one the tests that ask for it are skipped.

`make test` runs them on each emulated architecture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from devices import CUDA, SameDigests, gpus

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


@pytest.fixture
def same_digests(request: pytest.FixtureRequest) -> SameDigests:
    """The digests are those that another run, with --digests and the same file, had: the first run writes them. Each
    part has a file of its own, whose name ends with it."""
    option = request.config.getoption("--digests")
    if option is None:
        pytest.skip("compares two runs: pass --digests=FILE to both")

    def compare(part: str, found: dict[str, str]) -> None:
        file = Path(f"{option}{part}")
        if not file.exists():
            file.write_text(json.dumps(found))
        expected = json.loads(file.read_text())
        assert found.keys() == expected.keys()
        assert not [name for name, digest in found.items() if expected[name] != digest]

    return compare


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--digests", help="files that tests of digests write, or compare with, begin with this name")
