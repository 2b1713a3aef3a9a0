"""Ternary layers at the edges: any bits for activations, as many columns as there may be, the ends of memory, and
content that is refused. What they compute otherwise: test_ternary.py."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import engine
import numpy as np
import pytest
from engine import DTYPES, FLOATS, Engine, KernelError

from nncuda.reference import ternary as reference

ISAS = range(Engine().isa + 1)
#: The most columns that a product takes.
MOST = 1 << 18
#: Rows, outputs and inputs about the sixteen that lie together, one of each, and columns that a vector takes at once.
SHAPES = (
    *((1, 1, 1), (1, 1, 2560), (1, 17, 15), (1, 40, 64), (2, 16, 16), (3, 31, 17), (4, 5, 100), (5, 48, 129)),
    *((7, 33, 255), (8, 16, 256), (9, 100, 63), (16, 15, 320), (17, 65, 257), (33, 3, 1000), (70, 130, 96)),
)


def engines() -> list[Engine]:
    return [Engine(threads=2, isa=isa) for isa in ISAS]


def integers(cpu: Engine, codes: np.ndarray, w: np.ndarray, n: int) -> np.ndarray:
    m, k = codes.shape
    y = engine.empty((m, n), "i32")
    cpu.bitlinear(codes, None, w, None, None, y, m, n, k, *w.shape, "i32")
    return y


def hard_rows(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Any bits, which are numbers of all sizes and some that are none; rows of one size; rows of few codes and ties."""
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
    rng = np.random.default_rng(1)
    for rows, cols in ((1, 1), (6, 15), (9, 16), (9, 33), (6, 257), (30, 700)):
        x = hard_rows(rng, rows, cols, dtype)
        with np.errstate(invalid="ignore"):
            expected = reference.act_quant_i8(x.astype(np.float64))
        for cpu in engines():
            codes, scale = engine.empty(x.shape, "i8"), engine.empty(rows, "f32")
            cpu.act_quant_i8(x, codes, scale, rows, cols, dtype)
            assert np.array_equal(codes, expected["codes"]), f"{rows} x {cols}"
            assert np.array_equal(scale, expected["scale"], equal_nan=True), f"{rows} x {cols}"


def test_the_largest_sums() -> None:
    """All magnitudes the largest, all signs alike, in as many columns as there may be; and bits 3, which count as 2."""
    k = MOST
    for code, bits in ((127, 2), (-127, 2), (127, 0), (-128, 2), (-128, 0), (-128, 3), (127, 3), (127, 1)):
        w = np.full((16, -(-k // 16) * 4), bits * 0b01010101, np.uint8)
        codes = np.full((5, k), code, np.int8)
        for cpu in engines():
            for m in (1, 5):
                assert np.all(integers(cpu, codes[:m], w, 16) == code * (bits - 1) * k), f"{code} x {bits - 1}"


class Walled:
    """Copies of arrays that end with a page behind which nothing may be touched, and begin at any address."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._areas: list[mmap.mmap] = []

    def place(self, array: np.ndarray) -> np.ndarray:
        pages = -(-array.nbytes // mmap.PAGESIZE)
        area = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        there = np.frombuffer(area, array.dtype, array.size, pages * mmap.PAGESIZE - array.nbytes).reshape(array.shape)
        there[...] = array
        self._areas.append(area)
        self._protect(area, 0)
        return there

    def _protect(self, area: mmap.mmap, access: int) -> None:
        last = np.frombuffer(area, np.uint8).ctypes.data + len(area) - mmap.PAGESIZE
        assert self._libc.mprotect(ctypes.c_void_p(last), ctypes.c_size_t(mmap.PAGESIZE), access) == 0

    def open(self) -> None:
        for area in self._areas:
            self._protect(area, 3)


@pytest.fixture
def walled() -> Iterator[Walled]:
    made = Walled()
    yield made
    made.open()


@pytest.mark.parametrize("dtype", (*FLOATS, "i32"))
def test_nothing_is_touched_behind_a_product(walled: Walled, dtype: str) -> None:
    rng = np.random.default_rng(2)
    for m, n, k in SHAPES:
        codes = walled.place(rng.integers(-127, 128, (m, k), np.int8))
        weights = rng.integers(-1, 2, (n, k), np.int8)
        w = walled.place(reference.ternary_pack(weights)["w"])
        whole = codes.astype(np.int64) @ weights.astype(np.int64).T
        scale = w_scale = residual = None
        if dtype != "i32":
            scale, w_scale = (walled.place(rng.uniform(0.01, 0.1, size).astype(np.float32)) for size in (m, n))
            residual = walled.place(rng.standard_normal((m, n), np.float32).astype(DTYPES[dtype]))
            whole = whole.astype(np.float32) * (scale[:, None] * w_scale) + residual.astype(np.float32)
        y = walled.place(engine.empty((m, n), dtype))
        for cpu in engines():
            cpu.bitlinear(codes, scale, w, w_scale, residual, y, m, n, k, *w.shape, dtype)
            assert y.tobytes() == whole.astype(y.dtype).tobytes(), f"{m} x {n} x {k}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_nothing_is_touched_behind_rows(walled: Walled, dtype: str) -> None:
    """What rounds to whole numbers, and what packs them."""
    rng = np.random.default_rng(3)
    for rows, cols in ((1, 1), (3, 15), (2, 33), (5, 100), (1, 257)):
        x = walled.place(rng.standard_normal((rows, cols), np.float32).astype(DTYPES[dtype]))
        gain = walled.place(rng.standard_normal(cols, np.float32).astype(DTYPES[dtype]))
        codes, scale = walled.place(engine.empty((rows, cols), "i8")), walled.place(engine.empty(rows, "f32"))
        expected = reference.act_quant_i8(x.astype(np.float64))
        ternary = reference.ternary_quantize(x.astype(np.float64))
        packed = reference.ternary_pack(ternary["codes"])["w"]
        w, one = walled.place(np.full_like(packed, 0x5A)), walled.place(engine.empty(1, "f32"))
        for cpu in engines():
            cpu.rmsnorm_quant_i8(x, gain, codes, scale, rows, cols, 1e-5, dtype)
            assert np.all(np.isfinite(scale)) and np.all(np.abs(codes.astype(int)).max(axis=1) == 127)
            cpu.act_quant_i8(x, codes, scale, rows, cols, dtype)
            assert np.array_equal(codes, expected["codes"]) and np.array_equal(scale, expected["scale"])
            cpu.ternary_quantize(x, codes, one, rows, cols, dtype)
            assert np.array_equal(codes, ternary["codes"]) and one == ternary["scale"]
            cpu.ternary_pack(codes, w, rows, cols, *w.shape)
            assert np.array_equal(w, packed)
            cpu.ternary_unpack(w, codes, rows, cols, *w.shape)
            assert np.array_equal(codes, ternary["codes"])


def test_refused_content_writes_nothing() -> None:
    for cpu in engines():
        codes, w = np.zeros((40, 50), np.int8), np.full((48, 16), 0x5A, np.uint8)
        codes[39, 49] = codes[17, 3] = 2
        with pytest.raises(KernelError, match=rf"codes\[{17 * 50 + 3}\] is 2; it must be -1 to 1") as error:
            cpu.ternary_pack(codes, w, 40, 50, 48, 16)
        assert error.value.status == "NNCUDA_ERROR_OUT_OF_RANGE" and np.all(w == 0x5A)
        w[:], out = 0b01010101, engine.empty((40, 50), "i8")
        w.reshape(-1)[4 * ((2 * 4 + 3) * 16 + 7) + 1] |= 0b11  # row 39, column 49
        with pytest.raises(KernelError, match=rf"codes\[{39 * 50 + 49}\] is 2; it must be -1 to 1"):
            cpu.ternary_unpack(w, out, 40, 50, 48, 16)
        assert np.all(out == -128)
        w[:] = 0b01010101
        w.reshape(-1)[4 * ((2 * 4 + 3) * 16 + 7) + 2] |= 0b11  # column 50, which fills up the last sixteen
        cpu.ternary_unpack(w, out, 40, 50, 48, 16)
        assert np.all(out == 0)
