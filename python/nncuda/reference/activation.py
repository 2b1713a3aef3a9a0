"""What today's families have besides: bounds of scores, gates, rows in 8 bits as numbers, biases of grouped rows."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, sigmoid, tanh

__all__ = ["act_dequant_i8", "geglu", "grouped_bias", "relu2_gate_backward", "softcap", "swiglu_clipped"]

ROUNDINGS = {
    "softcap": 4,  # /, tanh, *
    "geglu": 10,  # x^2, x^3, *, +, sqrt(2/pi) *, tanh, 1 +, x/2 *, up *
    "swiglu_clipped": 8,  # alpha *, sigmoid (3), g *, u + 1, *
    "relu2_gate_backward": 2,
    "act_dequant_i8": 1,
    "grouped_bias": 1,
}


def softcap(x: Array, cap: float) -> Outputs:
    """y = cap tanh(x / cap). Gemma Team 2024, "Gemma 2", section 2."""
    bound = x.dtype.type(cap)
    return {"y": bound * tanh(x / bound)}


def geglu(gate: Array, up: Array) -> Outputs:
    """y = gelu(gate) up by the approximation with tanh. Hendrycks, Gimpel 2016, "GELUs", section 2."""
    number = gate.dtype.type
    inner = number(np.sqrt(2 / np.pi)) * (gate + number(0.044715) * (gate * gate * gate))
    return {"y": gate / 2 * (1 + tanh(inner)) * up}


def swiglu_clipped(gate: Array, up: Array, alpha: float, limit: float) -> Outputs:
    """y = g sigmoid(alpha g) (u + 1), g and u clipped. Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b"."""
    g, u = np.minimum(gate, limit).astype(gate.dtype), np.clip(up, -limit, limit).astype(up.dtype)
    return {"y": g * sigmoid(gate.dtype.type(alpha) * g) * (u + 1)}


def relu2_gate_backward(dy: Array, gate: Array, up: Array) -> Outputs:
    """The product rule on max(gate, 0)^2 up. So et al. 2021, "Primer", section 4.2."""
    positive = np.maximum(gate, 0)
    return {"dgate": dy * up * (2 * positive), "dup": dy * (positive * positive)}


def act_dequant_i8(codes: Array, scale: Array) -> Outputs:
    """x = codes scale, row by row. Ma et al. 2024, eq. 4."""
    return {"x": codes.astype(scale.dtype) * scale[:, None]}


def grouped_bias(x: Array, bias: Array, offsets: Array) -> Outputs:
    """y[r] = x[r] + bias[g] in the rows of group g; NaN, which stands for what is not written, in rows of none."""
    y = np.full_like(x, np.nan)
    for group, row in enumerate(bias):
        rows = slice(offsets[group], offsets[group + 1])
        y[rows] = x[rows] + row
    return {"y": y}
