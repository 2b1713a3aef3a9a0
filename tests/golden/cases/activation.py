"""Cases of bounds, gates, rows in 8 bits and biases."""

import numpy as np

from .case import FLOATS, TAILS, case
from .elementwise import EXTREMES
from .gemm import unread


def cases():
    for dtype in FLOATS:
        for n in (*TAILS, 130):
            yield case("softcap", f"n{n}", lambda d, n=n: {"x": d.bell(n, scale=40), "cap": 30.0}, dtype)
        small = lambda d: {"x": d.bell(33) * 2.0 ** -d.integers(33, high=12), "cap": 1.5}  # noqa: E731
        yield case("softcap", "small", small, dtype)
        yield case("softcap", "extremes", lambda d: {"x": np.array([*EXTREMES, np.inf, -np.inf]), "cap": 50.0}, dtype)
        yield case("softcap", "nan", lambda d: {"x": np.array([1.0, np.nan, -2.0, np.inf]), "cap": 0.3}, dtype)
        for rows, dim, ld in ((1, 1, 1), (1, 17, 17), (3, 8, 8), (2, 33, 40), (5, 16, 35), (3, 65, 130), (2, 31, 62)):
            label = f"rows{rows}-dim{dim}-ld{ld}"

            def gate(d, rows=rows, dim=dim, ld=ld, scale=2):
                return {"gate": d.bell(rows, dim, scale=scale), "up": d.bell(rows, dim, scale=scale), "ld": ld}

            yield case("geglu", label, gate, dtype)
            grad = lambda d, f=gate, r=rows, n=dim: {"dy": d.bell(r, n), **f(d)}  # noqa: E731
            yield case("relu2_gate_backward", label, grad, dtype)
            clipped = {"alpha": float(np.float32(1.702)), "limit": 7.0}
            yield case("swiglu_clipped", label, lambda d, f=gate, c=clipped: {**f(d, scale=5), **c}, dtype)
        special = {
            "gate": np.array([[np.nan, 1.0, 2.0, -0.0, 0.0, -3.0]]),
            "up": np.array([[1.0, np.nan, 0.5, 1, 2, 3]]),
        }
        yield case("relu2_gate_backward", "nan", lambda d, g=special: {"dy": d.bell(1, 6), **g}, dtype)
        for rows, cols in ((1, 1), (3, 17), (2, 64), (5, 33)):
            yield case("act_dequant_i8", f"rows{rows}-cols{cols}", eight_bits, dtype, rows, cols)
        ends = [*EXTREMES, 7.0, 7.5, -7.0, -7.5]
        for kernel, options in (("geglu", {}), ("swiglu_clipped", {"alpha": 1.5, "limit": 7.0})):
            gates = {"gate": np.array([ends]), "up": np.array([ends[::-1]])}
            yield case(kernel, "extremes", lambda d, g=gates, o=options: {**g, **o}, dtype)
            gates = {"gate": np.array([[np.nan, 1.0, 2.0]]), "up": np.array([[1.0, np.nan, 0.5]])}
            yield case(kernel, "nan", lambda d, g=gates, o=options: {**g, **o}, dtype)
        for counts, dim, spare in (([3], 5, 0), ([0, 2, 0, 1], 17, 2), ([4, 3], 64, 1), ([0, 0], 3, 2)):
            yield case("grouped_bias", f"groups{len(counts)}-dim{dim}-spare{spare}", bias, dtype, counts, dim, spare)


def eight_bits(d, rows, cols):
    codes = d.integers(rows, cols, low=-127, high=128).astype(np.int8)
    return {"codes": codes, "scale": d.uniform(rows, low=1e-3)}


def bias(d, counts, dim, spare):
    used = sum(counts)
    return {
        "x": unread(d.bell(used + spare, dim), used),
        "bias": d.bell(len(counts), dim),
        "offsets": np.array([0, *np.cumsum(counts)], np.int32),
    }
