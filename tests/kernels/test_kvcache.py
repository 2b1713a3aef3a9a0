"""kv_append and kv_trim: they copy, so their results are exact."""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import DTYPES, FLOATS, Engine, KernelError, isas


@pytest.fixture(scope="module", params=isas(), ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "batch,length,capacity,kv_heads,head_dim,starts",
    [
        (1, 1, 1, 1, 8, [0]),
        (3, 1, 9, 2, 16, [0, 8, 4]),
        (2, 5, 9, 1, 64, [4, 0]),
        (2, 300, 301, 3, 40, [1, 0]),
        (2, 0, 4, 1, 8, [4, 0]),
    ],
)
def test_append(
    cpu: Engine, dtype: str, batch: int, length: int, capacity: int, kv_heads: int, head_dim: int, starts: list[int]
) -> None:
    size = kv_heads * head_dim
    ld = 2 * size + 8
    fused = numbers((max(batch * length, 1), ld), dtype, 1)  # k, v and something else in one row
    before = fused.copy()
    k_cache, v_cache = (numbers((batch, capacity, size), dtype, seed) for seed in (2, 3))
    expected = k_cache.copy(), v_cache.copy()
    for b, start in enumerate(starts):
        for t in range(length):
            expected[0][b, start + t] = fused[b * length + t, :size]
            expected[1][b, start + t] = fused[b * length + t, size : 2 * size]
    flat = fused.reshape(-1)
    sizes = (batch, length, capacity, kv_heads, head_dim, ld)
    cpu.kv_append(flat, flat[size:], np.array(starts, np.int32), k_cache, v_cache, *sizes, dtype)
    assert same(k_cache, expected[0]) and same(v_cache, expected[1]) and same(fused, before)


@pytest.mark.parametrize("start", [-1, 5, 2**31 - 1, -(2**31)])
def test_append_checks_starts_before_it_writes(cpu: Engine, start: int) -> None:
    new, cache = numbers((2, 2, 8), "f32", 1), numbers((2, 6, 8), "f32", 2)
    before, v_cache = cache.copy(), cache.copy()
    with pytest.raises(KernelError) as error:
        cpu.kv_append(new, new, np.array([0, start], np.int32), cache, v_cache, 2, 2, 6, 1, 8, 8, "f32")
    assert error.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
    assert f"starts[1] is {start}; it must be 0 to 4, capacity - len" in error.value.message
    assert same(cache, before) and same(v_cache, before)


def test_append_of_more_than_fits(cpu: Engine) -> None:
    new, cache = numbers((7, 8), "f32", 1), numbers((6, 8), "f32", 2)
    with pytest.raises(KernelError) as error:
        cpu.kv_append(new, new, np.zeros(1, np.int32), cache, cache.copy(), 1, 7, 6, 1, 8, 8, "f32")
    assert "len is 7; it must be at most capacity, which is 6" in error.value.message


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("keep", [0, 1, 7, 12, 20])
def test_trim(cpu: Engine, dtype: str, keep: int) -> None:
    lengths = np.array([0, 7, 13, 20], np.int32)
    k_cache, v_cache = (numbers((4, 20, 2, 24), dtype, seed) for seed in (1, 2))
    before = k_cache.copy(), v_cache.copy()
    left = lengths.copy()
    cpu.kv_trim(k_cache, v_cache, left, 4, 20, 2, 24, keep, dtype)
    assert left.tolist() == [min(n, keep) for n in lengths]
    for cache, old in zip((k_cache, v_cache), before, strict=True):
        for b, n in enumerate(lengths):
            assert same(cache[b, : left[b]], old[b, n - left[b] : n])


@pytest.mark.parametrize("length", [-1, 21])
def test_trim_checks_lengths_before_it_writes(cpu: Engine, length: int) -> None:
    lengths = np.array([20, length], np.int32)
    k_cache, v_cache = (numbers((2, 20, 1, 8), "f32", seed) for seed in (1, 2))
    before = k_cache.copy(), v_cache.copy(), lengths.copy()
    with pytest.raises(KernelError) as error:
        cpu.kv_trim(k_cache, v_cache, lengths, 2, 20, 1, 8, 3, "f32")
    assert f"lengths[1] is {length}; it must be 0 to 20, the capacity" in error.value.message
    assert all(same(a, b) for a, b in zip((k_cache, v_cache, lengths), before, strict=True))


@pytest.mark.parametrize("keep", [-1, 21])
def test_trim_checks_keep(cpu: Engine, keep: int) -> None:
    cache = engine.empty((20, 8), "f32")
    with pytest.raises(KernelError) as error:
        cpu.kv_trim(cache, cache.copy(), np.zeros(1, np.int32), 1, 20, 1, 8, keep, "f32")
    assert f"keep is {keep}; it must be 0 to capacity, which is 20" in error.value.message
