"""Products with stored weights on every instruction set: the promise of equal bits, rows side by side, exactness at the
ends of the formats, and the edges of memory. How near they come to float64 is for tests/golden."""

from __future__ import annotations

import itertools

import engine
import numpy as np
import pytest
from engine import THREADS, Engine
from stored import (
    BLOCKS,
    CODES,
    HALVES,
    IN_BLOCKS,
    PLAIN,
    SIDE_BY_SIDE,
    SIDES,
    engines,
    gemm,
    numbers,
    qkv,
    swiglu,
    walled,
    weights,
)

from nncuda.formats.block_formats import FORMATS
from nncuda.reference import quant as reference

F32 = 2.0**-24
SILU = 1
#: Rows of x on either side of where a kernel may go another way.
ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65)
OFFSETS = np.array([0, 1, 1, 20, 20, 22, 40], np.int32)
by_format = pytest.mark.parametrize("name", CODES)
in_both_forms = pytest.mark.parametrize("name", SIDES)


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_every_instruction_set_and_form_gives_the_same_bits(name: str) -> None:
    sets, block = engines(), BLOCKS[name]
    for n, k in ((16, block), (48, 3 * block), (112, 5 * block)) if name in SIDES else ((50, 1280), (21, 512)):
        forms = {form: weights(n, k, form) for form in (name, SIDES.get(name, name))}
        for m in ROWS:
            for dtype in engine.FLOATS if m < 4 else ("f32",):
                x = numbers(m, k, dtype=dtype)
                first = gemm(sets[0], x, forms[name], name, n).tobytes()
                for isa, cpu in enumerate(sets):
                    for form, w in forms.items():
                        assert gemm(cpu, x, w, form, n).tobytes() == first, f"{m} x {n} x {k}, {form}, set {isa}"


@in_both_forms
def test_the_shapes_of_models(name: str) -> None:
    for n, k in ((256, 2048), (64, 5632)):
        w, side, x = weights(n, k, name), weights(n, k, SIDES[name]), numbers(130, k)
        for cpu in engines():
            whole = gemm(cpu, x, w, name, n)
            for m in (1, 2, 6, 130):
                assert gemm(cpu, x[:m], side, SIDES[name], n).tobytes() == whole[:m].tobytes()


@pytest.mark.parametrize("name", PLAIN)
def test_a_row_has_the_same_bits_in_any_company(name: str) -> None:
    rng = np.random.default_rng(3)
    k, n = 768, 37
    x, w = numbers(40, k), weights(n, k, name)
    for cpu in engines():
        alone = np.concatenate([gemm(cpu, x[r : r + 1], w, name, n) for r in range(len(x))])
        for m in range(1, len(x) + 1):
            begin = int(rng.integers(0, len(x) - m + 1))
            together = gemm(cpu, x[begin : begin + m], w, name, n)
            assert together.tobytes() == alone[begin : begin + m].tobytes(), f"{m} rows"


@pytest.mark.parametrize("name", ["q4_0", "f16", "bf16"])
def test_long_prompts_are_cut_without_a_trace(name: str) -> None:
    """More rows than a task takes, more columns than one, and k beyond what is unpacked at once."""
    m, n, k = 530, 70, 2080
    x, w = numbers(m, k), weights(n, k, name)
    for cpu in engines():
        whole = gemm(cpu, x, w, name, n)
        for begin, end in ((0, 1), (0, 15), (511, 513), (100, 530), (529, 530)):
            assert gemm(cpu, x[begin:end], w, name, n).tobytes() == whole[begin:end].tobytes(), f"{begin} .. {end}"


@pytest.mark.parametrize("name", PLAIN)
def test_groups_equal_single_calls(name: str) -> None:
    k, n = 256, 35
    x, w = numbers(45, k), weights((len(OFFSETS) - 1) * n, k, name)
    for cpu in engines():
        y = gemm(cpu, x, w, name, n, offsets=OFFSETS, groups=len(OFFSETS) - 1)
        gate = swiglu(cpu, x, w, w, (name, name), n, OFFSETS)
        for g, (begin, end) in enumerate(itertools.pairwise(OFFSETS)):
            if begin < end:
                own, matrix = x[begin:end], w[g * n : (g + 1) * n]
                assert y[begin:end].tobytes() == gemm(cpu, own, matrix, name, n).tobytes()
                assert gate[begin:end].tobytes() == swiglu(cpu, own, matrix, matrix, (name, name), n).tobytes()
        assert np.all(np.isnan(y[40:])) and np.all(np.isnan(gate[40:])), "rows of no group were written"
        empty = gemm(cpu, x, w, name, n, offsets=np.zeros_like(OFFSETS), groups=len(OFFSETS) - 1)
        assert np.all(np.isnan(empty))


@in_both_forms
def test_groups_side_by_side(name: str) -> None:
    """Gate and up in forms of their own, too."""
    groups, n, k = len(OFFSETS) - 1, 48, BLOCKS[name]
    forms = (name, SIDES[name])
    gates, ups = ({form: weights(groups * n, k, form, seed) for form in forms} for seed in (0, 1))
    x = numbers(45, k)
    for cpu in engines():
        given = {"offsets": OFFSETS, "groups": groups}
        products = {gemm(cpu, x, gates[form], form, n, **given).tobytes() for form in forms}
        gated = {swiglu(cpu, x, gates[a], ups[b], (a, b), n, OFFSETS).tobytes() for a in forms for b in forms}
        assert len(products) == len(gated) == 1


@pytest.mark.parametrize("dtype", engine.FLOATS)
def test_queries_keys_and_values_equal_single_calls(dtype: str) -> None:
    names, rows, k = ["q4_0", "f16", "q6_k"], (40, 24, 24), 512
    matrices = [weights(n, k, name) for n, name in zip(rows, names, strict=True)]
    bias = numbers(88, dtype=dtype)
    for cpu in engines():
        for m in (1, 5, 33):
            x = numbers(m, k, dtype=dtype)
            y, begin = qkv(cpu, x, matrices, names, bias), 0
            for w, name, n in zip(matrices, names, rows, strict=True):
                part = gemm(cpu, x, w, name, n, bias=bias[begin : begin + n].copy())
                assert np.ascontiguousarray(y[:, begin : begin + n]).tobytes() == part.tobytes()
                begin += n


@pytest.mark.parametrize(
    "plain",
    [
        ("q4_0", "q8_0", "q6_k"),
        ("q4_1", "q5_0", "q5_1"),
        ("q4_k", "q8_0", "q5_k"),
        ("iq4_nl", "mxfp4", "iq4_xs"),
        ("q2_k", "q3_k", "q4_0"),
    ],
)
@pytest.mark.parametrize("m", [1, 2, 6, 33])
def test_queries_keys_and_values_side_by_side(m: int, plain: tuple[str, str, str]) -> None:
    """Matrices side by side beside others that are not."""
    k, rows = 512, (64, 32, 32)
    x, bias = numbers(m, k), numbers(128)
    for cpu in engines():
        found = set()
        for which in range(8):
            names = [SIDES[name] if which >> i & 1 else name for i, name in enumerate(plain)]
            matrices = [weights(n, k, name) for n, name in zip(rows, names, strict=True)]
            found.add(qkv(cpu, x, matrices, names, bias).tobytes())
        assert len(found) == 1


@pytest.mark.parametrize("dtype", engine.FLOATS)
@pytest.mark.parametrize("names", [("q4_0", "q4_0", "q6_k"), ("q4_0_r16", "q8_0_r16", "f16"), ("bf16", "f32", "q5_1")])
def test_a_norm_in_the_product_is_rmsnorm_before_it(names: tuple[str, str, str], dtype: str) -> None:
    k, eps, sizes = 768, 1e-5, (32, 16, 16)
    matrices = [weights(n, k, name) for n, name in zip(sizes, names, strict=True)]
    gain = numbers(1, k, dtype=dtype).reshape(k)
    for cpu in engines():
        for m in (1, 3, 17, 40):
            x = numbers(m, k, dtype=dtype)
            normed = np.empty_like(x)
            cpu.rmsnorm(x, gain, normed, None, m, k, eps, dtype)
            plain, fused = qkv(cpu, normed, matrices, names, None), qkv(cpu, x, matrices, names, None, gain, eps)
            assert np.isfinite(plain.astype(np.float32)).all()
            assert fused.tobytes() == plain.tobytes()
            gated = matrices[1], matrices[2], names[1:], 16
            assert swiglu(cpu, x, *gated, None, gain, eps).tobytes() == swiglu(cpu, normed, *gated).tobytes()
    groups = [weights(96, k, name) for name in names[1:]]
    x = numbers(40, k, dtype=dtype)
    normed = np.empty_like(x)
    cpu.rmsnorm(x, gain, normed, None, 40, k, eps, dtype)
    fused = swiglu(cpu, x, *groups, names[1:], 16, OFFSETS, gain, eps)
    assert fused.tobytes() == swiglu(cpu, normed, *groups, names[1:], 16, OFFSETS).tobytes()


def test_epilogue() -> None:
    m, n, k = 18, 37, 256
    x, w, bias, residual = numbers(m, k), weights(n, k, "q5_1"), numbers(n), numbers(m, n)
    for cpu in engines():
        plain = gemm(cpu, x, w, "q5_1", n)
        assert np.array_equal(gemm(cpu, x, w, "q5_1", n, bias=bias, residual=residual), (plain + bias) + residual)
        y = residual.copy()
        cpu.gemm_quant(x, w, None, None, y, y, 1, m, n, k, w.shape[1], SILU, CODES["q5_1"], "f32")
        wide = plain.astype(np.float64)
        silu = wide / (1 + np.exp(-wide))
        assert np.all(np.abs(y - (silu + residual)) <= 5 * F32 * np.abs(silu) + F32 * np.abs(silu + residual) * 2)


@in_both_forms
def test_what_follows_a_product_side_by_side(name: str) -> None:
    n, k = 32, 2 * BLOCKS[name]
    w, side = weights(n, k, name), weights(n, k, SIDES[name])
    for cpu in engines():
        for m in (1, 3, 18):
            for dtype in engine.FLOATS:
                x, given = numbers(m, k, dtype=dtype), {"bias": numbers(n, dtype=dtype)}
                given |= {"residual": numbers(m, n, dtype=dtype), "activation": SILU}
                for options in (*({key: value} for key, value in given.items()), given):
                    one = gemm(cpu, x, side, SIDES[name], n, **options)
                    assert one.tobytes() == gemm(cpu, x, w, name, n, **options).tobytes()


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_extremes_are_exact(name: str) -> None:
    """The largest codes of both factors, as long as in a large model: whole numbers, rounded block by block."""
    k, n = 14336, 16
    one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    for fill, sign in ((0xFF, 1), (0xFF, -1), (0x00, 1)):
        w = np.full((n, FORMATS[name].row_bytes(k)), fill, np.uint8)
        blocks = w.reshape(n, k // BLOCKS[name], -1)
        for at in HALVES.get(name, (0,)):
            blocks[:, :, at : at + 2] = one
        if name == "mxfp4":
            blocks[:, :, 0] = 128  # a scale of 2, half of it 1
        if name == "q6_k":
            blocks[:, :, 192:208] = 0x80  # -128
        x = np.full((17, k), 127 * sign, np.float32)  # codes of 127, a scale of 1
        codes, scale, minimum = reference.blocks_of(w, CODES[name])
        exact = np.zeros(n, np.float32)
        for b in range(codes.shape[1]):  # terms and their sums are whole numbers below 2^53, so each step rounds once
            exact = (exact + 127.0 * sign * codes[:, b].sum(-1) * scale[:, b].astype(np.float64)).astype(np.float32)
            least = minimum[:, b].reshape(n, -1).astype(np.float64)  # one, or one of either half
            exact = (exact + 127.0 * sign * 32 * least.mean(-1)).astype(np.float32)
        for cpu in engines():
            for m in (1, 17):
                assert np.array_equal(gemm(cpu, x[:m], w, name, n), np.tile(exact, (m, 1)))


@by_format
def test_rows_that_are_not_finite_and_small_blocks(name: str) -> None:
    """NaN and infinity stay in their row; magnitudes below 2^-100 count as zero."""
    k, n = 512, 32
    w, x = weights(n, k, name), numbers(20, k)
    x[1, :32], x[2] = 0, 2.0**-101 if BLOCKS.get(SIDE_BY_SIDE.get(name, name), 1) > 1 else 0
    clean = x.copy()
    x[3, 20], x[7, k - 1], x[11, 0] = np.nan, np.inf, -np.inf
    for cpu in engines():
        for m in (4, 20):
            y, bad = gemm(cpu, x[:m], w, name, n), [row for row in (3, 7, 11) if row < m]
            assert not np.any(np.isfinite(y[bad])) and np.all(np.isnan(y[3])) and np.all(y[2] == 0)
            if name not in PLAIN or name in IN_BLOCKS:
                assert np.all(np.isnan(y[bad]))
            others = [row for row in range(m) if row not in bad]
            assert y[others].tobytes() == gemm(cpu, clean[:m], w, name, n)[others].tobytes()


def test_the_least_block_that_counts() -> None:
    w, x = weights(8, 64, "q8_0"), np.full((1, 64), 2.0**-99, np.float32)
    for cpu in engines():
        assert np.all(gemm(cpu, x, w, "q8_0", 8) != 0)


@in_both_forms
def test_scales_at_the_ends_of_f16(name: str) -> None:
    """Subnormal, largest and infinite scales, zeros of both signs; of mxfp4 its least and largest."""
    patterns = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0x0400], np.uint16)
    n, k, at = 16, 3 * BLOCKS[name], (*HALVES.get(name, (0,)), 0)[0]
    w = weights(n, k, name)
    if name == "mxfp4":
        w.reshape(n, 3, -1)[:8, 1, 0] = 0, 1, 2, 3, 64, 200, 254, 255
    else:
        w.reshape(n, 3, -1)[:8, 1, at : at + 2] = patterns.view(np.uint8).reshape(8, 2)
    side = reference.interleave_rows(w, CODES[name])["y"]
    for cpu in engines():
        for m in (1, 5, 17):
            x = numbers(m, k)
            one, other = gemm(cpu, x, side, SIDES[name], n), gemm(cpu, x, w, name, n)
            assert np.array_equal(one, other, equal_nan=True)


@by_format
def test_nothing_is_read_behind_the_matrix(name: str) -> None:
    block = BLOCKS[SIDE_BY_SIDE.get(name, name)]
    for k in (256, 2048) if block == 256 else (32, 96, 544) if block == 32 else (1, 31, 100, 516):
        for n in (1, 16, 35) if name in PLAIN else (16, 48):
            w = weights(n, k, name)
            with walled() as memory:
                there = memory.place(w)
                for cpu in engines():
                    for m in (1, 3, 20):
                        x = numbers(m, k)
                        assert gemm(cpu, x, there, name, n).tobytes() == gemm(cpu, x, w, name, n).tobytes()


@pytest.mark.parametrize("name", ["q4_0", "q6_k", "f16", "f32", *SIDE_BY_SIDE])
def test_any_number_of_threads(name: str) -> None:
    n, k = 656, 512
    w = weights(n, k, name)
    for m in (1, 33):
        x = numbers(m, k)
        assert len({gemm(Engine(threads=threads), x, w, name, n).tobytes() for threads in THREADS}) == 1


# ---- the order of rows side by side ----


def side_by_side(cpu: Engine, x: np.ndarray, name: str) -> np.ndarray:
    y = np.full_like(x, 0x5A)
    k = x.shape[1] // FORMATS[name].bytes * BLOCKS[name]
    cpu.interleave_rows(x, y, len(x), k, x.shape[1], CODES[name])
    return y


def some_bytes(rows: int, blocks: int, name: str) -> np.ndarray:
    return np.random.default_rng(rows).integers(0, 256, (rows, blocks * FORMATS[name].bytes), np.uint8)


@in_both_forms
def test_the_order_of_the_bytes(name: str) -> None:
    for rows, blocks in ((16, 1), (16, 7), (48, 3), (400, 5)):
        x = some_bytes(rows, blocks, name)
        expected = reference.interleave_rows(x, CODES[name])["y"]
        for cpu in [*engines(), *(Engine(threads=threads) for threads in THREADS)]:
            assert np.array_equal(side_by_side(cpu, x, name), expected), f"{rows} x {blocks}"


@in_both_forms
def test_the_order_is_that_of_the_header(name: str) -> None:
    """Byte by byte from the header's words, and each byte once."""
    rows, blocks, block = 32, 2, FORMATS[name].bytes
    x = some_bytes(rows, blocks, name)
    fields = [(at, 2) for at in HALVES.get(name, (0,))]
    if name == "q6_k":
        fields += [(192 + part, 1) for part in range(16)]
        for half in range(2):
            for i in range(8):
                fields += [(64 * half + 4 * i, 4), (64 * half + 4 * (8 + i), 4), (128 + 32 * half + 4 * i, 4)]
    elif name in ("q2_k", "q3_k"):  # f16 numbers; in q3_k words of scales; the others as they lie
        words = [*range(96, 108, 4), *range(0, 96, 4)] if name == "q3_k" else range(0, 80, 4)
        fields += [(at, 4) for at in words]
    elif name in ("mxfp4", "iq4_xs"):  # a byte, then words; words alone
        fields = [(0, 1)] if name == "mxfp4" else []
        fields += [(at, 4) for at in range(len(fields), block, 4)]
    else:
        fields += [(at, 4) for at in range(2 * len(fields), block, 4)]
    expected = []
    for tile in range(rows // 16):
        for b in range(blocks):
            for begin, length in fields:
                for row in range(16 * tile, 16 * tile + 16):
                    expected += x[row, b * block + begin : b * block + begin + length].tolist()
    assert side_by_side(Engine(), x, name).reshape(-1).tolist() == expected
