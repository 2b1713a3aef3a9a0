"""The matrix products on a GPU against float64, over sizes that take every path of the plan in cuda/kernels/gemm.cu.

The fixtures are small: few of them have enough tiles for the large ones, which are all that wgmma serves. The bound is
that of any order of summation (Higham 2002, "Accuracy and Stability of Numerical Algorithms", 3.1).
"""

from __future__ import annotations

import numpy as np
import pytest
from devices import DTYPES, ROUNDING, placed, random, wide

import nncuda
from nncuda import kernels

F32 = ROUNDING["f32"]
TRANSPOSES = [(0, 0), (0, 1), (1, 0), (1, 1)]
#: Products that together have more tiles of 128 x 128 than any GPU here has multiprocessors.
MANY = 140


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray | float, dtype: str) -> None:
    """got = a @ b + c, each sum of a.shape[-1] terms in f32."""
    exact = a @ b + c
    steps = (a.shape[-1] + 8) * F32
    bound = steps / (1 - steps) * (np.abs(a) @ np.abs(b) + np.abs(c))
    bound = bound + ROUNDING[dtype] * (np.abs(exact) + bound) + 2.0**-25
    error = np.abs(wide(got) - exact)
    assert np.all(error <= bound), f"{np.max(error / bound):.3g} times the bound"  # NaN fails, too


def turned(array: np.ndarray, transposed: int) -> np.ndarray:
    return wide(array).swapaxes(-1, -2) if transposed else wide(array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 40, 96), (7, 33, 520), (8, 24, 1096), (33, 40, 1200), (65, 129, 72), (17, 19, 23)]
)
def test_sizes_of_every_path(
    gpu: nncuda.Context, m: int, n: int, k: int, trans_a: int, trans_b: int, dtype: str
) -> None:
    rng = np.random.default_rng(m * n + k)
    a = random(rng, *((k, m) if trans_a else (m, k)), dtype=dtype)
    b = random(rng, *((n, k) if trans_b else (k, n)), dtype=dtype)
    for shift in (0, 1):
        got = kernels.gemm(placed(gpu, a, shift), placed(gpu, b, shift), trans_a=trans_a, trans_b=trans_b).numpy()
        check(got, turned(a, trans_a), turned(b, trans_b), 0.0, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
def test_many_tiles(gpu: nncuda.Context, trans_a: int, trans_b: int, dtype: str) -> None:
    rng = np.random.default_rng(5)
    m, n, k = 24, 16, 136
    a = random(rng, MANY, *((k, m) if trans_a else (m, k)), dtype=dtype)
    b = random(rng, MANY, *((n, k) if trans_b else (k, n)), dtype=dtype)
    c = random(rng, MANY, m, n, dtype="f32")
    out = placed(gpu, c)
    kernels.batched_gemm(placed(gpu, a), placed(gpu, b), out, beta=1.0, trans_a=trans_a, trans_b=trans_b)
    check(out.numpy(), turned(a, trans_a), turned(b, trans_b), wide(c), "f32")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_tiles_with_edges(gpu: nncuda.Context, dtype: str) -> None:
    """One product that is a few elements more than a whole number of tiles."""
    rng = np.random.default_rng(6)
    m, n, k = 128 * 11 + 3, 128 * 12 + 8, 40
    a, b, bias = random(rng, m, k, dtype=dtype), random(rng, n, k, dtype=dtype), random(rng, n, dtype=dtype)
    got = kernels.gemm_epilogue(placed(gpu, a), placed(gpu, b), placed(gpu, bias), None, activation=0).numpy()
    check(got, wide(a), wide(b).T, wide(bias), dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
def test_nothing_but_sums(gpu: nncuda.Context, trans_a: int, trans_b: int, dtype: str) -> None:
    """What has a way of its own to C has the bits of what has not: a bias of zeros changes none but the sign of 0."""
    rng = np.random.default_rng(7)
    m, n, k = 128 * 11 + 24, 128 * 12 + 72, 40
    a = placed(gpu, random(rng, *((k, m) if trans_a else (m, k)), dtype=dtype))
    b = placed(gpu, random(rng, *((n, k) if trans_b else (k, n)), dtype=dtype))
    got = kernels.gemm(a, b, trans_a=trans_a, trans_b=trans_b).numpy()
    check(got, turned(a.numpy(), trans_a), turned(b.numpy(), trans_b), 0.0, dtype)
    other = placed(gpu, np.zeros((m, n), got.dtype), 1)
    kernels.gemm(a, b, trans_a=trans_a, trans_b=trans_b, c=other)
    assert got.tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("adds", ["bias", "residual", "bias silu residual"])
def test_what_is_added_is_added_by_one_rule(gpu: nncuda.Context, adds: str, dtype: str) -> None:
    """C that begins between two runs of 16 bytes has no way by boxes (sm_90a), and the same bits."""
    rng = np.random.default_rng(9)
    m, n, k = 128 * 11 + 24, 128 * 12 + 72, 104
    a, b = placed(gpu, random(rng, m, k, dtype=dtype)), placed(gpu, random(rng, n, k, dtype=dtype))
    bias, residual = random(rng, n, dtype=dtype), random(rng, m, n, dtype=dtype)
    results = []
    for shift in (0, 1):
        c = placed(gpu, np.zeros((m, n), residual.dtype), shift)
        kernels.gemm_epilogue(
            a, b, placed(gpu, bias) if "bias" in adds else None, placed(gpu, residual) if "residual" in adds else None,
            activation=int("silu" in adds), c=c)  # fmt: skip
        results.append(c.numpy())
    assert results[0].tobytes() == results[1].tobytes()
    if "silu" not in adds:
        more = wide(bias) if adds == "bias" else wide(residual)
        check(results[0], wide(a.numpy()), wide(b.numpy()).T, more, dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("dtype_c", ["same", "f32"])
def test_what_was_there_is_added_by_one_rule(gpu: nncuda.Context, dtype_c: str, dtype: str) -> None:
    """The same for beta, with groups of rows, whose last ones are another's, and C in f32 or 16 bits."""
    rng = np.random.default_rng(10)
    groups, n, k = 40, 264, 72
    lengths = rng.integers(0, 200, groups)
    lengths[:4] = 1, 0, 144, 15
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rows = int(offsets[-1]) + 3
    a, b = random(rng, rows, k, dtype=dtype), random(rng, groups, k, n, dtype=dtype)
    c = random(rng, rows, n, dtype=dtype if dtype_c == "same" else "f32")
    results = []
    for shift in (0, 1):
        out = placed(gpu, c, shift)
        kernels.grouped_gemm(placed(gpu, a), placed(gpu, b), gpu.tensor(offsets), out, beta=0.75)
        results.append(out.numpy())
    assert results[0].tobytes() == results[1].tobytes()
    for g in range(groups):
        part = slice(offsets[g], offsets[g + 1])
        check(results[0][part], wide(a[part]), wide(b[g]), 0.75 * wide(c[part]), dtype if dtype_c == "same" else "f32")
    assert results[0][offsets[-1] :].tobytes() == c[offsets[-1] :].tobytes()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products_beside_each_other(gpu: nncuda.Context, dtype: str) -> None:
    """The rows behind a product's last are the next one's."""
    rng = np.random.default_rng(8)
    m, n, k = 40, 136, 64
    a, b = random(rng, MANY, m, k, dtype=dtype), random(rng, MANY, k, n, dtype=dtype)
    out = placed(gpu, random(rng, MANY, m, n, dtype=dtype))
    kernels.batched_gemm(placed(gpu, a), placed(gpu, b), out, alpha=0.5)
    check(out.numpy(), 0.5 * wide(a), wide(b), 0.0, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("groups", [3, MANY])
def test_groups_of_rows(gpu: nncuda.Context, groups: int, trans_b: int, dtype: str) -> None:
    """Empty groups, one that takes several tiles, and rows behind the last, which stay as they are."""
    rng = np.random.default_rng(groups)
    n, k = 72, 80
    lengths = rng.integers(0, 5, groups)
    lengths[groups // 2] = 300
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rows = int(offsets[-1]) + 3
    a, c = random(rng, rows, k, dtype=dtype), random(rng, rows, n, dtype=dtype)
    b = random(rng, groups, *((n, k) if trans_b else (k, n)), dtype=dtype)
    out = placed(gpu, c)
    kernels.grouped_gemm(placed(gpu, a), placed(gpu, b), gpu.tensor(offsets), out, trans_b=trans_b)
    got = out.numpy()
    for g in range(groups):
        part = slice(offsets[g], offsets[g + 1])
        check(got[part], wide(a[part]), turned(b[g], trans_b), 0.0, dtype)
    assert got[offsets[-1] :].tobytes() == c[offsets[-1] :].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [3, MANY])
def test_groups_of_terms(gpu: nncuda.Context, groups: int, dtype: str) -> None:
    """A group's sums end with its own rows: NaN in those of the next one stays there."""
    rng = np.random.default_rng(groups)
    m, n, bad = 40, 72, 2
    lengths = rng.integers(0, 8, groups)
    lengths[:3] = 70, 129, 5
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    a, b = (random(rng, int(offsets[-1]), side, dtype=dtype) for side in (m, n))
    a[offsets[bad]] = np.nan
    c = random(rng, groups, m, n, dtype=dtype)
    out = placed(gpu, c)
    kernels.grouped_gemm_wgrad(placed(gpu, a), placed(gpu, b), gpu.tensor(offsets), out, beta=1.0)
    got = out.numpy()
    for g in range(groups):
        part = slice(offsets[g], offsets[g + 1])
        if g == bad:
            assert np.isnan(wide(got[g])).all()
        else:
            check(got[g], wide(a[part]).T, wide(b[part]), wide(c[g]), dtype)


@pytest.mark.parametrize(("offsets", "wrong"), [((0, 5, 3, 10), 2), ((1, 5, 6, 10), 0), ((0, 2, 4, 11), 3)])
def test_wrong_offsets_write_nothing(gpu: nncuda.Context, offsets: tuple[int, ...], wrong: int) -> None:
    out = gpu.tensor(np.full((10, 8), 7, np.float32))
    a, b = gpu.tensor(np.ones((10, 16), np.float32)), gpu.tensor(np.ones((3, 16, 8), np.float32))
    with pytest.raises(nncuda.Error, match=rf"cuda_grouped_gemm: offsets\[{wrong}\] is {offsets[wrong]}; it must be"):
        kernels.grouped_gemm(a, b, gpu.tensor(np.array(offsets, np.int32)), out)
        gpu.synchronize()
    assert np.all(out.numpy() == 7)


def test_tf32_only_when_allowed(gpu: nncuda.Context) -> None:
    if int(gpu.isa.removeprefix("sm_")) < 80:
        pytest.skip("tf32 is of sm_80")
    rng = np.random.default_rng(7)
    a, b = random(rng, 64, 64, dtype="f32"), random(rng, 64, 64, dtype="f32")
    exact, size = wide(a) @ wide(b).T, np.abs(wide(a)) @ np.abs(wide(b)).T
    assert np.max(np.abs(kernels.gemm(gpu.tensor(a), gpu.tensor(b), trans_b=1).numpy() - exact) / size) < 80 * F32
    gpu.tf32 = True
    error = np.max(np.abs(kernels.gemm(gpu.tensor(a), gpu.tensor(b), trans_b=1).numpy() - exact) / size)
    assert 80 * F32 < error < 2 * 2.0**-11  # each factor is rounded to 11 bits
