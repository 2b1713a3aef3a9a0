"""AdamW, clipping by the global norm, the learning-rate schedule, dynamic loss scaling."""

import numpy as np

from nncuda.reference import moments
from nncuda.reference.arithmetic import Array, Outputs, cos, sqrt

__all__ = [
    "adamw_step",
    "adamw_step_bf16",
    "adamw_step_f8",
    "grad_clip",
    "grad_norm",
    "loss_scale_update",
    "lr_schedule",
    "zero_grad",
]

ROUNDINGS = {
    "adamw_step": 12,
    "adamw_step_bf16": 12,
    "adamw_step_f8": 16,  # the root from its code, squared, and scaled by a rounded factor
    "zero_grad": 0,
    "grad_norm": 3,
    "grad_clip": 5,
    "lr_schedule": 7,
    "loss_scale_update": 1,
}

#: Added to the norm before dividing by it.
CLIP_EPS = 1e-6
LARGEST_SCALE = 2.0**24


def adamw_step(
    grad: Array,
    lr: Array,
    step: Array,
    param: Array,
    m: Array,
    v: Array,
    n_decay: int,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    grad_scale: Array | None = None,
    skip: Array | None = None,
) -> Outputs:
    """One update with decoupled weight decay of the first ``n_decay`` parameters.

    Loshchilov, Hutter 2019, "Decoupled weight decay regularization", algorithm 2; bias correction by Kingma, Ba 2015.
    ``param_copy`` is left out when the step is skipped: nothing is written then.
    """
    if skip is not None and skip[0]:
        return {"param": param, "m": m, "v": v}
    one = param.dtype.type
    b1, b2, lr = one(beta1), one(beta2), lr[0]
    g = grad if grad_scale is None else grad * grad_scale[0]
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * (g * g)
    t = int(step[0])
    mhat = m / (1 - one(float(b1) ** t))
    vhat = v / (1 - one(float(b2) ** t))
    decay = np.where(np.arange(len(param)) < n_decay, one(weight_decay), one(0))
    param = param * (1 - lr * decay) - lr * mhat / (sqrt(vhat) + one(eps))
    return {"param": param, "m": m, "v": v, "param_copy": param}


def adamw_step_bf16(
    grad: Array,
    lr: Array,
    step: Array,
    param: Array,
    m: Array,
    v: Array,
    n_decay: int,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    grad_scale: Array | None = None,
    skip: Array | None = None,
    first: int = 0,
) -> Outputs:
    """`adamw_step` with moments that are rounded to bf16 by chance as they are stored, not before.

    Zamirai, Zhang, Aberger, De Sa 2020, "Revisiting BFloat16 training", section 3.
    """
    new = adamw_step(grad, lr, step, param, m, v, n_decay, beta1, beta2, eps, weight_decay, grad_scale, skip)
    if skip is not None and skip[0]:
        return new
    chance, root_chance = moments.chances(int(step[0]), first, len(param))
    return {**new, "m": moments.to_bf16(new["m"], chance), "v": moments.to_bf16(new["v"], root_chance)}


def adamw_step_f8(
    grad: Array,
    lr: Array,
    step: Array,
    param: Array,
    m: Array,
    m_scale: Array,
    r: Array,
    r_scale: Array,
    n_decay: int,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    grad_scale: Array | None = None,
    skip: Array | None = None,
    first: int = 0,
) -> Outputs:
    """`adamw_step` with first moments and roots of second moments in 8 bits, with a scale a block of 256.

    Dettmers, Lewis, Shleifer, Zettlemoyer 2022, "8-bit optimizers via block-wise quantization", section 2.1.
    """
    if skip is not None and skip[0]:
        return {"param": param, "m": m, "m_scale": m_scale, "r": r, "r_scale": r_scale}
    root = moments.unpack_root(r, r_scale)
    old = moments.unpack_first(m, m_scale)
    new = adamw_step(grad, lr, step, param, old, root * root, n_decay, beta1, beta2, eps, weight_decay, grad_scale)
    chance, root_chance = moments.chances(int(step[0]), first, len(param))
    m, m_scale = moments.pack_first(new["m"], chance)
    r, r_scale = moments.pack_root(sqrt(new["v"]), root_chance)
    parameters = {"param": new["param"], "param_copy": new["param_copy"]}
    return {**parameters, "m": m, "m_scale": m_scale, "r": r, "r_scale": r_scale}


def zero_grad(n: int) -> Outputs:
    """n zeros."""
    return {"grad": np.zeros(n)}


def grad_norm(grad: Array) -> Outputs:
    """sqrt(sum(grad^2)), in float64 always: in float32 the squares would overflow where the norm does not."""
    wide = grad.astype(np.float64)
    return {"norm": sqrt(np.sum(wide * wide, keepdims=True)).astype(grad.dtype)}


def grad_clip(norm: Array, max_norm: float, loss_scale: Array | None = None, grad: Array | None = None) -> Outputs:
    """scale = min(1, max_norm / (norm/s + 1e-6)) / s with s the loss scale; grad is multiplied by it where given.

    Pascanu, Mikolov, Bengio 2013, "On the difficulty of training recurrent neural networks", algorithm 1.
    """
    one = norm.dtype.type
    s = one(1) if loss_scale is None else loss_scale[0]
    clip = np.minimum(one(1), one(max_norm) / (norm / s + one(CLIP_EPS))) / s
    return {"scale": clip} if grad is None else {"scale": clip, "grad": grad * clip[0]}


def lr_schedule(
    step: Array,
    warmup: int,
    total: int,
    max_lr: float,
    min_lr: float,
    skip: Array | None = None,
    precision: type = np.float64,
) -> Outputs:
    """Linear warm-up, then half a cosine from max_lr down to min_lr. Loshchilov, Hutter 2017, "SGDR", eq. 5.

    From ``total`` on min_lr. ``lr`` is left out when the step is skipped: it is not written then.
    """
    if skip is not None and skip[0]:
        return {"step": step}
    t = int(step[0]) + 1
    max_lr, min_lr = precision(max_lr), precision(min_lr)
    if t <= warmup:
        lr = max_lr * precision(t) / precision(warmup)
    elif t >= total:
        lr = min_lr
    else:
        angle = precision(np.pi) * precision(t - warmup) / precision(total - warmup)
        lr = min_lr + (max_lr - min_lr) * (1 + cos(angle)) / precision(2)
    return {"step": np.array([t], np.int32), "lr": np.array([lr], precision)}


def loss_scale_update(
    norm: Array, loss_scale: Array, good_steps: Array, skipped: Array, growth: float, backoff: float, interval: int
) -> Outputs:
    """Backs off when the norm is not finite, grows after ``interval`` good steps; within 2^-24 .. 2^24.

    Micikevicius et al. 2018, "Mixed precision training", section 3.2.
    """
    good, bad = int(good_steps[0]), int(skipped[0])
    scale = loss_scale[0]
    overflow = not np.isfinite(norm[0])
    if overflow:
        good, bad, scale = 0, bad + 1, scale * norm.dtype.type(backoff)
    else:
        good += 1
        if good >= interval:
            good, scale = 0, scale * norm.dtype.type(growth)
    return {
        "loss_scale": np.array([np.clip(scale, 1 / LARGEST_SCALE, LARGEST_SCALE)], norm.dtype),
        "good_steps": np.array([good], np.int32),
        "skipped": np.array([bad], np.int32),
        "skip": np.array([int(overflow)], np.int32),
    }
