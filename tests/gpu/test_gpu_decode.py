"""Decoding over long caches, whose pieces and pages are merged in runs: a row's bits follow from its own keys alone."""

from __future__ import annotations

import numpy as np
import pytest
from devices import random, wide
from paged_cases import Sequences

import nncuda
from nncuda import kernels

#: More than 64 pieces of 32 keys (head_dim 256 in f16) or of 128, so that a run has two, and three.
LONG = [("f16", 256, 2500), ("f32", 256, 2200), ("bf16", 64, 8300)]


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """[heads, dim] over [keys, dim], in f64."""
    scores = wide(q) @ wide(k).T / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers @ wide(v) / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("dtype", "dim", "length"), LONG)
def test_neither_capacity_nor_batch_decides_a_bit(gpu: nncuda.Context, dtype: str, dim: int, length: int) -> None:
    rng = np.random.default_rng(length)
    heads, lengths = 2, [length, 1, length - 1, 700]
    caches = [random(rng, len(lengths), length, 1, dim, dtype=dtype) for _ in range(2)]
    # Sharp, and with the largest score late: what was merged before it must be scaled down.
    q = (random(rng, len(lengths), heads, dim, dtype="f32") * 2).astype(caches[0].dtype)
    caches[0][0, length - 3, 0] = q[0, 0]

    def decode(rows: list[int], capacity: int) -> np.ndarray:
        placed = []
        for cache in caches:
            memory = np.full((len(rows), capacity, *cache.shape[2:]), np.nan, cache.dtype)
            memory[:, :length] = cache[rows]
            placed.append(gpu.tensor(memory))
        at = gpu.tensor(np.array([lengths[b] for b in rows], np.int32))
        return kernels.attention_decode(gpu.tensor(q[rows]), *placed, at).numpy()

    whole = decode([0, 1, 2, 3], length)
    for b, n in enumerate(lengths):
        error = np.abs(wide(whole[b]) - expected(q[b], caches[0][b, :n, 0], caches[1][b, :n, 0]))
        # One rounding of results below 4 in 16 bits; in f32 what hundreds of merged terms leave of 24 bits.
        assert error.max() <= {"f32": 1e-5, "f16": 2.0**-9, "bf16": 2.0**-6}[dtype]
    np.testing.assert_array_equal(decode([0], length), whole[:1])
    np.testing.assert_array_equal(decode([2, 0], 2 * length + 1), whole[[2, 0]])
    # So many rows that a block takes several runs of its sequence.
    many = decode([3, 0, *[1] * 38], length)
    np.testing.assert_array_equal(many[:3], whole[[3, 0, 1]])


@pytest.mark.parametrize(("form", "heads", "kv_heads", "dim"), [("f16", 6, 2, 64), ("q8_0", 1, 1, 160)])
def test_runs_of_pages_give_a_prompt_the_bits_of_decoding(
    gpu: nncuda.Context, cpu: nncuda.Context, form: str, heads: int, kv_heads: int, dim: int
) -> None:
    # 8192 keys are 64 pages; the last tokens see 65 of them, in runs of two.
    lengths = [8194, 300]
    some = Sequences(lengths, heads, kv_heads, dim, form, "f32")
    caches, theirs = some.caches(gpu), some.caches(cpu)
    for ctx, to in ((gpu, caches), (cpu, theirs)):
        some.append(ctx, to, [(0, n) for n in lengths])
    cuts = [(8189, 8194), (298, 300)]
    rows = some.prefill(gpu, caches, cuts)
    for ours, other in zip(rows, some.prefill(cpu, theirs, cuts), strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=2e-5)
    for last in (8191, 8192, 8193, 8194):
        got = some.decode(gpu, caches, [last, 300])
        np.testing.assert_array_equal(got[0], rows[0][last - 8190])
        np.testing.assert_array_equal(got[1], rows[1][1])
    # In other company: alone, in pieces, and so many that a block takes several runs.
    np.testing.assert_array_equal(some.prefill(gpu, caches, [(8192, 8194), (0, 0)])[0], rows[0][3:])
    wide_table = np.concatenate([some.table, np.full((2, 3), -1, np.int32)], axis=1)
    for table, batch in ((wide_table, 2), (np.tile(some.table, (30, 1)), 60)):
        some.table = table
        some.q = [some.q[b % 2] for b in range(batch)]
        got = some.decode(gpu, caches, [lengths[b % 2] for b in range(batch)])
        np.testing.assert_array_equal(got[0], rows[0][-1])
        np.testing.assert_array_equal(got[-1], rows[1][-1])


def test_a_bad_page_late_in_a_run_is_reported(gpu: nncuda.Context) -> None:
    some = Sequences([8300], 2, 1, 64, "f16", "f32")
    caches = some.caches(gpu)
    some.append(gpu, caches, [(0, 8300)])
    some.table[0, 63] = -1
    for call in (lambda: some.decode(gpu, caches, [8300]), lambda: some.prefill(gpu, caches, [(8299, 8300)])):
        with pytest.raises(nncuda.Error, match=rf"page_table\[0, 63\] is -1; it must be 0 to {some.pages - 1}"):
            call()
            gpu.synchronize()
