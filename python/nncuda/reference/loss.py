"""Cross-entropy of token predictions, and the load-balancing loss of the router."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, exp, log, total

__all__ = ["aux_loss_backward", "aux_loss_forward", "cross_entropy_backward", "cross_entropy_forward", "weighted_mean"]

ROUNDINGS = {
    "cross_entropy_forward": 6,  # x - max, exp, log, max +, - x
    "cross_entropy_backward": 5,
    "aux_loss_forward": 5,
    "aux_loss_backward": 4,
    "weighted_mean": 3,
}


def cross_entropy_forward(logits: Array, targets: Array, ignore_index: int) -> Outputs:
    """losses = lse - logits[target], zero where ignored; their sum and how many count.

    Goodfellow, Bengio, Courville 2016, "Deep learning", eq. 6.30.
    """
    top = np.max(logits, axis=-1, keepdims=True)
    lse = top + log(total(exp(logits - top)))
    kept = targets != ignore_index
    at = np.where(kept, targets, 0)[:, None]
    losses = np.where(kept, (lse - np.take_along_axis(logits, at, axis=-1))[:, 0], 0).astype(logits.dtype)
    return {
        "losses": losses,
        "lse": lse[:, 0],
        "loss_sum": total(losses),
        "count": np.array([np.sum(kept)], np.int32),
    }


def cross_entropy_backward(logits: Array, targets: Array, lse: Array, grad_scale: Array, ignore_index: int) -> Outputs:
    """dlogits = grad_scale (softmax(logits) - onehot(target)), zero where ignored.

    Goodfellow, Bengio, Courville 2016, section 6.2.2.3, differentiated.
    """
    d = exp(logits - lse[:, None])
    kept = targets != ignore_index
    d[np.flatnonzero(kept), targets[kept]] -= 1
    return {"dlogits": np.where(kept[:, None], grad_scale * d, 0).astype(logits.dtype)}


def aux_loss_forward(probs: Array, counts: Array, loss: Array, alpha: float) -> Outputs:
    """loss += alpha sum over experts of f P, f = counts / tokens, P = mean of probs over tokens.

    Fedus, Zoph, Shazeer 2021, "Switch transformers", eq. 4-6, without the factor of the expert count.
    """
    tokens = probs.dtype.type(len(probs))
    f = counts.astype(probs.dtype) / tokens
    p = total(probs, axis=0)[0] / tokens
    return {"loss": loss + probs.dtype.type(alpha) * total(f * p)}


def aux_loss_backward(counts: Array, grad_scale: Array, tokens: int, alpha: float) -> Outputs:
    """dprobs = grad_scale alpha f / tokens: no gradient passes through f. Fedus, Zoph, Shazeer 2021, section 2.2."""
    f = counts.astype(grad_scale.dtype) / grad_scale.dtype.type(tokens)
    row = grad_scale * grad_scale.dtype.type(alpha) * f / grad_scale.dtype.type(tokens)
    return {"dprobs": np.tile(row, (tokens, 1))}


def weighted_mean(x: Array, divisor: int, weights: Array | None = None) -> Outputs:
    """y = sum of weights x / divisor; without weights they are 1."""
    summands = x if weights is None else x * weights.astype(x.dtype)
    return {"y": total(summands) / x.dtype.type(divisor)}
