"""A context that measures counts the memory that the real one takes, for every fixture on every instruction set."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from nncuda.golden import Fixture, Runner, find_folder, read_folder
from nncuda.golden.command import available_isas
from nncuda.golden.fixtures import ENVIRONMENT_VARIABLE

THREADS = (1, 2, 5)

FOLDER = find_folder(os.environ.get(ENVIRONMENT_VARIABLE, Path(__file__).parent))
BY_KERNEL: dict[tuple[str, str], list[Fixture]] = defaultdict(list)
for _fixture in read_folder(FOLDER):
    BY_KERNEL[_fixture.family, _fixture.kernel].append(_fixture)


@pytest.mark.parametrize("kernel", BY_KERNEL, ids="/".join)
@pytest.mark.parametrize("isa", available_isas())
def test_the_memory_of_the_real_call(isa: str, kernel: tuple[str, str]) -> None:
    for fixture in BY_KERNEL[kernel]:
        for threads in THREADS:
            with Runner(isa=isa, threads=threads) as real, Runner.measuring(real) as measuring:
                assert measuring.memory(fixture) == real.memory(fixture), f"{fixture.id}, {threads} threads"
