"""AdamW with moments in bf16 and in 8 bits: the rule of bindings.h, its odd ends, the same bits however it is cut."""

from __future__ import annotations

import numpy as np
import pytest
from calls import run
from engine import Engine

from nncuda.reference import moments
from nncuda.reference.rounding import rounded

OPTIONS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
BLOCK = moments.BLOCK


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
    return {"n": n, "n_decay": n_decay, "first": 0, "skip": None, "dtype": "bf16", **blocks, **OPTIONS}


KERNELS = ("adamw_step_bf16", "adamw_step_f8")


def first_step(cpu: Engine, grad: np.ndarray) -> dict[str, np.ndarray]:
    """From moments of zero, with beta1 = beta2 = 0: the moments are the gradient and its magnitude."""
    n, blocks = len(grad), -(-len(grad) // BLOCK)
    codes, scales = np.zeros(n, np.uint8), np.zeros(blocks, np.float32)
    given = {"grad": grad, "lr": np.float32([1]), "step": np.int32([1]), "grad_scale": None, "m": codes, "r": codes}
    given |= {"param": np.zeros(n, np.float32), "m_scale": scales, "r_scale": scales}
    return run(cpu, "adamw_step_f8", {**given, **sizes("adamw_step_f8", n, 0), "beta1": 0.0, "beta2": 0.0})


def test_the_largest_is_exact(cpu: Engine) -> None:
    for largest in (2.0**-149, 2.0**-140, 3e-39, 1e-20, 0.7, 3.4e38):
        grad = np.float32([0, largest, -largest, 0])
        outputs = first_step(cpu, grad)
        assert outputs["m_scale"][0] == grad[1] and outputs["m"].tolist() == [0, 0x78, 0xF8, 0]
        if 1e-18 < largest < 1e18:  # the square, too, is a number
            assert outputs["r"].tolist() == [0, 0xF0, 0xF0, 0]
            assert moments.unpack_first(outputs["m"], outputs["m_scale"]).tolist() == grad.tolist()


def test_every_code_is_kept(cpu: Engine) -> None:
    """A number of the format stays, whatever chance is: no moment drifts by being stored."""
    numbers = moments.decode(np.arange(0x79), moments.FIRST_BITS)
    grad = np.concatenate([numbers, -numbers[1:]]).astype(np.float32)
    outputs = first_step(cpu, grad)
    assert outputs["m"].tolist() == [*range(0x79), *range(0x81, 0xF9)]
    roots = moments.decode(np.arange(0xF1), moments.ROOT_BITS).astype(np.float32)
    assert first_step(cpu, roots)["r"].tolist() == list(range(0xF1))


def test_no_root_is_rounded_to_zero(cpu: Engine) -> None:
    grad = np.full(BLOCK + 9, 1e-12, np.float32)
    grad[0], grad[7], grad[BLOCK:] = 1.0, 0.0, 0.0
    outputs = first_step(cpu, grad)
    assert outputs["r"][7] == 0 and np.all(outputs["r"][1:7] == 1) and np.all(outputs["r"][8:BLOCK] == 1)
    assert np.all(outputs["m"][1:BLOCK] == 0)
    assert not np.any(outputs["r"][BLOCK:]) and outputs["r_scale"][1] == 0 and outputs["m_scale"][1] == 0


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_block_that_is_not_finite(cpu: Engine, bad: float) -> None:
    """It shows in its scale, and stays in its block."""
    grad = np.ones(3 * BLOCK, np.float32)
    grad[BLOCK + 5] = bad
    outputs = first_step(cpu, grad)
    assert np.isfinite(outputs["m_scale"]).tolist() == [True, False, True]
    assert not np.any(outputs["m"][BLOCK : 2 * BLOCK]) and not np.any(outputs["r"][BLOCK : 2 * BLOCK])
    assert np.all(outputs["m"][:BLOCK] == 0x78) and np.isfinite(np.delete(outputs["param"], BLOCK + 5)).all()


def test_rounding_is_right_on_average(cpu: Engine) -> None:
    """Of n numbers between two neighbours, a share p above the lower one, n*p go up, give or take five deviations."""
    for share in (0.1, 0.5, 0.9):
        n = 64 * BLOCK
        grad = np.full(n, (1 + share / 16) / 4, np.float32)
        grad[::BLOCK] = 1.0
        outputs = first_step(cpu, grad)
        low = 13 * 16  # 1/4
        body = np.delete(outputs["r"], np.arange(0, n, BLOCK))
        assert np.isin(body, (low, low + 1)).all()
        assert abs(np.sum(body == low + 1) - share * len(body)) < 5 * np.sqrt(share * (1 - share) * len(body))


def test_slow_moments_are_followed(cpu: Engine) -> None:
    """With beta2 = 0.999 a second moment changes by less than half a unit a step: it must fall all the same."""
    n, steps = 4 * BLOCK, 700
    values = {**inputs("adamw_step_bf16", n, 1), **sizes("adamw_step_bf16", n, 0), "beta2": 0.999}
    values |= {"grad": np.zeros(n, np.float32), "m": np.zeros(n), "v": np.ones(n)}
    for step in range(1, steps + 1):
        outputs = run(cpu, "adamw_step_bf16", {**values, "step": np.int32([step])})
        values["v"] = outputs["v"]
    # A step's rounding has a deviation of at most half a unit of 2^-8 to the value; 700 of them add up as a walk.
    assert abs(np.mean(outputs["v"].astype(np.float64)) / 0.999**steps - 1) < 5 * np.sqrt(steps / n) * 2.0**-8


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_shard_rounds_like_the_whole(cpu: Engine, kernel: str) -> None:
    """With `first`, chance is that of the place among all parameters."""
    n, begin = 5 * BLOCK + 9, 2 * BLOCK
    given = inputs(kernel, n, 4)
    whole = run(cpu, kernel, {**given, **sizes(kernel, n, n)})
    part = {
        name: value[begin // BLOCK :] if name.endswith("_scale") and len(value) > 1 else value[begin:]
        for name, value in given.items()
        if len(value) > 1
    }
    shard = run(cpu, kernel, {**given, **part, **sizes(kernel, n - begin, n - begin), "first": begin})
    assert len(shard) == len(whole) > 3
    for name, value in shard.items():
        expected = whole[name][begin // BLOCK :] if name.endswith("_scale") else whole[name][begin:]
        np.testing.assert_array_equal(value.view(np.uint8), expected.view(np.uint8), err_msg=name)
