"""The loss kernels on every instruction set, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from engine import DTYPES, FLOATS, ROUNDING, THREADS, Engine, KernelError, empty, isas

F32 = 2.0**-24
TINIEST = {"f32": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134}
IGNORE = -100

#: rows, vocab: around the vector widths and the blocks of the one pass
SHAPES = [
    (1, 1), (1, 2), (3, 7), (5, 15), (4, 16), (7, 17), (9, 31), (2, 64), (300, 33), (3, 2047), (3, 2048), (3, 2049),
    (5, 4097), (2, 32000), (1, 40001),
]  # fmt: skip


@pytest.fixture(scope="module", params=isas(), ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


class Forward:
    def __init__(self, cpu: Engine, logits: np.ndarray, targets: np.ndarray, dtype: str, ignore: int = IGNORE) -> None:
        rows, vocab = logits.shape
        self.losses, self.lse = empty(rows, "f32"), empty(rows, "f32")
        self.loss_sum, self.count = empty(1, "f32"), empty(1, "i32")
        cpu.cross_entropy_forward(
            logits, targets, self.losses, self.lse, self.loss_sum, self.count, rows, vocab, ignore, dtype
        )


def backward(
    cpu: Engine, logits: np.ndarray, targets: np.ndarray, lse: np.ndarray, scale: float, dtype: str, in_place: bool
) -> np.ndarray:
    rows, vocab = logits.shape
    given = logits.copy()
    dlogits = given if in_place else empty((rows, vocab), dtype)
    cpu.cross_entropy_backward(given, targets, lse, np.array([scale], np.float32), dlogits, rows, vocab, IGNORE, dtype)
    assert in_place or given.tobytes() == logits.tobytes()
    return dlogits


def exact_lse(x: np.ndarray) -> np.ndarray:
    most = x.max(axis=1, keepdims=True)
    return (most + np.log(np.exp(x - most).sum(axis=1, keepdims=True)))[:, 0]


def random(rows: int, vocab: int, dtype: str, spread: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows * 100_003 + vocab)
    logits = (spread * rng.standard_normal((rows, vocab), np.float32)).astype(DTYPES[dtype])
    targets = rng.integers(0, vocab, rows).astype(np.int32)
    targets[1::3] = IGNORE
    return logits, targets


def check_forward(cpu: Engine, logits: np.ndarray, targets: np.ndarray, dtype: str) -> Forward:
    got = Forward(cpu, logits, targets, dtype)
    x = logits.astype(np.float64)
    lse, live = exact_lse(x), targets != IGNORE
    # log(sum) moves by the relative error of the sum. An exponential is within 1 ulp (2 roundings) of its argument's,
    # whose rounding is relative to the distance from the maximum. The f32 sum of a block of 2048 has at most 128
    # additions a lane (4 lanes, 4 sums), then 4 levels.
    p = np.exp(x - lse[:, None])
    distance = (p * (x.max(axis=1, keepdims=True) - x)).sum(axis=1)
    bound = F32 * (2 + distance + 132) + 2.0**-50
    assert np.all(np.abs(got.lse - lse) <= bound + F32 * np.abs(lse))
    losses = np.where(live, lse - x[np.arange(len(x)), np.where(live, targets, 0)], 0)
    assert np.all(np.abs(got.losses - losses)[live] <= (bound + F32 * (np.abs(losses) + bound))[live])
    assert (got.losses[~live] == 0).all()
    assert got.count[0] == live.sum()
    assert abs(got.loss_sum[0] - losses.sum()) <= bound[live].sum() + F32 * abs(losses.sum())
    return got


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows,vocab", SHAPES)
def test_cross_entropy(cpu: Engine, rows: int, vocab: int, dtype: str) -> None:
    logits, targets = random(rows, vocab, dtype)
    lse = check_forward(cpu, logits, targets, dtype).lse
    scale, live = 0.37, targets != IGNORE
    distance = logits.astype(np.float64) - lse.astype(np.float64)[:, None]
    p = np.exp(distance)
    onehot = np.zeros_like(p)
    onehot[live, targets[live]] = 1
    exact = np.where(live[:, None], np.float64(np.float32(scale)) * (p - onehot), 0)
    # logit - lse is rounded once, exp is within 2 roundings, then the subtraction and the product.
    bound = F32 * scale * (p * (np.abs(distance) + 4) + 2 * onehot)
    bound = bound + ROUNDING[dtype] * (np.abs(exact) + bound) + TINIEST[dtype]
    for in_place in (False, True):
        dlogits = backward(cpu, logits, targets, lse, scale, dtype, in_place)
        error = np.abs(dlogits.astype(np.float64) - exact)
        assert np.all(error <= bound), f"{np.max(error / bound):.3g} times the bound"
        assert (dlogits[~live] == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradient_that_goes_past_the_caches(cpu: Engine, dtype: str) -> None:
    """A large gradient is stored in another way, one in place is not: the same bits. Rows begin at odd places."""
    vocab = 32003
    rows = (34 << 20) // DTYPES[dtype](0).nbytes // vocab
    logits = np.resize(random(1, 100_003, dtype)[0], (rows, vocab))
    targets = np.arange(rows, dtype=np.int32) * 7
    lse = exact_lse(logits.astype(np.float32)).astype(np.float32)
    there, here = (backward(cpu, logits, targets, lse, 0.5, dtype, in_place) for in_place in (False, True))
    assert (there.view(np.int8) == here.view(np.int8)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_large_and_uneven_logits(cpu: Engine, dtype: str) -> None:
    """No overflow, whether the maximum comes first, last or grows from block to block."""
    x = np.zeros((4, 9000), np.float32)
    x[0, 0], x[1, -1] = 6e4, 6e4
    x[2] = np.linspace(-3e4, 3e4, 9000)
    x[3] = -6e4
    check_forward(cpu, x.astype(DTYPES[dtype]), np.array([0, 5, 8999, 77], np.int32), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_and_nan(cpu: Engine, dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((7, 5000)).astype(DTYPES[dtype])
    x[0, :4096] = -np.inf  # whole blocks that add nothing
    x[1, 1:] = -np.inf  # one logit is left: loss 0
    x[2, 4000] = np.inf
    x[3, 3] = np.nan
    x[4, :] = -np.inf
    x[5, 9] = -np.inf  # the target itself
    targets = np.array([4999, 0, 1, 2, 3, 9, 9], np.int32)
    got = Forward(cpu, x, targets, dtype)
    rest = exact_lse(x[:1, 4096:].astype(np.float64))
    assert abs(got.lse[0] - rest[0]) < 1e-5
    assert got.losses[1] == 0 and got.lse[1] == np.float32(x[1, 0])
    assert np.isnan(got.losses[2:5]).all() and got.losses[5] == np.inf and np.isfinite(got.losses[6])
    assert np.isnan(got.loss_sum[0]) and got.count[0] == 7
    live = np.array([0, 1, 5, 6])
    dlogits = backward(cpu, x, targets, got.lse, 1.0, dtype, False)
    assert np.isfinite(dlogits[live].astype(np.float32)).all()
    assert (dlogits[0, :4096] == 0).all() and (dlogits[1] == 0).all() and dlogits[5, 9] == -1


def test_everything_ignored(cpu: Engine) -> None:
    x, targets = random(9, 40, "f32")[0], np.full(9, IGNORE, np.int32)
    got = Forward(cpu, x, targets, "f32")
    assert (got.losses == 0).all() and got.loss_sum[0] == 0 and got.count[0] == 0
    assert (backward(cpu, x, targets, got.lse, 1.0, "f32", True) == 0).all()


def test_ignore_index_may_be_a_token(cpu: Engine) -> None:
    x, targets = random(6, 40, "f32")[0], np.array([0, 1, 0, 2, 3, 0], np.int32)
    got = Forward(cpu, x, targets, "f32", ignore=0)
    assert got.count[0] == 3 and (got.losses[targets == 0] == 0).all() and (got.losses[targets != 0] > 0).all()


def test_losses_may_be_left_out(cpu: Engine) -> None:
    logits, targets = random(50, 100, "f32")
    lse, loss_sum, count = empty(50, "f32"), empty(1, "f32"), empty(1, "i32")
    cpu.cross_entropy_forward(logits, targets, None, lse, loss_sum, count, 50, 100, IGNORE, "f32")
    got = Forward(cpu, logits, targets, "f32")
    assert (lse == got.lse).all() and loss_sum == got.loss_sum and count == got.count


def test_targets_out_of_range(cpu: Engine) -> None:
    logits, targets = random(20, 30, "f32")
    for bad in (30, -1, -99, 2**31 - 1):
        targets[13] = bad
        lse, loss_sum, count, losses = empty(20, "f32"), empty(1, "f32"), empty(1, "i32"), empty(20, "f32")
        dlogits = empty((20, 30), "f32")
        one = np.ones(1, np.float32)
        calls = (
            (cpu.cross_entropy_forward, (losses, lse, loss_sum, count)),
            (cpu.cross_entropy_backward, (lse, one, dlogits)),
        )
        for call, arrays in calls:
            with pytest.raises(KernelError, match=rf"targets\[13\] is {bad}; it must be 0 to 29") as raised:
                call(logits, targets, *arrays, 20, 30, IGNORE, "f32")
            assert raised.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
        for array in (lse, loss_sum, losses, dlogits):
            assert np.isnan(array).all()
        assert count[0] == -(2**31)


#: The last is one task a row forward and several a row backward.
@pytest.mark.parametrize("rows,vocab", [(1000, 37), (13, 5001), (3, 70001)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_same_bits_for_any_number_of_threads(cpu: Engine, rows: int, vocab: int, dtype: str) -> None:
    logits, targets = random(rows, vocab, dtype)
    results = set()
    for threads in THREADS:
        engine = Engine(threads, cpu.isa)
        got = Forward(engine, logits, targets, dtype)
        made = [backward(engine, logits, targets, got.lse, 0.3, dtype, in_place) for in_place in (False, True)]
        arrays = (got.losses, got.lse, got.loss_sum, got.count, *made)
        results.add(b"".join(array.tobytes() for array in arrays))
    assert len(results) == 1


# ---- the load-balancing loss ----


@pytest.mark.parametrize(
    "tokens,experts", [(1, 1), (1, 16), (3, 5), (511, 16), (512, 16), (513, 7), (5000, 16), (100, 300)]
)
def test_aux_loss(cpu: Engine, tokens: int, experts: int) -> None:
    rng = np.random.default_rng(tokens)
    probs = rng.dirichlet(np.ones(experts), tokens).astype(np.float32)
    counts = rng.integers(0, 2 * tokens, experts).astype(np.int32)
    loss = np.array([1.5], np.float32)
    cpu.aux_loss_forward(probs, counts, loss, tokens, experts, 0.01)
    alpha = np.float64(np.float32(0.01))
    exact = 1.5 + alpha * (counts / tokens * probs.astype(np.float64).mean(axis=0)).sum()
    assert abs(loss[0] - exact) <= F32 * exact * 1.001  # added up in f64, rounded once
    dprobs = empty((tokens, experts), "f32")
    cpu.aux_loss_backward(counts, np.array([0.25], np.float32), dprobs, tokens, experts, 0.01)
    exact = 0.25 * alpha * counts / tokens / tokens
    assert np.all(np.abs(dprobs - exact) <= F32 * exact * 1.001)


def test_aux_loss_of_a_balanced_router_is_k(cpu: Engine) -> None:
    """f sums to k and P to 1; evenly spread over E experts the sum of f * P is k / E * 1, worked out by hand."""
    tokens, k, experts = 64, 2, 8
    probs = np.full((tokens, experts), 1 / experts, np.float32)
    counts = np.full(experts, tokens * k // experts, np.int32)
    loss = np.zeros(1, np.float32)
    cpu.aux_loss_forward(probs, counts, loss, tokens, experts, 1.0)
    assert loss[0] == k / experts
    cpu.aux_loss_forward(probs, counts, loss, tokens, experts, 1.0)
    assert loss[0] == 2 * k / experts  # added to what is there


def test_aux_loss_same_bits_for_any_number_of_threads(cpu: Engine) -> None:
    rng = np.random.default_rng(1)
    probs, counts = rng.random((5001, 13), np.float32), rng.integers(0, 999, 13).astype(np.int32)
    results = set()
    for threads in THREADS:
        engine, loss, dprobs = Engine(threads, cpu.isa), np.zeros(1, np.float32), empty((5001, 13), "f32")
        engine.aux_loss_forward(probs, counts, loss, 5001, 13, 0.1)
        engine.aux_loss_backward(counts, np.ones(1, np.float32), dprobs, 5001, 13, 0.1)
        results.add(loss.tobytes() + dprobs.tobytes())
    assert len(results) == 1


def test_alpha_must_be_finite(cpu: Engine) -> None:
    probs, counts, loss = np.ones((2, 2), np.float32), np.ones(2, np.int32), np.zeros(1, np.float32)
    with pytest.raises(KernelError, match="alpha is nan") as raised:
        cpu.aux_loss_forward(probs, counts, loss, 2, 2, float("nan"))
    assert raised.value.status == "NNCUDA_ERROR_INVALID_VALUE"


# ---- means of sums ----


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_weighted_mean(cpu: Engine, n: int) -> None:
    """Added up in f64 and rounded once: n + 1 roundings of f64 on the way are too small for another one of f32."""
    rng = np.random.default_rng(n)
    x, weights, y = rng.random(n, np.float32), rng.integers(0, 999, n).astype(np.int32), empty((1,), "f32")
    for given in (None, weights):
        cpu.weighted_mean(x, given, y, n, 77)
        exact = math.fsum(x.astype(np.float64) * (1 if given is None else given)) / 77
        assert abs(y[0] - exact) <= F32 * exact * 1.001


def test_factor_of_a_gradient(cpu: Engine) -> None:
    """1/tokens and shares of a batch are the numbers of f32 nearest to them."""
    one, y = np.ones(1, np.float32), empty((1,), "f32")
    for size, total in ((1, 3), (1, 4095), (1, 2**31 - 1), (3, 10), (7, 7)):
        cpu.weighted_mean(one, np.array([size], np.int32), y, 1, total)
        assert y[0] == np.float32(size / total)


def test_divisor_must_count(cpu: Engine) -> None:
    with pytest.raises(KernelError, match="divisor is 0; it must be at least 1") as raised:
        cpu.weighted_mean(np.ones(1, np.float32), None, np.zeros(1, np.float32), 1, 0)
    assert raised.value.status == "NNCUDA_ERROR_INVALID_VALUE"
