"""Softmax and the router against float64, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import run
from engine import DTYPES, Engine

from nncuda.reference import softmax as reference


def logits(seed: int, shape: tuple[int, ...], dtype: str, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(DTYPES[dtype])


def size(x: np.ndarray, dtype: str) -> dict[str, object]:
    return {"rows": x.shape[0], "cols": x.shape[1], "dtype": dtype}


def hard_rows(cols: int) -> dict[str, np.ndarray]:
    """Rows that move the running maximum in every way."""
    ramp = np.linspace(-40, 40, cols)
    far = np.full(cols, -500.0)
    far[cols // 2] = 500
    return {
        "rising": ramp,
        "falling": ramp[::-1],
        "slowly rising": np.linspace(0, 3, cols),
        "all equal": np.full(cols, 12.5),
        "one far above": far,
        "large": logits(5, (cols,), "f32") + 1e4,
        "mostly masked": np.where(np.arange(cols) % 997 == 996, 1.0, -np.inf),
        "masked at first": np.where(np.arange(cols) < cols - 3, -np.inf, ramp),
    }


@pytest.mark.parametrize("cols", [1000, 5003])
def test_softmax_of_hard_rows(cpu: Engine, cols: int) -> None:
    for name, row in hard_rows(cols).items():
        x = np.float32(row)[None]
        y = run(cpu, "softmax", {"x": x, **size(x, "f32")})
        shown = np.isfinite(x)
        exact = reference.softmax(x.astype(np.float64))["y"]
        plain = reference.softmax(x)["y"]
        assert np.all(y["y"][~shown] == 0)
        # Beside the plain formula's error one rounding is allowed for: it may happen to be exact.
        large = exact > 1e-30
        error, limit = (np.max(np.abs(a[large] - exact[large]) / exact[large]) for a in (y["y"], plain))
        assert error <= 2 * max(limit, 2.0**-24), name


@pytest.mark.parametrize("rise", [0.9, 1.1, 12.0, 20.0, 87.9])
def test_a_row_that_rises_from_block_to_block(cpu: Engine, rise: float) -> None:
    """Near the maximum no digit is lost, and no sum overflows, however far below it the first block was.

    The shift must end within 1 of the maximum: for an element x near it x - shift is then exact, as both are within a
    factor of two of each other (Sterbenz 1974). The errors of the exponential and of the sum remain, as in the plain
    formula. A shift that stays behind costs half a unit of x - shift, 2^-18 from 64 on, and from 88 on the sum
    overflows.
    """
    blocks = 5
    draw = np.random.default_rng(7)
    last = 50.0 + draw.uniform(-0.5, 0, 1024)
    x = np.concatenate([last - rise * (blocks - 1 - block) for block in range(blocks)]).astype(np.float32)[None]
    y = run(cpu, "softmax", {"x": x, **size(x, "f32")})["y"]
    exact, plain = (reference.softmax(x.astype(real))["y"] for real in (np.float64, np.float32))
    near = x >= x.max() - 0.5
    error, limit = (np.max(np.abs(a[near] - exact[near]) / exact[near]) for a in (y, plain))
    assert error <= 2 * max(limit, 2.0**-24)


def test_softmax_special_rows(cpu: Engine) -> None:
    for cols in (1, 3, 16, 17, 1024, 1025, 5000):
        x = np.zeros((7, cols), np.float32)
        x[0] = -np.inf
        x[1, cols // 2] = np.nan
        x[2, cols - 1] = np.inf
        x[3, :] = -np.inf
        x[3, 0] = np.nan
        x[4, : cols - 1] = -np.inf
        x[5, :] = np.inf
        x[6, 0] = -np.nan
        x[6, cols - 1] = np.inf
        y = run(cpu, "softmax", {"x": x, **size(x, "f32")})["y"]
        assert np.all(y[0] == 0)
        assert np.all(np.isnan(y[[1, 2, 3, 5, 6]]))
        assert np.array_equal(y[4], np.arange(cols) == cols - 1)


def router(x: np.ndarray, k: int, norm: int, dtype: str) -> dict[str, object]:
    return {"x": x, "k": k, "norm": norm, **size(x, dtype)}


def check_order(probs: np.ndarray, indices: np.ndarray) -> None:
    """The indices are the first k of a stable sort by falling probability."""
    key = np.where(np.isnan(probs), -1, probs)
    assert np.array_equal(indices, np.argsort(-key, axis=-1, kind="stable")[:, : indices.shape[1]])


def test_topk_ties_and_special_rows(cpu: Engine) -> None:
    x = np.zeros((6, 19), np.float32)
    x[1] = np.arange(19) // 4
    x[2] = -np.inf
    x[3, 4] = np.nan
    x[4, 7] = np.inf
    x[5, 3:] = -np.inf
    with np.errstate(all="ignore"):
        outputs = run(cpu, "softmax_topk", router(x, 6, 1, "f32"))
    for row in range(6):
        assert len(set(outputs["indices"][row].tolist())) == 6
    assert outputs["indices"][0].tolist() == [0, 1, 2, 3, 4, 5]
    assert outputs["indices"][1].tolist() == [16, 17, 18, 12, 13, 14]
    for row in (2, 3, 4):
        assert outputs["indices"][row].tolist() == [0, 1, 2, 3, 4, 5]
    assert outputs["indices"][5].tolist() == [0, 1, 2, 3, 4, 5]
    assert np.all(outputs["probs"][2] == 0)
    assert np.all(np.isnan(outputs["probs"][3:5]))
    np.testing.assert_allclose(outputs["weights"][5], [1 / 3] * 3 + [0] * 3, rtol=1e-6)
    check_order(outputs["probs"], outputs["indices"])
