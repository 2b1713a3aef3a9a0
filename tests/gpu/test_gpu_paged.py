"""Paged caches on a GPU: beside the CPU engine, and the promise that a token's bits do not depend on its company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases.kvcache import STORAGE
from paged_cases import Sequences

import nncuda


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("form", STORAGE)
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_appended_bytes_are_those_of_the_cpu(
    gpu: nncuda.Context, cpu: nncuda.Context, form: str, dtype: str, shift: int
) -> None:
    some = Sequences([3, 131, 128, 257], 3, 3, 64, form, dtype)
    steps = [[(0, 2), (0, 130), (0, 1), (0, 128)], [(2, 2), (130, 131), (1, 128), (128, 257)]]
    stored = []
    for ctx in (gpu, cpu):
        caches = some.caches(ctx, shift if ctx is gpu else 0)
        for cuts in steps:
            some.append(ctx, caches, cuts)
        stored.append([cache.numpy() for cache in caches])
    for ours, theirs in zip(*stored, strict=True):
        np.testing.assert_array_equal(ours, theirs)


SHAPES = [("f16", 1, 1, 64), ("f16", 5, 1, 80), ("f16", 12, 1, 128), ("f16", 3, 1, 256), ("f32", 8, 2, 64),
          ("f32", 2, 1, 136), ("bf16", 4, 4, 96), ("q8_0", 8, 2, 64), ("q8_0", 3, 1, 160),
          ("e4m3", 8, 2, 64), ("e4m3", 2, 1, 72), ("e4m3", 5, 1, 128), ("e4m3", 3, 1, 160)]  # fmt: skip


@pytest.mark.parametrize(("form", "heads", "kv_heads", "dim"), SHAPES)
def test_a_token_has_the_same_bits_in_any_company(
    gpu: nncuda.Context, cpu: nncuda.Context, form: str, heads: int, kv_heads: int, dim: int
) -> None:
    lengths = [5, 130, 1, 261]
    some = Sequences(lengths, heads, kv_heads, dim, form, "f32")
    caches = some.caches(gpu)
    all_rows = [(0, n) for n in lengths]
    some.append(gpu, caches, all_rows)
    whole = some.prefill(gpu, caches, all_rows)
    theirs = some.caches(cpu)
    some.append(cpu, theirs, all_rows)
    for ours, other in zip(whole, some.prefill(cpu, theirs, all_rows), strict=True):
        # Both are sums of at most 261 terms of magnitude 1 in f32, and powers of two within 2 units.
        np.testing.assert_allclose(ours, other, rtol=0, atol=2e-5)
    # One token at a time, together: a sequence without a token stays out.
    for last in (1, 128, 129, 261):
        at = [min(last, n) for n in lengths]
        got = some.decode(gpu, caches, at)
        for b, n in enumerate(at):
            np.testing.assert_array_equal(got[b], whole[b][n - 1])
    # Pieces, some of them empty, in other memory that is filled as they come.
    for shift in (0, 1):
        caches = some.caches(gpu, shift)
        begin = [0] * len(lengths)
        for step in (3, 1, 0, 125, 90, 300):
            cuts = [(b, min(b + step, n)) for b, n in zip(begin, lengths, strict=True)]
            if any(end > first for first, end in cuts):
                some.append(gpu, caches, cuts)
                for (first, end), got, expected in zip(cuts, some.prefill(gpu, caches, cuts), whole, strict=True):
                    np.testing.assert_array_equal(got, expected[first:end])
            begin = [end for _, end in cuts]


@pytest.mark.parametrize(
    ("form", "dtype", "dim"), [("f16", "f32", 8), ("bf16", "f16", 16), ("q8_0", "bf16", 32), ("e4m3", "f16", 24)]
)
def test_rows_of_more_pages_than_runs_have_the_same_bits(
    gpu: nncuda.Context, cpu: nncuda.Context, form: str, dtype: str, dim: int
) -> None:
    """The last tokens see 64, 65 and 129 pages: runs of one, two and three, side by side in one block."""
    lengths = [64 * 128 + 3, 128 * 128 + 2]
    some = Sequences(lengths, 2, 1, dim, form, dtype)
    caches, theirs = some.caches(gpu), some.caches(cpu)
    for ctx, cache in ((gpu, caches), (cpu, theirs)):
        some.append(ctx, cache, [(0, n) for n in lengths])
    cuts = [(n - 6, n) for n in lengths]
    whole = some.prefill(gpu, caches, cuts)
    for ours, other in zip(whole, some.prefill(cpu, theirs, cuts), strict=True):
        np.testing.assert_allclose(ours.astype(np.float32), other.astype(np.float32), rtol=2**-7, atol=2e-5)
    for back in range(6):
        got = some.decode(gpu, caches, [n - back for n in lengths])
        for b, expected in enumerate(whole):
            np.testing.assert_array_equal(got[b], expected[5 - back])


@pytest.mark.parametrize("form", ["f32", "f16", "bf16", "e4m3"])
@pytest.mark.parametrize("heads", [1, 3])
def test_infinite_values_of_later_tokens_do_not_show(gpu: nncuda.Context, form: str, heads: int) -> None:
    some = Sequences([150], heads, 1, 80, form, "f32")
    expected = some.caches(gpu)
    some.append(gpu, expected, [(0, 150)])
    finite = some.prefill(gpu, expected, [(0, 150)])[0]
    for at, value in ((7, np.inf), (11, -np.inf), (140, np.nan)):
        some.v[0][at, 0, at % 64] = np.nan if form == "e4m3" else value  # which has no infinities
    caches = some.caches(gpu)
    some.append(gpu, caches, [(0, 150)])
    got = some.prefill(gpu, caches, [(0, 150)])[0]
    np.testing.assert_array_equal(got[:7], finite[:7])
    for column, first in ((7, 7), (11, 11), (12, 140)):
        assert not np.isfinite(got[first:, :, column]).any()
    others = np.delete(np.arange(80), [7, 11, 12])
    np.testing.assert_array_equal(got[..., others], finite[..., others])
    for n in (7, 8, 12, 141, 150):
        np.testing.assert_array_equal(some.decode(gpu, caches, [n])[0], got[n - 1])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_other_types_round_the_result_once(gpu: nncuda.Context, dtype: str) -> None:
    some = Sequences([140, 3], 8, 2, 64, dtype, dtype)
    caches = some.caches(gpu)
    some.append(gpu, caches, [(0, 140), (0, 3)])
    got = some.prefill(gpu, caches, [(0, 140), (0, 3)])
    wide = Sequences([140, 3], 8, 2, 64, dtype, "f32")
    wide.q = [part.astype(np.float32) for part in some.q]
    for ours, exact in zip(got, wide.prefill(gpu, caches, [(0, 140), (0, 3)]), strict=True):
        np.testing.assert_array_equal(ours, exact.astype(ours.dtype))
    np.testing.assert_array_equal(some.decode(gpu, caches, [140, 2]), np.stack([got[0][139], got[1][1]]))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(
    ("form", "dtype", "heads", "kv_heads", "dim"),
    [
        *((form, "f32", heads, kv_heads, dim) for form, heads, kv_heads, dim in SHAPES),
        *(("f16", "bf16", 20, 1, 64), ("bf16", "f16", 4, 2, 128), ("q8_0", "f16", 2, 2, 32), ("f16", "f32", 2, 1, 8)),
    ],
)
def test_a_step_is_its_three_calls(
    gpu: nncuda.Context, form: str, dtype: str, heads: int, kv_heads: int, dim: int, layout: str
) -> None:
    """Rows of one page and of many, that begin a page and that end one; twice, since counters must be as they were."""
    lengths = [1, 128, 129, 700]
    some = Sequences(lengths, heads, kv_heads, dim, form, dtype)
    for shift in (0, 1):
        mine, theirs = some.caches(gpu, shift), some.caches(gpu)
        for caches in (mine, theirs):
            some.append(gpu, caches, [(0, n) for n in lengths])
        for ends in (lengths, [1, 64, 100, 650], lengths):
            whole, parts = (some.step(gpu, caches, ends, layout, caches is mine) for caches in (mine, theirs))
            assert np.isfinite(whole.astype(np.float32)).all()
            np.testing.assert_array_equal(whole, parts)
            for ours, others in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(ours.numpy(), others.numpy())


def test_a_sequence_without_rows_gives_zeros(gpu: nncuda.Context) -> None:
    some = Sequences([4, 1], 4, 2, 64, "f16", "f32")
    caches = some.caches(gpu)
    some.append(gpu, caches, [(0, 4), (0, 1)])
    got = some.decode(gpu, caches, [4, 0])
    assert np.all(got[1] == 0)
    np.testing.assert_array_equal(got[0], some.prefill(gpu, caches, [(0, 4), (0, 1)])[0][3])


def test_what_is_out_of_range_is_reported(gpu: nncuda.Context) -> None:
    some = Sequences([130, 3], 2, 1, 64, "f16", "f32")
    caches = some.caches(gpu)
    some.append(gpu, caches, [(0, 130), (0, 3)])
    good = some.table.copy()
    some.table[0, 1] = some.pages
    for call in (lambda: some.append(gpu, caches, [(0, 130), (0, 3)]),
                 lambda: some.prefill(gpu, caches, [(100, 130), (2, 3)]),
                 lambda: some.decode(gpu, caches, [130, 3])):  # fmt: skip
        with pytest.raises(
            nncuda.Error, match=rf"page_table\[0, 1\] is {some.pages}; it must be 0 to {some.pages - 1}"
        ):
            call()
            gpu.synchronize()
    some.table = good
    with pytest.raises(nncuda.Error, match=r"lengths\[1\] is 400; it must be 0 to 384"):
        some.decode(gpu, caches, [130, 400])
    assert some.decode(gpu, caches, [130, 3]).shape == (2, 2, 64)


VARIANTS = [
    ("f16", 4, 2, 64, {"window": 40}),
    ("bf16", 3, 1, 128, {"window": 1, "softcap": 2.0}),
    ("f32", 2, 1, 24, {"window": 130, "sinks": (0.5, -3.0)}),
    ("q8_0", 2, 2, 256, {"softcap": 3.0, "sinks": (30.0, -30.0)}),
    ("e4m3", 2, 1, 80, {"window": 17, "softcap": 1.0, "sinks": (0.0, 1.0)}),
]


@pytest.mark.parametrize(("form", "heads", "kv_heads", "dim", "options"), VARIANTS)
def test_windows_caps_and_sinks(
    gpu: nncuda.Context, cpu: nncuda.Context, form: str, heads: int, kv_heads: int, dim: int, options: dict[str, Any]
) -> None:
    """The CPU's results within rounding, and for a token the same bits in a prompt, in decoding and in a step."""
    lengths = [5, 1, 300]
    some = Sequences(lengths, heads, kv_heads, dim, form, "f32", **options)
    caches, theirs = some.caches(gpu), some.caches(cpu)
    for ctx, cache in ((gpu, caches), (cpu, theirs)):
        some.append(ctx, cache, [(0, n) for n in lengths])
    cuts = [(0, n) for n in lengths]
    whole = some.prefill(gpu, caches, cuts)
    for ours, other in zip(whole, some.prefill(cpu, theirs, cuts), strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=2e-5)
    for back in (0, 1, 4, 33, 140, 299):
        ends = [max(n - back, 1) for n in lengths]
        got = some.decode(gpu, caches, ends)
        np.testing.assert_array_equal(got, np.stack([part[n - 1] for part, n in zip(whole, ends, strict=True)]))
    stepped = [some.step(gpu, some.caches(gpu), [1, 1, 1], "half", whole=one) for one in (True, False)]
    np.testing.assert_array_equal(*stepped)


def test_a_window_of_more_pages_than_runs(gpu: nncuda.Context, cpu: nncuda.Context) -> None:
    """Of 65 pages from the third on, in runs of two that begin there; the pages before have no number."""
    length, window = 67 * 128 + 5, 64 * 128 + 20
    some = Sequences([length], 2, 1, 8, "f16", "f32", window=window, sinks=(1.0, 2.0))
    caches, theirs = some.caches(gpu), some.caches(cpu)
    for ctx, cache in ((gpu, caches), (cpu, theirs)):
        some.append(ctx, cache, [(0, length)])
    some.table[0, :2] = -1
    (whole,) = some.prefill(gpu, caches, [(length - 6, length)])
    np.testing.assert_allclose(whole, some.prefill(cpu, theirs, [(length - 6, length)])[0], rtol=0, atol=2e-5)
    for back in range(6):
        np.testing.assert_array_equal(some.decode(gpu, caches, [length - back])[0], whole[5 - back])
