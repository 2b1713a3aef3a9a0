"""Ternary weights and 8-bit activations on every instruction set: integers against int64, roundings to the bit, and
the promise that a row has the same bits in any company."""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import THREADS, Engine, KernelError

ISAS = range(Engine().isa + 1)
LEAST = np.float32(1e-5)


def engines() -> list[Engine]:
    return [Engine(threads=2, isa=isa) for isa in ISAS]


def packed_shape(n: int, k: int) -> tuple[int, int]:
    return -(-n // 16) * 16, -(-k // 16) * 4


def pack(cpu: Engine, codes: np.ndarray) -> np.ndarray:
    n, k = codes.shape
    w = np.full(packed_shape(n, k), 0xAA, np.uint8)
    cpu.ternary_pack(codes, w, n, k, *w.shape)
    return w


def packed(codes: np.ndarray) -> np.ndarray:
    """The layout of the header, written out: word [row / 16][column / 16][row mod 16], byte j, bits 2i."""
    n, k = codes.shape
    stored, row_bytes = packed_shape(n, k)
    whole = np.zeros((stored, row_bytes * 4), np.int64)
    whole[:n, :k] = codes
    parts = (whole + 1).reshape(stored // 16, 16, row_bytes // 4, 4, 4)  # panel, row, step, i, j
    bytes_ = (parts << (2 * np.arange(4))[:, None]).sum(3)
    return bytes_.transpose(0, 2, 1, 3).astype(np.uint8).reshape(stored, row_bytes)


def ternary(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return rng.integers(-1, 2, (n, k)).astype(np.int8)


def integers(cpu: Engine, x: np.ndarray, w: np.ndarray, n: int) -> np.ndarray:
    y = engine.empty((len(x), n), "i32")
    cpu.bitlinear(x, None, w, None, None, y, len(x), n, x.shape[1], *w.shape, "i32")
    return y


def linear(cpu: Engine, x: np.ndarray, scale: np.ndarray, w: np.ndarray, w_scale: np.ndarray, dtype: str,
           residual: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    y = engine.empty((len(x), len(w_scale)), dtype)
    cpu.bitlinear(x, scale, w, w_scale, residual, y, *y.shape, x.shape[1], *w.shape, dtype)
    return y


SHAPES = [
    (1, 1),
    (1, 17),
    (15, 16),
    (16, 15),
    (17, 100),
    (33, 63),
    (48, 64),
    (7, 65),
    (130, 129),
    (64, 1000),
    (5, 2560),
]


@pytest.mark.parametrize("rows", [range(1, 41), (63, 64, 65, 530)], ids=["few", "many"])
def test_integers_against_int64(rows: range | tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    shapes = [(n, k) for n, k in SHAPES if len(rows) > 4 or n * k > 2000]
    for n, k in shapes:
        codes = ternary(rng, n, k)
        x = rng.integers(-128, 128, (max(rows), k)).astype(np.int8)
        exact = (x.astype(np.float64) @ codes.T.astype(np.float64)).astype(np.int64)  # below 2^53: exact
        w = packed(codes)
        for cpu in engines():
            for m in rows:
                assert np.array_equal(integers(cpu, x[:m], w, n), exact[:m]), f"{m} x {n} x {k}"


@pytest.mark.parametrize("k", [6912, 65536])
def test_extremes_do_not_overflow(k: int) -> None:
    for value in (127, -127, -128):
        for code in (1, -1):
            w = packed(np.full((17, k), code, np.int8))
            for m in (1, 2, 5, 17):
                x = np.full((m, k), value, np.int8)
                for cpu in engines():
                    assert np.all(integers(cpu, x, w, 17) == value * code * k)


def test_bits_that_are_no_code_count_as_two() -> None:
    rng = np.random.default_rng(2)
    n, k = 35, 83
    w = rng.integers(0, 256, packed_shape(n, k)).astype(np.uint8)  # also where columns and rows fill up
    fields = w.reshape(-1, w.shape[1] // 4, 16, 4)[..., None, :] >> (2 * np.arange(4, dtype=np.uint8))[:, None] & 3
    codes = fields.transpose(0, 2, 1, 3, 4).reshape(w.shape[0], -1)[:n, :k].astype(np.int64) - 1
    assert codes.max() == 2
    for m in (1, 3, 20):
        x = rng.integers(-127, 128, (m, k)).astype(np.int8)
        for cpu in engines():
            assert np.array_equal(integers(cpu, x, w, n), x.astype(np.int64) @ codes.T)


@pytest.mark.parametrize("dtype", engine.FLOATS)
def test_results_to_the_bit(dtype: str) -> None:
    rng = np.random.default_rng(3)
    for m, n, k in ((1, 1, 1), (1, 50, 700), (3, 19, 256), (20, 40, 100), (70, 33, 6912)):
        codes = ternary(rng, n, k)
        x = rng.integers(-127, 128, (m, k)).astype(np.int8)
        scale = rng.random(m, np.float32) * 0.1
        w_scale = rng.random(n, np.float32)
        residual = rng.standard_normal((m, n), np.float32).astype(engine.DTYPES[dtype])
        whole = (x.astype(np.int64) @ codes.T.astype(np.int64)).astype(np.float32)
        product = whole * (scale[:, None] * w_scale)
        for cpu in engines():
            w = pack(cpu, codes)
            y = linear(cpu, x, scale, w, w_scale, dtype)
            assert y.tobytes() == product.astype(y.dtype).tobytes()
            y = linear(cpu, x, scale, w, w_scale, dtype, residual)
            assert y.tobytes() == (product + residual.astype(np.float32)).astype(y.dtype).tobytes()
            y = residual.copy()
            cpu.bitlinear(x, scale, w, w_scale, y, y, m, n, k, *w.shape, dtype)
            assert y.tobytes() == (product + residual.astype(np.float32)).astype(y.dtype).tobytes(), "in place"


def test_the_number_of_threads_leaves_no_trace() -> None:
    rng = np.random.default_rng(4)
    n, k = 3000, 300
    w, w_scale = packed(ternary(rng, n, k)), rng.random(n, np.float32)
    for m in (1, 70):
        x, scale = rng.integers(-127, 128, (m, k)).astype(np.int8), rng.random(m, np.float32)
        results = {linear(Engine(threads=threads), x, scale, w, w_scale, "f32").tobytes() for threads in THREADS}
        assert len(results) == 1


def test_packing() -> None:
    rng = np.random.default_rng(5)
    for n, k in SHAPES:
        codes = ternary(rng, n, k)
        for cpu in engines():
            w = pack(cpu, codes)
            assert np.array_equal(w, packed(codes))
            back = engine.empty((n, k), "i8")
            cpu.ternary_unpack(w, back, n, k, *w.shape)
            assert np.array_equal(back, codes)


def test_codes_out_of_range_are_refused() -> None:
    codes = np.zeros((40, 50), np.int8)
    codes[33, 7], codes[35, 1] = 2, -2
    for cpu in engines():
        w = np.full(packed_shape(40, 50), 0x55, np.uint8)
        with pytest.raises(KernelError, match=r"codes\[1657\] is 2; it must be -1 to 1"):
            cpu.ternary_pack(codes, w, 40, 50, *w.shape)
        assert np.all(w == 0x55), "something was written"
        w.reshape(3, 4, 16, 4)[2, 3, 1, 1] |= 0x03  # row 33, column 49
        w.reshape(3, 4, 16, 4)[2, 3, 2, 1] |= 0x0C  # row 34, column 53: fills up
        back = engine.empty((40, 50), "i8")
        with pytest.raises(KernelError, match=r"codes\[1699\] is 2; it must be -1 to 1"):
            cpu.ternary_unpack(w, back, 40, 50, *w.shape)


def quantized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """act_quant by its definition, in f32."""
    wide = x.astype(np.float32)
    most = np.maximum(np.abs(wide).max(1), LEAST)
    bad = ~np.isfinite(wide).all(1)
    with np.errstate(invalid="ignore"):
        codes = np.rint(np.where(bad[:, None], 0, wide) * (np.float32(127) / most)[:, None])
        scale = np.where(bad, np.float32(np.nan), most / np.float32(127))
    return np.where(bad[:, None], 0, codes).astype(np.int8), scale


def activations(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    x = rng.standard_normal((rows, cols), np.float32) * np.float32(10.0) ** rng.integers(-7, 5, (rows, 1))
    x = x.astype(engine.DTYPES[dtype])
    if rows > 3:
        x[0] = 0
        x[1, cols // 2], x[2, -1] = np.inf, np.nan
        x[3] = np.finfo(np.float32).max if dtype == "f32" else 60000
    return x


@pytest.mark.parametrize("dtype", engine.FLOATS)
def test_activations_to_the_bit(dtype: str) -> None:
    rng = np.random.default_rng(6)
    for rows, cols in ((1, 1), (6, 7), (5, 16), (9, 100), (4, 2560), (70, 65)):
        x = activations(rng, rows, cols, dtype)
        expected, expected_scale = quantized(x)
        for cpu in engines():
            codes, scale = engine.empty((rows, cols), "i8"), engine.empty(rows, "f32")
            cpu.act_quant_i8(x, codes, scale, rows, cols, dtype)
            assert np.array_equal(codes, expected) and np.array_equal(scale, expected_scale, equal_nan=True)


@pytest.mark.parametrize("dtype", engine.FLOATS)
def test_the_norm_in_8_bits_is_the_two_kernels(dtype: str) -> None:
    rng = np.random.default_rng(7)
    for rows, cols in ((1, 1), (6, 7), (5, 16), (9, 100), (4, 2560), (70, 65)):
        x, gain = activations(rng, rows, cols, dtype), activations(rng, 1, cols, dtype)[0]
        for cpu in engines():
            norm, rstd = engine.empty((rows, cols), dtype), engine.empty(rows, "f32")
            cpu.rmsnorm(x, gain, norm, rstd, rows, cols, 1e-5, dtype)
            codes, scale = engine.empty((2, rows, cols), "i8"), engine.empty((2, rows), "f32")
            cpu.act_quant_i8(norm, codes[0], scale[0], rows, cols, dtype)
            cpu.rmsnorm_quant_i8(x, gain, codes[1], scale[1], rows, cols, 1e-5, dtype)
            assert np.array_equal(codes[0], codes[1]) and np.array_equal(scale[0], scale[1], equal_nan=True)


def mean_magnitude(x: np.ndarray) -> np.float32:
    n, k = x.shape
    wide = np.zeros((n, -(-k // 16) * 16))
    wide[:, :k] = np.abs(x.astype(np.float64))
    sums = np.cumsum(wide.reshape(n, -1, 16), 1)[:, -1]  # cumsum adds one by one
    for width in (8, 4, 2, 1):
        sums = sums[:, :width] + sums[:, width:]
    return np.float32(np.cumsum(sums[:, 0])[-1] / (n * k))


@pytest.mark.parametrize("dtype", engine.FLOATS)
def test_weights_to_the_bit(dtype: str) -> None:
    rng = np.random.default_rng(8)
    for n, k in (*SHAPES, (300, 333)):
        for size in (0.02, 1e-9):
            x = (rng.standard_normal((n, k), np.float32) * np.float32(size)).astype(engine.DTYPES[dtype])
            s = np.maximum(mean_magnitude(x), LEAST)
            x.flat[0] = s / 2  # a tie, as far as the dtype has it
            s = np.maximum(mean_magnitude(x), LEAST)
            expected = np.clip(np.rint(x.astype(np.float32) * (np.float32(1) / s)), -1, 1)
            for cpu in engines():
                codes, scale = engine.empty((n, k), "i8"), engine.empty(1, "f32")
                cpu.ternary_quantize(x, codes, scale, n, k, dtype)
                assert scale[0] == s and np.array_equal(codes, expected)


def test_weights_that_are_not_finite_are_refused() -> None:
    for value in (np.nan, np.inf, -np.inf):
        x = np.ones((20, 30), np.float32)
        x[17, 3], x[19, 0] = value, np.nan
        for cpu in engines():
            codes, scale = engine.empty((20, 30), "i8"), engine.empty(1, "f32")
            with pytest.raises(KernelError, match=r"x\[513\] is -?(nan|inf); it must be finite"):
                cpu.ternary_quantize(x, codes, scale, 20, 30, "f32")
