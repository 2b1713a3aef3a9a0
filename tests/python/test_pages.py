"""The paged cache: who owns which page, what is shared, what is dropped, and when there is none left."""

from __future__ import annotations

import numpy as np
import pytest

import nncuda
from nncuda.infer.paged_cache import PAGE, CachedSequence, CacheFullError, PagedCache


def make(ctx: nncuda.Context, pages: int = 8, context: int = 1024, **options: object) -> PagedCache:
    return PagedCache(
        ctx, **{"layers": 2, "kv_heads": 2, "head_dim": 32, "pages": pages, "context": context, **options}
    )


def run(cache: PagedCache, ids: np.ndarray, rows: int = 0) -> CachedSequence:
    """A sequence that has run all of its ids."""
    sequence = cache.open(ids, rows)
    rest = ids[sequence.length :]
    cache.extend(sequence, len(rest))
    cache.advance(sequence, rest.tolist())
    return sequence


def text(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, length, dtype=np.int32)


@pytest.mark.parametrize(("format", "row"), [("f16", 64), ("f32", 128), ("bf16", 64), ("q8_0", 34), ("e4m3", 32)])
def test_pages_of_all_layers_are_one_allocation(ctx: nncuda.Context, format: str, row: int) -> None:
    before = ctx.bytes_used
    cache = make(ctx, format=format)
    assert cache.nbytes == ctx.bytes_used - before == 2 * 2 * 8 * (2 * PAGE * row)
    assert [tensor.shape for tensor in (*cache.keys, *cache.values)] == [(8, 2 * PAGE * row)] * 4
    starts = sorted(tensor.ptr for tensor in (*cache.keys, *cache.values))
    assert np.all(np.diff(starts) == 8 * 2 * PAGE * row)


def test_pages_come_when_rows_need_them_and_go_at_the_end(ctx: nncuda.Context) -> None:
    cache = make(ctx)
    sequence = cache.open()
    assert (cache.available, cache.used) == (8, 0)
    assert cache.extend(sequence, 1) and not cache.extend(sequence, PAGE)
    assert cache.extend(sequence, PAGE + 1) and len(sequence.pages) == 2
    cache.advance(sequence, [7] * (PAGE + 1))
    assert (sequence.length, sequence.position, cache.used) == (PAGE + 1, PAGE + 1, 2)
    row = cache.table_row(sequence)
    assert row.shape == (8,) and row[:2].tolist() == sequence.pages
    cache.close(sequence)
    cache.close(sequence)
    assert (cache.available, cache.used) == (8, 0)
    with pytest.raises(ValueError, match="closed"):
        cache.extend(sequence, 1)


def test_full_pages_of_a_common_beginning_are_shared(ctx: nncuda.Context) -> None:
    cache = make(ctx)
    whole = text(3 * PAGE + 10)
    first = run(cache, whole)
    other = whole.copy()
    other[2 * PAGE + 5] += 1  # too early in the third page to copy that
    second = run(cache, other)
    assert second.shared == 2 * PAGE
    assert second.pages[:2] == first.pages[:2] and not set(second.pages[2:]) & set(first.pages)
    assert cache.used == 4 + 2
    cache.close(first)
    assert cache.used == 4  # the shared ones are still in use
    third = cache.open(whole)
    assert third.pages[:2] == second.pages[:2] and third.shared == 3 * PAGE
    for sequence in (second, third):
        cache.close(sequence)
    assert (cache.available, cache.used) == (8, 0)


def test_the_last_id_is_always_run(ctx: nncuda.Context) -> None:
    """Somebody wants what follows from it, which the cache does not have."""
    cache = make(ctx)
    cache.close(run(cache, text(2 * PAGE)))
    for length, shared in (
        (2 * PAGE, 2 * PAGE - 1),
        (2 * PAGE + 1, 2 * PAGE),
        (PAGE, PAGE - 1),
        (17, 16),
        (16, 0),  # too little to copy
        (1, 0),
        (0, 0),
    ):
        sequence = cache.open(np.append(text(2 * PAGE), 5)[:length])
        assert sequence.shared == sequence.length == sequence.position == shared
        cache.close(sequence)


def test_a_page_is_its_whole_past_not_its_own_ids(ctx: nncuda.Context) -> None:
    """Equal ids behind another beginning have other keys and values."""
    cache = make(ctx)
    first = run(cache, text(2 * PAGE + 1))
    other = text(2 * PAGE + 1)
    other[0] += 1
    second = cache.open(other)
    assert second.shared == 0
    swapped = np.concatenate([text(2 * PAGE)[PAGE:], text(2 * PAGE)[:PAGE], [1]])
    assert cache.open(swapped).shared == 0
    assert cache.open(text(2 * PAGE + 1)).pages == first.pages[:2]


def test_equal_texts_that_were_run_side_by_side_become_one(ctx: nncuda.Context) -> None:
    cache = make(ctx)
    whole = text(2 * PAGE + 1)
    both = [cache.open(whole) for _ in range(2)]
    for sequence in both:
        cache.extend(sequence, len(whole))
        cache.advance(sequence, whole.tolist())
    assert not set(both[0].pages) & set(both[1].pages)
    third = cache.open(whole)
    assert third.pages == both[0].pages[:2]
    for sequence in (*both, third):
        cache.close(sequence)
    assert cache.available == 8


def test_an_incomplete_page_goes_to_who_continues_it(ctx: nncuda.Context) -> None:
    cache = make(ctx)
    whole = text(PAGE + 90)
    first = run(cache, whole[: PAGE + 60])
    pages = list(first.pages)
    for pool in (*cache.keys, *cache.values):
        pool.copy_(np.random.default_rng(pool.ptr).integers(0, 256, pool.shape, dtype=np.uint8))
    cache.close(first)
    others = [cache.open(whole) for _ in range(2)]
    for other in others:
        assert other.shared == PAGE + 60 and other.pages[:1] == pages[:1]
        for pool in (*cache.keys, *cache.values):
            held = pool.numpy()
            np.testing.assert_array_equal(held[other.pages[1]], held[pages[1]])
    assert len({pages[1], *(other.pages[1] for other in others)}) == 3  # each writes to its own


@pytest.mark.parametrize("full", [True, False])
def test_a_page_that_differs_further_on_is_copied_as_far_as_it_does_not(ctx: nncuda.Context, full: bool) -> None:
    cache = make(ctx, pages=4)
    whole = text(PAGE + 1 if full else 90)
    first = run(cache, whole)
    for common in (15, 16, 80):
        other = np.append(whole[:common], [1001] * 20)
        before = cache.used
        sequence = cache.open(other, rows=len(other))
        if full or first.closed:  # an incomplete one is known when nobody writes to it any more
            assert sequence.shared == (common if common >= 16 else 0)
        else:
            assert sequence.shared == 0
        assert cache.used == before + bool(sequence.shared)
        cache.close(sequence)
        cache.close(first)


def test_the_page_that_is_copied_may_be_the_only_one_left(ctx: nncuda.Context) -> None:
    cache = make(ctx, pages=1, context=PAGE)
    cache.close(run(cache, text(90)))
    cache.keys[1].copy_(np.arange(cache.page_bytes).reshape(1, -1) % 251)
    sequence = cache.open(text(100), rows=100)
    assert sequence.shared == 90 and sequence.pages == [0]
    np.testing.assert_array_equal(cache.keys[1].numpy()[0], np.arange(cache.page_bytes) % 251)


def test_what_was_unused_longest_is_given_up_first_and_the_deepest_page_before_its_forerunners(
    ctx: nncuda.Context,
) -> None:
    cache = make(ctx, pages=6)
    old, new = text(2 * PAGE + 1, 1), text(2 * PAGE + 1, 2)
    cache.close(run(cache, old))
    cache.close(run(cache, new))
    taker = cache.open()
    cache.extend(taker, PAGE)  # which takes old's incomplete page
    cache.extend(taker, 2 * PAGE)
    for ids, shared in ((old, PAGE), (new, 2 * PAGE)):
        found = cache.open(ids)
        assert found.shared == shared
        cache.close(found)
    cache.forget()
    assert cache.open(new).shared == 0


def test_promises_are_kept(ctx: nncuda.Context) -> None:
    cache = make(ctx, pages=6)
    first = cache.open(rows=4 * PAGE)
    assert cache.available == 2
    with pytest.raises(
        CacheFullError, match=r"needs 3 pages of 128 tokens .* 2 of the cache's 6 .*cache_tokens is 768"
    ):
        cache.open(rows=2 * PAGE + 1)
    second = cache.open()
    cache.extend(second, 2 * PAGE)
    with pytest.raises(CacheFullError, match="needs a further page, and all 6"):
        cache.extend(second, 2 * PAGE + 1)
    cache.extend(first, 4 * PAGE)
    assert (cache.available, cache.used) == (0, 6)
    cache.close(second)
    assert cache.available == 2
    cache.close(first)
    assert cache.available == 6


def test_what_is_shared_needs_no_promise(ctx: nncuda.Context) -> None:
    cache = make(ctx, pages=4)
    first = run(cache, text(2 * PAGE + 1))
    second = cache.open(text(2 * PAGE + 1), rows=2 * PAGE + 1)
    assert second.shared == 2 * PAGE and cache.available == 0
    with pytest.raises(CacheFullError):
        cache.open(text(2 * PAGE + 1), rows=2 * PAGE + 1)
    assert cache.used == 3  # the one that was refused kept nothing
    cache.close(first)
    assert cache.available == 1


@pytest.mark.parametrize("context", [2 * PAGE, 2 * PAGE + 50])
def test_the_window_drops_the_oldest_page(ctx: nncuda.Context, context: int) -> None:
    cache = make(ctx, pages=3, context=context)
    sequence = cache.open(rows=10 * PAGE)
    for token in range(7 * PAGE):
        before = list(sequence.pages)
        dropped = cache.make_room(sequence)
        assert dropped == (token >= context and (token - context) % PAGE == 0)
        if dropped:
            assert sequence.length == context - PAGE and sequence.pages == before[1:]
        cache.extend(sequence, 1)
        cache.advance(sequence, [token % 50])
        assert sequence.position == token + 1
        assert sequence.length == sequence.position - (sequence.position - sequence.length) // PAGE * PAGE <= context
        assert len(sequence.pages) <= cache.max_pages
    # What it holds was computed without its beginning: nobody finds it.
    cache.close(sequence)
    assert cache.available == 3
    assert cache.open(np.arange(2 * PAGE) % 50).shared == 0


def test_a_dropped_page_that_others_use_stays_theirs(ctx: nncuda.Context) -> None:
    cache = make(ctx, pages=5, context=2 * PAGE)
    first = run(cache, text(2 * PAGE))
    second = cache.open(text(2 * PAGE))
    page = second.pages[0]
    assert first.pages[0] == page
    assert cache.make_room(first) and page not in first.pages
    assert (second.shared, cache.used) == (2 * PAGE - 1, 3)
    cache.close(first)
    assert second.pages[0] == page and cache.used == 2


def test_a_sequence_has_no_more_rows_than_the_context(ctx: nncuda.Context) -> None:
    cache = make(ctx, context=200)
    sequence = cache.open()
    with pytest.raises(ValueError, match="201 tokens; the context has room for 200"):
        cache.extend(sequence, 201)
    cache.extend(sequence, 200)


def test_random_comings_and_goings_lose_no_page(ctx: nncuda.Context) -> None:
    rng = np.random.default_rng(5)
    cache = make(ctx, pages=12, context=4 * PAGE)
    texts = [np.concatenate([text(PAGE * k, 1), text(600, seed)]) for seed in range(3) for k in range(3)]
    sequences: list[tuple[CachedSequence, np.ndarray]] = []
    refused = shared = 0
    for _ in range(3000):
        choice = rng.random()
        if choice < 0.3:
            ids = texts[rng.integers(len(texts))][: rng.integers(1, 5 * PAGE)]
            try:
                sequence = cache.open(ids, int(rng.integers(0, 6 * PAGE)))
            except CacheFullError:
                refused += 1
                continue
            shared += sequence.shared > 0
            sequences.append((sequence, ids))
        elif sequences and choice < 0.8:
            sequence, ids = sequences[rng.integers(len(sequences))]
            try:
                cache.make_room(sequence)
                count = min(int(rng.integers(1, 100)), cache.context - sequence.length)
                cache.extend(sequence, count)
            except CacheFullError:
                refused += 1
                continue
            new = np.resize(ids, sequence.position + count)[sequence.position :]
            cache.advance(sequence, new.tolist())
        elif sequences:
            cache.close(sequences.pop(rng.integers(len(sequences)))[0])
        users = [page for sequence, _ in sequences for page in sequence.pages]
        assert len(set(users)) == cache.used
        assert cache.available >= 0
    assert refused > 50 and shared > 50  # it was about something
    for sequence, _ in sequences:
        cache.close(sequence)
    assert cache.available == 12
    cache.forget()
    assert cache.available == 12 and cache.open(texts[-1]).shared == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"format": "q4_0"}, "cache_format is 'q4_0'; it must be one of f16, f32, bf16, q8_0, e4m3"),
        ({"format": "q8_0", "head_dim": 24}, "blocks of 32 do not divide heads of 24"),
        ({"pages": 0}, "0 pages"),
        ({"context": 0}, "sequences of 0 tokens"),
    ],
)
def test_what_it_refuses(ctx: nncuda.Context, options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make(ctx, **options)
