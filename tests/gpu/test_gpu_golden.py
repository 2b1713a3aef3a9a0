"""Every fixture on a GPU, within its tolerance, and with the same bits again."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from beside import BY_KERNEL
from devices import SameDigests

from nncuda.binding import library
from nncuda.golden import Runner
from nncuda.golden.report import Report


def test_every_kernel_of_the_header_has_fixtures() -> None:
    assert {kernel for _, kernel in BY_KERNEL} == set(library.load().header.kernels)


@pytest.mark.parametrize("kernel", BY_KERNEL, ids="/".join)
def test_golden(runner: Runner, kernel: tuple[str, str]) -> None:
    report = Report()
    for fixture in BY_KERNEL[kernel]:
        report.add(runner.run(fixture))
    print(f"at most {report.largest_share:.0%} of a tolerance")
    assert report.cases == len(BY_KERNEL[kernel])
    assert not report.failures, "\n".join(str(outcome) for outcome in report.failures)


@pytest.mark.parametrize("kernel", BY_KERNEL, ids="/".join)
def test_same_bits_again(runner: Runner, kernel: tuple[str, str]) -> None:
    """In another context, whose scratch memory holds other things."""
    with Runner("cuda") as another:
        for fixture in BY_KERNEL[kernel]:
            first, second = runner.outputs(fixture), another.outputs(fixture)
            for name, array in first.items():
                assert np.array_equal(array.view(np.uint8), second[name].view(np.uint8)), f"{fixture.id}: {name}"


def test_digests(runner: Runner, same_digests: SameDigests) -> None:
    """The outputs have the bits that another run, with --digests and the same file, had."""
    found = {
        fixture.id: hashlib.sha256(b"".join(array.tobytes() for array in runner.outputs(fixture).values())).hexdigest()
        for fixtures in BY_KERNEL.values()
        for fixture in fixtures
    }
    same_digests("", found)
