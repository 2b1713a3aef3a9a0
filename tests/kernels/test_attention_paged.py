"""Attention over paged caches: against float64, and the promise that a token has the same bits in any company.

The bounds on errors are those of test_attention.py: the root mean square at most twice that of the plain formula in f32
plus one rounding to the dtype, the largest error at most four times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import engine
import numpy as np
import pytest
import stored
from engine import FLOATS, ROUNDING, THREADS, Engine
from pages import STORAGE, Pages, filled, offsets

from nncuda.reference import attention as reference


@dataclass(frozen=True)
class Case:
    heads: int
    kv_heads: int
    head_dim: int
    lengths: tuple[int, ...]
    fresh: tuple[int, ...] = ()
    storage: str = "f16"
    dtype: str = "f32"
    extra: int = 0
    """Elements behind the queries of a token, as in a fused product of queries, keys and values."""
    window: int = 0
    softcap: float = 0.0
    sinks: tuple[float, ...] = ()

    def __str__(self) -> str:
        sizes = f"{self.heads}/{self.kv_heads}x{self.head_dim}-{'_'.join(map(str, self.lengths))}"
        return f"{sizes}-{self.storage}-{self.dtype}" + f"-ld{self.extra}" * bool(self.extra)

    @property
    def scale(self) -> float:
        return float(np.float32(1 / math.sqrt(self.head_dim)))

    @property
    def options(self) -> tuple[float, int, float]:
        return self.scale, self.window, self.softcap

    @property
    def sink_scores(self) -> np.ndarray | None:
        return np.array(self.sinks, np.float32) if self.sinks else None

    def pages(self) -> Pages:
        return filled(self.storage, self.kv_heads, self.head_dim, self.lengths)

    def queries(self, tokens: int) -> np.ndarray:
        """[tokens, ld_q], NaN where no query is."""
        width = self.heads * self.head_dim
        rows = engine.empty((tokens, width + self.extra), self.dtype)
        rows[:, :width] = np.random.default_rng(tokens).standard_normal((tokens, width))
        return rows


SHAPES = [(4, 4, 64), (16, 2, 64), (12, 1, 64), (3, 3, 80), (8, 1, 128), (2, 1, 256), (130, 1, 8)]


def prefill(cpu: Engine, case: Case, pages: Pages, q: np.ndarray, at: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    out = engine.empty((len(q), case.heads, case.head_dim), case.dtype)
    sizes = (len(q), len(lengths), *pages.sizes, case.heads, case.kv_heads, case.head_dim, q.shape[1], pages.page_bytes)
    tables = np.ascontiguousarray(pages.table)
    cpu.flash_attention_paged(
        q, pages.k, pages.v, at, lengths, tables, case.sink_scores, out, *sizes, *case.options, pages.number, case.dtype
    )
    return out


def decode(
    cpu: Engine, case: Case, pages: Pages, q: np.ndarray, lengths: np.ndarray, table: np.ndarray | None = None
) -> np.ndarray:
    table = pages.table if table is None else table
    out = engine.empty((len(q), case.heads, case.head_dim), case.dtype)
    sizes = (len(q), table.shape[1], len(pages.k), case.heads, case.kv_heads, case.head_dim, q.shape[1])
    cpu.attention_decode_paged(
        q,
        pages.k,
        pages.v,
        lengths,
        table,
        case.sink_scores,
        out,
        *sizes,
        pages.page_bytes,
        *case.options,
        pages.number,
        case.dtype,
    )
    return out


_WANTED: dict[Case, tuple[np.ndarray, np.ndarray]] = {}


def wanted(case: Case, q: np.ndarray, pages: Pages) -> tuple[np.ndarray, np.ndarray]:
    """In float64 and in f32; shared by the instruction sets."""
    if case not in _WANTED:
        rows = q[:, : case.heads * case.head_dim].reshape(len(q), case.heads, case.head_dim)
        common = {
            "k_pages": pages.k,
            "v_pages": pages.v,
            "lengths": pages.lengths,
            "page_table": pages.table,
            "kv_heads": case.kv_heads,
            "scale": case.scale,
            "format": pages.number,
            "sinks": case.sink_scores,
            "window": case.window,
            "softcap": case.softcap,
        }
        if case.fresh:
            common["offsets"] = offsets(case.fresh)
        kernel = reference.flash_attention_paged if case.fresh else reference.attention_decode_paged
        _WANTED[case] = tuple(kernel(q=rows.astype(real), **common)["out"] for real in (np.float64, np.float32))
    return _WANTED[case]


def check(case: Case, got: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
    errors, plain = got.astype(np.float64) - exact, single.astype(np.float64) - exact
    for measure, factor in ((lambda x: np.sqrt(np.mean(x * x)), 2), (lambda x: np.abs(x).max(), 4)):
        bound = factor * measure(plain) + ROUNDING[case.dtype] * measure(exact)
        assert measure(errors) <= bound, f"{measure(errors) / bound:.3g} times the bound"  # NaN fails, too


def test_same_as_contiguous(cpu: Engine) -> None:
    """Two orders of the same sums: each within its bound of float64."""
    case = Case(8, 2, 64, (200,), (200,), "f32")
    pages, q = case.pages(), case.queries(200)
    k, v = (np.ascontiguousarray(pages.rows(x, 0)) for x in (pages.k, pages.v))
    out = engine.empty((200, 8, 64), "f32")
    cpu.flash_attention(q, k, v, None, out, None, 1, 200, 200, 8, 2, 64, 512, 128, case.scale, 1, "f32")
    check(case, out, *wanted(case, q, pages))
    check(case, prefill(cpu, case, pages, q, offsets([200]), pages.lengths), *wanted(case, q, pages))


# ---- the promise ----

LENGTH = 300


def alone(cpu: Engine, case: Case, pages: Pages, q: np.ndarray) -> np.ndarray:
    """Each token of a sequence by decoding, all in one batch: the same pages, seen up to one row more each time."""
    table = np.repeat(pages.table[:1], LENGTH, axis=0)
    return decode(cpu, case, pages, q, np.arange(1, LENGTH + 1, dtype=np.int32), table)


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_prefill_is_decoding(cpu: Engine, shape: tuple[int, int, int], storage: str) -> None:
    if storage == "q8_0" and shape[2] % 32:
        pytest.skip("head_dim is no whole number of blocks")
    case = Case(*shape, (LENGTH,), storage=storage)
    pages, q = case.pages(), case.queries(LENGTH)
    whole = prefill(cpu, case, pages, q, offsets([LENGTH]), pages.lengths)
    assert np.isfinite(whole).all()
    assert whole.tobytes() == alone(cpu, case, pages, q).tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_cache_of_one_piece(cpu: Engine, shape: tuple[int, int, int], dtype: str) -> None:
    """attention_decode has the bits of pages that hold its rows, and reads nothing behind the cache."""
    case = Case(*shape, (300, 0, 1, 130, 301), storage=dtype, dtype=dtype, extra=3)
    pages, q, capacity = case.pages(), case.queries(5), 301
    k, v = (engine.empty((5, capacity, *shape[1:]), dtype) for _ in "kv")
    for b, length in enumerate(case.lengths):
        k[b, :length], v[b, :length] = (pages.rows(x, b) for x in (pages.k, pages.v))
    out = engine.empty((5, case.heads, case.head_dim), dtype)
    sizes = (5, capacity, *shape, q.shape[1])
    with stored.walled() as memory:
        caches = memory.place(k), memory.place(v)
        cpu.attention_decode(q, *caches, pages.lengths, out, *sizes, case.scale, dtype)
    assert out.tobytes() == decode(cpu, case, pages, q, pages.lengths).tobytes()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("case", [Case(8, 1, 64, (LENGTH,)), Case(2, 2, 80, (LENGTH,), storage="f32")], ids=str)
def test_any_cut_of_a_prompt(case: Case, threads: int) -> None:
    cpu = Engine(threads=threads)
    pages, q = case.pages(), case.queries(LENGTH)
    whole = alone(cpu, case, pages, q)
    if threads != 1:
        assert whole.tobytes() == alone(Engine(threads=1), case, pages, q).tobytes()
    for cut in range(0, LENGTH, 7):
        first = prefill(cpu, case, pages, q[:cut], offsets([cut]), np.array([cut], np.int32)) if cut else whole[:0]
        rest = prefill(cpu, case, pages, q[cut:], offsets([LENGTH - cut]), pages.lengths)
        assert np.concatenate([first, rest]).tobytes() == whole.tobytes(), f"cut at {cut}"


@pytest.mark.parametrize("shape", [(8, 1, 64), (4, 4, 40), (130, 1, 8)], ids=lambda shape: "x".join(map(str, shape)))
def test_pages_over_threads(shape: tuple[int, int, int]) -> None:
    """Few rows and many keys: with several threads, tasks take a page each."""
    case = Case(*shape, (1300,), (3,))
    pages, q = case.pages(), case.queries(3)
    found = set()
    for threads in THREADS:
        cpu = Engine(threads=threads)
        out = prefill(cpu, case, pages, q, offsets([3]), pages.lengths)
        assert decode(cpu, case, pages, q[2:], pages.lengths).tobytes() == out[2:].tobytes()
        found.add(out.tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_any_company(cpu: Engine, dtype: str) -> None:
    """Sequences of a ragged call against calls of their own."""
    case = Case(6, 2, 64, (5, 300, 128, 1, 40), (5, 120, 1, 1, 0), dtype=dtype)
    pages, q = case.pages(), case.queries(sum(case.fresh))
    together = prefill(cpu, case, pages, q, offsets(case.fresh), pages.lengths)
    for b, fresh in enumerate(case.fresh):
        rows = slice(offsets(case.fresh)[b], offsets(case.fresh)[b + 1])
        one = Pages(case.storage, 2, 64, pages.lengths[b : b + 1], pages.table[b : b + 1], pages.k, pages.v)
        if fresh:
            assert prefill(cpu, case, one, q[rows], offsets([fresh]), one.lengths).tobytes() == together[rows].tobytes()


def test_shared_pages(cpu: Engine) -> None:
    """A prefix that two sequences share, and copies of it, give the same."""
    case = Case(8, 2, 64, (300, 300))
    pages, q = case.pages(), case.queries(2)
    for x in (pages.k, pages.v):
        x[pages.table[1, :2]] = x[pages.table[0, :2]]
    apart = decode(cpu, case, pages, q, pages.lengths)
    pages.table[1, :2] = pages.table[0, :2]
    assert apart.tobytes() == decode(cpu, case, pages, q, pages.lengths).tobytes()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_later_tokens_take_no_part(cpu: Engine, value: float) -> None:
    """Not even times zero, when what is stored for them is not finite."""
    case = Case(3, 1, 16, (200,), (200,), "f32")
    pages, q = case.pages(), case.queries(200)
    plain = prefill(cpu, case, pages, q, offsets([200]), pages.lengths)
    for x in (pages.k, pages.v):
        x[pages.table[0, 1]].view(np.float32).reshape(128, 16)[42:] = value  # from token 170 on
    spoilt = prefill(cpu, case, pages, q, offsets([200]), pages.lengths)
    assert spoilt[:170].tobytes() == plain[:170].tobytes()
    assert not np.isfinite(spoilt[170:]).any()


def test_infinite_scores_have_no_weight(cpu: Engine) -> None:
    """Not in their page, and not as a page of nothing else."""
    case = Case(1, 1, 8, (300,), storage="f32")
    pages, q = case.pages(), np.ones((1, 8), np.float32)
    for page in pages.table[0, :2]:
        pages.k[page].view(np.float32)[: 8 * (5 if page == pages.table[0, 1] else 128)] = -3e38
    got = decode(cpu, case, pages, q, pages.lengths)
    k, v = pages.rows(pages.k, 0)[133:], pages.rows(pages.v, 0)[133:]
    assert np.isfinite(got).all()
    scores = k[:, 0].astype(np.float64).sum(-1) * case.scale
    p = np.exp(scores - scores.max())
    assert np.allclose(got[0, 0], p / p.sum() @ v[:, 0].astype(np.float64), rtol=0, atol=167 * 2.0**-24 * abs(v).max())


@pytest.mark.parametrize("storage", ["f32", "f16", "q8_0", "e4m3"])
def test_pages_at_any_address(cpu: Engine, storage: str) -> None:
    case = Case(4, 2, 32, (140,), (20,), storage)
    pages, q = case.pages(), case.queries(20)
    straight = prefill(cpu, case, pages, q, offsets([20]), pages.lengths)
    for name in ("k", "v"):
        x = getattr(pages, name)
        odd = np.empty(x.size + 1, np.uint8)[1:]
        odd[:] = x.reshape(-1)
        setattr(pages, name, odd.reshape(x.shape))
    assert straight.tobytes() == prefill(cpu, case, pages, q, offsets([20]), pages.lengths).tobytes()


def test_rows_of_nobody_stay(cpu: Engine) -> None:
    case = Case(2, 1, 16, (9, 4), (3, 2), "f32")
    pages, q = case.pages(), case.queries(8)
    q[5:] = np.nan
    out = prefill(cpu, case, pages, q, offsets(case.fresh), pages.lengths)
    assert np.isfinite(out[:5]).all() and np.isnan(out[5:]).all()


# ---- windows, soft caps, sinks ----

VARIANTS = [
    Case(4, 4, 64, (LENGTH,), window=40),
    Case(16, 2, 64, (LENGTH,), window=1, storage="bf16"),
    Case(8, 1, 128, (LENGTH,), window=130, softcap=2.0),
    Case(2, 1, 256, (LENGTH,), softcap=3.0, sinks=(0.5, -1.0)),
    Case(3, 3, 80, (LENGTH,), window=128, sinks=(0.0, 40.0, -40.0), storage="f32"),
    Case(4, 1, 32, (LENGTH,), window=17, sinks=(1.0, 2.0, 3.0, 4.0), storage="q8_0"),
    Case(130, 1, 8, (LENGTH,), window=5, storage="e4m3"),
]


@pytest.mark.parametrize("case", VARIANTS, ids=str)
def test_variants(cpu: Engine, case: Case) -> None:
    """Against float64; and each token of a prompt has the bits that decoding gives it."""
    pages, q = case.pages(), case.queries(LENGTH)
    whole = prefill(cpu, case, pages, q, offsets([LENGTH]), pages.lengths)
    check(case, whole, *wanted(replace(case, fresh=(LENGTH,)), q, pages))
    assert whole.tobytes() == alone(cpu, case, pages, q).tobytes()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("case", VARIANTS[:4], ids=str)
def test_any_cut_of_a_window(case: Case, threads: int) -> None:
    cpu = Engine(threads=threads)
    pages, q = case.pages(), case.queries(LENGTH)
    whole = prefill(Engine(threads=1), case, pages, q, offsets([LENGTH]), pages.lengths)
    for cut in range(1, LENGTH, 37):
        first = prefill(cpu, case, pages, q[:cut], offsets([cut]), np.array([cut], np.int32))
        rest = prefill(cpu, case, pages, q[cut:], offsets([LENGTH - cut]), pages.lengths)
        assert np.concatenate([first, rest]).tobytes() == whole.tobytes(), f"cut at {cut}"


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("group", [1, 8])
def test_tokens_before_the_window_take_no_part(cpu: Engine, group: int, value: float) -> None:
    case = Case(group, 1, 16, (LENGTH,), storage="f32", window=20)
    pages, q = case.pages(), case.queries(LENGTH)
    plain = prefill(cpu, case, pages, q, offsets([LENGTH]), pages.lengths)
    for x in (pages.k, pages.v):
        x[pages.table[0, 1]].view(np.float32).reshape(128, 16)[7] = value  # token 135
    spoilt = prefill(cpu, case, pages, q, offsets([LENGTH]), pages.lengths)
    assert not np.isfinite(spoilt[135:155]).any()
    for clean in (slice(0, 135), slice(155, None)):
        assert spoilt[clean].tobytes() == plain[clean].tobytes()
    assert spoilt.tobytes() == alone(cpu, case, pages, q).tobytes()


def test_pages_before_the_window_are_not_read(cpu: Engine) -> None:
    """Nor is their number in the table: their rows may have been given to others."""
    case = Case(4, 1, 64, (LENGTH,), window=30)
    pages, q = case.pages(), case.queries(10)
    plain = prefill(cpu, case, pages, q, offsets([10]), pages.lengths)  # from key 261 on
    pages.table[0, :2] = -1
    assert prefill(cpu, case, pages, q, offsets([10]), pages.lengths).tobytes() == plain.tobytes()
    assert decode(cpu, case, pages, q[9:], pages.lengths).tobytes() == plain[9:].tobytes()
    pages.table[0, 2] = -1
    with pytest.raises(Exception, match=r"page_table\[0, 2\] is -1"):
        decode(cpu, case, pages, q[9:], pages.lengths)


def test_a_window_of_all_keys_changes_nothing(cpu: Engine) -> None:
    case = Case(6, 2, 64, (LENGTH,))
    pages, q = case.pages(), case.queries(LENGTH)
    plain = prefill(cpu, case, pages, q, offsets([LENGTH]), pages.lengths)
    for window in (LENGTH, 2**31, 2**62):
        wide = prefill(cpu, replace(case, window=window), pages, q, offsets([LENGTH]), pages.lengths)
        assert wide.tobytes() == plain.tobytes()


# ---- what is refused ----


def test_e4m3_keeps_the_bound_of_its_rounding(cpu: Engine) -> None:
    """A number of e4m3 is off by at most 2^-4 of it, and by 2^-10 below 2^-6. So a score s is off by at most
    d = scale * sum |q| |dk|; the weights of a row together by e^(2d) - 1; and an output by that times the largest
    value, and by a value's own error."""
    case = Case(6, 2, 64, (300,), (40,), storage="e4m3")
    exact, q = filled("f32", 2, 64, (300,)), case.queries(40)
    pages = case.pages()
    q64 = q.reshape(40, 6, 64).astype(np.float64)
    k, v = (np.repeat(exact.rows(x, 0), 3, axis=1).astype(np.float64) for x in (exact.k, exact.v))
    got = prefill(cpu, case, pages, q, offsets([40]), pages.lengths)
    half = np.maximum(2.0**-4 * np.abs(k), 2.0**-10)
    used = 0.0
    for t in range(40):
        seen = 300 - 40 + t + 1
        scores = np.einsum("hd,jhd->hj", q64[t], k[:seen]) * case.scale
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        off = (np.einsum("hd,jhd->hj", np.abs(q64[t]), half[:seen]) * case.scale).max(1, keepdims=True)
        most = np.abs(v[:seen]).max(0)
        bound = (np.exp(2 * off) - 1) * most + np.maximum(2.0**-4 * most, 2.0**-10)
        used = max(used, (np.abs(got[t] - np.einsum("hj,jhd->hd", weights, v[:seen])) / bound).max())
    assert 1e-3 < used <= 1
