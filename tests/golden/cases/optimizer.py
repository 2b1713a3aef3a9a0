"""Cases of the optimiser."""

import numpy as np

from .case import FLOATS, TAILS, case


def i32(value):
    return np.array([value], np.int32)


def cases():
    for dtype in FLOATS:
        for n, n_decay, step in ((1, 1, 1), (7, 0, 2), (16, 16, 3), (33, 20, 10), (65, 64, 1000), (130, 5, 100000)):
            yield case("adamw_step", f"n{n}-decay{n_decay}-step{step}", adamw, dtype, n, n_decay, step)
        yield case("adamw_step", "scaled", lambda d: {**adamw(d, 19, 19, 5), "grad_scale": np.array([0.03])}, dtype)
        yield case("adamw_step", "skipped", lambda d: {**adamw(d, 19, 19, 5), "skip": i32(1)}, dtype)
        yield case("adamw_step", "not-skipped", lambda d: {**adamw(d, 19, 3, 5), "skip": i32(0)}, dtype)
        yield case("adamw_step", "no-copy", lambda d: {**adamw(d, 19, 3, 5), "param_copy": None}, dtype)
        yield case("adamw_step", "tiny-moments", tiny_moments, dtype)
        yield from packed("adamw_step_bf16", adamw, dtype)
        yield from packed("adamw_step_f8", adamw_f8, dtype)
        for n in (1, 17, 67):
            yield case("zero_grad", f"n{n}", lambda d, n=n: {"n": n}, dtype)
        for n in (*TAILS, 1025):
            yield case("grad_norm", f"n{n}", lambda d, n=n: {"grad": d.bell(n)}, dtype)
        yield case("grad_norm", "not-finite", lambda d: {"grad": np.array([1.0, np.inf, 2.0])}, dtype)
        yield case("grad_norm", "nan", lambda d: {"grad": np.array([1.0, np.nan, np.inf])}, dtype)
        for n in (1, 17, 65):
            yield case("grad_clip", f"clips-n{n}", lambda d, n=n: clip(3.7, 1.0, d.bell(n)), dtype)
        yield case("grad_clip", "below", lambda d: clip(0.7, 1.0, d.bell(9)), dtype)
        yield case(
            "grad_clip",
            "loss-scale",
            lambda d: {**clip(3000.0, 1.0, d.bell(9)), "loss_scale": np.array([1024.0])},
            dtype,
        )
    yield case("grad_norm", "large", lambda d: {"grad": d.bell(33, scale=1e25)}, "f32")
    yield case("grad_norm", "tiny", lambda d: {"grad": d.bell(33, scale=1e-25)}, "f32")
    yield case("grad_clip", "never", lambda d: {**clip(1e6, np.inf, None), "loss_scale": np.array([512.0])}, "f32")
    yield case("grad_clip", "scale-only", lambda d: clip(5.0, 2.0, None), "f32")
    yield case("grad_clip", "zero", lambda d: clip(0.0, 1.0, None), "f32")
    for done in (0, 1, 4, 9, 10, 11, 50, 98, 99, 100, 5000):
        yield case("lr_schedule", f"done{done}", lambda d, done=done: schedule(done))
    yield case("lr_schedule", "skipped", lambda d: {**schedule(7), "skip": i32(1)})
    yield case("lr_schedule", "not-skipped", lambda d: {**schedule(7), "skip": i32(0)})
    yield case("lr_schedule", "no-warmup", lambda d: {**schedule(0), "warmup": 0})
    yield case("lr_schedule", "only-warmup", lambda d: {**schedule(10), "total": 10})
    for label, norm, scale, good in (
        ("good", 3.0, 1024.0, 2),
        ("grows", 3.0, 1024.0, 4),
        ("infinite", np.inf, 1024.0, 3),
        ("nan", np.nan, 1024.0, 3),
        ("largest", 3.0, 2.0**24, 4),
        ("smallest", np.inf, 2.0**-24, 4),
    ):
        state = {"norm": np.array([norm]), "loss_scale": np.array([scale]), "good_steps": i32(good), "skipped": i32(6)}
        options = {"growth": 2.0, "backoff": 0.5, "interval": 5}
        yield case("loss_scale_update", label, lambda d, args=state | options: dict(args))


def adamw(d, n, n_decay, step):
    return {
        "grad": d.bell(n, scale=0.1),
        "lr": np.array([3e-3]),
        "step": i32(step),
        "grad_scale": None,
        "skip": None,
        "param": d.bell(n),
        "m": d.bell(n, scale=0.1),
        "v": d.uniform(n, low=1e-4, high=1e-2),
        "n_decay": n_decay,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay": 0.1,
    }


def packed(kernel, whole, dtype):
    """Moments in fewer bits: sizes around a block and a vector, shards, and what becomes of a block that is odd."""

    def recipe(d, *sizes, first=0):
        return {**whole(d, *sizes), "first": first}

    sizes = ((1, 1, 1), (15, 0, 2), (255, 255, 3), (256, 100, 10), (257, 256, 1000), (600, 300, 100000))
    for n, n_decay, step in sizes if dtype == "f32" else sizes[-2:-1]:
        yield case(kernel, f"n{n}-decay{n_decay}-step{step}", recipe, dtype, n, n_decay, step)
    yield case(kernel, "skipped", lambda d: {**recipe(d, 19, 19, 5), "skip": i32(1)}, dtype)
    if dtype != "f32":  # which is that of the copy alone
        return
    yield case(kernel, "scaled", lambda d: {**recipe(d, 19, 19, 5), "grad_scale": np.array([0.03])}, dtype)
    yield case(kernel, "not-skipped", lambda d: {**recipe(d, 19, 3, 5), "skip": i32(0)}, dtype)
    yield case(kernel, "no-copy", lambda d: {**recipe(d, 19, 3, 5), "param_copy": None}, dtype)
    yield case(kernel, "shard", lambda d: recipe(d, 600, 300, 9, first=5 * 256), dtype)
    yield case(kernel, "far-shard", lambda d: recipe(d, 300, 0, 9, first=256 * (2**32 + 3)), dtype)
    yield case(kernel, "wide", lambda d: with_gradients(recipe(d, 300, 9, 7), wide), dtype)
    yield case(kernel, "no-gradients", lambda d: with_gradients(recipe(d, 530, 9, 7), none_at_first), dtype)
    yield case(kernel, "infinite", lambda d: with_gradients(recipe(d, 530, 9, 7), infinite), dtype)
    yield case(kernel, "nan", lambda d: with_gradients(recipe(d, 290, 9, 7), not_a_number), dtype)


def adamw_f8(d, n, n_decay, step):
    """Codes of all magnitudes up to 1, with either sign."""
    args = adamw(d, n, n_decay, step)
    blocks = -(-n // 256)
    args["m"] = d.integers(n, high=0x79) + 0x80 * d.integers(n, high=2)
    args["r"] = d.integers(n, high=0xF1)
    args["m_scale"], args["r_scale"] = d.uniform(blocks, low=0.05, high=0.2), d.uniform(blocks, low=0.05, high=0.2)
    return {name: value for name, value in args.items() if name != "v"}


def with_gradients(args, spoil):
    spoil(args)
    return args


def wide(args):
    """Gradients of magnitudes 2^-30 .. 2^9, some of them far below what a block's codes reach."""
    args["grad"] = args["grad"] * 2.0 ** ((np.arange(len(args["grad"])) * 7) % 40 - 30)


def none_at_first(args):
    """A block that never had a gradient, before others."""
    args["grad"][:256] = 0
    for name in ("m", "v", "r"):
        if name in args:
            args[name][:256] = 0
    for name in ("m_scale", "r_scale"):
        if name in args:
            args[name][0] = 0


def infinite(args):
    args["grad"][[300, 529]] = np.inf, -np.inf


def not_a_number(args):
    args["grad"][[3, 5]] = np.nan, np.inf


def tiny_moments(d):
    """Second moments near eps squared, where the place of eps shows, and parameters that never had a gradient."""
    args = {**adamw(d, 21, 11, 3), "v": d.uniform(21, low=0, high=4e-16)}
    args["m"], args["grad"] = d.bell(21, scale=1e-8), d.bell(21, scale=1e-8)
    for name in ("grad", "m", "v"):
        args[name][::5] = 0
    return args


def clip(norm, max_norm, grad):
    extra = {"n": 1} if grad is None else {}
    return {"norm": np.array([norm]), "loss_scale": None, "max_norm": max_norm, "grad": grad, **extra}


def schedule(done):
    return {"skip": None, "step": i32(done), "warmup": 10, "total": 100, "max_lr": 1e-3, "min_lr": 1e-4}
