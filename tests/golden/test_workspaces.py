"""A context that measures counts the memory that the real one takes, for every fixture on every instruction set."""

from __future__ import annotations

import pytest
from beside import BY_KERNEL

from nncuda.golden import Runner
from nncuda.golden.runner import available_isas

THREADS = (1, 2, 5)


@pytest.mark.parametrize("kernel", BY_KERNEL, ids="/".join)
@pytest.mark.parametrize("isa", available_isas())
def test_the_memory_of_the_real_call(isa: str, kernel: tuple[str, str]) -> None:
    for fixture in BY_KERNEL[kernel]:
        for threads in THREADS:
            with Runner(isa=isa, threads=threads) as real, Runner.measuring(real) as measuring:
                assert measuring.memory(fixture) == real.memory(fixture), f"{fixture.id}, {threads} threads"
