"""The elementwise kernels against float64, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import Budget, compare, run, same_bits
from engine import DTYPES, FLOATS, THREADS, Engine, KernelError, empty, isas

from nncuda.reference import elementwise as reference

SIZES = (1, 2, 7, 15, 16, 17, 31, 33, 63, 65, 1000, 16384, 16385, 40001)
FLAT = {"silu": ("x",), "silu_backward": ("dy", "x"), "add": ("a", "b"), "mul": ("a", "b"), "scale": ("x",)}
GATES = {"swiglu": ("gate", "up"), "relu2_gate": ("gate", "up"), "swiglu_backward": ("dy", "gate", "up")}
SHAPES = ((1, 1), (3, 5), (2, 16), (5, 17), (4, 1000), (1, 40001), (70, 300), (2, 16385))


@pytest.fixture(scope="module", params=isas())
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def numbers(seed: int, shape: int | tuple[int, ...], dtype: str, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(DTYPES[dtype])


def flat_call(kernel: str, n: int, dtype: str) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    inputs = {name: numbers(i + n, n, dtype) for i, name in enumerate(FLAT[kernel])}
    return inputs, {"n": n, "dtype": dtype, **({"alpha": -0.37} if kernel == "scale" else {})}


def gate_call(kernel: str, rows: int, dim: int, dtype: str, ld: int) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    inputs = {name: numbers(i + dim, (rows, dim), dtype) for i, name in enumerate(GATES[kernel])}
    return inputs, {"rows": rows, "dim": dim, "ld": ld, "dtype": dtype}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kernel", FLAT)
def test_flat_accuracy(engine: Engine, kernel: str, dtype: str) -> None:
    budget = Budget()
    for n in SIZES:
        inputs, values = flat_call(kernel, n, dtype)
        options = {"alpha": np.float32(values["alpha"])} if "alpha" in values else {}
        compare(budget, run(engine, kernel, {**inputs, **values}), getattr(reference, kernel), inputs, options)
    budget.check()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kernel", GATES)
def test_gate_accuracy(engine: Engine, kernel: str, dtype: str) -> None:
    budget = Budget()
    for rows, dim in SHAPES:
        for ld in (dim, dim + 3):
            inputs, values = gate_call(kernel, rows, dim, dtype, ld)
            compare(budget, run(engine, kernel, {**inputs, **values}), getattr(reference, kernel), inputs, {})
    budget.check()


@pytest.mark.parametrize("dtype", FLOATS)
def test_silu_keeps_relative_accuracy(engine: Engine, dtype: str) -> None:
    """Also where the result is tiny: x exp(x) for x far below zero."""
    x = np.linspace(-80, 80, 4096).astype(DTYPES[dtype])
    budget = Budget()
    y = run(engine, "silu", {"x": x, "n": x.size, "dtype": dtype})
    compare(budget, {"y": y["y"][np.abs(x) > 0]}, reference.silu, {"x": x[np.abs(x) > 0]}, {}, relative=dtype != "f16")
    budget.check()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kernel", [*FLAT, *GATES])
def test_same_bits(kernel: str, dtype: str) -> None:
    """For any number of threads, wherever the buffers start, and in place."""
    for isa in isas():
        if kernel in FLAT:
            inputs, values = flat_call(kernel, 70001, dtype)
            aliases = [{{"silu_backward": "dx"}.get(kernel, "y"): name} for name in FLAT[kernel]]
        else:
            inputs, values = gate_call(kernel, 50, 1501, dtype, 3002)
            aliases = [{"dgate": "gate"}, {"dup": "up"}, {"dgate": "gate", "dup": "up"}]
            aliases = aliases if kernel == "swiglu_backward" else []
        first = run(Engine(threads=1, isa=isa), kernel, {**inputs, **values})
        for threads in THREADS[1:]:
            same_bits(first, run(Engine(threads=threads, isa=isa), kernel, {**inputs, **values}))
        engine = Engine(threads=2, isa=isa)
        same_bits(first, run(engine, kernel, {**inputs, **values}, shift=5))
        for alias in aliases:
            same_bits(first, run(engine, kernel, {**inputs, **values}, alias=alias))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_large_outputs(engine: Engine, dtype: str) -> None:
    """Outputs of 32 MB and more pass the caches; their bits are those of the same work in small pieces."""
    n = (33 << 20) // np.dtype(DTYPES[dtype]).itemsize + 11
    a, b = np.resize(numbers(1, 5003, dtype), n), np.resize(numbers(2, 4001, dtype), n)
    whole = run(engine, "add", {"a": a, "b": b, "n": n, "dtype": dtype}, shift=3)["y"]
    assert whole.tobytes() == (a.astype(np.float32) + b.astype(np.float32)).astype(DTYPES[dtype]).tobytes()


def test_large_outputs_in_rows(engine: Engine) -> None:
    rows, dim = 5, (17 << 20) // 10
    values = {name: np.resize(numbers(i, 5003, "bf16"), (rows, dim)) for i, name in enumerate(GATES["swiglu_backward"])}
    sizes = {"dim": dim, "ld": dim + 7, "dtype": "bf16"}
    whole = run(engine, "swiglu_backward", {**values, **sizes, "rows": rows})
    for row in (0, 4):
        one = {name: value[row : row + 1] for name, value in values.items()}
        single = run(engine, "swiglu_backward", {**one, **sizes, "rows": 1})
        same_bits({name: value[row : row + 1] for name, value in whole.items()}, single)


def test_gates_of_one_fused_product(engine: Engine) -> None:
    """up = gate + dim with ld = 2 dim: halves of one buffer, their gradients in those of another, or in place."""
    rows, dim = 9, 21
    fused, dy = numbers(3, (rows, 2 * dim), "f32"), numbers(4, (rows, dim), "f32")
    gate, up = fused[:, :dim].copy(), fused[:, dim:].copy()
    sizes = {"rows": rows, "dim": dim, "ld": dim, "dtype": "f32"}
    apart = run(engine, "swiglu_backward", {"dy": dy, "gate": gate, "up": up, **sizes})
    for target in (np.full_like(fused, np.nan), fused):
        data = fused.reshape(-1)
        out = target.reshape(-1)
        y = empty((rows, dim), "f32")
        if target is not fused:
            engine.swiglu(data, data[dim:], y, rows, dim, 2 * dim, "f32")
            np.testing.assert_allclose(y, reference.swiglu(gate, up)["y"], rtol=1e-6)
        engine.swiglu_backward(dy, data, data[dim:], out, out[dim:], rows, dim, 2 * dim, "f32")
        assert np.array_equal(target[:, :dim], apart["dgate"])
        assert np.array_equal(target[:, dim:], apart["dup"])


def test_partly_overlapping_gates_are_refused(engine: Engine) -> None:
    data, y = numbers(5, 200, "f32"), empty((4, 20), "f32")
    with pytest.raises(KernelError, match="overlap"):
        engine.swiglu(data, data[20:], data[10:], 4, 20, 40, "f32")
    with pytest.raises(KernelError, match="overlap"):
        engine.swiglu_backward(y, data, data[20:], data[1:], data[21:], 4, 20, 40, "f32")


def test_special_values(engine: Engine) -> None:
    x = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 200.0, -200.0, 3e38, -3e38, 1e-45])
    one = np.ones_like(x)
    n = {"n": x.size, "dtype": "f32"}
    with np.errstate(all="ignore"):
        y = run(engine, "silu", {"x": x, **n})["y"]
        assert np.isnan(y[0]) and y[1] == np.inf and np.isnan(y[2])
        assert np.array_equal(y[3:], np.float32([0, 0, 200, 0, 3e38, 0, 0]))
        dx = run(engine, "silu_backward", {"dy": one, "x": x, **n})["dx"]
        assert np.isnan(dx[0]) and np.array_equal(dx[3:], np.float32([0.5, 0.5, 1, 0, 1, 0, 0.5]))
        size = {"rows": 1, "dim": x.size, "ld": x.size, "dtype": "f32"}
        gate = run(engine, "relu2_gate", {"gate": x[None], "up": one[None], **size})["y"][0]
        assert np.array_equal(gate, np.square(np.maximum(x, 0)), equal_nan=True)
        assert np.array_equal(run(engine, "add", {"a": x, "b": -x, **n})["y"], x - x, equal_nan=True)


@pytest.mark.parametrize("dtype_y", FLOATS)
@pytest.mark.parametrize("dtype_x", FLOATS)
def test_cast(engine: Engine, dtype_x: str, dtype_y: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        if dtype_x == "f32":
            x = np.random.default_rng(1).integers(0, 2**32, 70001, dtype=np.uint32).view(np.float32)
        else:
            x = bits.view(DTYPES[dtype_x])
        expected = x.astype(np.float32).astype(DTYPES[dtype_y])
        for n in (x.size, 1, 13, 17):
            call = {"x": x[-n:], "n": n, "dtype_x": dtype_x, "dtype_y": dtype_y}
            y = run(engine, "cast", call)["y"]
            np.testing.assert_array_equal(y.astype(np.float32), expected[-n:].astype(np.float32))
            same_bits({"y": y}, run(engine, "cast", call, shift=1))


@pytest.mark.parametrize("value", [0.0, -1.0, 127.0, -128.0])
@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "i8"])
def test_fill(engine: Engine, dtype: str, value: float) -> None:
    for n in (1, 3, 63, 64, 65, 129, 16385):
        for shift in (0, 1, 7):
            y = run(engine, "fill", {"n": n, "value": value, "dtype": dtype}, shift=shift)["y"]
            assert np.all(y == np.asarray(value).astype(DTYPES[dtype]))


def test_fill_rounds_and_refuses(engine: Engine) -> None:
    assert run(engine, "fill", {"n": 5, "value": 1 / 3, "dtype": "bf16"})["y"][4] == DTYPES["bf16"](1 / 3)
    assert run(engine, "fill", {"n": 5, "value": 1e9, "dtype": "f16"})["y"][0] == np.inf
    assert run(engine, "fill", {"n": 5, "value": -(2.0**31), "dtype": "i32"})["y"][0] == -(2**31)
    bad = ((0.5, "i32"), (128.0, "i8"), (-129.0, "i8"), (2.0**31, "i32"), (np.nan, "i8"), (np.inf, "i32"))
    for value, dtype in bad:
        with pytest.raises(KernelError, match="value is") as caught:
            run(engine, "fill", {"n": 5, "value": value, "dtype": dtype})
        assert caught.value.status == "NNCUDA_ERROR_INVALID_VALUE"


def test_nothing_to_do(engine: Engine) -> None:
    for kernel in FLAT:
        inputs, values = flat_call(kernel, 0, "f32")
        run(engine, kernel, {**inputs, **values})
    for rows, dim in ((0, 5), (5, 0)):
        inputs, values = gate_call("swiglu", rows, dim, "f32", dim)
        run(engine, "swiglu", {**inputs, **values})


@pytest.mark.parametrize("by", [0, 1, -3, 2**31 - 1, -(2**31)])
def test_increment(engine: Engine, by: int) -> None:
    for n in SIZES:
        x = np.random.default_rng(n).integers(0, 1000, n, dtype=np.int32)
        x = -x if by > 0 else x  # away from the ends
        assert np.array_equal(run(engine, "increment", {"x": x, "n": n, "by": by})["x"], x + np.int64(by))


@pytest.mark.parametrize(("value", "by"), [(2**31 - 1, 1), (1, 2**31 - 1), (-(2**31), -1), (-1, -(2**31))])
def test_increment_does_not_wrap(engine: Engine, value: int, by: int) -> None:
    """And writes nothing when one element would, nor one element too early."""
    low, high = max(-(2**31), -(2**31) - by), min(2**31 - 1, 2**31 - 1 - by)
    for n, at in ((1, 0), (20000, 0), (20000, 19999)):
        x = np.zeros(n, np.int32)
        x[at] = value
        before = x.copy()
        with pytest.raises(KernelError) as error:
            engine.increment(x, n, by)
        assert error.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
        assert f"x[{at}] is {value}; it must be {low} to {high}, so that x + by is an i32" in error.value.message
        assert np.array_equal(x, before)
        x[at] = high if by > 0 else low
        engine.increment(x, n, by)
        assert x[at] == (2**31 - 1 if by > 0 else -(2**31))
