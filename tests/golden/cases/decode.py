"""Cases of the samplers.

Rounding may turn a draw that falls on the border between two tokens, so the recipes look for rows whose decisions stand
by at least MARGIN: numbers are drawn until they do.
"""

import numpy as np

from nncuda.reference import decode as reference
from nncuda.reference import random

from .case import FLOATS, case, of, stored

MARGIN = 1e-4
INF = np.inf


def cases():
    for dtype in FLOATS:
        for rows, vocab in ((1, 1), (3, 7), (2, 16), (3, 17), (2, 33), (4, 65), (2, 131)):
            label = f"rows{rows}-vocab{vocab}"
            yield case("argmax", label, lambda d, r=rows, v=vocab: {"logits": d.bell(r, v)}, dtype)
            for kernel in ("sample", "topk_sample", "topp_sample"):
                yield case(
                    kernel,
                    label,
                    lambda d, k=kernel, r=rows, v=vocab, t=dtype: drawn(d, k, t, d.bell(r, v, scale=2)),
                    dtype,
                )
            yield case(
                "topp_sample",
                f"{label}-no-top_k",
                lambda d, r=rows, v=vocab, t=dtype: drawn(d, "topp_sample", t, d.bell(r, v, scale=2), top_k=None),
                dtype,
            )
        yield case("argmax", "special", lambda d: {"logits": np.array(SPECIAL)}, dtype)
        yield case("argmax", "ties", lambda d: {"logits": np.array(TIES)}, dtype)
        for kernel in ("sample", "topk_sample", "topp_sample"):
            yield case(kernel, "special", of(drawn, kernel, dtype, np.array(SPECIAL), temperature=0.8), dtype)
            yield case(kernel, "greedy", of(drawn, kernel, dtype, np.array(SPECIAL), temperature=0.0), dtype)
        yield case("topk_sample", "ties", of(drawn, "topk_sample", dtype, np.array(TIES), top_k=2), dtype)
        yield case(
            "topp_sample",
            "whole",
            lambda d, t=dtype: drawn(d, "topp_sample", t, d.bell(3, 40), top_k=None, top_p=1.0),
            dtype,
        )
        yield case(
            "topp_sample",
            "first-only",
            lambda d, t=dtype: drawn(d, "topp_sample", t, d.bell(3, 40), top_k=None, top_p=1e-3),
            dtype,
        )
        yield case("topp_sample", "reached-exactly", reached_exactly, dtype)
    yield case("argmax", "rows1-vocab33000", lambda d: {"logits": d.bell(1, 33000)}, "bf16")
    for kernel, dtype in (("sample", "f16"), ("topk_sample", "bf16"), ("topp_sample", "bf16")):
        yield case(
            kernel,
            "rows1-vocab33000",
            lambda d, k=kernel, t=dtype: drawn(d, k, t, d.bell(1, 33000, scale=3), top_k=50),
            dtype,
        )


SPECIAL = [
    [1.0, np.nan, 3.0, -INF, 2.0, np.nan],
    [INF, 5.0, np.nan, INF, -INF, INF],
    [-INF] * 6,
    [np.nan] * 6,
    [np.nan, -INF, np.nan, -INF, -4.0, np.nan],
    [-INF, 60000.0, 1.0, 60000.0, 60000.0, -60000.0],
]
TIES = [[2.0, 1.0, 2.0, 2.0, 2.0], [0.5] * 5, [-1.0, -2.0, -1.0, -2.0, -1.0], [0.0, -0.0, 0.0, -0.0, 0.0]]


def reached_exactly(d):
    """Four tokens of a quarter each: two of them reach a half, with no rounding in any order of sums."""
    rows = 16
    steps = np.arange(rows, dtype=np.int32)
    seeds = np.full(rows, 77, np.int64)
    u = np.array([float(random.words(1, 77, 0, step)[0]) * 2.0**-32 for step in range(rows)])
    assert np.min(np.abs(u - 0.5)) > MARGIN and np.any((u > 0.34) & (u < 0.49))
    return {
        "logits": np.full((rows, 4), 1.5),
        "temperature": np.ones(rows),
        "top_k": None,
        "top_p": np.full(rows, 0.5),
        "seeds": seeds,
        "steps": steps,
    }


def drawn(d, kernel, dtype, logits, temperature=None, top_k=0, top_p=None):
    """Arguments of a sampler whose every decision stands by MARGIN."""
    rows, vocab = logits.shape
    logits = stored(logits, dtype)
    while True:
        args = {
            "temperature": stored(d.uniform(rows, low=0.5, high=1.5))
            if temperature is None
            else np.full(rows, temperature),
            "seeds": d.integers(rows, low=-(2**31), high=2**31).astype(np.int64) * 2**31 + 12345,
            "steps": d.integers(rows, high=2**31),
        }
        if kernel != "sample" and top_k is not None:
            args["top_k"] = np.full(rows, top_k, np.int32) if top_k else d.integers(rows, low=1, high=vocab + 2)
        if kernel == "topp_sample":
            args["top_p"] = (
                stored(d.uniform(rows, low=0.2, high=1.0)) if top_p is None else np.full(rows, stored(np.array(top_p)))
            )
        args["temperature"] = stored(args["temperature"])
        if reference.decisions(logits, **args)[1] > (MARGIN if vocab < 1000 else MARGIN / 20):
            return {"logits": logits, **({"top_k": None} if kernel == "topp_sample" else {}), **args}
