"""Products in 8 bits where every sum is exact: whole numbers of few bits, times powers of two that differ from block to
block, so that each scale has an effect and none a rounding. The result must be the very number, whatever a tensor core
keeps of a sum (tests/golden/cases has the other kind).

Sizes are about the least that on sm_90a take both tiles, blocks in pairs, and warpgroups that begin a tile one after
the other (cuda/kernels/gemm_wgmma.cuh); elsewhere the tests hold as well. On an emulated GPU they also run with four
multiprocessors, so that a block has several tiles (tests/emulator/test_emulated_gpu.py).
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from devices import DTYPES, placed, wide

import nncuda
from nncuda import kernels

BLOCK = 128
KINDS = [("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32")]
#: Rows of groups: on average so many that blocks work in pairs, with one of a single row and one that ends in the first
#: block of a pair; and so few that they do not, with groups without rows.
LONG, SHORT = (4300, 1, 17, 4200), (0, 130, 1, 0, 300, 16, 129)


def offsets_of(lengths: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def whole(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(np.float32)


def powers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.exp2(rng.integers(-2, 3, shape)).astype(np.float32)


def spread(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """A number a block to each of its elements."""
    return np.repeat(x, BLOCK, axis).take(range(size), axis)


@pytest.mark.parametrize(("dtype", "dtype_c"), KINDS)
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize(("lengths", "n", "k"), [(LONG, 136, 264), (SHORT, 520, 1100), (SHORT, 200, 129)])
def test_rows(
    gpu: nncuda.Context, lengths: tuple[int, ...], n: int, k: int, trans_b: int, dtype: str, dtype_c: str
) -> None:
    rng, offsets, groups = np.random.default_rng(n), offsets_of(lengths), len(lengths)
    rows, blocks = int(offsets[-1]), -(-k // BLOCK)
    a = whole(rng, rows + 3, k) * spread(powers(rng, rows + 3, blocks), 1, k)
    scales = spread(spread(powers(rng, groups, -(-n // BLOCK), blocks), 1, n), 2, k)
    b = whole(rng, groups, n, k) * scales
    lying = b if trans_b else np.ascontiguousarray(np.swapaxes(b, 1, 2))
    a[rows:] = np.nan
    out = gpu.tensor(np.full((rows + 3, n), 7, DTYPES[dtype_c]))
    factors = (placed(gpu, x.astype(DTYPES[dtype])) for x in (a, lying))
    kernels.grouped_gemm_fp8(*factors, gpu.tensor(offsets), c=out, trans_b=bool(trans_b))
    got = wide(out.numpy())
    for g, (first, end) in enumerate(itertools.pairwise(offsets)):
        exact = (wide(a[first:end]) @ wide(b[g]).T).astype(np.float32).astype(DTYPES[dtype_c])
        np.testing.assert_array_equal(got[first:end], wide(exact))
    assert (got[rows:] == 7).all()


@pytest.mark.parametrize(("dtype", "dtype_c"), KINDS)
@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize(("lengths", "m", "n"), [((700, 0, 1, 1030), 256, 520), (SHORT, 130, 72)])
def test_weights(
    gpu: nncuda.Context, lengths: tuple[int, ...], m: int, n: int, beta: float, dtype: str, dtype_c: str
) -> None:
    rng, offsets = np.random.default_rng(m), offsets_of(lengths)
    rows = int(offsets[-1])
    a, b = whole(rng, rows, m), whole(rng, rows, n)
    for first, end in itertools.pairwise(offsets):
        for x in (a, b):
            x[first:end] *= spread(powers(rng, -(-int(end - first) // BLOCK), x.shape[1]), 0, int(end - first))
    c = whole(rng, len(lengths), m, n)
    out = gpu.tensor(c.astype(DTYPES[dtype_c]))
    factors = (placed(gpu, x.astype(DTYPES[dtype])) for x in (a, b))
    kernels.grouped_gemm_wgrad_fp8(*factors, gpu.tensor(offsets), c=out, beta=beta)
    for g, (first, end) in enumerate(itertools.pairwise(offsets)):
        exact = wide(a[first:end]).T @ wide(b[first:end]) + beta * wide(c[g])
        exact = exact.astype(np.float32).astype(DTYPES[dtype_c])
        np.testing.assert_array_equal(wide(out.numpy()[g]), wide(exact))
