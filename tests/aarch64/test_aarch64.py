"""The library for AArch64, under qemu-user: every kernel on the golden cases and a short training run, with the bits
that this processor computes by AVX2, or in the baseline. `make aarch64` builds what is needed and asks for these tests.
"""

from __future__ import annotations

import os
from functools import cache

import emulation
import pytest
from emulation import HERE, PYTHON, output

FIXTURES = HERE.parent / "golden"
TRAINING = ("--train", "3")

pytestmark = pytest.mark.skipif("NNCUDA_AARCH64" not in os.environ, reason="`make aarch64` runs these")


@cache
def native(isa: str) -> dict[str, str]:
    return output(emulation.native(isa), HERE / "hashes.py", FIXTURES, isa, *TRAINING)


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


@pytest.mark.parametrize(
    ("isa", "like", "more"),
    [
        ("neon", "avx2", TRAINING),
        ("dotprod", "avx2", ()),
        ("i8mm", "avx2", TRAINING),
        ("baseline", "baseline", TRAINING),
    ],
)
def test_has_the_bits_of(isa: str, like: str, more: tuple[str, ...]):
    found = output(PYTHON, HERE / "hashes.py", FIXTURES, isa, *more)
    expected = {name: bits for name, bits in native(like).items() if more or not name.startswith("training")}
    assert len(expected) > 4000
    assert differences(found, expected) == []


def test_the_baseline_differs():
    """So that a comparison of bits is one."""
    assert differences(native("baseline"), native("avx2"))


@pytest.mark.parametrize(
    ("processor", "isas"),
    [
        ("cortex-a72", ["baseline", "neon"]),
        ("cortex-a76", ["baseline", "neon", "dotprod"]),
        ("max", ["baseline", "neon", "dotprod", "i8mm"]),
    ],
)
def test_takes_what_the_processor_has(processor: str, isas: list[str]):
    assert output(PYTHON, HERE / "hashes.py", FIXTURES, "list", processor=processor) == isas
