"""Products with stored weights on every instruction set: exactness, the promise of equal bits, and the edges of memory.

Block formats round once a multiplication of a block's integers with their factors and once the addition to the sum, in
the order of the blocks: an error of at most gamma(2 blocks + 2) of the sum of magnitudes (Higham 2002, "Accuracy and
Stability of Numerical Algorithms", 3.1), twice the steps where the format has minima. Products with f32, f16 and bf16
weights may add in any order: gamma(k + 8).
"""

from __future__ import annotations

import ctypes
import mmap

import engine
import numpy as np
import pytest
from engine import THREADS, Engine

from nncuda.reference import quant as reference

F32 = 2.0**-24
ISAS = range(Engine().isa + 1)
FORMATS = {"f32": 0, "f16": 1, "bf16": 2, "q4_0": 10, "q4_1": 11, "q5_0": 12, "q5_1": 13, "q8_0": 14, "q4_k": 15,
           "q5_k": 16, "q6_k": 17}  # fmt: skip
BLOCKS = [name for name, number in FORMATS.items() if number >= 10]
SILU = 1


def engines() -> list[Engine]:
    return [Engine(threads=2, isa=isa) for isa in ISAS]


def weights(rng: np.random.Generator, rows: int, k: int, name: str) -> np.ndarray:
    """Stored rows: any codes and scales of parts that the format can hold, with numbers of ordinary size."""
    if name in ("f32", "f16", "bf16"):
        return rng.standard_normal((rows, k), np.float32).astype(engine.DTYPES[name]).view(np.uint8)
    elements, block, scales = {
        "q4_0": (32, 18, (0,)), "q4_1": (32, 20, (0, 2)), "q5_0": (32, 22, (0,)), "q5_1": (32, 24, (0, 2)),
        "q8_0": (32, 34, (0,)), "q4_k": (256, 144, (0, 2)), "q5_k": (256, 176, (0, 2)), "q6_k": (256, 210, (208,)),
    }[name]  # fmt: skip
    w = rng.integers(0, 256, (rows, k // elements, block), np.uint8)
    for at in scales:
        scale = (rng.standard_normal((rows, k // elements, 1), np.float32) / 64).astype(np.float16)
        w[:, :, at : at + 2] = scale.view(np.uint8)
    return w.reshape(rows, -1)


def gemm(cpu: Engine, x: np.ndarray, w: np.ndarray, name: str, n: int, **options: object) -> np.ndarray:
    """y in the dtype of x; `options`: offsets, groups, bias, residual, activation."""
    m, k = x.shape
    dtype = next(key for key, value in engine.DTYPES.items() if value == x.dtype)
    y = engine.empty((m, n), dtype)
    cpu.gemm_quant(x, w, options.get("offsets"), options.get("bias"), options.get("residual"), y,
                   options.get("groups", 1), m, n, k, w.shape[1], options.get("activation", 0), FORMATS[name],
                   dtype)  # fmt: skip
    return y


def magnitudes(x: np.ndarray, w: np.ndarray, name: str) -> tuple[np.ndarray, int]:
    """What the terms of each sum add up to without their signs, and the roundings on the way of a term."""
    number = FORMATS[name]
    if number < 10:
        left = np.abs(x.astype(engine.DTYPES[name]).astype(np.float64))
        return left @ np.abs(reference.decoded(w, number).astype(np.float64)).T, x.shape[1] + 8
    codes, scale, minimum = reference.blocks_of(w, number)
    left, factor = reference._left_factor(x)
    factor = factor.astype(np.float64)
    size = np.einsum("mbi,mb,nbi,nb->mn", np.abs(left), factor, np.abs(codes), np.abs(scale), optimize=True)
    size += np.einsum("mb,mb,nb->mn", np.abs(left.sum(-1)), factor, np.abs(minimum))
    return size, (4 if minimum.any() else 2) * left.shape[1] + 2


def lengths(name: str) -> list[int]:
    return [256, 2048] if name.endswith("_k") else [32, 96, 544] if name in BLOCKS else [1, 31, 100, 516]


@pytest.mark.parametrize("name", FORMATS)
def test_against_float64(name: str) -> None:
    rng = np.random.default_rng(1)
    for cpu in engines():
        for m, n in ((1, 1), (2, 17), (7, 33), (16, 16), (17, 70), (40, 130)):
            for k in lengths(name):
                x, w = rng.standard_normal((m, k), np.float32), weights(rng, n, k, name)
                exact = reference.gemm_quant(x.astype(np.float64), w, 1, 0, FORMATS[name])["y"]
                size, steps = magnitudes(x, w, name)
                bound = steps * F32 / (1 - steps * F32) * size
                error = np.abs(gemm(cpu, x, w, name, n) - exact)
                assert np.all(error <= bound), f"{m} x {n} x {k}: {np.max(error / bound):.3g} times the bound"


@pytest.mark.parametrize("name", BLOCKS)
def test_every_instruction_set_gives_the_same_bits(name: str) -> None:
    rng = np.random.default_rng(2)
    sets = engines()
    for m, n, k in ((1, 50, 1280), (3, 19, 256), (20, 40, 768), (65, 21, 512)):
        x, w = rng.standard_normal((m, k), np.float32), weights(rng, n, k, name)
        first, *others = (gemm(cpu, x, w, name, n).tobytes() for cpu in sets)
        assert all(other == first for other in others), f"{m} x {n} x {k}"


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_has_the_same_bits_in_any_company(name: str) -> None:
    rng = np.random.default_rng(3)
    k, n = 768, 37
    x, w = rng.standard_normal((40, k), np.float32), weights(rng, n, k, name)
    for cpu in engines():
        alone = np.concatenate([gemm(cpu, x[r : r + 1], w, name, n) for r in range(len(x))])
        for m in range(1, len(x) + 1):
            begin = int(rng.integers(0, len(x) - m + 1))
            together = gemm(cpu, x[begin : begin + m], w, name, n)
            assert together.tobytes() == alone[begin : begin + m].tobytes(), f"{m} rows"


@pytest.mark.parametrize("name", ["q4_0", "f16", "bf16"])
def test_long_prompts_are_cut_without_a_trace(name: str) -> None:
    """More rows than a task takes, more columns than one, and k beyond what is unpacked at once."""
    rng = np.random.default_rng(4)
    m, n, k = 530, 70, 1056
    x, w = rng.standard_normal((m, k), np.float32), weights(rng, n, k, name)
    for cpu in engines():
        whole = gemm(cpu, x, w, name, n)
        for begin, end in ((0, 1), (0, 15), (511, 513), (100, 530), (529, 530)):
            assert gemm(cpu, x[begin:end], w, name, n).tobytes() == whole[begin:end].tobytes(), f"{begin} .. {end}"


@pytest.mark.parametrize("name", FORMATS)
def test_groups_equal_single_calls(name: str) -> None:
    rng = np.random.default_rng(5)
    k, n = 256, 35
    offsets = np.array([0, 1, 1, 20, 20, 22, 40], np.int32)
    groups = len(offsets) - 1
    x, w = rng.standard_normal((45, k), np.float32), weights(rng, groups * n, k, name)
    for cpu in engines():
        y = gemm(cpu, x, w, name, n, offsets=offsets, groups=groups)
        gate = engine.empty((45, n), "f32")
        bytes_ = w.shape[1]
        cpu.gemm_quant_swiglu(x, w, w, offsets, gate, groups, 45, n, k, bytes_, bytes_,
                              FORMATS[name], FORMATS[name], "f32")  # fmt: skip
        for g in range(groups):
            own = slice(offsets[g], offsets[g + 1])
            if own.start < own.stop:
                matrix = w[g * n : (g + 1) * n]
                assert y[own].tobytes() == gemm(cpu, x[own], matrix, name, n).tobytes()
                alone = engine.empty((own.stop - own.start, n), "f32")
                cpu.gemm_quant_swiglu(x[own], matrix, matrix, None, alone, 1, len(alone), n, k, bytes_, bytes_,
                                      FORMATS[name], FORMATS[name], "f32")  # fmt: skip
                assert gate[own].tobytes() == alone.tobytes()
        assert np.all(np.isnan(y[40:])) and np.all(np.isnan(gate[40:])), "rows of no group were written"


@pytest.mark.parametrize("dtype", engine.FLOATS)
def test_queries_keys_and_values_equal_single_calls(dtype: str) -> None:
    rng = np.random.default_rng(6)
    names, rows, k = ("q4_0", "f16", "q6_k"), (40, 24, 24), 512
    matrices = [weights(rng, n, k, name) for n, name in zip(rows, names, strict=True)]
    bias = rng.standard_normal(88, np.float32).astype(engine.DTYPES[dtype])
    for cpu in engines():
        for m in (1, 5, 33):
            x = rng.standard_normal((m, k), np.float32).astype(engine.DTYPES[dtype])
            y, begin = engine.empty((m, 88), dtype), 0
            cpu.gemm_quant_qkv(x, *matrices, bias, y, m, 40, 24, 88, k, *(w.shape[1] for w in matrices),
                               *(FORMATS[name] for name in names), dtype)  # fmt: skip
            for w, name, n in zip(matrices, names, rows, strict=True):
                part = gemm(cpu, x, w, name, n, bias=bias[begin : begin + n].copy())
                assert np.ascontiguousarray(y[:, begin : begin + n]).tobytes() == part.tobytes()
                begin += n


def test_gate() -> None:
    """silu(a) * b, with both products as gemm_quant gives them: silu and its product round a few times each."""
    rng = np.random.default_rng(7)
    m, n, k = 19, 45, 512
    x = rng.standard_normal((m, k), np.float32) / 64
    gate, up = weights(rng, n, k, "q4_k"), weights(rng, n, k, "q8_0")
    for cpu in engines():
        a, b = (gemm(cpu, x, w, name, n).astype(np.float64) for w, name in ((gate, "q4_k"), (up, "q8_0")))
        y = engine.empty((m, n), "f32")
        cpu.gemm_quant_swiglu(x, gate, up, None, y, 1, m, n, k, gate.shape[1], up.shape[1], 15, 14, "f32")
        assert np.max(np.abs(a)) < 80  # so that exp(-a) is an ordinary number
        exact = a / (1 + np.exp(-a)) * b
        # exp within an ulp (2 units of F32) of its argument's rounding, the sum 1 + exp, the quotient, the product.
        assert np.all(np.abs(y - exact) <= 6 * F32 * np.abs(exact) + 2.0**-149)


def test_epilogue() -> None:
    rng = np.random.default_rng(8)
    m, n, k = 18, 37, 256
    x, w = rng.standard_normal((m, k), np.float32), weights(rng, n, k, "q5_1")
    bias, residual = rng.standard_normal(n, np.float32), rng.standard_normal((m, n), np.float32)
    for cpu in engines():
        plain = gemm(cpu, x, w, "q5_1", n)
        assert np.array_equal(gemm(cpu, x, w, "q5_1", n, bias=bias, residual=residual), (plain + bias) + residual)
        y = residual.copy()
        cpu.gemm_quant(x, w, None, None, y, y, 1, m, n, k, w.shape[1], SILU, FORMATS["q5_1"], "f32")
        wide = plain.astype(np.float64)
        silu = wide / (1 + np.exp(-wide))
        assert np.all(np.abs(y - (silu + residual)) <= 5 * F32 * np.abs(silu) + F32 * np.abs(silu + residual) * 2)


@pytest.mark.parametrize("name", BLOCKS)
def test_extremes_are_exact(name: str) -> None:
    """The largest codes of both factors, as long as in a large model: whole numbers, rounded block by block."""
    k, n, number = 14336, 16, FORMATS[name]
    one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    for fill, sign in ((0xFF, 1), (0xFF, -1), (0x00, 1)):
        w = np.full_like(weights(np.random.default_rng(9), n, k, name), fill)
        blocks = w.reshape(n, k // (256 if name.endswith("_k") else 32), -1)
        for at in {"q4_1": (0, 2), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}.get(name, (0,)):
            blocks[:, :, at : at + 2] = one
        if name == "q6_k":
            blocks[:, :, 192:208] = 0x80  # -128
        x = np.full((17, k), 127 * sign, np.float32)  # codes of 127, a scale of 1
        codes, scale, minimum = reference.blocks_of(w, number)
        exact = np.zeros(n, np.float32)
        for b in range(codes.shape[1]):  # terms and their sums are whole numbers below 2^53, so each step rounds once
            exact = (exact + 127.0 * sign * codes[:, b].sum(-1) * scale[:, b].astype(np.float64)).astype(np.float32)
            exact = (exact + 127.0 * sign * 32 * minimum[:, b].astype(np.float64)).astype(np.float32)
        for cpu in engines():
            for m in (1, 17):
                assert np.array_equal(gemm(cpu, x[:m], w, name, n), np.tile(exact, (m, 1)))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_are_not_finite(name: str) -> None:
    rng = np.random.default_rng(10)
    k, n = 512, 20
    w = weights(rng, n, k, name)
    x = rng.standard_normal((20, k), np.float32)
    clean = x.copy()
    x[3, 100], x[7, 511], x[11, 0] = np.nan, np.inf, -np.inf
    others = [r for r in range(20) if r not in (3, 7, 11)]
    for cpu in engines():
        y = gemm(cpu, x, w, name, n)
        assert np.all(np.isnan(y[3])) and not np.any(np.isfinite(y[[7, 11]]))
        if name in BLOCKS:
            assert np.all(np.isnan(y[[7, 11]]))
        assert y[others].tobytes() == gemm(cpu, clean, w, name, n)[others].tobytes()


def test_small_and_zero_blocks() -> None:
    """Magnitudes below 2^-100 count as zero, and a row of zeros gives zeros."""
    w = weights(np.random.default_rng(11), 8, 64, "q8_0")
    x = np.zeros((3, 64), np.float32)
    x[1], x[2] = 2.0**-101, 2.0**-99
    for cpu in engines():
        y = gemm(cpu, x, w, "q8_0", 8)
        assert np.all(y[:2] == 0) and np.all(y[2] != 0)


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_is_read_behind_the_matrix(name: str) -> None:
    """The matrix ends with a page behind which nothing may be touched, and begins at any even address."""
    rng = np.random.default_rng(12)
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    for k in lengths(name):
        for n in (1, 16, 35):
            w = weights(rng, n, k, name)
            pages = -(-w.nbytes // page)
            area = mmap.mmap(-1, (pages + 1) * page)
            memory = np.frombuffer(area, np.uint8)
            last = ctypes.c_void_p(memory.ctypes.data + pages * page)
            assert libc.mprotect(last, ctypes.c_size_t(page), 0) == 0
            stored = memory[pages * page - w.nbytes : pages * page].reshape(w.shape)
            stored[...] = w
            for cpu in engines():
                for m in (1, 3, 20):
                    x = rng.standard_normal((m, k), np.float32)
                    assert gemm(cpu, x, stored, name, n).tobytes() == gemm(cpu, x, w, name, n).tobytes()
            assert libc.mprotect(last, ctypes.c_size_t(page), 3) == 0


@pytest.mark.parametrize("name", ["q4_0", "q6_k", "f16", "f32"])
def test_any_number_of_threads(name: str) -> None:
    rng = np.random.default_rng(13)
    n, k = 700, 512
    w = weights(rng, n, k, name)
    for m in (1, 33):
        x = rng.standard_normal((m, k), np.float32)
        first, *others = (gemm(Engine(threads=threads), x, w, name, n).tobytes() for threads in THREADS)
        assert all(other == first for other in others)
