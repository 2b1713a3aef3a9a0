"""Cases of softmax and the router."""

import numpy as np

from nncuda.reference import softmax as reference

from .case import FLOATS, TAILS, case, each, stored

INF = np.inf


def distinct(d, rows, cols, step=0.0625):
    """Logits whose probabilities lie apart by more than rounding, exact in every dtype: multiples of ``step``."""
    return np.stack([d.permutation(cols) - cols // 2 for _ in range(rows)]) * step


def router(x, k, norm):
    return {"x": x, "k": k, "norm": norm}


def backward_of(x, k, norm, d, dtype, with_dprobs):
    out = reference.softmax_topk(stored(x, dtype), k, norm)
    return {
        "dweights": d.bell(len(x), k),
        "weights": stored(out["weights"]),
        "indices": out["indices"],
        "probs": stored(out["probs"]),
        "dprobs": d.bell(*x.shape, scale=0.1) if with_dprobs else None,
        "norm": norm,
    }


def cases():
    for dtype in FLOATS:
        for cols in (*TAILS, 130):
            yield case("softmax", f"rows2-cols{cols}", lambda d, n=cols: {"x": d.bell(2, n, scale=3)}, dtype)
            if cols in (1, 5, 8, 17, 31, 33, 65, 130):
                yield case("softmax_backward", f"rows3-cols{cols}", backward, dtype, 3, cols, dtype)
    for dtype in ("f32", "bf16"):
        yield case("softmax", "rows1-cols33000", lambda d: {"x": d.bell(1, 33000, scale=3)}, dtype)
    yield case("softmax_backward", "rows1-cols4100", backward, "f32", 1, 4100, "f32")
    yield from each("softmax", {k: lambda d, dtype, x=x: {"x": np.array(x)} for k, x in special_rows().items()})
    yield from each("softmax_topk", dict(routers()))
    yield from each("softmax_topk_backward", dict(router_gradients()))


def backward(d, rows, cols, dtype):
    y = stored(reference.softmax(d.bell(rows, cols, scale=2))["y"], dtype)
    return {"dy": d.bell(rows, cols), "y": y}


def special_rows():
    return {
        "masked": [[-INF, 1.0, -INF, 2.0, 0.5, -INF], [-INF] * 6, [-INF, -INF, -INF, -INF, -INF, 3.0]],
        "not-finite": [[1.0, np.nan, 2.0, 0.5], [1.0, INF, 2.0, 0.5], [-INF, 1.0, 2.0, 3.0], [INF, -INF, np.nan, 1.0]],
        "large": [[60000.0, 59968.0, -60000.0, 0.0, 60000.0], [-60000.0, -59968.0, -60000.0, -59968.0, -60000.0]],
        "equal": [[0.3] * 19, [-7.0] * 19],
    }


def routers():
    for rows, cols, k in (
        (1, 1, 1),
        (3, 2, 1),
        (5, 8, 2),
        (4, 16, 4),
        (7, 17, 4),
        (2, 33, 33),
        (3, 64, 8),
        (2, 65, 3),
        (2, 129, 64),
    ):
        for norm in (0, 1):
            yield (
                f"rows{rows}-cols{cols}-k{k}-norm{norm}",
                lambda d, dtype, r=rows, n=cols, k=k, norm=norm: router(distinct(d, r, n), k, norm),
            )
    ties = [[1.0, 2.0, 2.0, 1.0, 2.0, 0.0], [0.5] * 6, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]
    masked = [[-INF, 1.0, -INF, 2.0, -INF, -INF], [-INF, -INF, -INF, -INF, -INF, 0.0], [0.0, -INF, 1.0, 2.0, 3.0, -INF]]
    yield "ties", lambda d, dtype: router(np.array(ties), 3, 1)
    yield "masked", lambda d, dtype: router(np.array(masked), 3, 1)
    yield "all-masked", lambda d, dtype: router(np.array([[-INF] * 6, [1.0, -INF, 0.0, -INF, -INF, 2.0]]), 2, 0)


def router_gradients():
    for rows, cols, k in ((1, 1, 1), (5, 8, 2), (4, 16, 4), (3, 17, 3), (2, 33, 33), (2, 65, 8)):
        for norm in (0, 1):
            for dprobs in (0, 1):
                if cols == 1 or (norm and k == 1):
                    continue  # the gradient is zero: nothing but rounding to compare
                yield (
                    f"rows{rows}-cols{cols}-k{k}-norm{norm}-dprobs{dprobs}",
                    lambda d, dtype, r=rows, n=cols, k=k, norm=norm, p=dprobs: backward_of(
                        d.bell(r, n), k, norm, d, dtype, p
                    ),
                )
