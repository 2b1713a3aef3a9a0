"""What the attention kernels make of scores and inputs that are not finite, on every instruction set."""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import DTYPES, FLOATS, Engine


@pytest.fixture(scope="module", params=range(Engine().isa + 1), ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def numbers(tokens: int, dim: int, dtype: str) -> list[np.ndarray]:
    """Queries, keys and values of one head."""
    return list(np.random.default_rng(tokens).standard_normal((3, tokens, dim)).astype(DTYPES[dtype]))


def attention(cpu: Engine, q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: int, dtype: str) -> list[np.ndarray]:
    """The output and the log-sum-exp."""
    dim = q.shape[1]
    out, lse = engine.empty(q.shape, dtype), engine.empty(len(q), "f32")
    cpu.flash_attention(q, k, v, None, out, lse, 1, len(q), len(k), 1, 1, dim, dim, dim, dim**-0.5, causal, dtype)
    return [out, lse]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_infinite_scores_have_no_weight(cpu: Engine, dtype: str) -> None:
    q, k, v = numbers(40, 8, dtype)
    q = np.ones_like(q[:2])
    k[3:5] = -3e38  # their scores overflow to -inf
    out, _ = attention(cpu, q, k, v, 0, dtype)
    k[3:5], v[3:5] = -1e30, 0
    assert np.isfinite(out.astype(np.float32)).all()
    assert np.array_equal(out, attention(cpu, q, k, v, 0, dtype)[0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_stays_in_its_row(cpu: Engine, dtype: str) -> None:
    q, k, v = numbers(40, 16, dtype)
    q[7, 3] = np.nan
    out, lse = attention(cpu, q, k, v, 1, dtype)
    assert np.isnan(out.astype(np.float32)).any(-1).nonzero()[0].tolist() == [7]
    assert np.isnan(out[7].astype(np.float32)).all() and np.isnan(lse[7])


@pytest.mark.parametrize("rise", [0.01, 0.05, 0.2, -0.2])
def test_scores_that_rise_from_key_to_key(cpu: Engine, rise: float) -> None:
    """A peak may stay behind scores that rise slowly, and follows those that rise fast, several times."""
    dim, keys = 8, 330
    q, _, v = numbers(keys, dim, "bf16")
    q = np.ones_like(q[:20])
    k = np.repeat((rise * np.arange(keys))[:, None], dim, axis=1).astype(DTYPES["bf16"])
    out, lse = attention(cpu, q, k, v, 0, "bf16")
    scores = q.astype(np.float64) @ k.astype(np.float64).T * float(np.float32(dim**-0.5))
    exact = np.logaddexp.reduce(scores, axis=1)
    weights, largest = np.exp(scores - exact[:, None]), np.abs(v.astype(np.float64)).max()
    # Rounded to 8 bits: each weight, and the output.
    assert np.abs(out.astype(np.float64) - weights @ v.astype(np.float64)).max() <= 2 * 2.0**-8 * largest
    # Powers of two within 2^-20, and eight roundings of f32 at the largest score.
    assert np.abs(lse - exact).max() <= 2.0**-20 + 8 * 2.0**-24 * np.abs(scores).max()
