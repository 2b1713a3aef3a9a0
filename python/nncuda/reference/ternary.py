"""Linear layers with weights -1, 0 and 1 and activations of 8 bits.

Rounding to whole numbers is defined in float32, step by step, and their products are exact, so these functions give
the same bits in any precision; only a norm before them is computed in the precision of its arguments.
Sources: Ma et al. 2024, "The Era of 1-bit LLMs"; Ma et al. 2025, "BitNet b1.58 2B4T Technical Report".
"""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs
from nncuda.reference.rmsnorm import rmsnorm
from nncuda.reference.rounding import rounded

__all__ = [
    "act_quant_i8",
    "bitlinear",
    "bitlinear_norm",
    "rmsnorm_quant_i8",
    "ternary_pack",
    "ternary_quantize",
    "ternary_unpack",
]

ROUNDINGS = {
    **dict.fromkeys(["act_quant_i8", "ternary_quantize", "ternary_pack", "ternary_unpack", "bitlinear"], 0),
    "rmsnorm_quant_i8": 7,  # of its scale: the norm, / 127
    "bitlinear_norm": 11,  # those of the scale, then the integers, the scales, the product and the sum
}

#: Scales are not below, so that a row or a matrix of zeros has one.
LEAST = np.float32(1e-5)
#: Rows and columns of packed weights that lie together, and weights in a byte.
SIDE, IN_BYTE = 16, 4


def act_quant_i8(x: Array) -> Outputs:
    """Each row in 8 bits: a = max(max |x|, 1e-5), codes = rint(x (127/a)), scale = a/127. Ma et al. 2024, eq. 4."""
    x = x.astype(np.float32)
    bad = ~np.isfinite(x).all(axis=1)
    x = np.where(bad[:, None], np.float32(0), x)
    most = np.maximum(np.max(np.abs(x), axis=1, initial=0), LEAST)
    codes = np.rint(x * (np.float32(127) / most)[:, None]).astype(np.int8)
    return {"codes": codes, "scale": np.where(bad, np.float32(np.nan), most / np.float32(127))}


def rmsnorm_quant_i8(x: Array, weight: Array, eps: float, dtype: str) -> Outputs:
    """act_quant_i8 of the norm, which is rounded to ``dtype`` first. Ma et al. 2025, section 2."""
    return act_quant_i8(rounded(rmsnorm(x, weight, eps)["y"], dtype))


def ternary_quantize(x: Array) -> Outputs:
    """With s = max(mean |x|, 1e-5), codes = rint(x (1/s)) cut to -1 .. 1. Ma et al. 2024, eqs. 1 to 3.

    The mean is summed in float64 in the order that the header fixes, so that it has the same bits everywhere.
    """
    n, k = x.shape
    padded = np.zeros((n, -(-k // SIDE) * SIDE))
    padded[:, :k] = np.abs(x)
    sums = np.zeros((n, SIDE))
    for columns in np.moveaxis(padded.reshape(n, -1, SIDE), 1, 0):
        sums = sums + columns
    for width in (8, 4, 2, 1):
        sums = sums[:, :width] + sums[:, width:]
    total = 0.0
    for row in sums[:, 0]:
        total = total + float(row)
    scale = np.maximum(np.float32(total / (n * k)), LEAST)
    codes = np.clip(np.rint(x.astype(np.float32) * (np.float32(1) / scale)), -1, 1).astype(np.int8)
    return {"codes": codes, "scale": np.array([scale], np.float32)}


def ternary_pack(codes: Array) -> Outputs:
    """Two bits a weight, code + 1: of each sixteen rows and columns a word a row, whose byte j has column j + 4i at bit
    2i. What fills up the last sixteen has code 0."""
    n, k = codes.shape
    padded = np.zeros((-(-n // SIDE) * SIDE, -(-k // SIDE) * SIDE), np.int64)
    padded[:n, :k] = codes
    tiles = padded.reshape(len(padded) // SIDE, SIDE, padded.shape[1] // SIDE, IN_BYTE, IN_BYTE)
    bits = (tiles + 1) << 2 * np.arange(IN_BYTE)[:, None]
    words = np.swapaxes(bits.sum(axis=-2), 1, 2)  # [row / 16, column / 16, row mod 16, byte]
    return {"w": words.astype(np.uint8).reshape(len(padded), -1)}


def unpacked(w: Array) -> Array:
    """All weights of packed rows, the padding of the last sixteen included; int64, 2 for bits that are not a code."""
    stored, row_bytes = w.shape
    words = np.swapaxes(w.reshape(stored // SIDE, row_bytes // IN_BYTE, SIDE, 1, IN_BYTE), 1, 2)
    codes = (words.astype(np.int64) >> 2 * np.arange(IN_BYTE)[:, None] & 3) - 1
    return codes.reshape(stored, -1)


def ternary_unpack(w: Array, n: int, k: int) -> Outputs:
    """The codes of packed weights."""
    return {"codes": unpacked(w)[:n, :k].astype(np.int8)}


def bitlinear(
    codes: Array,
    w: Array,
    n: int,
    dtype: str,
    scale: Array | None = None,
    w_scale: Array | None = None,
    residual: Array | None = None,
) -> Outputs:
    """y = (codes W^T) (scale w_scale) + residual: the integers exact, each step after them rounded once to float32. In
    i32 the integers themselves. Ma et al. 2024, section 2."""
    whole = codes.astype(np.int64) @ unpacked(w)[:n, : codes.shape[1]].T
    if dtype == "i32":
        return {"y": whole.astype(np.int32)}
    with np.errstate(over="ignore", invalid="ignore"):
        factor = scale.astype(np.float32)[:, None] * w_scale.astype(np.float32)
        y = whole.astype(np.float32) * factor
        if residual is not None:
            y = y + residual.astype(np.float32)
    return {"y": rounded(y, dtype)}


def bitlinear_norm(
    x: Array,
    w: Array,
    w_scale: Array,
    n: int,
    dtype: str,
    norm: Array | None = None,
    eps: float = 0.0,
    residual: Array | None = None,
) -> Outputs:
    """bitlinear of x in 8 bits, or of its norm where there are gains. Ma et al. 2025, section 2."""
    rows = act_quant_i8(x) if norm is None else rmsnorm_quant_i8(x, norm, eps, dtype)
    return bitlinear(rows["codes"], w, n, dtype, rows["scale"], w_scale, residual)
