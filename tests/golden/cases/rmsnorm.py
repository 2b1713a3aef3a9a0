"""Cases of RMSNorm."""

import numpy as np

from nncuda.reference import rmsnorm as reference

from .case import FLOATS, case, stored

SHAPES = ((1, 1), (3, 7), (2, 16), (5, 17), (2, 33), (3, 64), (2, 65), (1, 130))
#: NaN stays in its row; one number among zeros.
SPECIAL = ([1.0, 2.0, np.nan, 0.0, 1.0], [1.0, -1.0, 0.5, 2.0, 0.25], [0, 0, 0, 3.0, 0])


def cases():
    for dtype in FLOATS:
        for rows, cols in SHAPES:
            label = f"rows{rows}-cols{cols}"
            yield case("rmsnorm", label, forward, dtype, rows, cols)
            yield case("rmsnorm_residual", label, added, dtype, rows, cols, 3)
            for residual in (0, 1):
                sizes = rows, cols, dtype, residual
                yield case("rmsnorm_backward", f"{label}-dresidual{residual}", backward, dtype, *sizes)
        yield case("rmsnorm", "rows1-cols1537", forward, dtype, 1, 1537)
        yield case("rmsnorm", "no-rstd", lambda d: {**forward(d, 3, 19), "rstd": None}, dtype)
        yield case("rmsnorm_residual", "no-rstd", lambda d: {**added(d, 3, 19), "rstd": None}, dtype)
        yield case("rmsnorm", "zeros", lambda d: {**forward(d, 2, 9), "x": np.zeros((2, 9))}, dtype)
        yield case("rmsnorm", "special", lambda d: {**forward(d, 3, 5), "x": np.array(SPECIAL)}, dtype)
        yield case("rmsnorm_backward", "rows67-cols9", backward, dtype, 67, 9, dtype, 0)
    yield case("rmsnorm", "large", forward, "f32", 2, 33, 1e15)
    yield case("rmsnorm", "tiny-eps0", lambda d: {**forward(d, 2, 33, scale=1e-12), "eps": 0.0}, "f32")


def forward(d, rows, cols, scale=1.0):
    return {"x": d.bell(rows, cols, scale=scale), "weight": d.uniform(cols, low=0.5, high=1.5), "eps": 1e-5}


def added(d, rows, cols, scale=1.0):
    return {"residual": d.bell(rows, cols, scale=scale), **forward(d, rows, cols)}


def backward(d, rows, cols, dtype, with_residual):
    x, weight = stored(d.bell(rows, cols), dtype), stored(d.uniform(cols, low=0.5, high=1.5), dtype)
    return {
        "dy": d.bell(rows, cols),
        "x": x,
        "weight": weight,
        "rstd": stored(reference.rmsnorm(x, weight, 1e-5)["rstd"]),
        "dresidual": d.bell(rows, cols) if with_residual else None,
        "dweight": d.bell(cols),
    }
