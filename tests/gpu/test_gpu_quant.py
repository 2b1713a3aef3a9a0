"""Stored weights on a GPU: rows to numbers and back, and products, beside the CPU engine and float64.

A product with a block format is defined to the bit (bindings.h, section quant), so that both engines give the same bits
before an activation. With a format that is a dtype any order of summation is right: the bound is Higham's (2002, 3.1).
"""

from __future__ import annotations

import numpy as np
import pytest
from cases.case import Draw
from cases.quant import CODES, SIDE_BY_SIDE, weights
from devices import DTYPES, ROUNDING, placed, random

import nncuda
from nncuda import kernels
from nncuda.formats.block_formats import FORMATS
from nncuda.reference.quant import interleave_rows

NUMBERS = ("f32", "f16", "bf16")
BLOCKS = [form for form in FORMATS if form not in NUMBERS]


def stored(rng: np.random.Generator, form: str, rows: int, k: int) -> np.ndarray:
    return weights(Draw(form, int(rng.integers(1 << 30))), rows, k, form)


def hard(rng: np.random.Generator, m: int, k: int) -> np.ndarray:
    """Rows of x, of which the fourth has a part of zeros, the fifth one near zero, and the sixth is not finite."""
    x = random(rng, m, k, dtype="f32")
    x[3, :32] = 0
    x[4, k - 32 :] *= 1e-36
    x[5, k - 1] = np.inf
    return x


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_those_of_the_cpu(gpu: nncuda.Context, cpu: nncuda.Context, form: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    rows, k = 5, 2304
    table, ids = stored(rng, form, rows, k), np.array([4, 0, 0, 3, 1, 2, 2], np.int32)
    x = random(rng, rows, k, dtype=dtype)
    expected = kernels.dequantize(cpu.tensor(table), format=CODES[form], k=k, dtype=dtype).numpy()
    for shift in range(4):
        w = placed(gpu, table, shift)
        got = kernels.dequantize(w, format=CODES[form], k=k, dtype=dtype).numpy()
        np.testing.assert_array_equal(got, expected)
        got = kernels.embedding_quant(w, gpu.tensor(ids), format=CODES[form], dim=k, dtype=dtype).numpy()
        np.testing.assert_array_equal(got, expected[ids])
        if not FORMATS[form].stores:
            continue
        y = placed(gpu, np.zeros_like(table), shift)
        got = kernels.quantize(placed(gpu, x, shift), format=CODES[form], y=y).numpy()
        want = kernels.quantize(cpu.tensor(x), format=CODES[form], row_bytes=table.shape[1]).numpy()
        np.testing.assert_array_equal(got, want)


def test_a_bad_id_is_reported(gpu: nncuda.Context) -> None:
    table = stored(np.random.default_rng(0), "q8_0", 3, 64)
    kernels.embedding_quant(gpu.tensor(table), gpu.tensor(np.array([1, 3], np.int32)), format=14, dim=64, dtype="f32")
    with pytest.raises(nncuda.Error, match=r"ids\[1\] is 3; it must be 0 to 2"):
        gpu.synchronize()


@pytest.mark.parametrize("form", BLOCKS)
@pytest.mark.parametrize("k", [256, 1280])
def test_products_with_blocks_have_the_bits_of_the_cpu(
    gpu: nncuda.Context, cpu: nncuda.Context, form: str, k: int
) -> None:
    rng = np.random.default_rng(k)
    m, n = 21, 37
    x, w = hard(rng, m, k), stored(rng, form, n, k)
    expected = kernels.gemm_quant(cpu.tensor(x), cpu.tensor(w), format=CODES[form], n=n).numpy()
    assert np.isnan(expected[5]).all()
    for count in (1, 2, 3, 8, m):
        for shift in (0, 1, 2):
            got = kernels.gemm_quant(gpu.tensor(x[:count]), placed(gpu, w, shift), format=CODES[form], n=n).numpy()
            np.testing.assert_array_equal(got, expected[:count])


@pytest.mark.parametrize("form", ["q4_0", "q5_1", "f16"])
def test_one_row_meets_more_weights_than_a_gpu_has_at_once(gpu: nncuda.Context, form: str) -> None:
    """Each warp goes through several groups of rows, and the last of them are not whole."""
    rng = np.random.default_rng(9)
    k, n = 1280, 4 * 8 * 2 * 140 + 41
    x, few = gpu.tensor(random(rng, 2, k, dtype="f32")), stored(rng, form, 67, k)
    w = gpu.tensor(np.tile(few, (-(-n // len(few)), 1))[:n])
    expected = kernels.gemm_quant(x, w, format=CODES[form], n=n).numpy()
    one = gpu.tensor(x.numpy()[:1])
    np.testing.assert_array_equal(kernels.gemm_quant(one, w, format=CODES[form], n=n).numpy(), expected[:1])
    np.testing.assert_array_equal(expected[:, 67 : 2 * 67], expected[:, :67])
    gated = {"format_gate": CODES[form], "format_up": CODES[form], "n": n // 2}
    gate, up = gpu.tensor(w.numpy()[: n // 2]), gpu.tensor(w.numpy()[n // 2 : n // 2 * 2])
    expected = kernels.gemm_quant_swiglu(x, gate, up, **gated).numpy()
    np.testing.assert_array_equal(kernels.gemm_quant_swiglu(one, gate, up, **gated).numpy(), expected[:1])


@pytest.mark.parametrize("form", [*BLOCKS, *SIDE_BY_SIDE])
def test_prompts_have_the_bits_of_the_cpu(gpu: nncuda.Context, cpu: nncuda.Context, form: str) -> None:
    """Rows enough for tensor cores: tiles that are full, that are not, and k that is no whole number of stages."""
    rng = np.random.default_rng(17)
    block = FORMATS[SIDE_BY_SIDE.get(form, form)].elements
    for k in (block, 3 * block, 11 * block):
        m, n = 129, 48 if form in SIDE_BY_SIDE else 37
        x, w = hard(rng, m, k), stored(rng, form, n, k)
        expected = kernels.gemm_quant(cpu.tensor(x), cpu.tensor(w), format=CODES[form], n=n).numpy()
        for shift, count in enumerate((33, 64, 65, m)):
            got = kernels.gemm_quant(gpu.tensor(x[:count]), placed(gpu, w, shift), format=CODES[form], n=n).numpy()
            np.testing.assert_array_equal(got, expected[:count])


@pytest.mark.parametrize("form", [*BLOCKS, *SIDE_BY_SIDE])
def test_prompts_that_fill_a_gpu_have_the_bits_of_the_cpu(gpu: nncuda.Context, cpu: nncuda.Context, form: str) -> None:
    """A large tile for each multiprocessor, of 128 rows of x, and of the weights too but for q6_k."""
    rng = np.random.default_rng(19)
    m, n, k = 131, 64 * gpu.multiprocessors + 16, max(96, FORMATS[SIDE_BY_SIDE.get(form, form)].elements)
    x, w = hard(rng, m, k), stored(rng, form, n, k)
    expected = kernels.gemm_quant(cpu.tensor(x), cpu.tensor(w), format=CODES[form], n=n).numpy()
    got = kernels.gemm_quant(gpu.tensor(x), placed(gpu, w, 2), format=CODES[form], n=n).numpy()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("form", [*BLOCKS, *SIDE_BY_SIDE])
def test_rows_of_prompts_have_the_bits_of_rows_alone(gpu: nncuda.Context, form: str) -> None:
    """Gated units, three matrices in one call, and experts, some of whom have no rows."""
    rng = np.random.default_rng(23)
    m, n, k, groups = 150, 48, 768, 3
    x, w, up = random(rng, m, k, dtype="f32"), stored(rng, form, groups * n, k), stored(rng, form, groups * n, k)
    offsets = np.array([0, 71, 71, m - 10], np.int32)

    def gated(rows: np.ndarray, first: int, offsets: np.ndarray | None = None) -> np.ndarray:
        count = 1 if offsets is None else len(offsets) - 1
        matrices = (gpu.tensor(part[first * n : (first + count) * n]) for part in (w, up))
        y = gpu.tensor(np.full((len(rows), n), -7, np.float32))
        kernels.gemm_quant_swiglu(gpu.tensor(rows), *matrices, None if offsets is None else gpu.tensor(offsets),
                                  format_gate=CODES[form], format_up=CODES[form], groups=count, n=n, y=y)  # fmt: skip
        return y.numpy()

    def joined(rows: np.ndarray) -> np.ndarray:
        parts = (gpu.tensor(part) for part in (w[: 2 * n], up[:n], w[n : 2 * n]))
        return kernels.gemm_quant_qkv(gpu.tensor(rows), *parts, format_q=CODES[form], format_k=CODES[form],
                                      format_v=CODES[form], n=4 * n).numpy()  # fmt: skip

    few = [slice(at, at + 8) for at in range(0, m, 8)]
    np.testing.assert_array_equal(joined(x), np.concatenate([joined(x[rows]) for rows in few]))
    np.testing.assert_array_equal(gated(x, 0), np.concatenate([gated(x[rows], 0) for rows in few]))
    whole = gated(x, 0, offsets)
    assert np.all(whole[m - 10 :] == -7)
    for g in range(groups):
        for at in range(offsets[g], offsets[g + 1], 8):
            rows = slice(at, min(at + 8, offsets[g + 1]))
            np.testing.assert_array_equal(whole[rows], gated(x[rows], g))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", [*NUMBERS, "q4_k", "q6_k"])
@pytest.mark.parametrize("k", [256, 1000, 1283])
def test_products_and_their_ends(gpu: nncuda.Context, form: str, k: int, dtype: str) -> None:
    if form in BLOCKS:
        k = k // 256 * 256
    rng = np.random.default_rng(k)
    m, n = 40, 29
    x, w = random(rng, m, k, dtype=dtype), stored(rng, form, n, k)
    bias, residual = random(rng, n, dtype=dtype), random(rng, m, n, dtype=dtype)
    numbers = kernels.dequantize(gpu.tensor(w), format=CODES[form], k=k, dtype="f32").numpy().astype(np.float64)
    size = np.abs(x.astype(np.float64))
    weight = np.abs(numbers)
    exact = x.astype(np.float64) @ numbers.T + bias.astype(np.float64)
    # Codes are half a unit of their block off, types round once; then sums of k terms.
    unit = size.reshape(m, -1, 32).max(-1).repeat(32, -1) / 127 / 2 if form in BLOCKS else ROUNDING[form] * size
    bound = unit @ weight.T * 1.001 + (k + 8) * ROUNDING["f32"] * (size @ weight.T + np.abs(bias.astype(np.float64)))
    bound = bound * 1.1 + 1e-6  # silu is nowhere steeper than 1.1
    silu = exact / (1 + np.exp(np.minimum(-exact, 700)))
    want = silu + residual.astype(np.float64)
    bound += ROUNDING[dtype] * 2 * (np.abs(want) + bound)
    whole = None
    for count in (m, 1, 2, 4, 7, 18):
        for shift in (0, 1):
            parts = (gpu.tensor(array) for array in (bias, residual[:count]))
            left, right = placed(gpu, x[:count], shift), placed(gpu, w, shift)
            got = kernels.gemm_quant(left, right, None, *parts, format=CODES[form], n=n, activation="silu").numpy()
            whole = got if whole is None else whole
            np.testing.assert_array_equal(got, whole[:count])
            assert np.all(np.abs(got.astype(np.float64) - want[:count]) <= bound[:count])


@pytest.mark.parametrize("forms", [("q4_0", "q4_0", "q6_k"), ("q8_0", "f16", "f32"), ("bf16", "q5_1", "q4_k")])
@pytest.mark.parametrize("m", [1, 5, 40])
def test_fused_products_are_their_parts(gpu: nncuda.Context, forms: tuple[str, str, str], m: int) -> None:
    rng = np.random.default_rng(m)
    k, sizes = 512, (70, 33, 33)
    x = gpu.tensor(random(rng, m, k, dtype="f32"))
    weights = [gpu.tensor(stored(rng, form, n, k)) for form, n in zip(forms, sizes, strict=True)]
    q, key, v = (
        kernels.gemm_quant(x, w, format=CODES[form], n=w.shape[0]).numpy()
        for w, form in zip(weights, forms, strict=True)
    )
    got = kernels.gemm_quant_qkv(x, *weights, format_q=CODES[forms[0]], format_k=CODES[forms[1]],
                                 format_v=CODES[forms[2]], n=sum(sizes)).numpy()  # fmt: skip
    np.testing.assert_array_equal(got, np.concatenate([q, key, v], 1))
    gate = kernels.gemm_quant(x, weights[1], format=CODES[forms[1]], n=33, activation="silu").numpy()
    got = kernels.gemm_quant_swiglu(x, weights[1], weights[2], format_gate=CODES[forms[1]],
                                    format_up=CODES[forms[2]], n=33).numpy()  # fmt: skip
    np.testing.assert_allclose(got, gate * v, rtol=2.0**-23)  # the product rounds once more or less


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("forms", [("q4_0", "q4_0", "q4_0"), ("q4_k", "q4_k", "q6_k"), ("f16", "q8_0", "bf16")])
@pytest.mark.parametrize("k", [256, 1280, 4096, 8192, 8448])
def test_a_norm_in_the_product_is_rmsnorm_before_it(
    gpu: nncuda.Context, k: int, forms: tuple[str, str, str], dtype: str
) -> None:
    """Rows of each form of a norm, alone and in company, from aligned and from other addresses."""
    rng = np.random.default_rng(k)
    gain, sizes, eps = placed(gpu, random(rng, k, dtype=dtype)), (23, 9, 9), 1e-5
    weights = [gpu.tensor(stored(rng, form, n, k)) for form, n in zip(forms, sizes, strict=True)]
    q, key, v = (CODES[form] for form in forms)
    rows = random(rng, 41, k, dtype=dtype)
    for m, shift in ((1, 0), (1, 1), (2, 0), (7, 1), (41, 0)):
        x = placed(gpu, rows[:m], shift)
        normed = kernels.rmsnorm(x, gain, eps=eps)
        three = {"format_q": q, "format_k": key, "format_v": v, "n": sum(sizes)}
        plain = kernels.gemm_quant_qkv(normed, *weights, **three).numpy()
        assert np.isfinite(plain.astype(np.float32)).all()
        np.testing.assert_array_equal(kernels.gemm_quant_qkv(x, *weights, None, gain, eps=eps, **three).numpy(), plain)
        gated = {"format_gate": key, "format_up": v, "n": sizes[1]}
        plain = kernels.gemm_quant_swiglu(normed, *weights[1:], **gated).numpy()
        fused = kernels.gemm_quant_swiglu(x, *weights[1:], None, gain, eps=eps, **gated)
        np.testing.assert_array_equal(fused.numpy(), plain)
    np.testing.assert_array_equal(plain[:1], kernels.gemm_quant_swiglu(
        gpu.tensor(rows[:1]), *weights[1:], None, gain, eps=eps, **gated).numpy())  # fmt: skip


@pytest.mark.parametrize("form", ["q4_0", "q5_k", "f16"])
def test_each_row_meets_its_experts_matrix(gpu: nncuda.Context, form: str) -> None:
    rng = np.random.default_rng(5)
    groups, n, k, m = 40, 19, 256, 75
    counts = rng.integers(0, 4, groups)
    counts[7] = 20
    offsets = np.concatenate([[0], np.minimum(np.cumsum(counts), m - 3)]).astype(np.int32)
    x, w = random(rng, m, k, dtype="f32"), stored(rng, form, groups * n, k)
    y = gpu.tensor(np.full((m, n), -7, np.float32))
    kernels.gemm_quant(gpu.tensor(x), gpu.tensor(w), gpu.tensor(offsets), format=CODES[form], groups=groups, n=n, y=y)
    got = y.numpy()
    assert np.all(got[offsets[-1] :] == -7)
    for g in range(groups):
        rows = slice(offsets[g], offsets[g + 1])
        if rows.stop > rows.start:
            alone = kernels.gemm_quant(gpu.tensor(x[rows]), gpu.tensor(w[g * n : (g + 1) * n]), format=CODES[form], n=n)
            np.testing.assert_array_equal(got[rows], alone.numpy())
    offsets[9] = m + 1
    kernels.gemm_quant(gpu.tensor(x), gpu.tensor(w), gpu.tensor(offsets), format=CODES[form], groups=groups, n=n, y=y)
    with pytest.raises(nncuda.Error, match=r"offsets\[9\] is 76; it must be \d+ to 75, the number of rows"):
        gpu.synchronize()


@pytest.mark.parametrize("form", SIDE_BY_SIDE.values())
def test_rows_side_by_side_have_the_bits_of_rows(gpu: nncuda.Context, form: str) -> None:
    rng = np.random.default_rng(7)
    m, n, k, groups = 21, 48, 768, 3
    x, table, bias = random(rng, m, k, dtype="f32"), stored(rng, form, groups * n, k), random(rng, n, dtype="f32")
    x[5, 7] = np.nan
    side, number = interleave_rows(table, CODES[form])["y"], CODES[form] + 20
    for shift in range(3):
        if not FORMATS[form].stores:
            continue
        y = placed(gpu, np.zeros_like(table), shift)
        kernels.interleave_rows(placed(gpu, table, 3 - shift), format=CODES[form], k=k, y=y)
        np.testing.assert_array_equal(y.numpy(), side)
        for count in (1, 2, 3, 8, m):
            left = gpu.tensor(x[:count])
            alone, beside = (
                kernels.gemm_quant(left, placed(gpu, w, shift), None, gpu.tensor(bias), format=f, n=n)
                for w, f in ((table[:n], CODES[form]), (side[:n], number))
            )
            np.testing.assert_array_equal(beside.numpy(), alone.numpy())
    offsets = gpu.tensor(np.array([0, 4, 4, m - 2], np.int32))
    plain, sixteens = gpu.tensor(table), gpu.tensor(side)
    options = {"groups": groups, "n": n}
    pairs = [
        [
            kernels.gemm_quant_swiglu(gpu.tensor(x), w, plain, offsets, format_gate=f, format_up=CODES[form], **options,
                                      y=gpu.zeros((m, n), "f32")),
            kernels.gemm_quant_qkv(gpu.tensor(x), plain.narrow(0, 0, 33), w.narrow(0, 0, n), w.narrow(0, n, n),
                                   format_q=CODES[form], format_k=f, format_v=f, n=33 + 2 * n),
        ]
        for w, f in ((plain, CODES[form]), (sixteens, number))
    ]  # fmt: skip
    for alone, beside in zip(*pairs, strict=True):
        np.testing.assert_array_equal(beside.numpy(), alone.numpy())
