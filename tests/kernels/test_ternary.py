"""Ternary weights and 8-bit activations on every instruction set: integers against int64, roundings to the bit, and
the promise that a row has the same bits in any company."""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import Engine

ISAS = range(Engine().isa + 1)


def engines() -> list[Engine]:
    return [Engine(threads=2, isa=isa) for isa in ISAS]


def packed_shape(n: int, k: int) -> tuple[int, int]:
    return -(-n // 16) * 16, -(-k // 16) * 4


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


def activations(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    x = rng.standard_normal((rows, cols), np.float32) * np.float32(10.0) ** rng.integers(-7, 5, (rows, 1))
    x = x.astype(engine.DTYPES[dtype])
    if rows > 3:
        x[0] = 0
        x[1, cols // 2], x[2, -1] = np.inf, np.nan
        x[3] = np.finfo(np.float32).max if dtype == "f32" else 60000
    return x


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
