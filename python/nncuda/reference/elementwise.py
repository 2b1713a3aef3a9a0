"""Element-wise kernels: SiLU, sums and products, gates, conversion."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, sigmoid
from nncuda.reference.rounding import rounded

__all__ = [
    "add",
    "cast",
    "fill",
    "increment",
    "mul",
    "relu2_gate",
    "round",
    "scale",
    "silu",
    "silu_backward",
    "swiglu",
    "swiglu_backward",
]

ROUNDINGS = {
    **dict.fromkeys(["add", "mul", "scale", "cast", "round", "fill", "increment"], 0),
    "silu": 5,  # exp, 1 + e, /, *
    "silu_backward": 9,  # silu's sigmoid (4), 1 - s, x *, 1 +, s *, dy *
    "swiglu": 6,
    "swiglu_backward": 10,
    "relu2_gate": 2,
}


def silu(x: Array) -> Outputs:
    """y = x sigmoid(x). Elfwing, Uchibe, Doya 2018, "Sigmoid-weighted linear units", eq. 4."""
    return {"y": x * sigmoid(x)}


def silu_backward(dy: Array, x: Array) -> Outputs:
    """dx = dy s (1 + x (1 - s)) with s = sigmoid(x). Elfwing, Uchibe, Doya 2018, eq. 5."""
    s = sigmoid(x)
    return {"dx": dy * (s * (1 + x * (1 - s)))}


def add(a: Array, b: Array) -> Outputs:
    """y = a + b, element by element."""
    return {"y": a + b}


def mul(a: Array, b: Array) -> Outputs:
    """y = a b, element by element (the Hadamard product)."""
    return {"y": a * b}


def scale(x: Array, alpha: float) -> Outputs:
    """y = alpha x."""
    return {"y": x * x.dtype.type(alpha)}


def swiglu(gate: Array, up: Array, used: Array | None = None) -> Outputs:
    """y = silu(gate) up. Shazeer 2020, "GLU variants improve transformer", eq. 6, without the products."""
    return {"y": _unless_unused(gate * sigmoid(gate) * up, used)}


def swiglu_backward(dy: Array, gate: Array, up: Array, used: Array | None = None) -> Outputs:
    """The product rule on silu(gate) up; silu' from Elfwing, Uchibe, Doya 2018, eq. 5."""
    return {
        "dgate": _unless_unused(silu_backward(dy * up, gate)["dx"], used),
        "dup": _unless_unused(dy * silu(gate)["y"], used),
    }


def _unless_unused(y: Array, used: Array | None) -> Array:
    """NaN, which stands for what is not written, in the rows behind those that are used."""
    return y if used is None else np.where(np.arange(len(y))[:, None] < used, y, np.nan)


def relu2_gate(gate: Array, up: Array) -> Outputs:
    """y = max(gate, 0)^2 up. So et al. 2021, "Primer", section 4.2."""
    positive = np.maximum(gate, 0)
    return {"y": positive * positive * up}


def cast(x: Array, dtype_y: str) -> Outputs:
    """x rounded to nearest, ties to even. IEEE 754-2019, section 4.3.1."""
    return {"y": rounded(x, dtype_y)}


def round(x: Array, dtype: str) -> Outputs:
    """x rounded to nearest in ``dtype``, ties to even, and f32 again. IEEE 754-2019, section 4.3.1."""
    return {"y": rounded(x, dtype)}


def fill(n: int, value: float, dtype: str) -> Outputs:
    """n elements, all of them ``value`` rounded to ``dtype``."""
    if dtype in ("i32", "i8"):
        return {"y": np.full(n, value, np.int32 if dtype == "i32" else np.int8)}
    return {"y": rounded(np.full(n, value), dtype)}


def increment(x: Array, by: int) -> Outputs:
    """x + by, whole numbers of 32 bits."""
    return {"x": (x.astype(np.int64) + by).astype(np.int32)}
