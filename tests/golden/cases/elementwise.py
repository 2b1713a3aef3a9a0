"""Cases of the element-wise kernels."""

import numpy as np

from .case import FLOATS, TAILS, case, each
from .gemm import unread

EXTREMES = [0.0, -0.0, 1e-30, -1e-30, 12.0, -12.0, 40.0, -40.0, 88.0, -88.0, 105.0, -105.0]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
#: Numbers where f16 and bf16 round, tie, overflow and go subnormal.
BORDERS = [
    *SPECIAL,
    *(1 + 2.0**-9, 1 + 3 * 2.0**-9, 1 + 2.0**-12, 1 + 3 * 2.0**-12, 1 + 2.0**-11 + 2.0**-20),
    *(65504.0, 65519.0, 65520.0, 65536.0, 3.0e38, 3.3895e38, 3.39e38, 3.4028234e38),
    *(2.0**-14, 2.0**-15, 2.0**-24, 2.0**-25, 2.0**-25 * 1.5, 2.0**-26, 2.0**-126, 2.0**-130, 2.0**-149, 1e-40),
]


def cases():
    for dtype in FLOATS:
        for n in (*TAILS, 130, 257):
            yield case("silu", f"n{n}", lambda d, n=n: {"x": d.bell(n, scale=3)}, dtype)
        for n in (1, 7, 17, 33, 65, 131):
            yield case("silu_backward", f"n{n}", lambda d, n=n: {"dy": d.bell(n), "x": d.bell(n, scale=3)}, dtype)
            for kernel in ("add", "mul"):
                yield case(kernel, f"n{n}", lambda d, n=n: {"a": d.bell(n, scale=2), "b": d.bell(n)}, dtype)
            yield case("scale", f"n{n}", lambda d, n=n: {"x": d.bell(n), "alpha": -0.3}, dtype)
        yield case("silu", "extremes", lambda d: {"x": np.array(EXTREMES)}, dtype)
        yield case("silu_backward", "extremes", lambda d: {"x": np.array(EXTREMES), "dy": d.bell(len(EXTREMES))}, dtype)
        yield case("silu", "nan", lambda d: {"x": np.array([1.0, np.nan, -2.0, np.inf])}, dtype)
        yield case("add", "special", lambda d: {"a": np.array(SPECIAL), "b": np.array(SPECIAL[::-1])}, dtype)
        yield case("scale", "zero", lambda d: {"x": np.array([1.0, np.inf, np.nan]), "alpha": 0.0}, dtype)
        yield from gates(dtype)
        for dtype_y in FLOATS:
            yield case("cast", "borders", lambda d: {"x": np.array(BORDERS)}, dtype_x=dtype, dtype_y=dtype_y)
            for n in (1, 9, 33, 67):
                yield case("cast", f"n{n}", lambda d, n=n: {"x": d.bell(n)}, dtype_x=dtype, dtype_y=dtype_y)
        for n in (1, 15, 33, 70):
            yield case("fill", f"n{n}", lambda d, n=n: {"n": n, "value": 0.1}, dtype)
        yield case("fill", "infinite", lambda d: {"n": 5, "value": -np.inf}, dtype)
    for dtype in ("f16", "bf16"):
        yield case("round", "borders", lambda d: {"x": np.array(BORDERS)}, dtype)
        for n in (1, 9, 15, 33, 67):
            yield case("round", f"n{n}", lambda d, n=n: {"x": d.bell(n)}, dtype)
    for dtype in ("i32", "i8"):
        for n in (1, 17, 67):
            yield case("fill", f"n{n}", lambda d, n=n: {"n": n, "value": -101.0}, dtype)
    for n, by in ((1, 1), (5, 1), (33, -7), (70, 1 << 20), (3, 0)):
        yield case("increment", f"n{n}-by{by}", lambda d, n=n, by=by: {"x": d.integers(n, high=1 << 20), "by": by})
    least, most = -(2**31), 2**31 - 1
    for label, x, by in (
        ("to-the-most", [0, most - 5, least], 5),
        ("to-the-least", [0, least + 5, most], -5),
        ("by-the-most", [0, -1, least], most),
        ("by-the-least", [0, 1, most], least),
    ):
        yield case("increment", label, lambda d, x=x, by=by: {"x": np.array(x, np.int32), "by": by})


def gates(dtype):
    for rows, dim, ld in ((1, 1, 1), (1, 17, 17), (3, 8, 8), (2, 33, 40), (5, 16, 35), (3, 65, 130), (2, 31, 62)):
        label = f"rows{rows}-dim{dim}-ld{ld}"

        def forward(d, rows=rows, dim=dim, ld=ld):
            return {"gate": d.bell(rows, dim, scale=2), "up": d.bell(rows, dim), "ld": ld}

        yield case("swiglu", label, forward, dtype)
        yield case("relu2_gate", label, forward, dtype)
        yield case("swiglu_backward", label, lambda d, f=forward, r=rows, n=dim: {"dy": d.bell(r, n), **f(d)}, dtype)
    for rows, dim, ld, used in ((2, 17, 35, 1), (3, 5, 5, 2), (2, 3, 6, 0)):
        label = f"rows{rows}-dim{dim}-ld{ld}-used{used}"

        def some(d, names, rows=rows, dim=dim, ld=ld, used=used):
            made = {name: unread(d.bell(rows, dim, scale=2), used) for name in names}
            return {**made, "used": np.array([used], np.int32), "ld": ld}

        yield case("swiglu", label, lambda d, f=some: f(d, ("gate", "up")), dtype)
        yield case("swiglu_backward", label, lambda d, f=some: f(d, ("dy", "gate", "up")), dtype)
    yield from each(
        "relu2_gate",
        {"negative": lambda d, dtype: {"gate": -d.uniform(2, 9, low=0.5), "up": d.bell(2, 9)}},
        (dtype,),
    )
