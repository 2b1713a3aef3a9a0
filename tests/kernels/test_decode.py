"""Choosing tokens, on every instruction set, against the definition in float64 and against exact distributions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import goodness
import numpy as np
import pytest
from engine import DTYPES, FLOATS, THREADS, Engine, empty

INF = np.inf


@dataclass(frozen=True)
class Options:
    """A call's options: the same for each row, except for the steps, which count on from `step`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = 0
    step: int = 0


def choose(cpu: Engine, logits: np.ndarray, o: Options, dtype: str = "f32") -> np.ndarray:
    """Row r is draw number step + r of the seed."""
    rows, vocab = logits.shape
    ids = empty(rows, "i32")
    temperature, seeds = np.full(rows, o.temperature, np.float32), np.full(rows, o.seed, np.int64)
    steps = np.arange(o.step, o.step + rows, dtype=np.int32)
    top_k = None if o.top_k is None else np.full(rows, o.top_k, np.int32)
    top_p = None if o.top_p is None else np.full(rows, o.top_p, np.float32)
    if o.min_p is not None:
        min_p = np.full(rows, o.min_p, np.float32)
        cpu.minp_sample(logits, temperature, top_k, top_p, min_p, seeds, steps, ids, rows, vocab, dtype)
    elif top_p is not None:
        cpu.topp_sample(logits, temperature, top_k, top_p, seeds, steps, ids, rows, vocab, dtype)
    elif top_k is not None:
        cpu.topk_sample(logits, temperature, top_k, seeds, steps, ids, rows, vocab, dtype)
    else:
        cpu.sample(logits, temperature, seeds, steps, ids, rows, vocab, dtype)
    return ids


def distribution(logits: np.ndarray, o: Options) -> np.ndarray:
    """The exact probability of each token, from the header's rules."""
    x = logits.astype(np.float64)
    p = np.zeros(len(x))
    allowed = np.flatnonzero(x > -INF)
    if (x == INF).any():
        allowed = np.flatnonzero(x == INF)
    if not len(allowed):
        p[0] = 1
        return p
    order = allowed[np.argsort(-x[allowed], kind="stable")]
    if o.temperature == 0:
        order = order[:1]
    if o.top_k is not None:
        order = order[: o.top_k]
    if len(order) == 1 or x[order[0]] == INF:
        weights = np.ones(len(order))
    else:
        with np.errstate(over="ignore"):
            weights = np.exp((x[order] - x[order[0]]) / float(np.float32(o.temperature)))
    if o.top_p is not None and np.float32(o.top_p) < 1:
        running = np.cumsum(weights)
        length = int(np.argmax(running >= float(np.float32(o.top_p)) * running[-1])) + 1
        order, weights = order[:length], weights[:length]
    if o.min_p is not None:
        likely = weights >= float(np.float32(o.min_p))
        order, weights = order[likely], weights[likely]
    p[order] = weights / weights.sum()
    return p


def uniforms(cpu: Engine, o: Options, rows: int) -> np.ndarray:
    words = empty(4 * rows, "i32")
    cpu.random_bits(words, 4 * rows, o.seed, 0, o.step)
    return words.view(np.uint32)[0::4] * 2.0**-32


def check_draws(cpu: Engine, logits: np.ndarray, o: Options, dtype: str, tolerance: float = 2e-6) -> None:
    """Each row's token is the one whose stretch of the cumulative distribution holds u, give or take `tolerance`."""
    ids, u = choose(cpu, logits, o, dtype), uniforms(cpu, o, len(logits))
    for r, row in enumerate(logits):
        p = distribution(row, o)
        assert 0 <= ids[r] < len(row) and p[ids[r]] > 0, (o, ids[r])
        high = p[: ids[r] + 1].sum()
        assert high - p[ids[r]] - tolerance <= u[r] <= high + tolerance, (o, ids[r], u[r])


def hard_rows(rng: np.random.Generator, vocab: int, dtype: str) -> np.ndarray:
    """Spread, flat and tied logits, and such with holes."""
    x = rng.standard_normal((8, vocab)) * np.array([[0.1], [1], [4], [20], [3], [3], [3], [0]])
    x[4] = np.round(x[4])
    x[5, rng.random(vocab) < 0.4] = -INF
    x[6, rng.random(vocab) < 0.4] = np.nan
    x[7] = rng.choice([0.0, -0.0], vocab)
    return x.astype(DTYPES[dtype])


OPTIONS = [
    Options(),
    Options(0.5),
    Options(7.0),
    Options(0.0),
    Options(1.0, top_k=1),
    Options(0.8, top_k=2),
    Options(1.3, top_k=50),
    Options(1.0, top_k=2**31 - 1),
    Options(1.0, top_p=1.0),
    Options(1.0, top_p=0.9),
    Options(2.0, top_p=0.37),
    Options(1.0, top_p=1e-9),
    Options(1.0, top_k=20, top_p=0.5),
    Options(0.7, top_k=3, top_p=1.0),
    Options(1.0, min_p=0.0),
    Options(1.0, min_p=0.1),
    Options(3.0, min_p=1.0),
    Options(0.8, top_k=20, min_p=0.03),
    Options(1.0, top_k=30, top_p=0.8, min_p=0.2),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("vocab", [1, 2, 3, 5, 15, 16, 17, 31, 33, 100, 1023, 1025, 3000, 40000])
def test_draws(cpu: Engine, vocab: int, dtype: str) -> None:
    """Eight rows go one a task."""
    rng = np.random.default_rng(vocab)
    x = hard_rows(rng, vocab, dtype)
    for i, o in enumerate(OPTIONS):
        check_draws(cpu, x, replace(o, seed=-(2**62) + i, step=2**31 - 8 - i), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_few_rows_are_cut_into_pieces_with_the_same_bits(cpu: Engine, dtype: str) -> None:
    """What many rows draw, each one task, is what each draws alone, when its vocabulary is shared out."""
    x = hard_rows(np.random.default_rng(3), 50_001, dtype)
    for o in OPTIONS:
        together = choose(cpu, x, replace(o, seed=77, step=100), dtype)
        for r in range(8):
            assert choose(cpu, x[r : r + 1], replace(o, seed=77, step=100 + r), dtype)[0] == together[r]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("vocab", [1, 2, 7, 16, 17, 100, 1024, 1025, 16384, 16385, 50001])
def test_argmax(cpu: Engine, vocab: int, dtype: str) -> None:
    rng = np.random.default_rng(vocab)
    x = np.concatenate([hard_rows(rng, vocab, dtype) for _ in range(3)])
    x[20:, rng.integers(0, vocab, 3)] = INF
    x[0], x[1] = np.nan, -INF
    ids = empty(len(x), "i32")
    cpu.argmax(x, ids, len(x), vocab, dtype)
    wide = np.where(np.isnan(x), -INF, x.astype(np.float64))
    assert (ids == np.argmax(wide, axis=1)).all()  # the first of equals, 0 where nothing can be chosen
    for o in (Options(0.0), Options(3.0, top_k=1), Options(0.0, top_p=0.5)):
        assert (choose(cpu, x, o, dtype) == ids).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities(cpu: Engine, dtype: str) -> None:
    x = np.zeros((4000, 600), DTYPES[dtype])
    x[:, [3, 77, 500, 599]] = INF
    x[:, 5], x[:, 6] = np.nan, -INF
    for o, expected in (
        (Options(), {3, 77, 500, 599}),
        (Options(1e-30), {3, 77, 500, 599}),
        (Options(5.0, top_k=2), {3, 77}),
        (Options(5.0, top_k=600), {3, 77, 500, 599}),
        (Options(1.0, top_p=0.5), {3, 77}),
        (Options(1.0, top_p=0.51), {3, 77, 500}),
        (Options(1.0, top_k=3, top_p=0.3), {3}),
        (Options(1.0, min_p=1.0), {3, 77, 500, 599}),
        (Options(0.0), {3}),
    ):
        assert set(choose(cpu, x, o, dtype).tolist()) == expected
    nothing = np.full((3, 600), -INF, DTYPES[dtype])
    nothing[1] = np.nan
    nothing[2, ::2] = np.nan
    for o in OPTIONS:
        assert (choose(cpu, nothing, o, dtype) == 0).all()


@pytest.mark.parametrize("vocab", [8, 50_000])
def test_ties_at_the_border_are_never_over_accepted(cpu: Engine, vocab: int) -> None:
    """8 equal logits, the rest lower: of those the first k, or as many as reach p, and no other, in all draws."""
    rng = np.random.default_rng(1)
    best = np.sort(rng.choice(vocab, 8, replace=False))
    x = np.full((2000 if vocab == 8 else 150, vocab), -1000.0, np.float32)
    x[:, best] = -0.125
    x[:, best[::2]] += 0.0
    for k in range(1, 9):
        assert set(choose(cpu, x, Options(1.0, top_k=k)).tolist()) == set(best[:k].tolist())
    for p, length in ((0.125, 1), (0.126, 2), (0.25, 2), (0.5, 4), (0.51, 5), (0.875, 7), (0.999, 8), (1.0, 8)):
        assert set(choose(cpu, x, Options(1.0, top_p=p)).tolist()) == set(best[:length].tolist())
    for k, p, length in ((4, 0.5, 2), (4, 0.75, 3), (4, 0.76, 4), (2, 1.0, 2)):
        assert set(choose(cpu, x, Options(1.0, top_k=k, top_p=p)).tolist()) == set(best[:length].tolist())


def test_minus_zero_is_zero(cpu: Engine) -> None:
    x = np.tile(np.array([-1, -0.0, 0.0, -0.0, 0.0], np.float32), (500, 1))
    assert set(choose(cpu, x, Options(1.0, top_k=2)).tolist()) == {1, 2}
    assert set(choose(cpu, x, Options(1.0, top_k=3)).tolist()) == {1, 2, 3}


def test_extreme_temperatures_and_logits(cpu: Engine) -> None:
    x = np.tile(np.array([-3e38, 3.4e38, 1.0, 3.4e38, -3.4e38], np.float32), (500, 1))
    for temperature in (1e-45, 1e-38, 1e-6, 1.0, 1e6):
        assert set(choose(cpu, x, Options(temperature)).tolist()) == {1, 3}
    x = np.tile(np.array([0.0, 1e-3, -5.0], np.float32), (500, 1))
    assert set(choose(cpu, x, Options(1e-45)).tolist()) == {1}
    assert set(choose(cpu, x, Options(3e38)).tolist()) == {0, 1, 2}


def test_ends_of_the_uniform(cpu: Engine) -> None:
    """The draws with the least and the greatest u of the first four million: always a token that may be drawn."""
    n = 1 << 22
    u = np.concatenate([uniforms(cpu, Options(seed=9, step=i), 1 << 20) for i in range(0, n, 1 << 20)])
    rng = np.random.default_rng(0)
    for step, end in ((int(u.argmin()), 0), (int(u.argmax()), -1)):
        assert min(u[step], 1 - u[step]) < 2e-6
        for vocab in (5, 1000, 1024, 3000):
            x = np.full((1, vocab), -INF, np.float32)
            some = np.sort(rng.choice(vocab, 3, replace=False))
            x[0, some] = [-40.0, 0.0, -40.0]  # ends that are too light to be drawn by these u
            for o in (Options(seed=9, step=step), Options(1.0, top_p=0.99999994, seed=9, step=step)):
                assert choose(cpu, x, o)[0] == some[1]
            x[0, some] = 0.0
            assert choose(cpu, x, Options(seed=9, step=step))[0] == some[end]
            x[0, some] = [-200.0, 0.0, -200.0]  # weights that are 0 in f32
            assert choose(cpu, x, Options(seed=9, step=step))[0] == some[1]


CHI_SQUARE = [
    Options(1.0),
    Options(0.6),
    Options(1.5, top_k=9),
    Options(1.0, top_p=0.8),
    Options(1.3, top_k=25, top_p=0.9),
    Options(1.2, min_p=0.15),
]


@pytest.mark.parametrize("i", range(len(CHI_SQUARE)))
def test_a_million_draws_follow_the_distribution(i: int) -> None:
    cpu, o, vocab, rows = Engine(), replace(CHI_SQUARE[i], seed=1000 + i), 40, 100_000
    row = np.random.default_rng(i).standard_normal(vocab).astype(np.float32)
    row[7], row[8], row[20] = -INF, np.nan, row[21]
    logits, counts = np.tile(row, (rows, 1)), np.zeros(vocab, np.int64)
    for step in range(0, 1_000_000, rows):
        counts += np.bincount(choose(cpu, logits, replace(o, step=step)), minlength=vocab)
    assert counts.sum() == 1_000_000
    p = goodness.chi_square(counts, distribution(row, o))
    print(f"p = {p:.3g}")
    assert p > goodness.LEAST_P


def test_a_million_draws_over_a_large_vocabulary() -> None:
    """32 000 tokens: the walk over blocks gives each its share, by groups of neighbours and by rank."""
    cpu, vocab, rows, o = Engine(), 32_000, 400, Options(1.0, top_p=0.95)
    row = (2.5 * np.random.default_rng(5).standard_normal(vocab)).astype(np.float32)
    logits, counts = np.tile(row, (rows, 1)), np.zeros(vocab, np.int64)
    for seed in range(25):
        counts += np.bincount(choose(cpu, logits, replace(o, seed=seed)), minlength=vocab)
    p = distribution(row, o)
    assert not counts[p == 0].any()
    by_rank = np.argsort(-row)
    for order in (np.arange(vocab), by_rank):
        groups, shares = (np.add.reduceat(v[order], np.arange(0, vocab, 250)) for v in (counts, p))
        assert goodness.chi_square(groups, shares) > goodness.LEAST_P


def test_seeds_and_steps_are_rows_of_their_own(cpu: Engine) -> None:
    """Rows with other options do not disturb each other, and the same seed and step draw the same."""
    rng = np.random.default_rng(2)
    rows, vocab = 64, 300
    x = rng.standard_normal((rows, vocab)).astype(np.float32)
    temperature = rng.choice([0.0, 0.5, 1.0, 2.0], rows).astype(np.float32)
    top_k = rng.choice([1, 5, 300, 1000], rows).astype(np.int32)
    top_p = rng.choice([0.1, 0.9, 1.0], rows).astype(np.float32)
    seeds, steps = rng.integers(-(2**63), 2**63 - 1, rows), rng.integers(0, 2**31 - 1, rows).astype(np.int32)
    ids = empty(rows, "i32")
    cpu.topp_sample(x, temperature, top_k, top_p, seeds, steps, ids, rows, vocab, "f32")
    for r in range(rows):
        o = Options(temperature[r], int(top_k[r]), top_p[r], None, int(seeds[r]), int(steps[r]))
        assert choose(cpu, x[r : r + 1], o)[0] == ids[r]
        check_draws(cpu, x[r : r + 1], o, "f32")


@pytest.mark.parametrize("rows,vocab", [(1, 100_000), (5, 40_000), (40, 3000)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_same_bits_for_any_number_of_threads(cpu: Engine, rows: int, vocab: int, dtype: str) -> None:
    x = (np.random.default_rng(rows).standard_normal((rows, vocab)) * 2).astype(DTYPES[dtype])
    results = set()
    for threads in THREADS:
        engine, ids = Engine(threads, cpu.isa), empty(rows, "i32")
        engine.argmax(x, ids, rows, vocab, dtype)
        drawn = [choose(engine, x, o, dtype) for o in OPTIONS]
        results.add(b"".join(array.tobytes() for array in (ids, *drawn)))
    assert len(results) == 1


# What is done to logits, and log-probabilities


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("vocab", [1, 2, 15, 16, 17, 100, 1023, 1024, 1025, 3000, 40000])
def test_logprobs(cpu: Engine, vocab: int, dtype: str) -> None:
    """The list is that of a stable sort; the numbers are log softmax in float64, but for f32 rounding of a sum."""
    rng = np.random.default_rng(vocab)
    x = np.concatenate([hard_rows(rng, vocab, dtype) for _ in range(2)])
    x[12], x[13] = -INF, np.nan
    x[14, rng.integers(0, vocab, 3)] = INF
    ids = rng.integers(0, vocab, len(x)).astype(np.int32)
    for n in (1, 5, 128):
        chosen, top_ids, top = empty(len(x), "f32"), empty((len(x), n), "i32"), empty((len(x), n), "f32")
        cpu.logprobs(x, ids, chosen, top_ids, top, len(x), vocab, n, dtype)
        for r, row in enumerate(x):
            exact, order = logarithms(row.astype(np.float64))
            listed = np.full(n, -1)
            listed[: len(order[:n])] = order[:n]
            assert (top_ids[r] == listed).all()
            bound = 2e-6 * max(1.0, np.abs(exact[order]).max(initial=0))
            for found, wanted in (
                (chosen[r], exact[ids[r]]),
                *zip(top[r], np.append(exact, -INF)[listed], strict=True),
            ):
                assert found == wanted or abs(found - wanted) <= bound
        alone = empty(len(x), "f32")
        cpu.logprobs(x, ids, alone, None, None, len(x), vocab, 0, dtype)
        np.testing.assert_array_equal(alone, chosen)
        for ids_of, logprobs_of in ((top_ids, None), (None, top)):
            again = [None if one is None else np.zeros_like(one) for one in (ids_of, logprobs_of)]
            cpu.logprobs(x, ids, alone, *again, len(x), vocab, n, dtype)
            for one, other in zip(again, (ids_of, logprobs_of), strict=True):
                assert (one is None) == (other is None) and (one is None or (one == other).all())


def logarithms(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The exact log-probability of each token, and those that may be drawn in their order."""
    found = np.full(len(x), -INF)
    allowed = np.flatnonzero(x == INF) if (x == INF).any() else np.flatnonzero(x > -INF)
    order = allowed[np.argsort(-x[allowed], kind="stable")]
    if len(order):
        shifted = np.zeros(len(order)) if x[order[0]] == INF else x[order] - x[order[0]]
        found[order] = shifted - np.log(np.exp(shifted).sum())
    return found, order


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("vocab", [1, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 1000, 1001])
def test_masks(cpu: Engine, vocab: int, dtype: str) -> None:
    """Tokens that are allowed keep their bits, of NaN too; masks shorter and longer than the vocabulary."""
    rng = np.random.default_rng(vocab)
    needed = -(-vocab // 32)
    for words in {max(1, needed - 1), needed, needed + 1}:
        masks = rng.integers(0, 2**32, (3, words)).astype(np.uint32)
        masks[1] = 0xFFFFFFFF
        of = np.array([-1, 0, 1, 2, 1, -1, 0, 2], np.int32)
        x = hard_rows(rng, vocab, dtype)
        allowed = np.zeros((3, max(vocab, 32 * words)), bool)
        allowed[:, : 32 * words] = (masks[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(3, -1)
        wanted = x.copy()
        for r, mask in enumerate(of):
            if mask >= 0:
                wanted[r, ~allowed[mask, :vocab]] = -INF
        cpu.mask_logits(x, masks, of, len(x), vocab, 3, words, dtype)
        np.testing.assert_array_equal(x.view(np.uint8), wanted.view(np.uint8))


def test_lists_of_tokens_count_what_comes(cpu: Engine) -> None:
    """A thousand draws into lists that begin empty, or with tokens of a prompt: what a dictionary would have."""
    rng = np.random.default_rng(4)
    rows, vocab, capacity = 3, 300, 300
    lists, counts = np.full((rows, capacity), -5, np.int32), np.full((rows, capacity), -6, np.int32)
    lengths = np.array([0, -1, 40], np.int32)
    lists[2, :40], counts[2, :40] = np.sort(rng.choice(vocab, 40, replace=False)), 0
    known: list[dict[int, int]] = [{}, {}, dict.fromkeys(lists[2, :40].tolist(), 0)]
    for _ in range(1000):
        ids = np.minimum(rng.geometric(0.02, rows) - 1, vocab - 1).astype(np.int32)
        cpu.count_tokens(ids, lists, counts, lengths, rows, vocab, capacity)
        for r in (0, 2):
            known[r][int(ids[r])] = known[r].get(int(ids[r]), 0) + 1
    assert lengths.tolist() == [len(known[0]), -1, len(known[2])] and (lists[1] == -5).all() and (counts[1] == -6).all()
    for r in (0, 2):
        ids, counted = lists[r, : lengths[r]].tolist(), counts[r, : lengths[r]].tolist()
        assert ids == sorted(known[r]) and counted == [known[r][token] for token in ids]
        assert (lists[r, lengths[r] :] == -5).all()
