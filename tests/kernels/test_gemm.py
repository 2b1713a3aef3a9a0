"""The matrix products on every instruction set, against float64 NumPy.

The bound on an element is that of any order of summation (Higham 2002, "Accuracy and Stability of Numerical
Algorithms", 3.1): k products and additions in f32 are wrong by at most gamma(k) (|A| |B|), each operation after them by
one rounding more, and the own rounding of the result comes on top.
"""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import DTYPES, FLOATS, Engine

ISAS = range(Engine().isa + 1)


@pytest.fixture(scope="module", params=ISAS, ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_and_nans_stay_in_their_row_and_column(cpu: Engine, dtype: str) -> None:
    rng = np.random.default_rng(8)
    for m, n, k in [(3, 20, 17), (19, 37, 33)]:
        a, b = random(rng, (m, k), dtype), random(rng, (n, k), dtype)
        a[1, k - 1], b[4, 2] = np.inf, np.nan
        c = engine.empty((m, n), dtype)
        cpu.gemm(a, b, c, m, n, k, 0, 1, dtype, dtype)
        infinite = np.zeros((m, n), bool)
        infinite[1] = True
        infinite[:, 4] = True
        assert np.array_equal(~np.isfinite(wide(c)), infinite)
        assert np.all(np.isnan(wide(c[:, 4])))


def in_lines(rows: int, cols: int, dtype: str) -> np.ndarray:
    """An empty matrix that begins at the start of a cache line."""
    line = 64 // np.dtype(DTYPES[dtype]).itemsize
    buffer = engine.empty((rows * cols + line,), dtype)
    skipped = -buffer.ctypes.data % 64 * line // 64
    return buffer[skipped : skipped + rows * cols].reshape(rows, cols)


@pytest.mark.parametrize("dtype,m", [("f32", 1033), ("bf16", 2065)])
def test_large_results_are_the_small_ones_side_by_side(cpu: Engine, dtype: str, m: int) -> None:
    """From 16 MB on, these sizes, results are written past the caches; how C is cut changes no bit.

    That takes vectors that fill cache lines, so the rows of C begin at the start of one; and 32 columns at a time in
    bf16, which some instruction sets have at the right edge alone, behind pieces of 48.
    """
    rng = np.random.default_rng(9)
    n, k = 84 * 48 + 32, 33
    a, b, c = random(rng, (m, k), dtype), random(rng, (n, k), dtype), in_lines(m, n, dtype)
    assert c.nbytes >= 16 << 20 and c.ctypes.data % 64 == c.strides[0] % 64 == 0
    cpu.gemm(a, b, c, m, n, k, 0, 1, dtype, dtype)
    width = n // 4
    for begin in range(0, n, width):
        part = engine.empty((m, width), dtype)
        cpu.gemm(a, b[begin : begin + width], part, m, width, k, 0, 1, dtype, dtype)
        assert np.array_equal(c[:, begin : begin + width], part)
