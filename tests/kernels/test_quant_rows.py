"""Rows side by side: the order of their bytes, and products that have the bits of those with the rows one by one."""

from __future__ import annotations

import ctypes
import mmap

import engine
import numpy as np
import pytest
from engine import THREADS, Engine

from nncuda.reference import quant as reference

ISAS = range(Engine().isa + 1)
#: Formats that have such a form: their number, its number, the elements and bytes of a block, where its f16 scale is.
FORMATS = {"q4_0": (10, 30, 32, 18, 0), "q8_0": (14, 34, 32, 34, 0), "q6_k": (17, 37, 256, 210, 208)}
SILU = 1
by_format = pytest.mark.parametrize("name", FORMATS)


def engines() -> list[Engine]:
    return [Engine(threads=2, isa=isa) for isa in ISAS]


def weights(rng: np.random.Generator, rows: int, k: int, name: str) -> np.ndarray:
    """Rows one by one: any codes, scales of ordinary size."""
    _, _, elements, block, at = FORMATS[name]
    w = rng.integers(0, 256, (rows, k // elements, block), np.uint8)
    w[:, :, at : at + 2] = (rng.standard_normal((rows, k // elements, 1)) / 64).astype(np.float16).view(np.uint8)
    return w.reshape(rows, -1)


def side_by_side(cpu: Engine, w: np.ndarray, k: int, name: str) -> np.ndarray:
    y = np.full_like(w, 0x5A)
    cpu.interleave_rows(w, y, len(w), k, w.shape[1], FORMATS[name][0])
    return y


def gemm(cpu: Engine, x: np.ndarray, w: np.ndarray, format_: int, n: int, **options: object) -> bytes:
    """The bytes of y, in the dtype of x; `options`: offsets, groups, bias, residual, activation."""
    m, k = x.shape
    dtype = next(key for key, value in engine.DTYPES.items() if value == x.dtype)
    y = engine.empty((m, n), dtype)
    cpu.gemm_quant(x, w, options.get("offsets"), options.get("bias"), options.get("residual"), y,
                   options.get("groups", 1), m, n, k, w.shape[1], options.get("activation", 0), format_,
                   dtype)  # fmt: skip
    return y.tobytes()


def numbers(rng: np.random.Generator, *shape: int, dtype: str = "f32") -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(engine.DTYPES[dtype])


@by_format
def test_the_order_of_the_bytes(name: str) -> None:
    rng = np.random.default_rng(1)
    format_, _, elements, block, _ = FORMATS[name]
    for rows, blocks in ((16, 1), (16, 7), (48, 3), (400, 5)):
        x = rng.integers(0, 256, (rows, blocks * block), np.uint8)
        expected = reference.interleave_rows(x, format_)["y"]
        for cpu in [*engines(), *(Engine(threads=threads) for threads in THREADS)]:
            assert np.array_equal(side_by_side(cpu, x, blocks * elements, name), expected), f"{rows} x {blocks}"


@by_format
def test_the_order_is_that_of_the_header(name: str) -> None:
    """Byte by byte from the header's words, and each byte once."""
    _, _, elements, block, at = FORMATS[name]
    rows, blocks = 32, 2
    x = np.random.default_rng(2).integers(0, 256, (rows, blocks * block), np.uint8)
    found = side_by_side(Engine(), x, blocks * elements, name).reshape(-1)
    fields = [(at, 2)]
    if name == "q6_k":
        fields += [(192 + part, 1) for part in range(16)]
        for half in range(2):
            for i in range(8):
                fields += [(64 * half + 4 * i, 4), (64 * half + 4 * (8 + i), 4), (128 + 32 * half + 4 * i, 4)]
    else:
        fields += [(2 + 4 * i, 4) for i in range((block - 2) // 4)]
    expected = []
    for tile in range(rows // 16):
        for b in range(blocks):
            for begin, length in fields:
                for row in range(16 * tile, 16 * tile + 16):
                    expected += x[row, b * block + begin : b * block + begin + length].tolist()
    assert found.tolist() == expected


@by_format
def test_products_have_the_same_bits(name: str) -> None:
    """On every instruction set, for all numbers of rows on either side of where a kernel may go another way."""
    rng = np.random.default_rng(3)
    plain, side, elements, *_ = FORMATS[name]
    sets = engines()
    for n, blocks in ((16, 1), (48, 3), (112, 5)):
        k = elements * blocks
        w = weights(rng, n, k, name)
        rows = side_by_side(sets[0], w, k, name)
        for m in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65):
            for dtype in engine.FLOATS if m < 4 else ("f32",):
                x = numbers(rng, m, k, dtype=dtype)
                expected = gemm(sets[0], x, w, plain, n)
                for isa, cpu in enumerate(sets):
                    assert gemm(cpu, x, w, plain, n) == expected, f"{m} x {n} x {k}, rows one by one, set {isa}"
                    assert gemm(cpu, x, rows, side, n) == expected, f"{m} x {n} x {k}, side by side, set {isa}"


@by_format
def test_the_shapes_of_models(name: str) -> None:
    rng = np.random.default_rng(4)
    plain, side, *_ = FORMATS[name]
    for n, k in ((256, 2048), (64, 5632)):
        w = weights(rng, n, k, name)
        rows = side_by_side(Engine(), w, k, name)
        x = numbers(rng, 130, k)
        for cpu in engines():
            whole = gemm(cpu, x, w, plain, n)
            assert gemm(cpu, x, rows, side, n) == whole
            for m in (1, 2, 6):
                assert gemm(cpu, x[:m], rows, side, n) == whole[: m * n * 4]


@by_format
def test_what_follows_a_product(name: str) -> None:
    rng = np.random.default_rng(5)
    plain, side, elements, *_ = FORMATS[name]
    n, k = 32, 2 * elements
    w = weights(rng, n, k, name)
    rows = side_by_side(Engine(), w, k, name)
    for cpu in engines():
        for m in (1, 3, 18):
            for dtype in engine.FLOATS:
                x = numbers(rng, m, k, dtype=dtype)
                bias, residual = numbers(rng, n, dtype=dtype), numbers(rng, m, n, dtype=dtype)
                for options in ({"bias": bias}, {"residual": residual}, {"activation": SILU},
                                {"bias": bias, "residual": residual, "activation": SILU}):  # fmt: skip
                    assert gemm(cpu, x, rows, side, n, **options) == gemm(cpu, x, w, plain, n, **options)


@by_format
def test_groups(name: str) -> None:
    rng = np.random.default_rng(6)
    plain, side, elements, _, _ = FORMATS[name]
    n, k = 48, elements
    offsets = np.array([0, 1, 1, 20, 20, 22, 40], np.int32)
    groups = len(offsets) - 1
    w, up = weights(rng, groups * n, k, name), weights(rng, groups * n, k, name)
    rows, up_rows = (side_by_side(Engine(), matrix, k, name) for matrix in (w, up))
    x = numbers(rng, 45, k)
    for cpu in engines():
        given = {"offsets": offsets, "groups": groups}
        assert gemm(cpu, x, rows, side, n, **given) == gemm(cpu, x, w, plain, n, **given)
        results = []
        # Gate and up in forms of their own, too.
        for matrices, formats in (((w, up), (plain, plain)), ((rows, up_rows), (side, side)),
                                  ((rows, up), (side, plain)), ((w, up_rows), (plain, side))):  # fmt: skip
            y = engine.empty((45, n), "f32")
            cpu.gemm_quant_swiglu(x, *matrices, offsets, y, groups, 45, n, k, w.shape[1], w.shape[1], *formats, "f32")
            results.append(y.tobytes())
        assert all(other == results[0] for other in results)


@pytest.mark.parametrize("m", [1, 2, 6, 33])
def test_queries_keys_and_values(m: int) -> None:
    """Matrices side by side beside others that are not."""
    rng = np.random.default_rng(7)
    k, rows = 512, (64, 32, 32)
    names = ("q4_0", "q8_0", "q6_k")
    matrices = [weights(rng, n, k, name) for n, name in zip(rows, names, strict=True)]
    x, bias = numbers(rng, m, k), numbers(rng, 128)
    for cpu in engines():
        results = []
        for which in range(8):
            chosen, formats = [], []
            for i, (w, name) in enumerate(zip(matrices, names, strict=True)):
                side = which >> i & 1
                chosen.append(side_by_side(cpu, w, k, name) if side else w)
                formats.append(FORMATS[name][side])
            y = engine.empty((m, 128), "f32")
            bytes_ = (w.shape[1] for w in matrices)
            cpu.gemm_quant_qkv(x, *chosen, bias, y, m, *rows[:2], 128, k, *bytes_, *formats, "f32")
            results.append(y.tobytes())
        assert all(other == results[0] for other in results)


@by_format
def test_rows_that_are_not_finite_and_small_blocks(name: str) -> None:
    rng = np.random.default_rng(8)
    plain, side, elements, _, _ = FORMATS[name]
    n, k = 16, 2 * elements
    w = weights(rng, n, k, name)
    rows = side_by_side(Engine(), w, k, name)
    x = numbers(rng, 20, k)
    x[3, 20], x[7, k - 1], x[11, 0] = np.nan, np.inf, -np.inf
    x[1, :32], x[2] = 0, 2.0**-101
    for cpu in engines():
        for m in (4, 20):
            y = np.frombuffer(gemm(cpu, x[:m], rows, side, n), np.float32).reshape(m, n)
            expected = np.frombuffer(gemm(cpu, x[:m], w, plain, n), np.float32).reshape(m, n)
            assert np.array_equal(y, expected, equal_nan=True)
            assert np.all(np.isnan(y[[row for row in (3, 7, 11) if row < m]]))


@by_format
def test_scales_at_the_ends_of_f16(name: str) -> None:
    """Subnormal, largest and infinite scales, zeros of both signs."""
    rng = np.random.default_rng(9)
    plain, side, elements, block, at = FORMATS[name]
    patterns = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0x0400], np.uint16)
    n, k = 16, 3 * elements
    w = weights(rng, n, k, name)
    w.reshape(n, 3, block)[:8, 1, at : at + 2] = patterns.view(np.uint8).reshape(8, 2)
    rows = side_by_side(Engine(), w, k, name)
    for cpu in engines():
        for m in (1, 5, 17):
            x = numbers(rng, m, k)
            y, expected = (np.frombuffer(gemm(cpu, x, matrix, format_, n), np.float32)
                           for matrix, format_ in ((rows, side), (w, plain)))  # fmt: skip
            assert np.array_equal(y, expected, equal_nan=True)


@by_format
def test_nothing_is_read_behind_the_matrix(name: str) -> None:
    """The matrix ends with a page behind which nothing may be touched, and begins at any even address."""
    rng = np.random.default_rng(10)
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    _, side, elements, _, _ = FORMATS[name]
    for n, blocks in ((16, 1), (16, 3), (48, 2)):
        k = elements * blocks
        w = side_by_side(Engine(), weights(rng, n, k, name), k, name)
        pages = -(-w.nbytes // page)
        area = mmap.mmap(-1, (pages + 1) * page)
        memory = np.frombuffer(area, np.uint8)
        last = ctypes.c_void_p(memory.ctypes.data + pages * page)
        assert libc.mprotect(last, ctypes.c_size_t(page), 0) == 0
        stored = memory[pages * page - w.nbytes : pages * page].reshape(w.shape)
        stored[...] = w
        for cpu in engines():
            for m in (1, 3, 20):
                x = numbers(rng, m, k)
                assert gemm(cpu, x, stored, side, n) == gemm(cpu, x, w, side, n)
        assert libc.mprotect(last, ctypes.c_size_t(page), 3) == 0


@by_format
def test_any_number_of_threads(name: str) -> None:
    rng = np.random.default_rng(11)
    _, side, *_ = FORMATS[name]
    n, k = 656, 512
    w = side_by_side(Engine(), weights(rng, n, k, name), k, name)
    for m in (1, 33):
        x = numbers(rng, m, k)
        first, *others = (gemm(Engine(threads=threads), x, w, side, n) for threads in THREADS)
        assert all(other == first for other in others)
