"""Ternary weights and activations in 8 bits on a GPU, beside the reference: whole numbers exactly, the rest to the bit.

Each shape of a product is made by several kernels, chosen by rows, alignment and multiprocessors: all have the same
bits. What a kernel reads behind its inputs is made wrong on purpose.
"""

from __future__ import annotations

import numpy as np
import pytest
from devices import DTYPES, placed

import nncuda
from nncuda import kernels
from nncuda.reference import ternary as reference

#: A vector each for 8 lanes, a warp, a block, and rows that are read again; whole vectors and odd ends.
WIDTHS = [1, 7, 24, 64, 65, 1000, 1024, 1025, 2560, 8192, 8200, 20001]


def quantized(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(reference.act_quant_i8(x.astype(np.float64)).values())


def packed(codes: np.ndarray) -> np.ndarray:
    return reference.ternary_pack(codes)["w"]


def product(codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    # Exact: whole numbers below 2^53.
    return (codes.astype(np.float64) @ weights.astype(np.float64).T).astype(np.int32)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """NaN equals NaN, which ml_dtypes' arrays do not say by themselves."""
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", WIDTHS)
def test_activations(one_gpu: nncuda.Context, cols: int, dtype: str) -> None:
    rng = np.random.default_rng(cols)
    x = rng.standard_normal((7, cols), np.float32).astype(DTYPES[dtype])
    x[1] = 0
    x[2] *= 1e-6
    x[3, cols // 2], x[4, cols - 1], x[5, 0] = np.nan, np.inf, -np.inf
    codes, scale = quantized(x)
    weight = rng.standard_normal(cols, np.float32).astype(DTYPES[dtype])
    for shift in (0, 1):
        left, gain = placed(one_gpu, x, shift), placed(one_gpu, weight, shift)
        got = kernels.act_quant_i8(left)
        np.testing.assert_array_equal(got[0].numpy(), codes)
        np.testing.assert_array_equal(got[1].numpy(), scale)
        normed = kernels.rmsnorm(left, gain, eps=1e-5)
        got, want = kernels.rmsnorm_quant_i8(left, gain, eps=1e-5), quantized(normed.numpy())
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 40), (70, 33), (300, 16)])
def test_weights_from_their_mean(gpu: nncuda.Context, n: int, k: int, dtype: str) -> None:
    x = (np.random.default_rng(n).standard_normal((n, k)) * 0.02).astype(DTYPES[dtype])
    expected = reference.ternary_quantize(x.astype(np.float64))
    for shift in (0, 1):
        got = kernels.ternary_quantize(placed(gpu, x, shift))
        np.testing.assert_array_equal(got[0].numpy(), expected["codes"])
        np.testing.assert_array_equal(got[1].numpy(), expected["scale"])
    assert kernels.ternary_quantize(gpu.zeros((n, k), dtype))[1].numpy()[0] == np.float32(1e-5)
    x[n - 1, k // 2] = np.inf
    kernels.ternary_quantize(gpu.tensor(x))
    with pytest.raises(nncuda.Error, match=rf"cuda_ternary_quantize: x\[{(n - 1) * k + k // 2}\] is inf; it must be "):
        gpu.synchronize()


@pytest.mark.parametrize(("n", "k"), [(1, 1), (16, 16), (17, 15), (40, 100)])
def test_packing(gpu: nncuda.Context, n: int, k: int) -> None:
    codes = np.random.default_rng(n).integers(-1, 2, (n, k), np.int8)
    want = packed(codes)
    for shift in range(4):
        w = placed(gpu, np.full_like(want, 0xEE), shift)
        kernels.ternary_pack(placed(gpu, codes, shift), stored=want.shape[0], row_bytes=want.shape[1], w=w)
        np.testing.assert_array_equal(w.numpy(), want)
        np.testing.assert_array_equal(kernels.ternary_unpack(w, n=n, k=k).numpy(), codes)
    at = n * k - 1
    codes[n - 1, k - 1] = -2
    kernels.ternary_pack(gpu.tensor(codes), stored=want.shape[0], row_bytes=want.shape[1])
    with pytest.raises(nncuda.Error, match=rf"cuda_ternary_pack: codes\[{at}\] is -2; it must be -1 to 1"):
        gpu.synchronize()
    want[-1, -1] = want[0, 0] = 3
    kernels.ternary_unpack(gpu.tensor(np.full_like(want, 0b11)), n=n, k=k)
    with pytest.raises(nncuda.Error, match=r"cuda_ternary_unpack: codes\[\d+\] is 2; it must be -1 to 1"):
        gpu.synchronize()


@pytest.mark.parametrize(("n", "k"), [(1, 1), (30, 16), (48, 63), (70, 80), (130, 1040), (33, 2560), (16, 6912)])
def test_whole_products(one_gpu: nncuda.Context, n: int, k: int) -> None:
    rng = np.random.default_rng(k)
    m = 70
    x, weights = rng.integers(-127, 128, (m, k), np.int8), rng.integers(-1, 2, (n, k), np.int8)
    x[0], weights[0] = 127, 1
    x[1], weights[n - 1] = -127, -1
    want, w = product(x, weights), packed(weights)
    rows, columns = -(-n // 16) * 16, w.shape[1] * 4
    whole = np.full((rows, columns), -1, np.int8)  # what fills up need not be 0 to be left alone
    whole[:n, :k] = weights
    for count, shift, stored in [(c, 0, w) for c in (1, 2, 3, 4, 5, 8, 9, m)] + [(1, 1, w), (9, 3, packed(whole))]:
        got = kernels.bitlinear(
            placed(one_gpu, x[:count], shift), None, placed(one_gpu, stored, shift), n=n, dtype="i32"
        )
        np.testing.assert_array_equal(got.numpy(), want[:count])


@pytest.mark.parametrize(("m", "n", "k"), [(1, 8500, 40), (710, 1530, 32)])
def test_large_products(gpu: nncuda.Context, m: int, n: int, k: int) -> None:
    """What more multiprocessors than a GPU has would share out otherwise."""
    rng = np.random.default_rng(n)
    x, weights = rng.integers(-127, 128, (m, k), np.int8), rng.integers(-1, 2, (n, k), np.int8)
    got = kernels.bitlinear(gpu.tensor(x), None, gpu.tensor(packed(weights)), n=n, dtype="i32").numpy()
    np.testing.assert_array_equal(got, product(x, weights))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k"), [(37, 50), (40, 272)])
def test_products_and_their_ends(gpu: nncuda.Context, n: int, k: int, dtype: str) -> None:
    rng = np.random.default_rng(k)
    m = 34
    x, weights = rng.integers(-127, 128, (m, k), np.int8), rng.integers(-1, 2, (n, k), np.int8)
    scale, w_scale = rng.random(m, np.float32), rng.random(n, np.float32)
    scale[3] = np.nan
    residual = rng.standard_normal((m, n), np.float32).astype(DTYPES[dtype]) * DTYPES[dtype](50)
    bare = product(x, weights).astype(np.float32) * (scale[:, None] * w_scale)
    whole = bare + residual.astype(np.float32)
    w, scales = gpu.tensor(packed(weights)), gpu.tensor(w_scale)
    for count, shift in [(1, 0), (2, 0), (5, 0), (5, 1), (m, 0), (m, 1)]:
        left, past = gpu.tensor(x[:count]), placed(gpu, residual[:count], shift)
        got = kernels.bitlinear(left, gpu.tensor(scale[:count]), w, scales, n=n, dtype=dtype).numpy()
        same(got, bare[:count].astype(DTYPES[dtype]))
        kernels.bitlinear(left, gpu.tensor(scale[:count]), w, scales, past, n=n, y=past)
        same(past.numpy(), whole[:count].astype(DTYPES[dtype]))
