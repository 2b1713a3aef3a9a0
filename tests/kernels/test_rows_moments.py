"""AdamW with moments in bf16 and in 8 bits: the rule of bindings.h, its odd ends, the same bits however it is cut."""

from __future__ import annotations

import numpy as np
import pytest
from calls import run, same_bits
from engine import THREADS, Engine, KernelError, isas

from nncuda.reference import moments
from nncuda.reference import optimizer as reference
from nncuda.reference.rounding import rounded

OPTIONS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
AS_F32 = {name: float(np.float32(value)) for name, value in OPTIONS.items()}
BLOCK = moments.BLOCK


@pytest.fixture(scope="module", params=isas())
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def inputs(kernel: str, n: int, step: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(n)
    spread = np.exp2(random.integers(-12, 3, n)).astype(np.float32)
    values = {"grad": random.standard_normal(n).astype(np.float32) * spread, "lr": np.float32([3e-3])}
    values |= {"param": random.standard_normal(n).astype(np.float32), "step": np.int32([step])}
    values |= {"grad_scale": np.float32([0.7])}
    if kernel == "adamw_step_bf16":
        m, v = random.standard_normal(n) * spread, np.square(random.standard_normal(n) * spread)
        return {**values, "m": rounded(m, "bf16"), "v": rounded(v, "bf16")}
    blocks = -(-n // BLOCK)
    values["m"] = (random.integers(0, 0x79, n) + 0x80 * random.integers(0, 2, n)).astype(np.uint8)
    values["r"] = random.integers(0, 0xF1, n).astype(np.uint8)
    return values | {name: np.exp2(random.uniform(-4, 1, blocks)).astype(np.float32) for name in ("m_scale", "r_scale")}


def sizes(kernel: str, n: int, n_decay: int) -> dict[str, object]:
    blocks = {"blocks": -(-n // BLOCK)} if kernel == "adamw_step_f8" else {}
    return {"n": n, "n_decay": n_decay, "skip": None, "dtype": "bf16", **blocks, **OPTIONS}


KERNELS = ("adamw_step_bf16", "adamw_step_f8")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [1, 31, 256, 16384 + 257])
def test_the_reference(engine: Engine, kernel: str, n: int) -> None:
    """Against float64: the parameters with at most twice the error of the plain formula in f32, or one rounding.

    What is rounded by chance may differ where float32 decides, by one unit and no more: that takes a value within 16
    roundings of float32 (2^-20, both ways) of the place, and of evenly spread values as many as that is of the distance
    of two neighbours: 2^-12 of them at bf16's 2^-8, and 2^-15 at the codes' 2^-5. Twice that at cancelling sums.
    """
    given = inputs(kernel, n, 9)
    wide = {name: a.astype(np.float64) if a.dtype.kind not in "iu" else a for name, a in given.items()}
    wide = {name: a.astype(np.float64) if a.dtype.name == "bfloat16" else a for name, a in wide.items()}
    outputs = run(engine, kernel, {**given, **sizes(kernel, n, n // 3)})
    wanted = getattr(reference, kernel)(**wide, n_decay=n // 3, **AS_F32)
    narrow = {name: a.astype(np.float32) if a.dtype == np.float64 else a for name, a in wide.items()}
    plain = getattr(reference, kernel)(**narrow, n_decay=n // 3, **AS_F32)["param"]
    errors = [np.max(np.abs(param.astype(np.float64) - wanted["param"])) for param in (outputs["param"], plain)]
    assert errors[0] <= max(2 * errors[1], 2.0**-24 * np.max(np.abs(wanted["param"])))
    for name in ("m", "v") if kernel == "adamw_step_bf16" else ("m", "r"):
        got, exact = outputs[name].astype(np.float64), wanted[name].astype(np.float64)
        unit = np.maximum(np.abs(exact) * 2.0**-7, 2.0**-133) if kernel == "adamw_step_bf16" else 1
        assert np.all(np.abs(got - exact) <= unit), name
        assert np.mean(got != exact) <= 2.0**-10, name
    for name in ("m_scale", "r_scale") if kernel == "adamw_step_f8" else ():
        np.testing.assert_allclose(outputs[name], wanted[name], rtol=2.0**-20)


@pytest.mark.parametrize("kernel", KERNELS)
def test_same_bits(kernel: str) -> None:
    n = 70001
    for isa in isas():
        values = {**inputs(kernel, n, 5), **sizes(kernel, n, 30003)}
        first = run(Engine(threads=1, isa=isa), kernel, values)
        for threads in THREADS[1:]:
            same_bits(first, run(Engine(threads=threads, isa=isa), kernel, values))
        same_bits(first, run(Engine(threads=2, isa=isa), kernel, values, shift=3))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_skipped_step_writes_nothing(engine: Engine, kernel: str) -> None:
    given = inputs(kernel, 300, 5)
    outputs = run(engine, kernel, {**given, **sizes(kernel, 300, 3), "skip": np.int32([1])})
    assert np.all(np.isnan(outputs.pop("param_copy").astype(np.float32)))
    same_bits(outputs, {name: given[name].astype(array.dtype) for name, array in outputs.items()})


def first_step(engine: Engine, grad: np.ndarray) -> dict[str, np.ndarray]:
    """From moments of zero, with beta1 = beta2 = 0: the moments are the gradient and its magnitude."""
    n, blocks = len(grad), -(-len(grad) // BLOCK)
    codes, scales = np.zeros(n, np.uint8), np.zeros(blocks, np.float32)
    given = {"grad": grad, "lr": np.float32([1]), "step": np.int32([1]), "grad_scale": None, "m": codes, "r": codes}
    given |= {"param": np.zeros(n, np.float32), "m_scale": scales, "r_scale": scales}
    return run(engine, "adamw_step_f8", {**given, **sizes("adamw_step_f8", n, 0), "beta1": 0.0, "beta2": 0.0})


def test_the_largest_is_exact(engine: Engine) -> None:
    for largest in (2.0**-149, 2.0**-140, 3e-39, 1e-20, 0.7, 3.4e38):
        grad = np.float32([0, largest, -largest, 0])
        outputs = first_step(engine, grad)
        assert outputs["m_scale"][0] == grad[1] and outputs["m"].tolist() == [0, 0x78, 0xF8, 0]
        if 1e-18 < largest < 1e18:  # the square, too, is a number
            assert outputs["r"].tolist() == [0, 0xF0, 0xF0, 0]
            assert moments.unpack_first(outputs["m"], outputs["m_scale"]).tolist() == grad.tolist()


def test_every_code_is_kept(engine: Engine) -> None:
    """A number of the format stays, whatever chance is: no moment drifts by being stored."""
    numbers = moments.decode(np.arange(0x79), moments.FIRST_BITS)
    grad = np.concatenate([numbers, -numbers[1:]]).astype(np.float32)
    outputs = first_step(engine, grad)
    assert outputs["m"].tolist() == [*range(0x79), *range(0x81, 0xF9)]
    roots = moments.decode(np.arange(0xF1), moments.ROOT_BITS).astype(np.float32)
    assert first_step(engine, roots)["r"].tolist() == list(range(0xF1))


def test_no_root_is_rounded_to_zero(engine: Engine) -> None:
    grad = np.full(BLOCK + 9, 1e-12, np.float32)
    grad[0], grad[7], grad[BLOCK:] = 1.0, 0.0, 0.0
    outputs = first_step(engine, grad)
    assert outputs["r"][7] == 0 and np.all(outputs["r"][1:7] == 1) and np.all(outputs["r"][8:BLOCK] == 1)
    assert np.all(outputs["m"][1:BLOCK] == 0)
    assert not np.any(outputs["r"][BLOCK:]) and outputs["r_scale"][1] == 0 and outputs["m_scale"][1] == 0


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_block_that_is_not_finite(engine: Engine, bad: float) -> None:
    """It shows in its scale, and stays in its block."""
    grad = np.ones(3 * BLOCK, np.float32)
    grad[BLOCK + 5] = bad
    outputs = first_step(engine, grad)
    assert np.isfinite(outputs["m_scale"]).tolist() == [True, False, True]
    assert not np.any(outputs["m"][BLOCK : 2 * BLOCK]) and not np.any(outputs["r"][BLOCK : 2 * BLOCK])
    assert np.all(outputs["m"][:BLOCK] == 0x78) and np.isfinite(np.delete(outputs["param"], BLOCK + 5)).all()


def test_rounding_is_right_on_average(engine: Engine) -> None:
    """Of n numbers between two neighbours, a share p above the lower one, n*p go up, give or take five deviations."""
    for share in (0.1, 0.5, 0.9):
        n = 64 * BLOCK
        grad = np.full(n, (1 + share / 16) / 4, np.float32)
        grad[::BLOCK] = 1.0
        outputs = first_step(engine, grad)
        low = 13 * 16  # 1/4
        body = np.delete(outputs["r"], np.arange(0, n, BLOCK))
        assert np.isin(body, (low, low + 1)).all()
        assert abs(np.sum(body == low + 1) - share * len(body)) < 5 * np.sqrt(share * (1 - share) * len(body))


def test_slow_moments_are_followed(engine: Engine) -> None:
    """With beta2 = 0.999 a second moment changes by less than half a unit a step: it must fall all the same."""
    n, steps = 4 * BLOCK, 700
    values = {**inputs("adamw_step_bf16", n, 1), **sizes("adamw_step_bf16", n, 0), "beta2": 0.999}
    values |= {"grad": np.zeros(n, np.float32), "m": np.zeros(n), "v": np.ones(n)}
    for step in range(1, steps + 1):
        outputs = run(engine, "adamw_step_bf16", {**values, "step": np.int32([step])})
        values["v"] = outputs["v"]
    # A step's rounding has a deviation of at most half a unit of 2^-8 to the value; 700 of them add up as a walk.
    assert abs(np.mean(outputs["v"].astype(np.float64)) / 0.999**steps - 1) < 5 * np.sqrt(steps / n) * 2.0**-8


def test_refused(engine: Engine) -> None:
    good = {**inputs("adamw_step_f8", 300, 3), **sizes("adamw_step_f8", 300, 5)}
    wrong = {**good, "blocks": 3, "m_scale": np.zeros(3), "r_scale": np.zeros(3)}
    with pytest.raises(KernelError, match="blocks is 3; it must be n / 256 rounded up, which is 2") as caught:
        run(engine, "adamw_step_f8", wrong)
    assert caught.value.status == "NNCUDA_ERROR_INVALID_SIZE"
    for kernel in KERNELS:
        good = {**inputs(kernel, 10, 3), **sizes(kernel, 10, 5)}
        for name, value in (("n_decay", 11), ("beta2", 1.0), ("eps", 0.0)):
            with pytest.raises(KernelError, match=f"{name} is"):
                run(engine, kernel, {**good, name: value})
        with pytest.raises(KernelError, match=r"step\[0\] is 0; it must be at least 1"):
            run(engine, kernel, {**good, "step": np.int32([0])})
