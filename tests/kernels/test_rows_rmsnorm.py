"""RMSNorm against float64, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import Budget, compare, run, same_bits
from engine import DTYPES, FLOATS, THREADS, Engine, KernelError, isas

from nncuda.reference import rmsnorm as reference

SHAPES = ((1, 1), (3, 2), (5, 7), (4, 16), (9, 17), (2, 63), (3, 65), (40, 300), (300, 40), (2, 1025), (3, 20001))
EPS = 1e-5


@pytest.fixture(scope="module", params=isas())
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def numbers(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def forward(kernel: str, shape: tuple[int, int], dtype: str) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    names = ("x",) if kernel == "rmsnorm" else ("x", "residual")
    inputs = {name: numbers(i, shape, dtype) for i, name in enumerate(names)}
    inputs["weight"] = numbers(2, shape[1:], dtype)
    return inputs, {"rows": shape[0], "cols": shape[1], "eps": EPS, "dtype": dtype}


def backward(shape: tuple[int, int], dtype: str) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    inputs = {name: numbers(i, shape, dtype) for i, name in enumerate(("dy", "x", "dresidual"))}
    inputs["weight"] = numbers(3, shape[1:], dtype)
    squares = np.sum(inputs["x"].astype(np.float64) ** 2, axis=1)
    inputs["rstd"] = (1 / np.sqrt(squares / max(shape[1], 1) + EPS)).astype(np.float32)
    inputs["dweight"] = numbers(4, shape[1:], "f32")
    return inputs, {"rows": shape[0], "cols": shape[1], "dtype": dtype}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kernel", ["rmsnorm", "rmsnorm_residual"])
def test_forward_accuracy(engine: Engine, kernel: str, dtype: str) -> None:
    budget = Budget()
    options: dict[str, object] = {"eps": float(np.float32(EPS))}
    if kernel == "rmsnorm_residual":
        options["storage"] = lambda s: s.astype(np.float32).astype(DTYPES[dtype]).astype(s.dtype)
    for shape in SHAPES:
        inputs, values = forward(kernel, shape, dtype)
        compare(budget, run(engine, kernel, {**inputs, **values}), getattr(reference, kernel), inputs, options)
    budget.check()


@pytest.mark.parametrize("dtype", FLOATS)
def test_backward_accuracy(engine: Engine, dtype: str) -> None:
    budget = Budget()
    for shape in SHAPES:
        inputs, values = backward(shape, dtype)
        for dresidual in (inputs["dresidual"], None):
            given = {name: value for name, value in inputs.items() if name != "dresidual" or dresidual is not None}
            outputs = run(engine, "rmsnorm_backward", {**inputs, **values, "dresidual": dresidual})
            compare(budget, outputs, reference.rmsnorm_backward, given, {})
    budget.check()


def test_sum_over_many_rows(engine: Engine) -> None:
    """dweight over more rows than one task has, where plain addition loses digits."""
    budget = Budget()
    inputs, values = backward((40000, 3), "f32")
    del inputs["dresidual"]
    outputs = run(engine, "rmsnorm_backward", {**inputs, **values, "dresidual": None})
    compare(budget, outputs, reference.rmsnorm_backward, inputs, {})
    budget.check()


def test_same_bits() -> None:
    for isa in isas():
        for dtype in FLOATS:
            calls = {kernel: forward(kernel, (70, 501), dtype) for kernel in ("rmsnorm", "rmsnorm_residual")}
            calls["rmsnorm_backward"] = backward((3000, 51), dtype)
            aliases = {"rmsnorm": [{"y": "x"}], "rmsnorm_residual": [{"sum": "x"}, {"sum": "residual"}]}
            aliases["rmsnorm_backward"] = [{"dx": "dy"}, {"dx": "dresidual"}]
            for kernel, (inputs, sizes) in calls.items():
                values = {**inputs, **sizes}
                first = run(Engine(threads=1, isa=isa), kernel, values)
                for threads in THREADS[1:]:
                    same_bits(first, run(Engine(threads=threads, isa=isa), kernel, values))
                engine = Engine(threads=2, isa=isa)
                same_bits(first, run(engine, kernel, values, shift=3))
                for alias in aliases[kernel]:
                    same_bits(first, run(engine, kernel, values, alias=alias))


def test_rstd_is_optional(engine: Engine) -> None:
    for kernel in ("rmsnorm", "rmsnorm_residual"):
        inputs, values = forward(kernel, (5, 33), "f32")
        full = run(engine, kernel, {**inputs, **values})
        rstd = full.pop("rstd")
        assert np.all(np.isfinite(rstd))
        same_bits(full, run(engine, kernel, {**inputs, **values, "rstd": None}))


def test_large_outputs(engine: Engine) -> None:
    """Rows past the caches have the bits of the same rows alone."""
    rows, cols = 1031, (17 << 20) // 1031
    x, weight = np.resize(numbers(1, (5003,), "bf16"), (rows, cols)), numbers(2, (cols,), "bf16")
    sizes = {"cols": cols, "dtype": "bf16"}
    whole = run(engine, "rmsnorm", {"x": x, "weight": weight, "eps": EPS, "rows": rows, **sizes})
    other = {"weight": weight, "dresidual": None, "dweight": np.zeros(cols, np.float32)}
    back = run(engine, "rmsnorm_backward", {"dy": x, "x": x, "rstd": whole["rstd"], "rows": rows, **other, **sizes})
    for row in (0, 500, 1030):
        x1 = x[row : row + 1]
        one = run(engine, "rmsnorm", {"x": x1, "weight": weight, "eps": EPS, "rows": 1, **sizes})
        same_bits({name: value[row : row + 1] for name, value in whole.items()}, one)
        dx = run(engine, "rmsnorm_backward", {"dy": x1, "x": x1, "rstd": one["rstd"], "rows": 1, **other, **sizes})[
            "dx"
        ]
        same_bits({"dx": back["dx"][row : row + 1]}, {"dx": dx})


def test_special_rows(engine: Engine) -> None:
    x = np.zeros((3, 5), np.float32)
    x[1, 2], x[2, 3] = np.nan, 3.0
    weight = np.ones(5, np.float32)
    sizes = {"rows": 3, "cols": 5, "dtype": "f32"}
    outputs = run(engine, "rmsnorm", {"x": x, "weight": weight, "eps": 1e-6, **sizes})
    assert np.all(outputs["y"][0] == 0)
    np.testing.assert_allclose(outputs["rstd"][0], 1e3, rtol=1e-6)
    assert np.all(np.isnan(outputs["y"][1]))
    np.testing.assert_allclose(outputs["y"][2], [0, 0, 0, np.sqrt(5), 0], rtol=1e-6)


def test_refused(engine: Engine) -> None:
    inputs, values = forward("rmsnorm", (2, 3), "f32")
    for eps in (-1e-6, np.nan, np.inf):
        with pytest.raises(KernelError, match="eps is") as caught:
            run(engine, "rmsnorm", {**inputs, **values, "eps": eps})
        assert caught.value.status == "NNCUDA_ERROR_INVALID_VALUE"
    for shape in ((0, 5), (5, 0)):
        inputs, values = backward(shape, "f32")
        outputs = run(engine, "rmsnorm_backward", {**inputs, **values})
        assert np.array_equal(outputs["dweight"], inputs["dweight"])
