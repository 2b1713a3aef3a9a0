"""Large calls: against the oracle, the same bits for any number of threads, and the same bits as in small pieces."""

import sys
from pathlib import Path

import numpy as np
import pytest

from nncuda.binding import header
from nncuda.golden import Fixture, Runner
from nncuda.golden.command import available_isas

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import large
from expected import build

THREADS = (1, 2, 3, 7)
CASES = list(large.cases())


def as_fixture(case):
    made = build(case, draws=3)  # of more than one, for the outputs that have few elements
    family = header.parse().kernels[case.kernel].section
    return Fixture(family, case.kernel, case.name, made.scalars, made.tolerance, made.zeros, made.inputs, made.outputs)


@pytest.fixture(scope="module")
def runners():
    """One for each instruction set, and on the widest one for each number of threads."""
    isas = available_isas()
    found = [Runner(isa=isa, threads=2) for isa in isas[:-1]] + [Runner(isa=isas[-1], threads=n) for n in THREADS]
    yield found
    for one in found:
        one.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel}/{case.name}")
def test_large(runners, case):
    fixture = as_fixture(case)
    for runner in runners[: -len(THREADS) + 1]:
        problems = [str(outcome) for outcome in runner.run(fixture) if outcome.problem]
        assert not problems, "\n".join(problems)
    first, *others = (runner.outputs(fixture) for runner in runners[-len(THREADS) :])
    for threads, other in zip(THREADS[1:], others, strict=True):
        for name, array in first.items():
            same = np.array_equal(array.view(np.uint8), other[name].view(np.uint8))
            assert same, f"{name} has other bits with {threads} threads"
