"""The elementwise kernels where numbers are tiny, special or at the ends of a range, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import run
from engine import DTYPES, FLOATS, Engine, KernelError

from nncuda.reference import elementwise as reference


@pytest.mark.parametrize("dtype", FLOATS)
def test_silu_keeps_relative_accuracy(cpu: Engine, dtype: str) -> None:
    """Also where the result is tiny, x exp(x) for x far below zero, as far as the dtype reaches: at most twice the
    error of the plain formula in f32."""
    x = np.linspace(-80, 80, 4096).astype(DTYPES[dtype])
    x = x[x > -8] if dtype == "f16" else x
    y = run(cpu, "silu", {"x": x, "n": x.size, "dtype": dtype})["y"]
    exact, plain = (reference.silu(x.astype(real))["y"] for real in (np.float64, np.float32))
    errors = [np.abs(found.astype(np.float64) / exact - 1).max() for found in (y, plain.astype(y.dtype))]
    assert errors[0] <= 2 * errors[1]


def test_special_values(cpu: Engine) -> None:
    x = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 200.0, -200.0, 3e38, -3e38, 1e-45])
    one = np.ones_like(x)
    n = {"n": x.size, "dtype": "f32"}
    with np.errstate(all="ignore"):
        y = run(cpu, "silu", {"x": x, **n})["y"]
        assert np.isnan(y[0]) and y[1] == np.inf and np.isnan(y[2])
        assert np.array_equal(y[3:], np.float32([0, 0, 200, 0, 3e38, 0, 0]))
        dx = run(cpu, "silu_backward", {"dy": one, "x": x, **n})["dx"]
        assert np.isnan(dx[0]) and np.array_equal(dx[3:], np.float32([0.5, 0.5, 1, 0, 1, 0, 0.5]))
        size = {"rows": 1, "dim": x.size, "ld": x.size, "dtype": "f32"}
        gate = run(cpu, "relu2_gate", {"gate": x[None], "up": one[None], **size})["y"][0]
        assert np.array_equal(gate, np.square(np.maximum(x, 0)), equal_nan=True)
        assert np.array_equal(run(cpu, "add", {"a": x, "b": -x, **n})["y"], x - x, equal_nan=True)


@pytest.mark.parametrize("value", [0.0, -1.0, 127.0, -128.0])
@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "i8"])
def test_fill(cpu: Engine, dtype: str, value: float) -> None:
    for n in (1, 3, 63, 64, 65, 129, 16385):
        for shift in (0, 1, 7):
            y = run(cpu, "fill", {"n": n, "value": value, "dtype": dtype}, shift=shift)["y"]
            assert np.all(y == np.asarray(value).astype(DTYPES[dtype]))


def test_fill_rounds_and_refuses(cpu: Engine) -> None:
    assert run(cpu, "fill", {"n": 5, "value": 1 / 3, "dtype": "bf16"})["y"][4] == DTYPES["bf16"](1 / 3)
    assert run(cpu, "fill", {"n": 5, "value": 1e9, "dtype": "f16"})["y"][0] == np.inf
    assert run(cpu, "fill", {"n": 5, "value": -(2.0**31), "dtype": "i32"})["y"][0] == -(2**31)
    bad = ((0.5, "i32"), (128.0, "i8"), (-129.0, "i8"), (2.0**31, "i32"), (np.nan, "i8"), (np.inf, "i32"))
    for value, dtype in bad:
        with pytest.raises(KernelError, match="value is") as caught:
            run(cpu, "fill", {"n": 5, "value": value, "dtype": dtype})
        assert caught.value.status == "NNCUDA_ERROR_INVALID_VALUE"


@pytest.mark.parametrize(("value", "by"), [(2**31 - 1, 1), (1, 2**31 - 1), (-(2**31), -1), (-1, -(2**31))])
def test_increment_does_not_wrap(cpu: Engine, value: int, by: int) -> None:
    """And writes nothing when one element would, nor one element too early."""
    low, high = max(-(2**31), -(2**31) - by), min(2**31 - 1, 2**31 - 1 - by)
    for n, at in ((1, 0), (20000, 0), (20000, 19999)):
        x = np.zeros(n, np.int32)
        x[at] = value
        before = x.copy()
        with pytest.raises(KernelError) as error:
            cpu.increment(x, n, by)
        assert error.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
        assert f"x[{at}] is {value}; it must be {low} to {high}, so that x + by is an i32" in error.value.message
        assert np.array_equal(x, before)
        x[at] = high if by > 0 else low
        cpu.increment(x, n, by)
        assert x[at] == (2**31 - 1 if by > 0 else -(2**31))
