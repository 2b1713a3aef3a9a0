"""The storage formats: f32, f16 (IEEE 754 binary16) and bf16, rounded to nearest, ties to even."""

import numpy as np

from nncuda.reference.arithmetic import Array

#: Unit roundoff of each dtype: half the distance from 1 to the next number.
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
#: Smallest positive (subnormal) number of each dtype.
SMALLEST = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}


def to_bits(x: Array, dtype: str) -> Array:
    """The patterns (uint16) of ``x`` rounded to f16 or bf16. Too large becomes infinity; NaN stays NaN, quiet."""
    if dtype == "f16":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(x).astype(np.float16).view(np.uint16)
    x = np.asarray(x)
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.atleast_1d(x.astype(np.float32))
    # A float64 first rounded to float32 could land on a tie that it was not on: undo that by rounding to odd.
    if x.dtype == np.float64:
        wide = np.atleast_1d(x)
        bits = near.view(np.uint32)
        toward_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(wide), bits - np.uint32(1), bits)
        exact = (near.astype(np.float64) == wide) | ~np.isfinite(near) | ~np.isfinite(wide)
        bits = np.where(exact, bits, toward_zero | np.uint32(1)).astype(np.uint32)
    else:
        bits = near.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        rounded = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    quiet = ((bits >> np.uint32(16)) & np.uint32(0x8000) | np.uint32(0x7FC0)).astype(np.uint16)
    return np.where(np.isnan(near), quiet, rounded).reshape(x.shape)


def from_bits(bits: Array, dtype: str) -> Array:
    """The float32 values of f16 or bf16 patterns (uint16); exact."""
    bits = np.asarray(bits, np.uint16)
    if dtype == "f16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(x: Array, dtype: str) -> Array:
    """``x`` rounded to ``dtype``, in the precision it came in."""
    x = np.asarray(x)
    if dtype == "f32":
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(np.float32).astype(x.dtype)
    return from_bits(to_bits(x, dtype), dtype).astype(x.dtype)
