"""Ternary weights and 8-bit activations on every instruction set: integers against int64 for any bits, as many columns
as there may be, and the ends of memory. What products round to is exact in the fixtures of tests/golden."""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import DTYPES, FLOATS, Engine
from stored import engines, walled

from nncuda.reference import ternary as reference

#: The most columns that a product takes.
MOST = 1 << 18
MATRICES = (
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
)
#: Rows, outputs and inputs about the sixteen that lie together, one of each, and columns that a vector takes at once.
PRODUCTS = (
    *((1, 1, 1), (1, 1, 2560), (1, 17, 15), (1, 40, 64), (2, 16, 16), (3, 31, 17), (4, 5, 100), (5, 48, 129)),
    *((7, 33, 255), (8, 16, 256), (9, 100, 63), (16, 15, 320), (17, 65, 257), (33, 3, 1000), (70, 130, 96)),
)


def packed(codes: np.ndarray) -> np.ndarray:
    """The layout of the header, written out: word [row / 16][column / 16][row mod 16], byte j, bits 2i."""
    n, k = codes.shape
    rows, row_bytes = -(-n // 16) * 16, -(-k // 16) * 4
    whole = np.zeros((rows, row_bytes * 4), np.int64)
    whole[:n, :k] = codes
    parts = (whole + 1).reshape(rows // 16, 16, row_bytes // 4, 4, 4)  # panel, row, step, i, j
    bytes_ = (parts << (2 * np.arange(4))[:, None]).sum(3)
    return bytes_.transpose(0, 2, 1, 3).astype(np.uint8).reshape(rows, row_bytes)


def integers(cpu: Engine, x: np.ndarray, w: np.ndarray, n: int) -> np.ndarray:
    y = engine.empty((len(x), n), "i32")
    cpu.bitlinear(x, None, w, None, None, y, len(x), n, x.shape[1], *w.shape, "i32")
    return y


@pytest.mark.parametrize("rows", [range(1, 41), (63, 64, 65, 530)], ids=["few", "many"])
def test_integers_against_int64(rows: range | tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    for n, k in MATRICES:
        if len(rows) <= 4 and n * k <= 2000:
            continue
        codes = rng.integers(-1, 2, (n, k)).astype(np.int8)
        x = rng.integers(-128, 128, (max(rows), k)).astype(np.int8)
        exact = (x.astype(np.float64) @ codes.T.astype(np.float64)).astype(np.int64)  # below 2^53: exact
        w = packed(codes)
        for cpu in engines():
            for m in rows:
                assert np.array_equal(integers(cpu, x[:m], w, n), exact[:m]), f"{m} x {n} x {k}"


def test_the_largest_sums() -> None:
    """All magnitudes the largest, all signs alike, in as many columns as there may be; and bits 3, which count as 2."""
    for k in (6912, 65536, MOST):
        for code, bits in ((127, 2), (-127, 2), (127, 0), (-128, 2), (-128, 0), (-128, 3), (127, 3), (127, 1)):
            w = np.full((32, -(-k // 16) * 4), bits * 0b01010101, np.uint8)
            codes = np.full((17 if k < MOST else 5, k), code, np.int8)
            for cpu in engines():
                for m in {1, 2, 5, len(codes)}:
                    assert np.all(integers(cpu, codes[:m], w, 17) == code * (bits - 1) * k), f"{code} x {bits - 1}"


def test_bits_that_are_no_code_count_as_two() -> None:
    rng = np.random.default_rng(2)
    n, k = 35, 83
    w = rng.integers(0, 256, packed(np.zeros((n, k))).shape).astype(np.uint8)  # also where columns and rows fill up
    fields = w.reshape(-1, w.shape[1] // 4, 16, 4)[..., None, :] >> (2 * np.arange(4, dtype=np.uint8))[:, None] & 3
    codes = fields.transpose(0, 2, 1, 3, 4).reshape(w.shape[0], -1)[:n, :k].astype(np.int64) - 1
    assert codes.max() == 2
    for m in (1, 3, 20):
        x = rng.integers(-127, 128, (m, k)).astype(np.int8)
        for cpu in engines():
            assert np.array_equal(integers(cpu, x, w, n), x.astype(np.int64) @ codes.T)


def test_what_fills_up_is_not_looked_at() -> None:
    w, out = packed(np.zeros((40, 50))), engine.empty((40, 50), "i8")
    w.reshape(-1)[4 * ((2 * 4 + 3) * 16 + 7) + 2] |= 0b11  # row 39, column 50
    for cpu in engines():
        cpu.ternary_unpack(w, out, 40, 50, *w.shape)
        assert np.all(out == 0)


def hard_rows(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Any bits: numbers of all sizes, NaN, infinities; rows of one size; rows of few codes and ties."""
    if dtype == "f32":
        x = rng.integers(0, 2**32, (rows, cols), np.uint64).astype(np.uint32).view(np.float32)
    else:
        x = rng.integers(0, 2**16, (rows, cols), np.uint16).view(DTYPES[dtype])
    with np.errstate(over="ignore", invalid="ignore"):
        x[1::3] = (rng.standard_normal(x[1::3].shape) * np.exp2(rng.integers(-30, 15, (len(x[1::3]), 1)))).astype(
            x.dtype
        )
        x[2::3] = (rng.integers(-254, 255, x[2::3].shape) / 2).astype(x.dtype)
    x[2::3, cols // 2] = 127
    return x


@pytest.mark.parametrize("dtype", FLOATS)
def test_activations_of_any_bits(dtype: str) -> None:
    """And the norm in 8 bits is the two kernels, one after the other."""
    rng = np.random.default_rng(1)
    for rows, cols in ((1, 1), (6, 15), (9, 16), (9, 33), (6, 257), (30, 700), (4, 2560), (70, 65)):
        x, gain = hard_rows(rng, rows, cols, dtype), rng.standard_normal(cols, np.float32).astype(DTYPES[dtype])
        with np.errstate(invalid="ignore"):
            expected = reference.act_quant_i8(x.astype(np.float64))
        for cpu in engines():
            codes, scale = engine.empty((3, *x.shape), "i8"), engine.empty((3, rows), "f32")
            cpu.act_quant_i8(x, codes[0], scale[0], rows, cols, dtype)
            assert np.array_equal(codes[0], expected["codes"]), f"{rows} x {cols}"
            assert np.array_equal(scale[0], expected["scale"], equal_nan=True), f"{rows} x {cols}"
            norm, rstd = engine.empty((rows, cols), dtype), engine.empty(rows, "f32")
            cpu.rmsnorm(x, gain, norm, rstd, rows, cols, 1e-5, dtype)
            cpu.act_quant_i8(norm, codes[1], scale[1], rows, cols, dtype)
            cpu.rmsnorm_quant_i8(x, gain, codes[2], scale[2], rows, cols, 1e-5, dtype)
            assert np.array_equal(codes[1], codes[2]) and np.array_equal(scale[1], scale[2], equal_nan=True)


@pytest.mark.parametrize("dtype", (*FLOATS, "i32"))
def test_nothing_is_touched_behind_a_product(dtype: str) -> None:
    rng = np.random.default_rng(2)
    for m, n, k in PRODUCTS:
        weights = rng.integers(-1, 2, (n, k), np.int8)
        with walled() as memory:
            codes = memory.place(rng.integers(-127, 128, (m, k), np.int8))
            w = memory.place(reference.ternary_pack(weights)["w"])
            whole = codes.astype(np.int64) @ weights.astype(np.int64).T
            scale = w_scale = residual = None
            if dtype != "i32":
                scale, w_scale = (memory.place(rng.uniform(0.01, 0.1, size).astype(np.float32)) for size in (m, n))
                residual = memory.place(rng.standard_normal((m, n), np.float32).astype(DTYPES[dtype]))
                whole = whole.astype(np.float32) * (scale[:, None] * w_scale) + residual.astype(np.float32)
            y = memory.place(engine.empty((m, n), dtype))
            for cpu in engines():
                cpu.bitlinear(codes, scale, w, w_scale, residual, y, m, n, k, *w.shape, dtype)
                assert y.tobytes() == whole.astype(y.dtype).tobytes(), f"{m} x {n} x {k}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_nothing_is_touched_behind_rows(dtype: str) -> None:
    """What rounds to whole numbers, and what packs them."""
    rng = np.random.default_rng(3)
    for rows, cols in ((1, 1), (3, 15), (2, 33), (5, 100), (1, 257)):
        with walled() as memory:
            x = memory.place(rng.standard_normal((rows, cols), np.float32).astype(DTYPES[dtype]))
            gain = memory.place(rng.standard_normal(cols, np.float32).astype(DTYPES[dtype]))
            codes, scale = memory.place(engine.empty((rows, cols), "i8")), memory.place(engine.empty(rows, "f32"))
            expected = reference.act_quant_i8(x.astype(np.float64))
            ternary = reference.ternary_quantize(x.astype(np.float64))
            wanted = packed(ternary["codes"])
            w, one = memory.place(np.full_like(wanted, 0x5A)), memory.place(engine.empty(1, "f32"))
            for cpu in engines():
                cpu.rmsnorm_quant_i8(x, gain, codes, scale, rows, cols, 1e-5, dtype)
                assert np.all(np.isfinite(scale)) and np.all(np.abs(codes.astype(int)).max(axis=1) == 127)
                cpu.act_quant_i8(x, codes, scale, rows, cols, dtype)
                assert np.array_equal(codes, expected["codes"]) and np.array_equal(scale, expected["scale"])
                cpu.ternary_quantize(x, codes, one, rows, cols, dtype)
                assert np.array_equal(codes, ternary["codes"]) and one == ternary["scale"]
                cpu.ternary_pack(codes, w, rows, cols, *w.shape)
                assert np.array_equal(w, wanted)
                cpu.ternary_unpack(w, codes, rows, cols, *w.shape)
                assert np.array_equal(codes, ternary["codes"])
