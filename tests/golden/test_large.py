"""Calls too large or too many to store, on every instruction set: against the oracle, and the same bits for any number
of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from cases import large
from cases.case import Case
from expected import fixture

from nncuda.binding import header
from nncuda.golden import Runner
from nncuda.golden.runner import available_isas

#: The first is judged, the others must have its bits.
THREADS = (2, 1, 3, 7)
#: More than one, for the outputs that have few elements.
DRAWS = 3


def name(case: Case) -> str:
    return f"{header.parse().kernels[case.kernel].section}/{case.kernel}/{case.name}"


@pytest.fixture(scope="module")
def runners() -> Iterator[dict[str, list[Runner]]]:
    """By instruction set, one for each number of threads."""
    with ExitStack() as opened:
        yield {
            isa: [opened.enter_context(Runner(isa=isa, threads=threads)) for threads in THREADS]
            for isa in available_isas()
        }


@pytest.mark.parametrize("case", list(large.cases()), ids=name)
def test_large(runners: dict[str, list[Runner]], case: Case) -> None:
    call = fixture(case, DRAWS)
    for isa, by_threads in runners.items():
        problems = [str(outcome) for outcome in by_threads[0].run(call) if outcome.problem]
        assert not problems, "\n".join([isa, *problems])
        first, *others = (runner.outputs(call) for runner in by_threads)
        for threads, other in zip(THREADS[1:], others, strict=True):
            for output, array in first.items():
                same = array.tobytes() == other[output].tobytes()
                assert same, f"{output} has other bits with {threads} threads of {isa}"
