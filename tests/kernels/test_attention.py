"""The attention kernels on every instruction set, against float64 NumPy.

The root mean square error of an array is at most twice that of the plain formula carried out in f32, one operation
after the other, plus one rounding to its dtype; the largest error, in which luck has a part, at most four times the
plain one's. The formulas are those of Vaswani et al. 2017, eq. 1, and their derivatives (Dao 2023, "FlashAttention-2",
section 2.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import engine
import numpy as np
import pytest
from engine import DTYPES, FLOATS, ROUNDING, THREADS, Engine, KernelError

ISAS = range(Engine().isa + 1)


@pytest.fixture(scope="module", params=ISAS, ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


@dataclass(frozen=True)
class Case:
    batch: int
    q_len: int
    kv_len: int
    heads: int
    kv_heads: int
    head_dim: int
    causal: int = 1
    dtype: str = "f32"
    fused: bool = False
    """q, k, v and their gradients are slices of one row a token."""
    size: float = 1.0
    """What queries are multiplied by: above 1 the softmax gets sharp."""

    def __str__(self) -> str:
        sizes = f"{self.batch}x{self.q_len}x{self.kv_len}x{self.heads}/{self.kv_heads}x{self.head_dim}"
        return sizes + "-causal" * self.causal + "-fused" * self.fused + f"-{self.dtype}-{self.size:g}"

    @property
    def scale(self) -> float:
        return float(np.float32(1 / math.sqrt(self.head_dim)))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.batch, self.q_len, self.kv_len, self.heads, self.kv_heads, self.head_dim


CASES = [
    Case(200, 1, 1, 1, 1, 8),
    Case(16, 1, 300, 4, 2, 64),
    Case(40, 3, 5, 2, 1, 8, causal=0),
    Case(1, 37, 37, 2, 2, 16),
    Case(2, 65, 65, 4, 1, 40, fused=True),
    Case(1, 13, 290, 2, 1, 64),
    Case(1, 290, 13, 2, 1, 64),
    Case(1, 129, 31, 3, 3, 80, causal=0),
    Case(1, 97, 257, 2, 2, 128),
    Case(1, 50, 67, 2, 1, 256),
    Case(1, 24, 24, 2, 1, 24, fused=True),
    Case(1, 300, 300, 1, 1, 64, size=30.0),
    Case(1, 530, 530, 1, 1, 32),
    Case(3, 100, 100, 6, 2, 64, fused=True),
    Case(1, 61, 61, 2, 1, 72, dtype="f16", fused=True),
    Case(1, 61, 90, 2, 1, 64, dtype="bf16"),
    Case(4, 33, 20, 2, 2, 8, dtype="bf16"),
    Case(1, 40, 300, 2, 1, 40, dtype="f16", size=8.0),
    Case(2, 150, 150, 4, 1, 64, dtype="bf16", fused=True),
    Case(1, 290, 13, 2, 1, 40, dtype="bf16"),
    Case(1, 130, 300, 3, 3, 80, causal=0, dtype="bf16", size=8.0),
    Case(1, 70, 70, 1, 1, 256, dtype="bf16", size=30.0),
    Case(8, 70, 70, 3, 1, 16, dtype="bf16"),
    # Every query head of a key head leaves dK and dV of its own, so more of them are added than there are pieces of
    # queries, 8 at most.
    Case(1, 20, 20, 9, 1, 16),
    Case(2, 30, 30, 22, 2, 8, dtype="bf16"),
]
#: Two for the properties that do not depend on the numbers.
FEW = [CASES[4], CASES[15]]


@dataclass
class Rows:
    """[tokens, heads, head_dim] with `ld` elements between tokens, at `offset` in a buffer that is NaN elsewhere."""

    buffer: np.ndarray
    offset: int
    ld: int
    shape: tuple[int, int, int]

    @property
    def pointer(self) -> np.ndarray:
        return self.buffer.reshape(-1)[self.offset :]

    @property
    def values(self) -> np.ndarray:
        tokens, heads, dim = self.shape
        rows = self.buffer.reshape(tokens, self.ld)[:, self.offset : self.offset + heads * dim]
        return rows.reshape(tokens, heads, dim)


def layout(case: Case) -> dict[str, Rows]:
    """Uninitialised q, k and v."""
    c = case
    q_tokens, kv_tokens = c.batch * c.q_len, c.batch * c.kv_len
    q_size, kv_size = c.heads * c.head_dim, c.kv_heads * c.head_dim
    q_shape, kv_shape = (q_tokens, c.heads, c.head_dim), (kv_tokens, c.kv_heads, c.head_dim)
    if c.fused:
        ld = q_size + 2 * kv_size + 8
        buffer = engine.empty((q_tokens, ld), c.dtype)
        return {
            "q": Rows(buffer, 0, ld, q_shape),
            "k": Rows(buffer, q_size, ld, kv_shape),
            "v": Rows(buffer, q_size + kv_size, ld, kv_shape),
        }
    return {
        "q": Rows(engine.empty((q_tokens, q_size), c.dtype), 0, q_size, q_shape),
        "k": Rows(engine.empty((kv_tokens, kv_size), c.dtype), 0, kv_size, kv_shape),
        "v": Rows(engine.empty((kv_tokens, kv_size), c.dtype), 0, kv_size, kv_shape),
    }


def inputs(case: Case) -> tuple[dict[str, Rows], np.ndarray]:
    rng = np.random.default_rng(case.q_len * 1000 + case.kv_len)
    rows = layout(case)
    for name, r in rows.items():
        r.values[...] = rng.standard_normal(r.shape) * (case.size if name == "q" else 1)
    dout = rng.standard_normal((case.batch * case.q_len, case.heads * case.head_dim)).astype(DTYPES[case.dtype])
    return rows, dout


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b^T over the last dimension of both; in f32 one product and one sum after the other."""
    if a.dtype == np.float64:
        return a @ b.swapaxes(-1, -2)
    total = np.zeros((*a.shape[:-1], b.shape[-2]), np.float32)
    for k in range(a.shape[-1]):
        total += a[..., :, None, k] * b[..., None, :, k]
    return total


def by_head(x: np.ndarray, case: Case, repeat: int = 1) -> np.ndarray:
    """[batch * len, heads, head_dim] as [batch, heads, len, head_dim], each head `repeat` times."""
    return np.repeat(x.reshape(case.batch, -1, *x.shape[-2:]).swapaxes(1, 2), repeat, axis=1)


def by_token(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[3])


def visible(case: Case) -> np.ndarray:
    i, j = np.arange(case.q_len)[:, None], np.arange(case.kv_len)
    return (j <= i + case.kv_len - case.q_len) | (case.causal == 0)  # [q_len, kv_len]


def softmax_rows(s: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and log-sum-exp; zeros and -inf for a row without keys."""
    with np.errstate(invalid="ignore", divide="ignore"):
        top = s.max(-1, keepdims=True)
        e = np.where(mask, np.exp(s - top), s.dtype.type(0))
        total = e.sum(-1, keepdims=True, dtype=s.dtype)
        p, lse = np.where(mask, e / total, s.dtype.type(0)), (top + np.log(total))[..., 0]
    lse[..., ~mask.any(-1)] = -np.inf
    return p, lse


def plain(case: Case, real: type, saved: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The formulas in one precision; the gradients from what the forward call `saved`, if given."""
    group = case.heads // case.kv_heads
    rows, dout = inputs(case)
    q = by_head(rows["q"].values.astype(real), case)
    k, v = (by_head(rows[name].values.astype(real), case, group) for name in "kv")
    scale, mask = real(case.scale), visible(case)
    s = np.where(mask, product(q, k) * scale, real(-np.inf))
    p, lse = softmax_rows(s, mask)
    out = by_token(product(p, v.swapaxes(-1, -2)))
    results = {"out": out, "lse": lse}
    if saved:
        out = saved["out"].astype(DTYPES[case.dtype]).astype(real)
        with np.errstate(invalid="ignore"):
            p = np.where(mask, np.exp(s - saved["lse"].astype(real)[..., None]), real(0))

    dout = by_head(dout.astype(real).reshape(-1, case.heads, case.head_dim), case)
    delta = (dout * by_head(out, case)).sum(-1, keepdims=True, dtype=real)
    ds = p * (product(dout, v) - delta)
    results["dq"] = by_token(product(ds, k.swapaxes(-1, -2)) * scale)
    for name, left, right in (("dk", ds, q * scale), ("dv", p, dout)):
        x = product(left.swapaxes(-1, -2), right.swapaxes(-1, -2))
        x = x.reshape(case.batch, case.kv_heads, group, case.kv_len, case.head_dim).sum(2, dtype=real)
        results[name] = by_token(x)
    return results


_REFERENCES: dict[Case, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = {}


def references(case: Case) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """In float64 and in f32; shared by the instruction sets."""
    if case not in _REFERENCES:
        exact = plain(case, np.float64)
        _REFERENCES[case] = exact, plain(case, np.float32, saved=exact)
    return _REFERENCES[case]


def check(name: str, got: np.ndarray, case: Case, dtype: str) -> None:
    exact, single = (r[name].reshape(got.shape) for r in references(case))
    hidden = np.isneginf(exact)
    assert np.array_equal(np.isneginf(got.astype(np.float64)), hidden)
    exact, single, got = exact[~hidden], single[~hidden].astype(np.float64), got[~hidden].astype(np.float64)
    if exact.size == 0:
        return
    for measure, factor in ((lambda x: np.sqrt(np.mean(x * x)), 2), (lambda x: np.abs(x).max(), 4)):
        bound = factor * measure(single - exact) + ROUNDING[dtype] * measure(exact)
        error = measure(got - exact)
        assert error <= bound, f"{name}: {error / bound:.3g} times the bound"  # NaN fails, too


def forward(cpu: Engine, case: Case, rows: dict[str, Rows], lse: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
    out = engine.empty((case.batch * case.q_len, case.heads * case.head_dim), case.dtype)
    sums = engine.empty((case.batch, case.heads, case.q_len), "f32") if lse else None
    pointers = [rows[name].pointer for name in "qkv"]
    lds = rows["q"].ld, rows["k"].ld
    cpu.flash_attention(*pointers, out, sums, *case.sizes, *lds, case.scale, case.causal, case.dtype)
    return out, sums


def backward(
    cpu: Engine, case: Case, rows: dict[str, Rows], dout: np.ndarray, out: np.ndarray, lse: np.ndarray
) -> dict[str, Rows]:
    grads = layout(case)
    ins, outs = ([r[name].pointer for name in "qkv"] for r in (rows, grads))
    lds = rows["q"].ld, rows["k"].ld
    cpu.flash_attention_backward(dout, *ins, out, lse, *outs, *case.sizes, *lds, case.scale, case.causal, case.dtype)
    return grads


@pytest.mark.parametrize("case", CASES, ids=str)
def test_flash_attention(cpu: Engine, case: Case) -> None:
    rows, dout = inputs(case)
    before = {name: r.buffer.tobytes() for name, r in rows.items()}
    out, lse = forward(cpu, case, rows)
    check("out", out, case, case.dtype)
    check("lse", lse, case, "f32")
    blind = ~visible(case).any(-1)
    assert not out.reshape(case.batch, case.q_len, -1)[:, blind].astype(np.float32).any()

    grads = backward(cpu, case, rows, dout, out, lse)
    for name, rows_of in grads.items():
        check(f"d{name}", rows_of.values, case, case.dtype)
    if case.fused:  # nothing between the slices is written
        assert np.isnan(grads["q"].buffer[:, -8:].astype(np.float32)).all()
    assert all(rows[name].buffer.tobytes() == bytes_ for name, bytes_ in before.items())


@pytest.mark.parametrize("case", FEW, ids=str)
def test_without_lse(cpu: Engine, case: Case) -> None:
    rows, _ = inputs(case)
    assert forward(cpu, case, rows, lse=False)[0].tobytes() == forward(cpu, case, rows)[0].tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "case",
    [*FEW, Case(1, 400, 400, 2, 1, 16), Case(2, 200, 210, 6, 3, 8), Case(8, 70, 70, 3, 1, 16, dtype="bf16")],
    ids=str,
)
def test_bits_do_not_depend_on_threads(case: Case, isa: int) -> None:
    def run(threads: int) -> bytes:
        cpu = Engine(threads=threads, isa=isa)
        rows, dout = inputs(case)
        out, lse = forward(cpu, case, rows)
        grads = backward(cpu, case, rows, dout, out, lse)
        return out.tobytes() + lse.tobytes() + b"".join(grads[name].buffer.tobytes() for name in "qkv")

    first = run(THREADS[0])
    assert all(run(threads) == first for threads in THREADS[1:])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_infinite_scores_have_no_weight(cpu: Engine, dtype: str) -> None:
    case = Case(1, 2, 40, 1, 1, 8, causal=0, dtype=dtype)
    rows, _ = inputs(case)
    rows["q"].values[...] = 1
    rows["k"].values[3:5] = -3e38  # their scores overflow to -inf
    out, _ = forward(cpu, case, rows)
    for name in "kv":
        rows[name].values[3:5] = 0 if name == "v" else -1e30
    assert np.array_equal(out, forward(cpu, case, rows)[0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_stays_in_its_row(cpu: Engine, dtype: str) -> None:
    case = Case(1, 40, 40, 1, 1, 16, dtype=dtype)
    rows, _ = inputs(case)
    rows["q"].values[7, 0, 3] = np.nan
    out, lse = forward(cpu, case, rows)
    assert np.isnan(out.astype(np.float32)).all(-1).nonzero()[0].tolist() == [7]
    assert np.isnan(out.astype(np.float32)).any(-1).sum() == 1 and np.isnan(lse[0, 0, 7])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", [CASES[2], CASES[4], CASES[6], CASES[7], CASES[8], CASES[9]], ids=str)
def test_scores_and_output(cpu: Engine, case: Case, dtype: str) -> None:
    case = replace(case, fused=False, dtype=dtype)
    rows, _ = inputs(case)
    scores = engine.empty((case.batch, case.heads, case.q_len, case.kv_len), dtype)
    pointers = [rows[name].pointer for name in "qk"]
    cpu.attention_scores(*pointers, scores, *case.sizes, case.scale, case.causal, dtype)
    group = case.heads // case.kv_heads
    exact, single = (
        np.where(
            visible(case),
            product(by_head(rows["q"].values.astype(real), case), by_head(rows["k"].values.astype(real), case, group))
            * real(case.scale),
            real(-np.inf),
        )
        for real in (np.float64, np.float32)
    )
    _REFERENCES[case] = {"scores": exact}, {"scores": single}
    check("scores", scores, case, dtype)

    probs = np.random.default_rng(5).uniform(size=scores.shape).astype(DTYPES[dtype])
    out = engine.empty((case.batch * case.q_len, case.heads * case.head_dim), dtype)
    cpu.attention_output(probs, rows["v"].pointer, out, *case.sizes, dtype)
    exact, single = (
        by_token(product(probs.astype(real), by_head(rows["v"].values.astype(real), case, group).swapaxes(-1, -2)))
        for real in (np.float64, np.float32)
    )
    _REFERENCES[case] = {"out": exact}, {"out": single}
    check("out", out, case, dtype)
    del _REFERENCES[case]


def sizes_with(**changed: int) -> list[int]:
    sizes = {"batch": 1, "q_len": 2, "kv_len": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "ld_q": 32, "ld_kv": 16}
    return list((sizes | changed).values())


@pytest.mark.parametrize(
    "changed,words",
    [
        ({"heads": 3, "ld_q": 24}, "heads is 3; it must be a multiple of kv_heads"),
        ({"head_dim": 12}, "head_dim is 12; it must be a multiple of 8, at most 256"),
        ({"head_dim": 264}, "head_dim is 264"),
        ({"ld_q": 31}, "ld_q is 31; it must be at least 32"),
        ({"ld_kv": 8}, "ld_kv is 8; it must be at least 16"),
        ({"q_len": -1}, "q_len is -1"),
    ],
)
def test_wrong_sizes(changed: dict[str, int], words: str) -> None:
    x = np.zeros(4096, np.float32)
    with pytest.raises(KernelError) as error:
        Engine().flash_attention(x, x, x, x.copy(), None, *sizes_with(**changed), 1.0, 1, "f32")
    assert error.value.status == "NNCUDA_ERROR_INVALID_SIZE"
    assert words in error.value.message


def test_wrong_scale() -> None:
    x = np.zeros(4096, np.float32)
    with pytest.raises(KernelError, match="scale is nan; it must be finite"):
        Engine().flash_attention(x, x, x, x.copy(), None, *sizes_with(), math.nan, 1, "f32")


@pytest.mark.parametrize("name", ["batch", "q_len", "kv_len", "heads", "head_dim"])
def test_a_size_of_zero_writes_nothing(name: str) -> None:
    x, out = np.zeros(4096, np.float32), engine.empty(64, "f32")
    Engine().flash_attention(x, x, x, out, None, *sizes_with(**{name: 0}), 1.0, 1, "f32")
    assert np.isnan(out).all()


def caches(case: Case, lengths: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Queries in rows of their own stride, caches with NaN behind each sequence's keys, lengths."""
    rng = np.random.default_rng(case.kv_len)
    size = case.heads * case.head_dim
    q = engine.empty((case.batch, size + 8), case.dtype)
    q[:, :size] = rng.standard_normal((case.batch, size)) * case.size
    k, v = (rng.standard_normal((case.batch, case.kv_len, case.kv_heads, case.head_dim)) for _ in range(2))
    for cache in (k, v):
        for b, length in enumerate(lengths):
            cache[b, length:] = np.nan
    return q, k.astype(DTYPES[case.dtype]), v.astype(DTYPES[case.dtype]), np.array(lengths, np.int32)


def plain_decode(
    case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray, real: type
) -> np.ndarray:
    out = np.zeros((case.batch, case.heads, case.head_dim), real)
    group = case.heads // case.kv_heads
    for b, length in enumerate(lengths):
        if length:
            qs = q[b, : case.heads * case.head_dim].astype(real).reshape(case.heads, 1, case.head_dim)
            ks, vs = (np.repeat(x[b, :length].astype(real).swapaxes(0, 1), group, axis=0) for x in (k, v))
            p, _ = softmax_rows(product(qs, ks) * real(case.scale), np.ones((1, length), bool))
            out[b] = product(p, vs.swapaxes(-1, -2))[:, 0]
    return out


DECODES = [
    (Case(5, 1, 40, 4, 2, 64), [0, 1, 15, 16, 40]),
    (Case(3, 1, 700, 12, 1, 64), [700, 256, 513]),
    (Case(2, 1, 300, 2, 2, 40), [300, 257]),
    (Case(2, 1, 33, 6, 2, 8), [33, 9]),
    (Case(1, 1, 290, 5, 1, 256), [289]),
    (Case(2, 1, 100, 4, 1, 80, size=20.0), [100, 77]),
    (Case(2, 1, 270, 8, 2, 64, dtype="f16"), [270, 31]),
    (Case(2, 1, 270, 4, 4, 128, dtype="bf16"), [65, 270]),
    (Case(3, 1, 50, 3, 1, 24, dtype="bf16"), [50, 1, 0]),
]


def decode(cpu: Engine, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    out = engine.empty((case.batch, case.heads, case.head_dim), case.dtype)
    sizes = (case.batch, case.kv_len, case.heads, case.kv_heads, case.head_dim, q.shape[1])
    cpu.attention_decode(q, k, v, lengths, out, *sizes, case.scale, case.dtype)
    return out


@pytest.mark.parametrize("case,lengths", DECODES, ids=str)
def test_decode(cpu: Engine, case: Case, lengths: list[int]) -> None:
    arrays = caches(case, lengths)
    exact, single = (plain_decode(case, *arrays, real) for real in (np.float64, np.float32))
    _REFERENCES[case] = {"out": exact}, {"out": single}
    check("out", decode(cpu, case, *arrays), case, case.dtype)


@pytest.mark.parametrize("isa", ISAS)
def test_decode_bits_do_not_depend_on_threads(isa: int) -> None:
    case, lengths = DECODES[1]
    arrays = caches(case, lengths)
    outs = {decode(Engine(threads=threads, isa=isa), case, *arrays).tobytes() for threads in THREADS}
    assert len(outs) == 1


@pytest.mark.parametrize("length", [-1, 41, -(2**31), 2**31 - 1])
def test_decode_checks_lengths(cpu: Engine, length: int) -> None:
    case, lengths = DECODES[0]
    q, k, v, _ = caches(case, lengths)
    lengths = np.array([0, 1, length, 16, 40], np.int32)
    with pytest.raises(KernelError) as error:
        decode(cpu, case, q, k, v, lengths)
    assert error.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
    assert f"lengths[2] is {length}; it must be 0 to 40, the capacity" in error.value.message
