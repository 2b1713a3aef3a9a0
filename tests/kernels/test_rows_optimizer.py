"""AdamW, clipping, the schedule and the loss scale against float64, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import run, same_bits
from engine import DTYPES, FLOATS, Engine, KernelError

from nncuda.reference import optimizer as reference

OPTIONS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}


def numbers(seed: int, n: int, dtype: str = "f32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(DTYPES[dtype])


def adamw(n: int, step: int) -> dict[str, np.ndarray]:
    inputs = {name: numbers(i + n, n) for i, name in enumerate(("grad", "param", "m", "v"))}
    inputs["v"] = np.square(inputs["v"])
    return {**inputs, "lr": np.float32([3e-3]), "step": np.int32([step]), "grad_scale": np.float32([0.7])}


def test_grad_norm_range(cpu: Engine) -> None:
    """Squares that overflow or vanish in f32 do not matter; the norm is not finite exactly when it must not be."""
    for scale in (1e30, 1e-30, 1e-44):
        grad = numbers(1, 1000) * np.float32(scale)
        exact = np.sqrt(np.sum(np.square(grad.astype(np.float64))))
        norm = run(cpu, "grad_norm", {"grad": grad, "n": 1000, "dtype": "f32"})["norm"][0]
        assert abs(norm - exact) <= max(exact * 2.0**-23, 2.0**-149)
    largest = np.finfo(np.float32).max
    for grad, expected in (
        ([largest], largest),
        ([largest, largest], np.inf),
        ([1, np.inf], np.inf),
        ([np.nan], np.nan),
    ):
        x = np.float32(grad)
        norm = run(cpu, "grad_norm", {"grad": x, "n": x.size, "dtype": "f32"})["norm"][0]
        assert np.array_equal(norm, np.float32(expected), equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_grad_clip(cpu: Engine, dtype: str) -> None:
    for norm, loss_scale, max_norm in ((5.0, None, 1.0), (0.5, None, 1.0), (800.0, 1024.0, 0.25), (5.0, 8.0, np.inf)):
        for n in (1, 17, 40001):
            inputs = {"norm": np.float32([norm]), "grad": numbers(n, n, dtype)}
            inputs["loss_scale"] = None if loss_scale is None else np.float32([loss_scale])
            values = {**inputs, "n": n, "max_norm": max_norm, "dtype": dtype}
            outputs = run(cpu, "grad_clip", values)
            s = 1.0 if loss_scale is None else loss_scale
            exact = min(1.0, max_norm / (norm / s + 1e-6)) / s
            assert abs(outputs["scale"][0] - exact) <= exact * 2.0**-24
            expected = (inputs["grad"].astype(np.float32) * outputs["scale"]).astype(DTYPES[dtype])
            assert outputs["grad"].tobytes() == expected.tobytes()
            same_bits({"scale": outputs["scale"]}, run(cpu, "grad_clip", {**values, "grad": None}))


def test_grad_clip_edges(cpu: Engine) -> None:
    def scale(norm: float, max_norm: float = 1.0) -> float:
        values = {"norm": np.float32([norm]), "loss_scale": None, "grad": None, "n": 0, "dtype": "f32"}
        return run(cpu, "grad_clip", {**values, "max_norm": max_norm})["scale"][0]

    assert scale(0.0) == 1
    assert scale(np.inf) == 0
    assert np.isnan(scale(np.nan))
    assert scale(np.inf, np.inf) == 1
    for max_norm in (0.0, -1.0, np.nan):
        with pytest.raises(KernelError, match="max_norm is"):
            scale(1.0, max_norm)


def lr_at(cpu: Engine, step: int, warmup: int, total: int, skip: int | None = 0) -> tuple[int, float]:
    flag = None if skip is None else np.int32([skip])
    values = {"skip": flag, "step": np.int32([step]), "warmup": warmup, "total": total, "max_lr": 3e-4, "min_lr": 3e-5}
    outputs = run(cpu, "lr_schedule", values)
    return int(outputs["step"][0]), float(outputs["lr"][0])


def test_lr_schedule(cpu: Engine) -> None:
    high, low = float(np.float32(3e-4)), float(np.float32(3e-5))
    for warmup, total in ((0, 0), (0, 10), (5, 5), (5, 20), (2000, 100000), (1, 2**40)):
        steps = {0, 1, warmup - 2, warmup - 1, warmup, warmup + 1, (warmup + total) // 2, total - 2, total - 1, total}
        for step in sorted(s for s in steps if 0 <= s < 2**31 - 1):
            exact = reference.lr_schedule(np.int32([step]), warmup, total, high, low)
            after, lr = lr_at(cpu, step, warmup, total, None if step % 2 else 0)
            assert after == step + 1
            assert abs(lr - exact["lr"][0]) <= exact["lr"][0] * 2.0**-24
    after, lr = lr_at(cpu, 7, 5, 20, skip=1)
    assert after == 7 and np.isnan(lr)
    for step in (-1, 2**31 - 1):
        with pytest.raises(KernelError, match=r"step\[0\] is"):
            lr_at(cpu, step, 5, 20)
    with pytest.raises(KernelError, match="total is 4; it must be at least warmup, which is 5"):
        lr_at(cpu, 0, 5, 4)
    with pytest.raises(KernelError, match="warmup is -1"):
        lr_at(cpu, 0, -1, 4)


def test_loss_scale_update(cpu: Engine) -> None:
    state = {"loss_scale": np.float32([2.0**16]), "good_steps": np.int32([0]), "skipped": np.int32([0])}
    options = {"growth": 2.0, "backoff": 0.5, "interval": 3}
    for norm in [1.0, 2.0, np.inf, 1.0, 1.0, 1.0, 0.0, np.nan, -np.inf, *[1.0] * 40, *[np.inf] * 60]:
        call = {"norm": np.float32([norm]), **state}
        exact = reference.loss_scale_update(**call, **options)
        outputs = run(cpu, "loss_scale_update", {**call, **options})
        for name, value in outputs.items():
            assert value[0] == exact[name][0], (name, norm)
        state = {name: outputs[name] for name in state}
    assert state["loss_scale"][0] == 2.0**-24
    assert state["skipped"][0] == 63
    for change in ({"growth": 0.5}, {"backoff": 0.0}, {"backoff": 1.5}, {"interval": 0}):
        with pytest.raises(KernelError, match=f"{next(iter(change))} is"):
            run(cpu, "loss_scale_update", {"norm": np.float32([1]), **state, **options, **change})
