"""The matrix products on every instruction set, against float64 NumPy.

The bound on an element is that of any order of summation (Higham 2002, "Accuracy and Stability of Numerical
Algorithms", 3.1): k products and additions in f32 are wrong by at most gamma(k) (|A| |B|), each operation after them by
one rounding more, and the own rounding of the result comes on top.
"""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import DTYPES, FLOATS, ROUNDING, THREADS, Engine, KernelError

F32 = 2.0**-24
ISAS = range(Engine().isa + 1)
SILU = 1
#: Half the distance of the subnormals of each dtype: what rounding may cost near zero.
TINIEST = {"f32": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134}


@pytest.fixture(scope="module", params=ISAS, ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def check(c: np.ndarray, exact: np.ndarray, size: np.ndarray, k: int, dtype_c: str) -> None:
    """`size` is what the terms of each sum add up to without their signs."""
    steps = (k + 8) * F32
    bound = steps / (1 - steps) * size
    bound += ROUNDING[dtype_c] * (np.abs(exact) + bound) + TINIEST[dtype_c]
    error = np.abs(wide(c) - exact)
    assert np.all(error <= bound), f"{np.max(error / bound):.3g} times the bound"  # NaN fails, too


def stored(rng: np.random.Generator, rows: int, cols: int, ld: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """A matrix within rows of `ld` elements, NaN between them: (the buffer, the matrix)."""
    buffer = engine.empty((rows, ld), dtype)
    buffer[:, :cols] = random(rng, (rows, cols), dtype)
    return buffer, buffer[:, :cols]


PAIRS = [(dtype, dtype_c) for dtype in FLOATS for dtype_c in dict.fromkeys((dtype, "f32"))]
LAYOUTS = [(0, 0), (0, 1), (1, 0), (1, 1)]
SHAPES = [
    (1, 1, 1), (1, 33, 7), (2, 100, 65), (3, 17, 130), (4, 5, 257), (5, 67, 31), (6, 16, 64), (7, 129, 2), (8, 40, 300),
    (9, 1, 1), (13, 31, 37), (14, 32, 512), (15, 33, 513), (16, 16, 16), (17, 47, 1023), (29, 64, 33), (31, 97, 64),
    (32, 32, 32), (33, 15, 1100), (61, 83, 259), (100, 1, 70), (128, 8, 96),
]  # fmt: skip


@pytest.mark.parametrize("trans_a,trans_b", LAYOUTS)
@pytest.mark.parametrize("dtype,dtype_c", PAIRS)
def test_products(cpu: Engine, dtype: str, dtype_c: str, trans_a: int, trans_b: int) -> None:
    rng = np.random.default_rng(1)
    for m, n, k in SHAPES:
        a = random(rng, (k, m) if trans_a else (m, k), dtype)
        b = random(rng, (n, k) if trans_b else (k, n), dtype)
        c = engine.empty((m, n), dtype_c)
        cpu.gemm(a, b, c, m, n, k, trans_a, trans_b, dtype, dtype_c)
        left, right = wide(a.T if trans_a else a), wide(b.T if trans_b else b)
        check(c, left @ right, np.abs(left) @ np.abs(right), k, dtype_c)


@pytest.mark.parametrize("dtype,dtype_c", PAIRS)
def test_leading_dimensions_alpha_and_beta(cpu: Engine, dtype: str, dtype_c: str) -> None:
    rng = np.random.default_rng(2)
    options = [(1.0, 0.0), (1.0, 1.0), (-0.5, 0.0), (2.0, -1.5), (0.0, 1.0)]
    for i, (m, n, k) in enumerate(SHAPES):
        trans_a, trans_b = LAYOUTS[i % 4]
        alpha, beta = options[i % 5]
        extra = 1 + i % 3
        a_rows, a_cols = (k, m) if trans_a else (m, k)
        b_rows, b_cols = (n, k) if trans_b else (k, n)
        a_buffer, a = stored(rng, a_rows, a_cols, a_cols + extra, dtype)
        b_buffer, b = stored(rng, b_rows, b_cols, b_cols + extra, dtype)
        c_buffer, c = stored(rng, m, n, n + extra, dtype_c)
        if beta == 0.0:
            c_buffer[:] = np.nan  # is not read
        old = wide(c)
        args = (m, n, k, a_cols + extra, b_cols + extra, n + extra, alpha, beta, trans_a, trans_b, dtype, dtype_c)
        cpu.gemm_beta(a_buffer, b_buffer, c_buffer, *args)
        left, right = wide(a.T if trans_a else a), wide(b.T if trans_b else b)
        exact, size = alpha * (left @ right), abs(alpha) * (np.abs(left) @ np.abs(right))
        if beta != 0.0:
            exact, size = exact + beta * old, size + abs(beta) * np.abs(old)
        check(c, exact, size, k, dtype_c)
        assert np.all(np.isnan(wide(c_buffer[:, n:]))), "wrote between the rows of C"


@pytest.mark.parametrize("m,n,k,lda", [(192, 512, 1024, 1024), (80, 300, 1088, 1091), (193, 515, 512, 3072)])
def test_rows_of_a_that_are_packed_beside_the_products(cpu: Engine, m: int, n: int, k: int, lda: int) -> None:
    """Rows a power of two apart, and rows that begin anywhere in a line, where several panels of A meet a wide B."""
    rng = np.random.default_rng(8)
    buffer, a = stored(rng, m, k, lda, "bf16")
    b = random(rng, (n, k), "bf16")
    exact, size = wide(a) @ wide(b).T, np.abs(wide(a)) @ np.abs(wide(b)).T
    for dtype_c in ("bf16", "f32"):
        c_buffer, c = stored(rng, m, n, n + 5, dtype_c)
        c_buffer[:] = np.nan
        cpu.gemm_beta(buffer, b, c_buffer, m, n, k, lda, k, n + 5, 1.0, 0.0, 0, 1, "bf16", dtype_c)
        check(c, exact, size, k, dtype_c)
        assert np.all(np.isnan(wide(c_buffer[:, n:]))), "wrote between the rows of C"


@pytest.mark.parametrize("dtype", FLOATS)
def test_epilogues(cpu: Engine, dtype: str) -> None:
    rng = np.random.default_rng(3)
    for i, (m, n, k) in enumerate(SHAPES):
        a, b = random(rng, (m, k), dtype), random(rng, (n, k), dtype)
        bias = random(rng, (n,), dtype) if i % 2 else None
        residual = random(rng, (m, n), dtype) if i % 3 else None
        in_place = residual is not None and i % 4 < 2
        c = residual if in_place else engine.empty((m, n), dtype)
        x = wide(a) @ wide(b).T
        size = np.abs(wide(a)) @ np.abs(wide(b)).T
        if bias is not None:
            x, size = x + wide(bias), size + np.abs(wide(bias))
        if i % 5 < 2:
            # |silu'| < 1.1, and the exponential within silu is good to a few roundings of its result, |silu(x)| <= |x|.
            x, size = x / (1 + np.exp(-x)), 1.1 * size
        if residual is not None:
            x, size = x + wide(residual), size + np.abs(wide(residual))
        cpu.gemm_epilogue(a, b, bias, residual, c, m, n, k, SILU if i % 5 < 2 else 0, dtype)
        check(c, x, size, k, dtype)


@pytest.mark.parametrize("trans_a,trans_b", LAYOUTS)
def test_batches(cpu: Engine, trans_a: int, trans_b: int) -> None:
    rng = np.random.default_rng(4)
    for (dtype, dtype_c), (m, n, k), batch in zip(
        PAIRS, [(1, 40, 30), (9, 33, 65), (31, 20, 7), (64, 70, 40), (3, 3, 3)], [1, 2, 5, 3, 40], strict=True
    ):
        a = random(rng, (batch, k, m) if trans_a else (batch, m, k), dtype)
        b = random(rng, (batch, n, k) if trans_b else (batch, k, n), dtype)
        c = random(rng, (batch, m, n), dtype_c)
        old = wide(c)
        cpu.batched_gemm(a, b, c, batch, m, n, k, 0.5, 2.0, trans_a, trans_b, dtype, dtype_c)
        left, right = (wide(x.swapaxes(1, 2) if t else x) for x, t in ((a, trans_a), (b, trans_b)))
        size = 0.5 * (np.abs(left) @ np.abs(right)) + 2.0 * np.abs(old)
        check(c, 0.5 * (left @ right) + 2.0 * old, size, k, dtype_c)


GROUPS = [[5, 0, 1, 17, 0], [0, 0, 64], [40], [1, 2, 3, 4, 5, 6, 7, 8, 9], [33, 14, 0, 16]]


@pytest.mark.parametrize("dtype,dtype_c", PAIRS)
def test_grouped(cpu: Engine, dtype: str, dtype_c: str) -> None:
    rng = np.random.default_rng(5)
    for i, counts in enumerate(GROUPS):
        offsets = np.cumsum([0, *counts]).astype(np.int32)
        groups, rows, n, k = len(counts), int(offsets[-1]) + i % 3, (33, 64, 7, 130, 20)[i], (65, 16, 600, 30, 1)[i]
        trans_b, beta = i % 2, (0.0, 1.0, -0.5)[i % 3]
        a = random(rng, (rows, k), dtype)
        b = random(rng, (groups, n, k) if trans_b else (groups, k, n), dtype)
        c = random(rng, (rows, n), dtype_c)
        if beta == 0.0:
            c[: offsets[-1]] = np.nan
        old = c.copy()
        cpu.grouped_gemm(a, b, offsets, c, groups, rows, n, k, beta, trans_b, dtype, dtype_c)
        for g in range(groups):
            part = slice(offsets[g], offsets[g + 1])
            left, right = wide(a[part]), wide(b[g].T if trans_b else b[g])
            exact, size = left @ right, np.abs(left) @ np.abs(right)
            if beta != 0.0:
                exact, size = exact + beta * wide(old[part]), size + abs(beta) * np.abs(wide(old[part]))
            check(c[part], exact, size, k, dtype_c)
        assert c[offsets[-1] :].tobytes() == old[offsets[-1] :].tobytes(), "wrote behind the last group"


@pytest.mark.parametrize("dtype,dtype_c", PAIRS)
def test_grouped_weight_gradients(cpu: Engine, dtype: str, dtype_c: str) -> None:
    rng = np.random.default_rng(6)
    for i, counts in enumerate([*GROUPS, [700, 1, 520]]):
        offsets = np.cumsum([0, *counts]).astype(np.int32)
        groups, rows, m, n = (
            len(counts),
            int(offsets[-1]) + i % 3,
            (33, 5, 64, 9, 20, 17)[i],
            (65, 16, 40, 30, 1, 35)[i],
        )
        beta = (0.0, 1.0, -0.5)[i % 3]
        a, b, c = random(rng, (rows, m), dtype), random(rng, (rows, n), dtype), random(rng, (groups, m, n), dtype_c)
        if beta == 0.0:
            c[:] = np.nan
        old = wide(c)
        cpu.grouped_gemm_wgrad(a, b, offsets, c, groups, rows, m, n, beta, dtype, dtype_c)
        for g in range(groups):
            part = slice(offsets[g], offsets[g + 1])
            left, right = wide(a[part]).T, wide(b[part])
            exact, size = left @ right, np.abs(left) @ np.abs(right)
            if beta != 0.0:
                exact, size = exact + beta * old[g], size + abs(beta) * np.abs(old[g])
            check(c[g], exact, size, counts[g], dtype_c)


@pytest.mark.parametrize("isa", ISAS)
def test_same_bits_for_any_number_of_threads(isa: int) -> None:
    rng = np.random.default_rng(7)
    engines = [Engine(threads=threads, isa=isa) for threads in THREADS]
    for dtype, dtype_c in PAIRS:
        products = [(1, 700, 513, 0, 1), (6, 1100, 130, 0, 0), (190, 210, 700, 1, 0), (200, 520, 1024, 0, 1)]
        for m, n, k, trans_a, trans_b in products:
            a = random(rng, (k, m) if trans_a else (m, k), dtype)
            b = random(rng, (n, k) if trans_b else (k, n), dtype)
            results = set()
            for cpu in (*engines, engines[-1]):
                c = engine.empty((m, n), dtype_c)
                cpu.gemm(a, b, c, m, n, k, trans_a, trans_b, dtype, dtype_c)
                results.add(c.tobytes())
            assert len(results) == 1
        offsets = np.array([0, 100, 100, 230, 231], np.int32)
        a, b, w = random(rng, (231, 90), dtype), random(rng, (231, 70), dtype), random(rng, (4, 70, 90), dtype)
        results = set()
        for cpu in (*engines, engines[-1]):
            c, d = engine.empty((4, 90, 70), dtype_c), engine.empty((231, 70), dtype_c)
            cpu.grouped_gemm_wgrad(a, b, offsets, c, 4, 231, 90, 70, 0.0, dtype, dtype_c)
            cpu.grouped_gemm(a, w, offsets, d, 4, 231, 70, 90, 0.0, 1, dtype, dtype_c)
            results.add(c.tobytes() + d.tobytes())
        assert len(results) == 1
        # The experts of a few tokens: groups of few rows, cut by columns, beside one of many.
        offsets, w = np.array([0, 1, 1, 4, 24, 25], np.int32), random(rng, (5, 1300, 520), dtype)
        a, results = random(rng, (26, 520), dtype), set()
        for cpu in (*engines, engines[-1]):
            c = engine.empty((26, 1300), dtype_c)
            cpu.grouped_gemm(a, w, offsets, c, 5, 26, 1300, 520, 0.0, 1, dtype, dtype_c)
            results.add(c.tobytes())
        assert len(results) == 1


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


def test_sizes_of_zero_write_nothing(cpu: Engine) -> None:
    for m, n, k in [(0, 3, 4), (3, 0, 4), (3, 4, 0)]:
        c = engine.empty((max(m, 1), max(n, 1)), "f32")
        cpu.gemm(np.zeros((m, k), np.float32), np.zeros((n, k), np.float32), c, m, n, k, 0, 1, "f32", "f32")
        assert np.all(np.isnan(c))


@pytest.mark.parametrize(
    "offsets,words",
    [
        ([1, 2, 4], "offsets[0] is 1; it must be 0"),
        ([0, 3, 2], "offsets[2] is 2; it must be 3 to 4"),
        ([0, 2, 5], "offsets[2] is 5; it must be 2 to 4"),
        ([0, -1, 4], "offsets[1] is -1; it must be 0 to 4"),
    ],
)
def test_bad_offsets_are_refused_before_anything_is_written(cpu: Engine, offsets: list[int], words: str) -> None:
    a, b = np.ones((4, 3), np.float32), np.ones((2, 5, 3), np.float32)
    bad = np.array(offsets, np.int32)
    c, d = engine.empty((4, 5), "f32"), engine.empty((2, 3, 3), "f32")
    for call in (
        lambda: cpu.grouped_gemm(a, b, bad, c, 2, 4, 5, 3, 0.0, 1, "f32", "f32"),
        lambda: cpu.grouped_gemm_wgrad(a, a, bad, d, 2, 4, 3, 3, 0.0, "f32", "f32"),
    ):
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
        assert words in caught.value.message
    assert np.all(np.isnan(c)) and np.all(np.isnan(d))


def test_bad_arguments_are_named(cpu: Engine) -> None:
    x, c = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    for args, status, words in [
        ((4, 4, 4, 3, 4, 4, 1.0, 0.0, 0, 0, "f32", "f32"), "INVALID_SIZE", "lda is 3"),
        ((4, 4, 4, 4, 0, 4, 1.0, 0.0, 0, 0, "f32", "f32"), "INVALID_SIZE", "ldb is 0"),
        ((4, 4, 4, 4, 4, -4, 1.0, 0.0, 0, 0, "f32", "f32"), "INVALID_SIZE", "ldc is -4"),
        ((4, 4, 4, 4, 4, 4, 1.0, 0.0, 2, 0, "f32", "f32"), "INVALID_VALUE", "trans_a is 2"),
        ((4, 4, 4, 4, 4, 4, 1.0, 0.0, 0, 0, "f32", "bf16"), "INVALID_DTYPE", "dtype_c is 2"),
    ]:
        with pytest.raises(KernelError) as caught:
            cpu.gemm_beta(x, x.copy(), c, *args)
        assert caught.value.status == f"NNCUDA_ERROR_{status}"
        assert words in caught.value.message
