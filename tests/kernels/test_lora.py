"""Gradients through stored weights: what they are made of, and that a row's bits are its own."""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import Engine
from stored import CODES, PLAIN, engines, numbers, weights

from nncuda.reference.ternary import ternary_pack

DTYPES = ("f32", "f16", "bf16")


def gradient(
    cpu: Engine, dy: np.ndarray, w: np.ndarray, name: str, k: int, dtype: str, **options: object
) -> np.ndarray:
    """dx of dy [m, n]; `options`: offsets, groups, and dx with beta."""
    m, n = dy.shape
    dx = np.array(options["dx"]) if "dx" in options else engine.empty((m, k), dtype)
    cpu.gemm_quant_backward(dy, w, options.get("offsets"), dx, options.get("groups", 1), m, n, k, w.shape[1],
                            options.get("beta", 0.0), CODES[name], dtype)  # fmt: skip
    return dx


def composed(cpu: Engine, dy: np.ndarray, w: np.ndarray, name: str, k: int, dtype: str) -> np.ndarray:
    m, n = dy.shape
    read, dx = engine.empty((n, k), dtype), engine.empty((m, k), dtype)
    cpu.dequantize(w, read, n, k, w.shape[1], CODES[name], dtype)
    cpu.gemm(dy, read, dx, m, k, n, 0, 0, dtype, dtype)
    return dx


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLAIN)
def test_of_many_rows_it_is_the_product_with_the_numbers(name: str, dtype: str) -> None:
    """To the bit."""
    dy, w = numbers(9, 33, dtype=dtype), weights(33, 512, name)
    for cpu in engines():
        assert np.array_equal(gradient(cpu, dy, w, name, 512, dtype), composed(cpu, dy, w, name, 512, dtype))


@pytest.mark.parametrize(("name", "dtype"), [("q8_0", "f32"), ("q4_k", "bf16")])
def test_columns_in_several_panels(name: str, dtype: str) -> None:
    """A panel of so many rows has the fewest columns that there are, and the last one a rest."""
    n, k = 33000, 768
    dy, w = numbers(20, n, dtype=dtype), np.tile(weights(33, k, name), (1000, 1))
    cpu = Engine(threads=2)
    assert np.array_equal(gradient(cpu, dy, w, name, k, dtype), composed(cpu, dy, w, name, k, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["q8_0", "q4_k", "bf16"])
def test_a_row_has_its_own_bits(name: str, dtype: str) -> None:
    """For any number of rows, of threads, and in any group."""
    m, n, k = 40, 1100, 256
    dy, w = numbers(m, n, dtype=dtype), weights(n, k, name)
    for isa in range(Engine().isa + 1):
        cpu = Engine(threads=2, isa=isa)
        whole = gradient(cpu, dy, w, name, k, dtype)
        for threads in (1, 3):
            assert np.array_equal(whole, gradient(Engine(threads=threads, isa=isa), dy, w, name, k, dtype))
        for rows in (1, 2, 8, 17):
            found = gradient(cpu, np.ascontiguousarray(dy[3 : 3 + rows]), w, name, k, dtype)
            assert np.array_equal(found, whole[3 : 3 + rows]), f"{rows} rows on {isa}"
        offsets = np.array([0, 1, 1, 6, m], np.int32)
        found = gradient(cpu, dy, np.tile(w, (4, 1)), name, k, dtype, offsets=offsets, groups=4)
        assert np.array_equal(found, whole)


def test_rows_behind_the_groups_stay() -> None:
    dy, w = numbers(6, 5), weights(10, 64, "q4_0")
    old = numbers(6, 64, seed=1)
    offsets = np.array([0, 2, 4], np.int32)
    for beta in (0.0, 1.0):
        dx = gradient(Engine(), dy, w, "q4_0", 64, "f32", offsets=offsets, groups=2, dx=old, beta=beta)
        assert np.array_equal(dx[4:], old[4:])
        assert not np.array_equal(dx[:4], old[:4])


@pytest.mark.parametrize("dtype", DTYPES)
def test_ternary_rows_have_their_own_bits(dtype: str) -> None:
    """For any number of rows, and to the bit the product with the weights as f32, f16 or bf16 that are stored."""
    m, n, k = 30, 1100, 530
    codes = np.random.default_rng(0).integers(-1, 2, (n, k)).astype(np.int8)
    scale = np.random.default_rng(1).uniform(0.01, 0.05, n).astype(np.float32)
    w, dy = ternary_pack(codes)["w"], numbers(m, n, dtype=dtype)
    read = np.ascontiguousarray((codes * scale[:, None]).astype(engine.DTYPES[dtype]))

    def of(cpu: Engine, some: np.ndarray) -> np.ndarray:
        dx = engine.empty((len(some), k), dtype)
        cpu.bitlinear_backward(some, w, scale, dx, len(some), n, k, *w.shape, 0.0, dtype)
        return dx

    for cpu in engines():
        whole, plain = of(cpu, dy), engine.empty((m, k), dtype)
        cpu.gemm(dy, read, plain, m, k, n, 0, 0, dtype, dtype)
        assert np.array_equal(whole, plain)
        for rows in (1, 5, 8, 9):
            assert np.array_equal(of(cpu, np.ascontiguousarray(dy[2 : 2 + rows])), whole[2 : 2 + rows])
