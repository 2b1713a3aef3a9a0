"""Digests: any part, alignment and number of threads, and each single bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import nncuda
from nncuda import kernels
from nncuda.reference.digest import digest as reference


@pytest.fixture
def ctx() -> Iterator[nncuda.Context]:
    with nncuda.Context("cpu", threads=2) as ctx:
        yield ctx


def sums_of(ctx: nncuda.Context, x: np.ndarray, first: int = 0, sums: nncuda.Tensor | None = None) -> list[int]:
    sums = ctx.zeros((2,), "i64") if sums is None else sums
    kernels.digest(ctx.tensor(x), sums=sums, first=first)
    return sums.numpy().tolist()


@pytest.mark.parametrize("width", [1, 2, 4])
def test_parts_add_up_whatever_their_order(width: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, (70_000, width)).astype(np.uint8)
    expected = reference(x, np.zeros(2, np.int64), 5)["sums"].tolist()
    for threads in (1, 2, 7):
        with nncuda.Context("cpu", threads=threads) as ctx:
            assert sums_of(ctx, x, 5) == expected
            sums = ctx.zeros((2,), "i64")
            for start, stop in ((33_333, 70_000), (0, 1), (1, 33_333)):
                sums_of(ctx, x[start:stop], 5 + start, sums)
            assert sums.numpy().tolist() == expected


def test_any_alignment(ctx: nncuda.Context) -> None:
    """Elements that begin at any byte of memory are those that begin at the first."""
    x = np.random.default_rng(1).integers(0, 256, 4 * 100 + 8).astype(np.uint8)
    memory = ctx.tensor(x)
    for width in (1, 2, 4):
        for begin in range(8):
            sums = ctx.zeros((2,), "i64")
            kernels.digest(memory.narrow(0, begin, 100 * width).view(100, width), sums=sums)
            assert sums.numpy().tolist() == sums_of(ctx, x[begin : begin + 100 * width].reshape(100, width).copy())


def test_each_bit_changes_both_sums(ctx: nncuda.Context) -> None:
    x = np.zeros((20, 4), np.uint8)
    plain, seen = sums_of(ctx, x), set()
    for element in range(20):
        for bit in range(32):
            changed = x.copy()
            changed[element, bit // 8] ^= 1 << bit % 8
            found = sums_of(ctx, changed)
            assert found[0] != plain[0] and found[1] != plain[1]
            seen.update(found)
    assert len(seen) == 2 * 20 * 32  # and each in its own way


def test_elements_that_change_places_are_noticed(ctx: nncuda.Context) -> None:
    x = np.random.default_rng(2).integers(0, 256, (500, 4)).astype(np.uint8)
    swapped = x.copy()
    swapped[[3, 77]] = swapped[[77, 3]]
    assert not set(sums_of(ctx, x)) & set(sums_of(ctx, swapped))
    assert not set(sums_of(ctx, x)) & set(sums_of(ctx, x, first=1))


def test_other_widths_are_refused(ctx: nncuda.Context) -> None:
    with pytest.raises(nncuda.Error, match="width is 3; it must be 1, 2 or 4"):
        sums_of(ctx, np.zeros((2, 3), np.uint8))
