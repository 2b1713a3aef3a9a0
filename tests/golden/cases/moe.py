"""Cases of the mixture of experts."""

import numpy as np

from nncuda.reference import moe as reference
from nncuda.reference import softmax as router

from . import softmax
from .case import FLOATS, case, stored

#: tokens, k, experts, capacity
SHAPES = {
    "one": (1, 1, 1, 0),
    "odd": (7, 2, 5, 0),
    "every-expert": (3, 4, 4, 0),
    "capacity": (9, 2, 4, 3),
    "capacity1": (6, 3, 7, 1),
    "wide": (65, 4, 16, 0),
}


def choices(d, tokens, k, experts):
    """k different experts a token."""
    return np.stack([d.permutation(experts)[:k] for _ in range(tokens)])


def routings():
    for label, (tokens, k, experts, capacity) in SHAPES.items():
        yield label, (lambda d, t=tokens, k=k, e=experts: choices(d, t, k, e)), experts, capacity
    yield "all-to-one", (lambda d: np.full((9, 1), 2, np.int32)), 4, 0
    yield "all-to-one-dropped", (lambda d: np.full((9, 1), 2, np.int32)), 4, 5
    yield "first-and-last", (lambda d: np.tile(np.array([0, 7], np.int32), (5, 1))), 8, 4


def cases():
    for label, indices, experts, capacity in routings():
        yield case("moe_plan", label, plan, "", indices, experts, capacity)
    for dtype in FLOATS:
        for label, indices, experts, capacity in routings():
            for dim in (5, 17) if label in ("odd", "capacity") else (9,) if label != "wide" else (3,):
                args = (indices, experts, capacity, dim)
                name = f"{label}-dim{dim}"
                yield case("moe_gather", name, gather, dtype, *args)
                yield case("moe_gather_backward", name, gather_backward, dtype, *args)
                for residual in (0, 1):
                    yield case("moe_combine", f"{name}-residual{residual}", combine, dtype, *args, residual)
                yield case("moe_combine_backward", name, combine_backward, dtype, *args)
        for label, sizes in SHAPES.items():
            if dtype != "f32" and label not in ("odd", "capacity"):
                continue
            for norm, loss in ((0, 1), (1, 0)) if label == "odd" else ((1, 1),):
                for dtype_logits in {dtype: 0, "f32": 0} if label == "odd" else ("f32",):
                    yield case("moe_route", f"{label}-norm{norm}-loss{loss}", route, dtype, *sizes, 9, norm, loss,
                               dtype_logits=dtype_logits)  # fmt: skip
        for tokens, k, experts, norm in ((5, 2, 8, 0), (7, 3, 17, 1), (4, 4, 16, 1), (2, 8, 65, 0)):
            name = f"tokens{tokens}-k{k}-experts{experts}-norm{norm}"
            yield case("moe_route_backward", name, route_backward, dtype, tokens, k, experts, norm)
        for label, (tokens, k, experts, capacity) in SHAPES.items():
            if label not in ("odd", "capacity") or (dtype != "f32" and label != "odd"):
                continue
            norm = int(label != "capacity")
            yield case("moe_output_backward", label, output_backward, dtype, tokens, k, experts, capacity, 9, norm)
            for beta in (0.0, 1.0) if label == "odd" else (-0.5,):
                for dtype_c in {dtype: 0, "f32": 0}:
                    yield case("moe_input_backward", f"{label}-beta{beta:g}", input_backward, dtype, tokens, k, experts,
                               capacity, 9, beta, dtype_c=dtype_c)  # fmt: skip


def plan(d, indices, experts, capacity):
    return {"indices": indices(d), "experts": experts, "capacity": capacity}


def planned(d, indices, experts, capacity):
    chosen = indices(d)
    return chosen.shape, reference.moe_plan(chosen, experts, capacity)


def gather(d, indices, experts, capacity, dim):
    (tokens, k), plan = planned(d, indices, experts, capacity)
    return {"x": d.bell(tokens, dim), "row_slot": plan["row_slot"], "tokens": tokens, "k": k}


def rows_in_use(d, plan, dim):
    """A value for every row that a slot has; what must not be read in the others."""
    rows = d.bell(len(plan["row_slot"]), dim)
    rows[plan["row_slot"] < 0] = np.nan
    return rows


def gather_backward(d, indices, experts, capacity, dim):
    _, plan = planned(d, indices, experts, capacity)
    return {"dy": rows_in_use(d, plan, dim), "slot_row": plan["slot_row"]}


def combine(d, indices, experts, capacity, dim, with_residual):
    (tokens, k), plan = planned(d, indices, experts, capacity)
    return {
        "y": rows_in_use(d, plan, dim),
        "weights": d.uniform(tokens, k, low=0, high=1),
        "slot_row": plan["slot_row"],
        "residual": d.bell(tokens, dim) if with_residual else None,
    }


def combine_backward(d, indices, experts, capacity, dim):
    (tokens, k), plan = planned(d, indices, experts, capacity)
    return {
        "dout": d.bell(tokens, dim),
        "y": rows_in_use(d, plan, dim),
        "weights": d.uniform(tokens, k, low=0, high=1),
        "slot_row": plan["slot_row"],
        "row_slot": plan["row_slot"],
    }


def route(d, tokens, k, experts, capacity, dim, norm, loss):
    return {
        "logits": softmax.distinct(d, tokens, experts),
        "x": d.bell(tokens, dim),
        "k": k,
        "norm": norm,
        "capacity": capacity,
        "alpha": 0.01,
        "loss": np.array([2.5]) if loss else None,
    }


def route_backward(d, tokens, k, experts, norm):
    out = router.softmax_topk(d.bell(tokens, experts), k, norm)
    return {
        "dweights": d.bell(tokens, k),
        "weights": stored(out["weights"]),
        "indices": out["indices"],
        "probs": stored(out["probs"]),
        "counts": np.bincount(out["indices"].ravel(), minlength=experts).astype(np.int32),
        "grad_scale": np.array([0.37]),
        "norm": norm,
        "alpha": 1.5,
    }


def output_backward(d, tokens, k, experts, capacity, dim, norm):
    """Of a router whose choices are those of its probabilities."""
    out = router.softmax_topk(d.bell(tokens, experts), k, norm)
    plan = reference.moe_plan(out["indices"], experts, capacity)
    return {
        "dout": d.bell(tokens, dim),
        "y": rows_in_use(d, plan, dim),
        "weights": stored(out["weights"]),
        "indices": out["indices"],
        "probs": stored(out["probs"]),
        "counts": plan["counts"],
        "slot_row": plan["slot_row"],
        "row_slot": plan["row_slot"],
        "grad_scale": np.array([0.37]),
        "norm": norm,
        "alpha": 1.5,
    }


def input_backward(d, tokens, k, experts, capacity, dim, beta):
    plan = reference.moe_plan(choices(d, tokens, k, experts), experts, capacity)
    return {
        "dlogits": d.bell(tokens, experts),
        "x": d.bell(tokens, dim),
        "gate": d.bell(experts, dim),
        "drows": rows_in_use(d, plan, dim),
        "slot_row": plan["slot_row"],
        "dgate": d.bell(experts, dim) if beta else np.full((experts, dim), np.nan),
        "beta": beta,
    }
