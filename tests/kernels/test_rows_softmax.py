"""Softmax and the router against float64, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import Budget, compare, run, same_bits
from engine import DTYPES, FLOATS, THREADS, Engine, KernelError, isas

from nncuda.reference import softmax as reference

# Around the vector widths, groups of four vectors, and blocks of 1024.
SHAPES = (
    *((1, 1), (3, 2), (5, 7), (4, 16), (9, 17), (2, 63), (3, 65), (40, 300), (2, 1023), (2, 1024), (3, 1025)),
    *((2, 1088), (3, 3001), (2, 32000)),
)
ROUTERS = ((1, 1, 1), (3, 5, 5), (7, 8, 2), (300, 16, 4), (5, 17, 3), (4, 64, 64), (2, 1500, 64))


@pytest.fixture(scope="module", params=isas())
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def logits(seed: int, shape: tuple[int, ...], dtype: str, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(DTYPES[dtype])


def size(x: np.ndarray, dtype: str) -> dict[str, object]:
    return {"rows": x.shape[0], "cols": x.shape[1], "dtype": dtype}


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_accuracy(engine: Engine, dtype: str) -> None:
    budget = Budget()
    for shape in SHAPES:
        x = logits(shape[1], shape, dtype)
        compare(budget, run(engine, "softmax", {"x": x, **size(x, dtype)}), reference.softmax, {"x": x}, {}, True)
    budget.check()


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
def test_softmax_of_hard_rows(engine: Engine, cols: int) -> None:
    for name, row in hard_rows(cols).items():
        x = np.float32(row)[None]
        y = run(engine, "softmax", {"x": x, **size(x, "f32")})
        shown = np.isfinite(x)
        exact = reference.softmax(x.astype(np.float64))["y"]
        plain = reference.softmax(x)["y"]
        assert np.all(y["y"][~shown] == 0)
        # Beside the plain formula's error one rounding is allowed for: it may happen to be exact.
        large = exact > 1e-30
        error, limit = (np.max(np.abs(a[large] - exact[large]) / exact[large]) for a in (y["y"], plain))
        assert error <= 2 * max(limit, 2.0**-24), name


@pytest.mark.parametrize("rise", [0.9, 1.1, 12.0, 20.0, 87.9])
def test_a_row_that_rises_from_block_to_block(engine: Engine, rise: float) -> None:
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
    y = run(engine, "softmax", {"x": x, **size(x, "f32")})["y"]
    exact, plain = (reference.softmax(x.astype(real))["y"] for real in (np.float64, np.float32))
    near = x >= x.max() - 0.5
    error, limit = (np.max(np.abs(a[near] - exact[near]) / exact[near]) for a in (y, plain))
    assert error <= 2 * max(limit, 2.0**-24)


def test_softmax_special_rows(engine: Engine) -> None:
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
        y = run(engine, "softmax", {"x": x, **size(x, "f32")})["y"]
        assert np.all(y[0] == 0)
        assert np.all(np.isnan(y[[1, 2, 3, 5, 6]]))
        assert np.array_equal(y[4], np.arange(cols) == cols - 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_backward_accuracy(engine: Engine, dtype: str) -> None:
    budget = Budget()
    for shape in SHAPES:
        y = reference.softmax(logits(1, shape, "f32"))["y"].astype(DTYPES[dtype])
        inputs = {"dy": logits(2, shape, dtype), "y": y}
        compare(
            budget,
            run(engine, "softmax_backward", {**inputs, **size(y, dtype)}),
            reference.softmax_backward,
            inputs,
            {},
        )
    budget.check()


def test_same_bits() -> None:
    for isa in isas():
        for dtype in FLOATS:
            x, dy = logits(1, (23, 1501), dtype), logits(2, (23, 1501), dtype)
            calls = {"softmax": {"x": x}, "softmax_backward": {"dy": dy, "y": np.abs(x)}}
            for kernel, inputs in calls.items():
                values = {**inputs, **size(x, dtype)}
                first = run(Engine(threads=1, isa=isa), kernel, values)
                for threads in THREADS[1:]:
                    same_bits(first, run(Engine(threads=threads, isa=isa), kernel, values))
                engine = Engine(threads=2, isa=isa)
                same_bits(first, run(engine, kernel, values, shift=3))
                alias = {"y": "x"} if kernel == "softmax" else {"dx": "dy"}
                same_bits(first, run(engine, kernel, values, alias=alias))


def test_large_outputs(engine: Engine) -> None:
    """Rows past the caches have the bits of the same rows alone."""
    rows, cols = 70, (34 << 20) // 2 // 70
    x = np.resize(logits(1, (5003,), "bf16"), (rows, cols))
    whole = run(engine, "softmax", {"x": x, **size(x, "bf16")})["y"]
    back = run(engine, "softmax_backward", {"dy": x, "y": whole, **size(x, "bf16")})["dx"]
    for row in (0, 33, 69):
        one = x[row : row + 1]
        y = run(engine, "softmax", {"x": one, **size(one, "bf16")})["y"]
        same_bits({"y": whole[row : row + 1]}, {"y": y})
        same_bits(
            {"dx": back[row : row + 1]}, run(engine, "softmax_backward", {"dy": one, "y": y, **size(one, "bf16")})
        )


def router(x: np.ndarray, k: int, norm: int, dtype: str) -> dict[str, object]:
    return {"x": x, "k": k, "norm": norm, **size(x, dtype)}


@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_topk_accuracy(engine: Engine, dtype: str, norm: int) -> None:
    forward, backward = Budget(), Budget()
    for rows, cols, k in ROUTERS:
        x = logits(cols, (rows, cols), dtype, 1.5)
        outputs = run(engine, "softmax_topk", router(x, k, norm, dtype))
        check_order(outputs["probs"], outputs["indices"])
        # The order is of the probabilities in f32, which may tie where those in float64 do not: compare at our indices.
        exact = softmax_at(x.astype(np.float64), outputs["indices"], norm)
        plain = softmax_at(x.astype(np.float32), outputs["indices"], norm)
        for name in ("weights", "probs"):
            forward.add(name, outputs[name], plain[name], exact[name])
        inputs = {"dweights": logits(1, (rows, k), "f32"), **outputs, "dprobs": logits(2, (rows, cols), "f32")}
        for dprobs in (inputs["dprobs"], None):
            inputs["dprobs"] = dprobs
            given = {name: value for name, value in inputs.items() if value is not None}
            dx = run(engine, "softmax_topk_backward", {**inputs, **size(x, dtype), "k": k, "norm": norm})
            compare(backward, dx, reference.softmax_topk_backward, given, {"norm": norm})
    forward.check()
    backward.check()


def softmax_at(x: np.ndarray, indices: np.ndarray, norm: int) -> dict[str, np.ndarray]:
    probs = reference.softmax(x)["y"]
    weights = np.take_along_axis(probs, indices, -1)
    return {"probs": probs, "weights": weights / reference.total(weights) if norm else weights}


def check_order(probs: np.ndarray, indices: np.ndarray) -> None:
    """The indices are the first k of a stable sort by falling probability."""
    key = np.where(np.isnan(probs), -1, probs)
    assert np.array_equal(indices, np.argsort(-key, axis=-1, kind="stable")[:, : indices.shape[1]])


def test_topk_ties_and_special_rows(engine: Engine) -> None:
    x = np.zeros((6, 19), np.float32)
    x[1] = np.arange(19) // 4
    x[2] = -np.inf
    x[3, 4] = np.nan
    x[4, 7] = np.inf
    x[5, 3:] = -np.inf
    with np.errstate(all="ignore"):
        outputs = run(engine, "softmax_topk", router(x, 6, 1, "f32"))
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


def test_topk_same_bits() -> None:
    x = logits(3, (700, 24), "bf16")
    for isa in isas():
        first = run(Engine(threads=1, isa=isa), "softmax_topk", router(x, 5, 1, "bf16"))
        inputs = {"dweights": logits(4, (700, 5), "f32"), **first, "dprobs": None, "k": 5, "norm": 1, **size(x, "bf16")}
        back = run(Engine(threads=1, isa=isa), "softmax_topk_backward", inputs)
        for threads in THREADS[1:]:
            engine = Engine(threads=threads, isa=isa)
            same_bits(first, run(engine, "softmax_topk", router(x, 5, 1, "bf16")))
            same_bits(back, run(engine, "softmax_topk_backward", inputs, shift=1))


def test_refused(engine: Engine) -> None:
    x = np.zeros((3, 5), np.float32)
    wide = np.zeros((1, 70), np.float32)
    for array, k in ((x, 6), (wide, 65)):
        with pytest.raises(KernelError, match=f"k is {k}") as caught:
            run(engine, "softmax_topk", router(array, k, 0, "f32"))
        assert caught.value.status == "NNCUDA_ERROR_INVALID_SIZE"
    with pytest.raises(KernelError, match="norm is 2"):
        run(engine, "softmax_topk", router(x, 2, 2, "f32"))
    outputs = run(engine, "softmax_topk", router(x, 2, 0, "f32"))
    for bad in (-1, 5):
        outputs["indices"][2, 1] = bad
        with pytest.raises(KernelError, match=rf"indices\[2, 1\] is {bad}; it must be 0 to 4") as caught:
            inputs = {"dweights": np.zeros((3, 2), np.float32), **outputs, "dprobs": None, "k": 2, "norm": 0}
            run(engine, "softmax_topk_backward", {**inputs, **size(x, "f32")})
        assert caught.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"


def test_nothing_to_do(engine: Engine) -> None:
    for shape in ((0, 5), (5, 0)):
        x = np.zeros(shape, np.float32)
        run(engine, "softmax", {"x": x, **size(x, "f32")})
        run(engine, "softmax_topk", router(x, 0, 1, "f32"))
