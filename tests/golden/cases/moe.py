"""Cases of the mixture of experts."""

import numpy as np

from nncuda.reference import moe as reference

from .case import FLOATS, case, of

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
        yield case(
            "moe_plan",
            label,
            lambda d, i=indices, e=experts, c=capacity: {"indices": i(d), "experts": e, "capacity": c},
        )
    for dtype in FLOATS:
        for label, indices, experts, capacity in routings():
            for dim in (5, 17) if label in ("odd", "capacity") else (9,) if label != "wide" else (3,):
                args = (indices, experts, capacity, dim)
                name = f"{label}-dim{dim}"
                yield case("moe_gather", name, of(gather, *args), dtype)
                yield case("moe_gather_backward", name, of(gather_backward, *args), dtype)
                for residual in (0, 1):
                    yield case(
                        "moe_combine", f"{name}-residual{residual}", of(combine, *args, with_residual=residual), dtype
                    )
                yield case("moe_combine_backward", name, of(combine_backward, *args), dtype)


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
