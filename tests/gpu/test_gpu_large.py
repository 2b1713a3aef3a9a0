"""The kernels that are bound by memory on a GPU, and products in 8 bits, over sizes that take every path through them:
the calls of tests/golden/cases/large.py, by the rule of the fixtures."""

from __future__ import annotations

import pytest
from cases import large
from cases.case import Case
from expected import fixture

from nncuda.binding import header
from nncuda.golden import Runner

FAMILIES = ("softmax", "rmsnorm", "loss", "embedding", "rope", "optimizer")
CASES = [
    case
    for case in large.cases()
    if header.parse().kernels[case.kernel].section in FAMILIES or case.kernel.endswith("_fp8")
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel}/{case.name}")
def test_large(runner: Runner, case: Case) -> None:
    problems = [str(outcome) for outcome in runner.run(fixture(case, 3)) if outcome.problem]
    assert not problems, "\n".join(problems)
