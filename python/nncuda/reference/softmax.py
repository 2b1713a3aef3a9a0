"""Softmax of rows, and the router built on it."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, exp, total

__all__ = ["softmax", "softmax_backward", "softmax_topk", "softmax_topk_backward"]

ROUNDINGS = {
    "softmax": 4,  # x - max, exp, /
    "softmax_backward": 3,
    "softmax_topk": 5,
    "softmax_topk_backward": 6,
}


def softmax(x: Array) -> Outputs:
    """y = exp(x - max) / sum(exp(x - max)) over the last dimension.

    A row of nothing but -inf gives zeros; a row with NaN or +inf is all NaN.
    Goodfellow, Bengio, Courville 2016, "Deep learning", eq. 4.1.
    """
    top = np.max(x, axis=-1, keepdims=True)
    masked = top == -np.inf
    with np.errstate(invalid="ignore"):
        e = exp(x - np.where(masked, 0, top).astype(x.dtype))
        z = total(e)
        y = e / np.where(masked, 1, z).astype(x.dtype)
    broken = np.any(np.isnan(x) | (x == np.inf), axis=-1, keepdims=True)
    return {"y": np.where(broken, np.nan, y).astype(x.dtype)}


def softmax_backward(dy: Array, y: Array) -> Outputs:
    """dx = y (dy - sum(dy y)): the Jacobian diag(y) - y y^T applied to dy."""
    return {"dx": y * (dy - total(dy * y))}


def softmax_topk(x: Array, k: int, norm: int) -> Outputs:
    """The k largest softmax probabilities of each row, in falling order; ties go to the lower index, NaN comes last.

    With ``norm`` the k weights are divided by their sum. Shazeer et al. 2017, "Outrageously large neural networks",
    eq. 3-5; Jiang et al. 2024, "Mixtral of experts", section 2.1.
    """
    probs = softmax(x)["y"]
    key = np.where(np.isnan(probs), -np.inf, probs)
    indices = np.argsort(-key, axis=-1, kind="stable")[:, :k].astype(np.int32)
    weights = np.take_along_axis(probs, indices, axis=-1)
    if norm:
        with np.errstate(invalid="ignore"):
            weights = weights / total(weights)
    return {"weights": weights, "indices": indices, "probs": probs}


def softmax_topk_backward(
    dweights: Array, weights: Array, indices: Array, probs: Array, norm: int, dprobs: Array | None = None
) -> Outputs:
    """Gradient of the router's logits, with the choice of indices held fixed.

    With norm, w_j = p_j / S and S = sum_j p_j over the chosen, so dp_j = (dw_j - sum_i dw_i w_i) / S; then the
    softmax's own gradient. Differentiated from Jiang et al. 2024, section 2.1.
    """
    chosen = dweights
    if norm:
        chosen = (dweights - total(dweights * weights)) / total(np.take_along_axis(probs, indices, axis=-1))
    g = np.zeros_like(probs) if dprobs is None else dprobs.copy()
    np.put_along_axis(g, indices, np.take_along_axis(g, indices, axis=-1) + chosen, axis=-1)
    return {"dx": softmax_backward(g, probs)["dx"]}
