"""The kernels that are bound by memory on a GPU, over sizes that take every path through them: the calls of
tests/golden/cases/large.py, by the rule of the fixtures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from devices import gpus

from nncuda.binding import header
from nncuda.golden import Runner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))

from cases import large
from cases.case import Case
from expected import fixture

pytestmark = pytest.mark.skipif(not gpus(), reason="no GPU, real or emulated")

FAMILIES = ("softmax", "rmsnorm", "loss", "embedding", "rope", "optimizer")
CASES = [case for case in large.cases() if header.parse().kernels[case.kernel].section in FAMILIES]


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner("cuda") as found:
        yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel}/{case.name}")
def test_large(runner: Runner, case: Case) -> None:
    problems = [str(outcome) for outcome in runner.run(fixture(case, 3)) if outcome.problem]
    assert not problems, "\n".join(problems)
