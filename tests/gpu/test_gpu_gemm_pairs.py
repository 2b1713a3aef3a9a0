"""Products with so many rows that, on sm_90a, blocks multiply in pairs (cuda/kernels/gemm_wgmma.cuh): against float64,
the bits of the same product without pairs, and of calls that do together what one does.

Sizes are about the least that take that way; elsewhere the tests hold as well. On an emulated GPU they also run with
four multiprocessors, so that a block has several tiles (tests/emulator/test_emulated_gpu.py).
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from devices import SameDigests, placed, random, wide
from test_gpu_gemm import MANY, TRANSPOSES, check, turned

import nncuda
from nncuda import kernels

HALVES = ["f16", "bf16"]
#: Rows of groups that are long enough on average: the last pair of one has rows in its first block alone, one group has
#: a single row.
LENGTHS = (4300, 1, 17, 4200)
#: One product with an even number of tiles of 128 rows, and one whose last pair has a block without rows; k is so long
#: that the warpgroups of a block begin tiles one after the other. The third is in pieces of k.
SIZES = [(256, 264, 520), (128 * 16 + 8, 72, 520), (256, 1152, 2048)]
#: On few multiprocessors these take tiles of 128 x 192, the second with a part of one at the right.
MIDDLE = [(256, 384, 520), (128, 568, 584)]


def offsets_of(*lengths: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def dense(
    gpu: nncuda.Context, dtype: str, m: int, n: int, k: int, trans_a: int, trans_b: int
) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(m + n)
    a = random(rng, *((k, m) if trans_a else (m, k)), dtype=dtype)
    b = random(rng, *((n, k) if trans_b else (k, n)), dtype=dtype)
    return a, b, kernels.gemm(placed(gpu, a), placed(gpu, b), trans_a=trans_a, trans_b=trans_b).numpy()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
@pytest.mark.parametrize(("m", "n", "k"), SIZES[:2] + MIDDLE)
def test_a_product(gpu: nncuda.Context, m: int, n: int, k: int, trans_a: int, trans_b: int, dtype: str) -> None:
    a, b, got = dense(gpu, dtype, m, n, k, trans_a, trans_b)
    check(got, turned(a, trans_a), turned(b, trans_b), 0.0, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_product_in_pieces(gpu: nncuda.Context, dtype: str) -> None:
    a, b, got = dense(gpu, dtype, *SIZES[2], 0, 1)
    check(got, wide(a), wide(b).T, 0.0, dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shift", [0, 1])
def test_what_is_added_by_both_blocks(gpu: nncuda.Context, shift: int, dtype: str) -> None:
    """A bias and a residual, by boxes and, where C begins between two runs of 16 bytes, without."""
    rng = np.random.default_rng(3)
    m, n, k = SIZES[0]
    a, b = random(rng, m, k, dtype=dtype), random(rng, n, k, dtype=dtype)
    bias, residual = random(rng, n, dtype=dtype), random(rng, m, n, dtype=dtype)
    c = placed(gpu, np.zeros((m, n), residual.dtype), shift)
    kernels.gemm_epilogue(*(placed(gpu, x) for x in (a, b, bias, residual)), activation=0, c=c)
    check(c.numpy(), wide(a), wide(b).T, wide(bias) + wide(residual), dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("beta", [0.0, 0.75])
def test_batches(gpu: nncuda.Context, beta: float, dtype: str) -> None:
    """The rows behind a product's last, which are those of the second block, are the next product's."""
    rng = np.random.default_rng(8)
    m, n, k = 136, 72, 72
    a, b = random(rng, MANY, m, k, dtype=dtype), random(rng, MANY, k, n, dtype=dtype)
    c = random(rng, MANY, m, n, dtype=dtype)
    out = placed(gpu, c)
    kernels.batched_gemm(placed(gpu, a), placed(gpu, b), out, alpha=0.5, beta=beta)
    check(out.numpy(), 0.5 * wide(a), wide(b), beta * wide(c), dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("trans_b", "beta"), [(0, 0.75), (1, 0.0)])
def test_long_groups_of_rows(gpu: nncuda.Context, trans_b: int, beta: float, dtype: str) -> None:
    rng = np.random.default_rng(9)
    n, k, offsets = 136, 72, offsets_of(*LENGTHS)
    rows = int(offsets[-1]) + 3
    a, c = random(rng, rows, k, dtype=dtype), random(rng, rows, n, dtype=dtype)
    b = random(rng, len(LENGTHS), *((n, k) if trans_b else (k, n)), dtype=dtype)
    out = placed(gpu, c)
    kernels.grouped_gemm(placed(gpu, a), placed(gpu, b), gpu.tensor(offsets), out, trans_b=trans_b, beta=beta)
    got = out.numpy()
    for g in range(len(LENGTHS)):
        part = slice(offsets[g], offsets[g + 1])
        check(got[part], wide(a[part]), turned(b[g], trans_b), beta * wide(c[part]), dtype)
    assert got[offsets[-1] :].tobytes() == c[offsets[-1] :].tobytes()


@pytest.mark.parametrize("dtype", HALVES)
def test_long_groups_with_a_gate(gpu: nncuda.Context, dtype: str) -> None:
    """The bits of the calls that it stands for, forward and backward: gates come from one block of a pair, ups from the
    other."""
    rng = np.random.default_rng(11)
    n, k, offsets = 72, 72, offsets_of(*LENGTHS)
    rows, groups, starts = int(offsets[-1]), len(LENGTHS), gpu.tensor(offsets)
    x, w = placed(gpu, random(rng, rows, k, dtype=dtype)), placed(gpu, random(rng, groups, 2 * n, k, dtype=dtype))
    gate_up, y = kernels.grouped_gemm_swiglu(x, w, starts)
    apart = kernels.grouped_gemm(x, w, starts, trans_b=1)
    assert gate_up.numpy().tobytes() == apart.numpy().tobytes()
    gate, up = (gpu.tensor(np.ascontiguousarray(half)) for half in np.split(apart.numpy(), 2, axis=1))
    assert y.numpy().tobytes() == kernels.swiglu(gate, up).numpy().tobytes()
    dout, w2 = placed(gpu, random(rng, rows, k, dtype=dtype)), placed(gpu, random(rng, groups, k, n, dtype=dtype))
    dgate, dup = kernels.swiglu_backward(kernels.grouped_gemm(dout, w2, starts), gate, up)
    kernels.grouped_gemm_swiglu_backward(dout, w2, starts, gate_up)
    both = np.concatenate([dgate.numpy(), dup.numpy()], axis=1)
    assert gate_up.numpy().tobytes() == both.tobytes()


@pytest.mark.parametrize("dtype", HALVES)
def test_groups_of_terms(gpu: nncuda.Context, dtype: str) -> None:
    """A group's sums end with its own rows: NaN in those of the next one stays there."""
    rng = np.random.default_rng(12)
    m, n, bad = 136, 72, 2
    lengths = rng.integers(0, 8, MANY)
    lengths[:4] = 70, 129, 5, 300
    offsets = offsets_of(*lengths)
    a, b = (random(rng, int(offsets[-1]), side, dtype=dtype) for side in (m, n))
    a[offsets[bad]] = np.nan
    c = random(rng, MANY, m, n, dtype=dtype)
    out = placed(gpu, c)
    kernels.grouped_gemm_wgrad(placed(gpu, a), placed(gpu, b), gpu.tensor(offsets), out, beta=1.0)
    got = out.numpy()
    assert np.isnan(wide(got[bad])).all()
    for g in [*range(bad), *range(bad + 1, MANY)]:
        part = slice(offsets[g], offsets[g + 1])
        check(got[g], wide(a[part]).T, wide(b[part]), wide(c[g]), dtype)


def test_digests_of_pairs(gpu: nncuda.Context, same_digests: SameDigests) -> None:
    """The bits that another run, with --digests and the same file, had: in any order of the blocks, and with a single
    multiprocessor, which has no pairs."""
    if gpu.isa != "sm_90":
        pytest.skip("there are no pairs")
    products = {str(size): dense(gpu, "bf16", *size, 0, 1)[2] for size in SIZES}
    found = {size: hashlib.sha256(product.tobytes()).hexdigest() for size, product in products.items()}
    same_digests("-pairs", found)
