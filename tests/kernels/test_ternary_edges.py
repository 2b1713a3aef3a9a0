"""Ternary layers at the edges: any bits for activations, as many columns as there may be, the ends of memory, and
content that is refused. What they compute otherwise: test_ternary.py."""

from __future__ import annotations

import ctypes
import mmap

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


def at_the_end_of_a_page(memory: mmap.mmap, array: np.ndarray) -> np.ndarray:
    """A copy that ends where the last page but one does; the last may not be touched."""
    end = len(memory) - mmap.PAGESIZE
    place = np.frombuffer(memory, array.dtype, array.size, end - array.nbytes).reshape(array.shape)
    place[...] = array
    return place


def test_nothing_is_read_behind_codes_and_weights() -> None:
    """Both end with a page behind which nothing may be touched, and begin at any address."""
    rng = np.random.default_rng(10)
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    areas = [mmap.mmap(-1, 65 * page) for _ in range(3)]
    behind = [ctypes.c_void_p(np.frombuffer(area, np.uint8).ctypes.data + 64 * page) for area in areas]
    for address in behind:
        assert libc.mprotect(address, ctypes.c_size_t(page), 0) == 0
    for m, n, k in SHAPES:
        codes = rng.integers(-127, 128, (m, k), np.int8)
        w = reference.ternary_pack(rng.integers(-1, 2, (n, k), np.int8))["w"]
        room = at_the_end_of_a_page(areas[2], np.zeros((m, n), np.int32))
        for cpu in engines():
            there = at_the_end_of_a_page(areas[0], codes), at_the_end_of_a_page(areas[1], w)
            cpu.bitlinear(there[0], None, there[1], None, None, room, m, n, k, *w.shape, "i32")
            assert np.array_equal(room, integers(cpu, codes, w, n)), f"{m} x {n} x {k}"
    for address in behind:
        assert libc.mprotect(address, ctypes.c_size_t(page), 3) == 0


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
