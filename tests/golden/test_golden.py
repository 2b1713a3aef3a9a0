"""Every fixture on every instruction set, and the same bits in every run and for any number of threads."""

import numpy as np
import pytest
from beside import BY_KERNEL

from nncuda.golden import Runner
from nncuda.golden.report import Report
from nncuda.golden.runner import available_isas

THREADS = (1, 2, 3, 7)
RUNS = 2


@pytest.fixture(scope="module", params=available_isas())
def runner(request):
    with Runner(isa=request.param) as found:
        yield request.param, found


@pytest.mark.parametrize("kernel", BY_KERNEL, ids="/".join)
def test_golden(runner, kernel, record_property):
    isa, found = runner
    report = Report()
    for fixture in BY_KERNEL[kernel]:
        report.add(found.run(fixture))
    record_property("share of a tolerance", [isa, float(report.largest_share), kernel[1]])
    assert report.cases == len(BY_KERNEL[kernel])
    assert not report.failures, "\n".join(str(outcome) for outcome in report.failures)


@pytest.fixture(scope="module")
def by_threads():
    runners = [Runner(threads=threads) for threads in THREADS]
    yield runners
    for found in runners:
        found.close()


@pytest.mark.parametrize("kernel", BY_KERNEL, ids="/".join)
def test_same_bits_for_any_number_of_threads(by_threads, kernel):
    for fixture in BY_KERNEL[kernel]:
        first, *others = (found.outputs(fixture) for found in by_threads for _ in range(RUNS))
        for number, other in enumerate(others, 1):
            for name, array in first.items():
                same = np.array_equal(array.view(np.uint8), other[name].view(np.uint8))
                assert same, f"{fixture.id}: {name} has other bits with {THREADS[number // RUNS]} threads"
