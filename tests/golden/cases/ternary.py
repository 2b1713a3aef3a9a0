"""Cases of linear layers with ternary weights."""

import numpy as np

from nncuda.reference.ternary import ternary_pack

from .case import FLOATS, TAILS, case
from .rmsnorm import SHAPES, forward

#: Sizes around the sixteen rows and columns that lie together, and around the columns that a vector takes.
CODED = ((1, 1), (1, 16), (3, 15), (16, 17), (17, 31), (15, 64), (16, 100), (33, 20), (32, 32), (2, 257))
#: Rows of activations, outputs, inputs.
PRODUCTS = (
    *((1, 1, 1), (1, 3, 15), (2, 16, 16), (3, 17, 17), (1, 40, 300), (4, 5, 64), (5, 33, 31), (8, 16, 130)),
    *((9, 7, 65), (16, 15, 32), (17, 19, 128), (33, 2, 100)),
)
#: Those that add a residual, too.
ADDED = ((1, 40, 300), (3, 17, 17), (5, 33, 31), (17, 19, 128))


def cases():
    for dtype in FLOATS:
        yield from activations(dtype)
        yield from weights(dtype)
    yield from packing()
    yield from products()
    yield from products_with_norm()


def hard_rows(d, dtype):
    """Zeros of both signs, magnitudes about the least scale, the largest of the dtype, one number among zeros, and rows
    that are not finite between others."""
    x = d.bell(12, 37)
    x[0] = 0.0
    x[1] = -0.0
    x[2] *= 1e-5
    x[3] *= 1e-7
    x[4] = np.clip(x[4] * 1e-5, -1e-5, 1e-5)
    x[5] *= {"f32": 9e37, "f16": 18000.0, "bf16": 9e37}[dtype]
    x[6] = np.where(np.arange(37) == 20, -3.0, 0.0)
    x[7, 36] = np.nan
    x[8, 0] = np.inf
    x[9, 17] = -np.inf
    return x


def ties(d):
    """The largest magnitude is 127 or 254, so that codes are the numbers or their halves: many lie in the middle."""
    x = d.integers(4, 64, low=-126, high=127) / 2.0
    x[:2, 5] = 127.0, -127.0
    x[2:] = 2 * np.trunc(x[2:]) + 1
    x[2:, 0] = 254.0, -254.0
    return x


def activations(dtype):
    for cols in TAILS:
        yield case("act_quant_i8", f"rows3-cols{cols}", lambda d, n=cols: {"x": d.bell(3, n)}, dtype)
    for rows, cols in ((1, 300), (17, 5), (33, 16)):
        yield case("act_quant_i8", f"rows{rows}-cols{cols}", lambda d, r=rows, n=cols: {"x": d.bell(r, n)}, dtype)
    yield case("act_quant_i8", "hard", lambda d, t=dtype: {"x": hard_rows(d, t)}, dtype)
    yield case("act_quant_i8", "ties", lambda d: {"x": ties(d)}, dtype)
    for rows, cols in (*SHAPES, (3, 200), (17, 9)):
        yield case("rmsnorm_quant_i8", f"rows{rows}-cols{cols}", forward, dtype, rows, cols)
    yield case(
        "rmsnorm_quant_i8", "hard", lambda d, t=dtype: {**forward(d, 12, 37), "x": normalised(hard_rows(d, t))}, dtype
    )


def normalised(x):
    """Without rows whose squares overflow f32."""
    return np.where(np.abs(x).max(axis=1, keepdims=True, initial=0) < 1e15, x, np.where(np.isfinite(x), 1.0, x))


def weights(dtype):
    def one(d, n, k, scale):
        return {"x": d.bell(n, k, scale=scale)}

    for n, k in CODED:
        yield case("ternary_quantize", f"n{n}-k{k}", one, dtype, n, k, 0.05)
    yield case("ternary_quantize", "zeros", lambda d: {"x": np.zeros((3, 20))}, dtype)
    yield case("ternary_quantize", "below-the-least-scale", one, dtype, 5, 33, 2e-6)
    # The mean is a power of two, and every number 0, a half, one or three halves of it.
    yield case(
        "ternary_quantize",
        "ties",
        lambda d: {"x": np.tile([0.125, -0.125, 0.375, -0.375, 0.25, 0.0, -0.5, 0.25], (3, 9))},
        dtype,
    )
    large = {"f32": 1e37, "f16": 15000.0, "bf16": 1e37}[dtype]
    yield case("ternary_quantize", "large", one, dtype, 4, 50, large)
    yield case(
        "ternary_quantize",
        "wide",
        lambda d: {"x": d.bell(7, 83) * 2.0 ** d.integers(7, 83, low=-14, high=11)},
        dtype,
    )
    if dtype == "f32":
        for label, recipe in ORDERS.items():
            yield case("ternary_quantize", label, lambda d, recipe=recipe: {"x": recipe()}, dtype)


def in_the_middle(n, k, small):
    """Without `small`, places of 2^-54, the sum of row 0 is 1 + 2^-24: the mean lies in the middle between two numbers
    of f32 and goes to the lower. A place that float64 does not lose on the way decides for the upper."""
    x = np.zeros((n, k))
    x[0, 0], x[0, 16] = 1.0, -(2.0**-24)
    for row, column in small:
        x[row, column] = 2.0**-54
    return x


#: What is lost and what not hangs on the order of the sums.
ORDERS = {
    "order-kept": lambda: in_the_middle(1, 32, [(0, column) for column in range(1, 16)]),
    "order-lost-in-a-row": lambda: in_the_middle(1, 64, [(0, column) for column in (32, 8, 4, 2, 1)]),
    "order-lost-over-rows": lambda: in_the_middle(16, 32, [(row, 3) for row in range(1, 16)]),
}


def codes(d, n, k):
    return d.integers(n, k, low=-1, high=2).astype(np.int8)


def packing():
    for n, k in CODED:
        yield case("ternary_pack", f"n{n}-k{k}", packed, "", n, k)
        yield case("ternary_unpack", f"n{n}-k{k}", unpacking, "", n, k)
    for value in (-1, 0, 1):
        yield case(
            "ternary_pack",
            f"all{value}",
            lambda d, v=value: {"codes": np.full((17, 33), v, np.int8), "stored": 32, "row_bytes": 12},
            "",
        )


def packed(d, n, k):
    return {"codes": codes(d, n, k), "stored": -(-n // 16) * 16, "row_bytes": -(-k // 16) * 4}


def unpacking(d, n, k):
    return {"w": ternary_pack(codes(d, n, k))["w"], "n": n, "k": k}


def product(d, m, n, k, dtype, residual=False):
    """A product as in a model: activations of 8 bits, scales of rows and outputs; in i32 the integers alone."""
    given = {
        "codes": d.integers(m, k, low=-127, high=128).astype(np.int8),
        "w": ternary_pack(codes(d, n, k))["w"],
        "n": n,
    }
    if dtype == "i32":
        return given
    scales = {"scale": d.uniform(m, low=0.005, high=0.03), "w_scale": d.uniform(n, low=0.5, high=1.5)}
    return {**given, **scales, "residual": d.bell(m, n) if residual else None}


def products():
    for dtype in (*FLOATS, "i32"):
        for m, n, k in PRODUCTS:
            yield case("bitlinear", f"m{m}-n{n}-k{k}", product, dtype, m, n, k, dtype)
        if dtype != "i32":
            for m, n, k in ADDED:
                yield case("bitlinear", f"m{m}-n{n}-k{k}-residual", product, dtype, m, n, k, dtype, True)
            yield case("bitlinear", "hard-scales", hard_scales, dtype, dtype)
    for value in (-127, 127):
        for weight in (-1, 1):
            yield case("bitlinear", f"codes{value}-weights{weight}", lambda d, v=value, w=weight: extremes(v, w), "i32")
    yield case("bitlinear", "no-code", any_bits, "i32")


def hard_scales(d, dtype):
    """A row whose scale is NaN, as of activations that were not finite; scales at both ends of f32; zeros."""
    given = product(d, 5, 18, 40, dtype, residual=True)
    given["scale"][:4] = np.nan, 2.0**100, 2.0**-120, 0.0
    given["w_scale"][:4] = 2.0**-100, 2.0**-20, -1.0, 2.0**20
    return given


def extremes(value, weight):
    """The largest sums that there are of so many columns."""
    return {
        "codes": np.full((2, 528), value, np.int8),
        "w": ternary_pack(np.full((17, 528), weight, np.int8))["w"],
        "n": 17,
    }


def any_bits(d):
    """Two bits 3 count as 2."""
    return {
        "codes": d.integers(3, 48, low=-127, high=128).astype(np.int8),
        "w": d.integers(16, 12, high=256).astype(np.uint8),
        "n": 16,
    }


#: Rows, outputs, inputs, whether a residual is added.
NORMED = ((1, 17, 64, True), (1, 5, 33, False), (3, 16, 48, False), (6, 20, 40, True))


def products_with_norm():
    for dtype in FLOATS:
        for m, n, k, residual in NORMED:
            yield case("bitlinear_norm", f"m{m}-n{n}-k{k}", normed, dtype, m, n, k, residual)
        yield case("bitlinear_norm", "no-norm", rounded_rows, dtype)


def normed(d, m, n, k, residual):
    return {
        "x": d.bell(m, k),
        "norm": d.uniform(k, low=0.5, high=1.5),
        "w": ternary_pack(codes(d, n, k))["w"],
        "w_scale": d.uniform(n, low=0.5, high=1.5),
        "residual": d.bell(m, n) if residual else None,
        "n": n,
        "eps": 1e-5,
    }


def rounded_rows(d):
    """Without gains; a row of zeros and one that is not finite between others."""
    given = {**normed(d, 4, 18, 36, True), "norm": None, "eps": 0.0}
    given["x"][1], given["x"][2, 35] = 0.0, np.inf
    return given
