"""The loss kernels on every instruction set, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from engine import DTYPES, FLOATS, Engine, empty

F32 = 2.0**-24
IGNORE = -100


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


# ---- the load-balancing loss ----


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


# ---- means of sums ----


def test_factor_of_a_gradient(cpu: Engine) -> None:
    """1/tokens and shares of a batch are the numbers of f32 nearest to them."""
    one, y = np.ones(1, np.float32), empty((1,), "f32")
    for size, total in ((1, 3), (1, 4095), (1, 2**31 - 1), (3, 10), (7, 7)):
        cpu.weighted_mean(one, np.array([size], np.int32), y, 1, total)
        assert y[0] == np.float32(size / total)
