"""Mixture of experts: which row each choice of a token takes, and moving tokens there and back.

A slot is one choice of one token, slot = token k + j; a row is its place in the order sorted by expert.
"""

from collections.abc import Callable

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, total
from nncuda.reference.gemm import gemm_beta
from nncuda.reference.loss import aux_loss_backward, aux_loss_forward
from nncuda.reference.softmax import softmax_topk, softmax_topk_backward

__all__ = [
    "moe_combine",
    "moe_combine_backward",
    "moe_gather",
    "moe_gather_backward",
    "moe_input_backward",
    "moe_output_backward",
    "moe_plan",
    "moe_route",
    "moe_route_backward",
]

ROUNDINGS = {
    "moe_plan": 0,
    "moe_gather": 0,
    "moe_gather_backward": 1,
    "moe_combine": 2,
    "moe_combine_backward": 2,
    "moe_route": 10,  # those of softmax_topk, then of the loss
    "moe_route_backward": 10,  # those of the loss, then of softmax_topk
    "moe_output_backward": 12,  # those of moe_combine_backward, then of moe_route_backward
    "moe_input_backward": 6,  # those of moe_gather_backward, then of gemm_beta
}


def moe_plan(indices: Array, experts: int, capacity: int) -> Outputs:
    """Rows by expert, in token order; an expert keeps its first ``capacity`` slots (0: all).

    Lepikhin et al. 2020, "GShard", algorithm 1 (capacity); Gale et al. 2022, "MegaBlocks", section 4 (sorted rows).
    """
    chosen = indices.ravel()
    counts = np.bincount(chosen, minlength=experts).astype(np.int32)
    kept = np.minimum(counts, min(capacity, chosen.size)) if capacity else counts
    offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    slot_row = np.full(chosen.shape, -1, np.int32)
    row_slot = np.full(chosen.shape, -1, np.int32)
    taken = np.zeros(experts, np.int32)
    for slot, expert in enumerate(chosen):
        if taken[expert] < kept[expert]:
            row = offsets[expert] + taken[expert]
            slot_row[slot], row_slot[row] = row, slot
            taken[expert] += 1
    return {"counts": counts, "offsets": offsets, "slot_row": slot_row.reshape(indices.shape), "row_slot": row_slot}


def moe_gather(x: Array, row_slot: Array, k: int) -> Outputs:
    """y[r] = x[row_slot[r] / k]; zero where no slot has the row. Gale et al. 2022, section 4 ("padded_gather")."""
    return {"y": np.where(row_slot[:, None] >= 0, x[row_slot // k], 0).astype(x.dtype)}


def _slot_rows(y: Array, slot_row: Array) -> Array:
    """y[slot_row[t, j]] as [tokens, k, dim], zero for dropped slots."""
    return np.where(slot_row[..., None] >= 0, y[slot_row], 0).astype(y.dtype)


def moe_gather_backward(dy: Array, slot_row: Array) -> Outputs:
    """dx[t] = sum over j of dy[slot_row[t, j]]: the transpose of moe_gather."""
    return {"dx": total(_slot_rows(dy, slot_row), axis=1)[:, 0]}


def moe_combine(y: Array, weights: Array, slot_row: Array, residual: Array | None = None) -> Outputs:
    """out[t] = residual[t] + sum over j of weights[t, j] y[slot_row[t, j]]. Shazeer et al. 2017, eq. 1."""
    out = total(weights[..., None] * _slot_rows(y, slot_row), axis=1)[:, 0]
    return {"out": out if residual is None else residual + out}


def moe_combine_backward(dout: Array, y: Array, weights: Array, slot_row: Array, row_slot: Array) -> Outputs:
    """dy[r] = weights[t, j] dout[t] for the slot (t, j) of row r; dweights[t, j] = dout[t] . y[slot_row[t, j]]."""
    k = weights.shape[1]
    dy = np.where(row_slot[:, None] >= 0, weights.ravel()[row_slot][:, None] * dout[row_slot // k], 0)
    dweights = total(dout[:, None] * _slot_rows(y, slot_row))[..., 0]
    return {"dy": dy.astype(y.dtype), "dweights": dweights}


def moe_route(
    logits: Array, x: Array, k: int, norm: int, capacity: int, alpha: float, loss: Array | None = None
) -> Outputs:
    """Softmax and the k largest, the plan of rows, the tokens in these, and the balancing loss.

    Fedus, Zoph, Shazeer 2021, "Switch transformers", section 2; Gale et al. 2022, section 4.
    """
    routed = softmax_topk(logits, k, norm)
    routed |= moe_plan(routed["indices"], logits.shape[1], capacity)
    routed |= moe_gather(x, routed["row_slot"], k)
    return routed if loss is None else routed | aux_loss_forward(routed["probs"], routed["counts"], loss, alpha)


def moe_route_backward(
    dweights: Array,
    weights: Array,
    indices: Array,
    probs: Array,
    counts: Array,
    grad_scale: Array,
    norm: int,
    alpha: float,
) -> Outputs:
    """Gradient of the logits through the weights and through the balancing loss, by the sum rule."""
    dprobs = aux_loss_backward(counts, grad_scale, len(probs), alpha)["dprobs"]
    return {"dlogits": softmax_topk_backward(dweights, weights, indices, probs, norm, dprobs)["dx"]}


def moe_output_backward(
    dout: Array,
    y: Array,
    weights: Array,
    indices: Array,
    probs: Array,
    counts: Array,
    slot_row: Array,
    row_slot: Array,
    grad_scale: Array,
    norm: int,
    alpha: float,
) -> Outputs:
    """The chain rule from the layer's output to those of its experts and to the router's logits."""
    back = moe_combine_backward(dout, y, weights, slot_row, row_slot)
    return back | moe_route_backward(back["dweights"], weights, indices, probs, counts, grad_scale, norm, alpha)


def moe_input_backward(
    dlogits: Array,
    x: Array,
    gate: Array,
    drows: Array,
    slot_row: Array,
    dgate: Array,
    beta: float,
    storage: Callable[[Array], Array] | None = None,
) -> Outputs:
    """The chain rule for logits = x gate^T, whose x the experts' rows were taken from, too: both gradients of x add up.

    ``storage`` rounds what comes back from the rows to the dtype it is kept in.
    """
    dx = moe_gather_backward(drows, slot_row)["dx"]
    dx = dx if storage is None else storage(dx)
    return {
        "dx": gemm_beta(dlogits, gate, dx, 1.0, 1.0, 0, 0)["c"],
        "dgate": gemm_beta(dlogits, x, dgate, 1.0, beta, 1, 0)["c"],
    }
