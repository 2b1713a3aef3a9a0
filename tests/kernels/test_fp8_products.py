"""Products with factors in 8 bits beside what they stand for: the same products of the rounded numbers in bf16, which
holds them exactly. So all that is left to differ is how a block is rounded, which is tested to the bit.

The numbers that are tested for themselves are one row times one column of ones: exact sums of few terms.
"""

from __future__ import annotations

import itertools

import engine
import ml_dtypes
import numpy as np
import pytest
from engine import DTYPES, Engine

from nncuda.reference import fp8

ISAS = range(Engine().isa + 1)
KINDS = (("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"))
#: Rows of each group, rows behind the last, n, k: a block and one element more each way, groups without rows, with one
#: and with more than a block.
SIZES = (
    ((3, 0, 1), 2, 5, 7),
    ((129, 0, 130, 1), 5, 129, 40),
    ((1, 1, 1), 0, 33, 257),
    ((40,), 0, 300, 129),
)


@pytest.fixture(scope="module", params=[(isa, threads) for isa in ISAS for threads in (1, 3)], ids=str)
def cpu(request: pytest.FixtureRequest) -> Engine:
    isa, threads = request.param
    return Engine(threads=threads, isa=isa)


def uneven(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Numbers of many sizes, zeros among them."""
    draw = np.random.default_rng(seed)
    numbers = draw.standard_normal(shape) * np.exp2(draw.integers(-14, 15, shape)) * (draw.random(shape) > 0.1)
    return numbers.astype(np.float32).astype(DTYPES[dtype])


def in_bf16(x: np.ndarray, rows: int, cols: int) -> np.ndarray:
    rounded = fp8.rounded(x.astype(np.float64), rows, cols)
    stored = rounded.astype(ml_dtypes.bfloat16)
    assert np.array_equal(stored.astype(np.float64), rounded, equal_nan=True)
    return stored


def groups_of(counts: tuple[int, ...]) -> np.ndarray:
    return np.cumsum([0, *counts]).astype(np.int32)


@pytest.mark.parametrize("dtype,dtype_c", KINDS)
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("counts,spare,n,k", SIZES)
def test_products(cpu: Engine, counts, spare: int, n: int, k: int, trans_b: int, dtype: str, dtype_c: str) -> None:
    rows, groups, at = sum(counts) + spare, len(counts), groups_of(counts)
    a, b = uneven((rows, k), dtype, 1), uneven((groups, n, k) if trans_b else (groups, k, n), dtype, 2)
    a[sum(counts) :] = np.nan
    c, wanted = engine.empty((rows, n), dtype_c), engine.empty((rows, n), dtype_c)
    cpu.grouped_gemm_fp8(a, b, at, c, groups, rows, n, k, trans_b, dtype, dtype_c)
    matrices = np.stack([in_bf16(matrix, 128, 128) for matrix in b])
    cpu.grouped_gemm(in_bf16(a, 1, 128), matrices, at, wanted, groups, rows, n, k, 0.0, trans_b, "bf16", dtype_c)
    assert c.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype,dtype_c", KINDS)
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("counts,spare,m,n", SIZES)
def test_products_of_weights(
    cpu: Engine, counts, spare: int, m: int, n: int, beta: float, dtype: str, dtype_c: str
) -> None:
    rows, groups, at = sum(counts) + spare, len(counts), groups_of(counts)
    a, b = uneven((rows, m), dtype, 3), uneven((rows, n), dtype, 4)
    c = uneven((groups, m, n), dtype_c, 5)
    wanted = c.copy()
    cpu.grouped_gemm_wgrad_fp8(a, b, at, c, groups, rows, m, n, beta, dtype, dtype_c)
    left, right = np.zeros((rows, m), ml_dtypes.bfloat16), np.zeros((rows, n), ml_dtypes.bfloat16)
    for first, end in itertools.pairwise(at):
        left[first:end], right[first:end] = in_bf16(a[first:end], 128, 1), in_bf16(b[first:end], 128, 1)
    cpu.grouped_gemm_wgrad(left, right, at, wanted, groups, rows, m, n, beta, "bf16", dtype_c)
    assert c.tobytes() == wanted.tobytes()


def as_rounded(cpu: Engine, numbers: np.ndarray) -> np.ndarray:
    """What a row of A is rounded to: its product with ones on the diagonal of blocks, 128 columns each."""
    k = numbers.size
    c = engine.empty((1, k), "f32")
    cpu.grouped_gemm_fp8(numbers.reshape(1, k), np.eye(k, dtype=np.float32)[None], groups_of((1,)), c, 1, 1, k, k, 1,
                         "f32", "f32")  # fmt: skip
    return c[0]


def test_each_number_of_8_bits_is_itself(cpu: Engine) -> None:
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    codes = codes[np.isfinite(codes)]
    codes = np.concatenate([np.append(half, np.float32([448, 0])) for half in np.split(codes, 2)])[:256]
    for power in (-90, -8, 0, 5):  # 448 in each block: the scale is the power
        assert np.array_equal(as_rounded(cpu, codes * np.float32(2.0**power)), codes * np.float32(2.0**power))


@pytest.mark.parametrize(
    "largest,exponent",
    [(448, 0), (np.nextafter(np.float32(448), np.float32(500)), 1), (1, -8), (2.0**-149, -100), (448 * 2.0**100, 100)],
)
def test_exponent(cpu: Engine, largest: float, exponent: int) -> None:
    """1.4 of the least steps are one; with the scale beside it they were one of twice the size, or three of half."""
    x = np.zeros(128, np.float32)
    x[0], x[5] = largest, -1.4 * 2.0 ** (exponent - 9)
    got = as_rounded(cpu, x)
    assert np.array_equal(got, fp8.rounded(x.astype(np.float64)[None], 1, 128)[0].astype(np.float32))
    assert got[5] == -(2.0 ** (exponent - 9))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 449 * 2.0**100])
def test_what_has_no_place_is_nan_and_no_scale(cpu: Engine, value: float) -> None:
    k = 140
    draw = np.random.default_rng(6)
    a, b = draw.standard_normal((2, k), np.float32), draw.standard_normal((1, k, 3), np.float32)
    wanted, c = engine.empty((2, 3), "f32"), engine.empty((2, 3), "f32")
    cpu.grouped_gemm_fp8(a, b, groups_of((2,)), wanted, 1, 2, 3, k, 0, "f32", "f32")
    a[0, 130] = value
    cpu.grouped_gemm_fp8(a, b, groups_of((2,)), c, 1, 2, 3, k, 0, "f32", "f32")
    assert np.isnan(c[0]).all() and np.array_equal(c[1], wanted[1])
