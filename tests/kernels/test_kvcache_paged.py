"""kv_append_paged: what it stores is exact."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from engine import DTYPES, Engine
from pages import STORAGE, Pages, blank, offsets


def append(cpu: Engine, pages: Pages, k: np.ndarray, v: np.ndarray, at: np.ndarray, ld: int, dtype: str) -> None:
    sizes = (len(k), len(at) - 1, *pages.sizes, pages.kv_heads, pages.head_dim, ld, pages.page_bytes)
    cpu.kv_append_paged(
        k.reshape(-1), v.reshape(-1), at, pages.lengths, pages.table, pages.k, pages.v, *sizes, pages.number, dtype
    )


def numbers(tokens: int, width: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(tokens + width).standard_normal((tokens, width)).astype(DTYPES[dtype])


@pytest.mark.parametrize("storage,dtype", [("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f32", "bf16")])
def test_read_back(cpu: Engine, storage: str, dtype: str) -> None:
    """Nothing is lost where the format has room for it, at an odd head_dim as well."""
    pages = blank(storage, 3, 13, [200])
    k, v = numbers(200, 39, dtype), numbers(200, 39, dtype) * DTYPES[dtype](2)
    append(cpu, pages, k, v, offsets([200]), 39, dtype)
    for stored, rows in ((pages.k, k), (pages.v, v)):
        assert np.array_equal(pages.rows(stored, 0).reshape(200, 39), rows.astype(np.float32))


@pytest.mark.parametrize("storage", STORAGE)
def test_one_by_one_is_all_at_once(cpu: Engine, storage: str) -> None:
    k, v = numbers(140, 64, "f32"), numbers(140, 64, "f32")[::-1].copy()
    whole, steps = blank(storage, 2, 32, [140]), blank(storage, 2, 32, [140])
    append(cpu, whole, k, v, offsets([140]), 64, "f32")
    for t in range(140):
        steps.lengths[0] = t + 1
        append(cpu, steps, k[t : t + 1], v[t : t + 1], offsets([1]), 64, "f32")
    assert np.array_equal(whole.k, steps.k) and np.array_equal(whole.v, steps.v)


def test_q8_0_is_quantize(cpu: Engine) -> None:
    pages, k = blank("q8_0", 2, 64, [50]), numbers(50, 128, "f32")
    k[3], k[4, :32], k[5] = 0, 1e-42, k[5] * np.float32(1e30)
    append(cpu, pages, k, k, offsets([50]), 128, "f32")
    rows = np.empty((100, 68), np.uint8)
    cpu.quantize(k, rows, 100, 64, 68, 14, "f32")
    assert np.array_equal(pages.k[pages.table[0, 0]].reshape(2, 128, 68)[:, :50].swapaxes(0, 1).reshape(100, 68), rows)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_not_hidden(cpu: Engine, value: float) -> None:
    pages, k = blank("q8_0", 1, 64, [2]), numbers(2, 64, "f32")
    k[1, 40] = value
    append(cpu, pages, k, k, offsets([2]), 64, "f32")
    rows = pages.rows(pages.k, 0)[:, 0]
    assert np.isnan(rows[1, 32:]).all() and np.isfinite(rows[0]).all() and np.isfinite(rows[1, :32]).all()


def hard_numbers(dtype: str) -> np.ndarray:
    """Every number of 16 bits; in f32 those and their neighbours: what e4m3 has lies between them, and half-way."""
    if dtype != "f32":
        return np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    patterns = np.concatenate(
        [np.arange(2**16, dtype=np.uint32) << 16, hard_numbers("f16").astype(np.float32).view("u4")]
    )
    return np.concatenate([patterns - 1, patterns, patterns + 1]).view(np.float32)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_e4m3_rounds_every_number_to_the_nearest(cpu: Engine, dtype: str) -> None:
    """And to 448 what is beyond, infinities too; NaN stays NaN. Compared with ml_dtypes, which makes NaN of what is
    beyond; 13 elements a row are no whole vectors."""
    k = hard_numbers(dtype)
    k = np.resize(k, (-(-k.size // 13), 13))
    pages = blank("e4m3", 1, 13, [len(k)])
    append(cpu, pages, k, k, offsets([len(k)]), 13, dtype)
    x = k.astype(np.float32)
    with np.errstate(invalid="ignore"):
        codes = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    stored = pages.k.reshape(-1, 128, 13)[pages.table[0]].reshape(-1, 13)[: len(k)]
    np.testing.assert_array_equal(stored, np.where(np.isnan(x), 0x7F, codes))


def test_a_token_alone_decides_its_bytes_in_e4m3(cpu: Engine) -> None:
    """No scale is shared: neighbours, heads and batch change nothing."""
    pages, k = blank("e4m3", 2, 24, [9]), numbers(9, 48, "f32")
    append(cpu, pages, k, k, offsets([9]), 48, "f32")
    rows = pages.rows(pages.k, 0)
    other = blank("e4m3", 1, 24, [1])
    append(cpu, other, k[4:5, 24:] * 1, k[4:5, 24:] * 1, offsets([1]), 24, "f32")
    np.testing.assert_array_equal(other.rows(other.k, 0)[0, 0], rows[4, 1])


def test_pages_that_no_row_goes_to_are_not_looked_at(cpu: Engine) -> None:
    """Those before the first new row, those behind the last, and all of a sequence without new tokens."""
    pages, k = blank("f32", 1, 8, [130, 300]), numbers(2, 8, "f32")
    place = pages.table[0, 1]
    pages.table[0, 0] = pages.table[0, 2] = pages.table[1, 0] = -9
    append(cpu, pages, k, k, offsets([2, 0]), 8, "f32")
    assert np.array_equal(pages.k[place].view(np.float32)[:16], k.reshape(-1))
