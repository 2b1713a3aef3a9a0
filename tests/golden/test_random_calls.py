"""Every kernel of the header with random arguments, on each instruction set and on a GPU, against the reference.

All are judged by the rule of the golden fixtures: whole numbers, random bits and values that are only moved
are exact, everything else is within twice the error of the plain formula. Each call is made on buffers aligned to their
element, on aligned ones, and in place where the header allows it; guards, gaps between rows and inputs must hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_cases import HEADER, fixture, random_case

from nncuda.binding import library
from nncuda.binding.header import Function
from nncuda.golden import Runner
from nncuda.golden.runner import available_isas

#: Stored rows, packed weights and pages are bytes in a format, which no drawing of numbers makes: test_gpu_quant.py,
#: test_gpu_paged.py.
OF_BYTES = [
    kernel
    for kernel in HEADER.kernels
    if HEADER.kernels[kernel].section in ("quant", "ternary", "lora") or "paged" in kernel
]
KERNELS = sorted((HEADER.kernels[kernel] for kernel in HEADER.kernels if kernel not in OF_BYTES), key=lambda f: f.name)
#: The same calls on every run; more of the kernels with most ways through them. An emulated GPU takes about half a
#: second for those of a kernel.
EXAMPLES = {"gemm": 20, "attention": 20}
EXAMPLES_ELSEWHERE = 10


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Runner]]:
    found = {isa: Runner(isa=isa) for isa in available_isas()}
    if library.load().device_count(library.DEVICES["cuda"]):
        found["cuda"] = Runner("cuda")
    with ExitStack() as opened:
        yield {name: opened.enter_context(runner) for name, runner in found.items()}


def calls(function: Function) -> settings:
    return settings(
        max_examples=EXAMPLES.get(function.section, EXAMPLES_ELSEWHERE),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # looking for a smaller example takes minutes where a call takes a second
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("function", KERNELS, ids=lambda function: f"{function.section}/{function.kernel}")
def test_random_calls(engines: dict[str, Runner], function: Function) -> None:
    @calls(function)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        call = fixture(random_case(data.draw, function))
        for engine, runner in engines.items():
            problems = [str(outcome) for outcome in runner.run(call) if outcome.problem]
            assert not problems, "\n".join(f"{engine}: {problem}" for problem in problems)

    check()
