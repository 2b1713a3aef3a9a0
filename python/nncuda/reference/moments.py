"""Moments of AdamW in few bits, as bindings.h defines them: rounding by chance, and 8-bit codes a scale a block."""

import numpy as np

from nncuda.reference.arithmetic import Array

#: Elements that share a scale.
BLOCK = 256
#: Bits of mantissa of the codes of first moments, and of roots of second moments.
FIRST_BITS, ROOT_BITS = 3, 4
_EVEN = 2.0**-14  # below it the numbers of the codes are evenly spaced


def _mix(x: Array) -> Array:
    """Appleby 2011, "MurmurHash3", fmix32."""
    x = x.astype(np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def chances(step: int, first: int, n: int) -> tuple[Array, Array]:
    """The chances at a step of n elements from place `first` on, below 2^16: of the first moments, of the second."""
    index = np.arange(first, first + n, dtype=np.uint64)
    block, at = index // BLOCK, (index % BLOCK).astype(np.uint32)
    with np.errstate(over="ignore"):
        key = _mix(np.uint32(step) + np.zeros(n, np.uint32))
        key = _mix(key + (block % 2**32).astype(np.uint32))
        key = _mix(key + (block // 2**32).astype(np.uint32))
        word = _mix(key + np.uint32(0x9E3779B9) * at)
    return (word & np.uint32(0xFFFF)).astype(np.float64), (word >> np.uint32(16)).astype(np.float64)


def _rounded(x: Array, bits: int, chance: Array, least: float) -> Array:
    """x >= 0 rounded to `bits` bits of mantissa, evenly spaced below `least`: down, or up where what is cut off and
    the chance, as shares of the distance of two neighbours, come to 1."""
    x = x.astype(np.float64)
    exponent = np.frexp(np.maximum(x, least))[1] - 1
    units = np.ldexp(x, bits - exponent)
    return np.ldexp(np.floor(units + chance * 2.0**-16), exponent - bits)


def to_bf16(x: Array, chance: Array) -> Array:
    """x rounded to bf16 by chance, in the precision it came in; infinities and NaN stay."""
    size = np.abs(x)
    finite = np.isfinite(x)
    near = _rounded(np.where(finite, size, 0), 7, chance, 2.0**-126)
    near = np.where(near >= 2.0**128, np.inf, near)
    return np.where(finite, np.copysign(near, x), x).astype(x.dtype)


def decode(codes: Array, bits: int) -> Array:
    """The numbers of codes without sign, float64."""
    exponent, fraction = (codes >> bits).astype(np.int64), (codes & (2**bits - 1)) * 2.0**-bits
    return np.ldexp(np.where(exponent == 0, fraction, 1 + fraction), np.maximum(exponent, 1) - 15)


def encode(x: Array, bits: int, chance: Array) -> Array:
    """The codes without sign of x in 0 .. 1, rounded by chance."""
    near = _rounded(x, bits, chance, _EVEN)
    exponent = np.frexp(np.maximum(near, _EVEN))[1] - 1
    return (np.ldexp(near, bits - exponent) - 2**bits + (exponent + 15) * 2**bits).astype(np.int64)


def scales(size: Array) -> Array:
    """The largest of each block; a NaN or an infinity where it has one, NaN before infinity."""
    padded = np.zeros(-(-len(size) // BLOCK) * BLOCK, size.dtype)
    padded[: len(size)] = size
    return padded.reshape(-1, BLOCK).max(axis=1)


def _shares(size: Array, scale: Array) -> Array:
    """What part of its block's scale each element is; 0 where the scale is 0 or no number."""
    by = np.repeat(scale, BLOCK)[: len(size)]
    usable = (by > 0) & np.isfinite(by)
    with np.errstate(invalid="ignore"):
        return np.where(usable, size / np.where(usable, by, 1), 0)


def pack_first(m: Array, chance: Array) -> tuple[Array, Array]:
    """Codes (uint8) and scales of first moments."""
    scale = scales(np.abs(m))
    codes = encode(_shares(np.abs(m), scale), FIRST_BITS, chance)
    usable = np.repeat((scale > 0) & np.isfinite(scale), BLOCK)[: len(m)]
    return np.where(usable, codes | (np.signbit(m) * 0x80), 0).astype(np.uint8), scale


def unpack_first(codes: Array, scale: Array) -> Array:
    """First moments, in the precision of the scales."""
    size = decode(codes & 0x7F, FIRST_BITS).astype(scale.dtype) * np.repeat(scale, BLOCK)[: len(codes)]
    return np.where(codes & 0x80, -size, size)


def pack_root(r: Array, chance: Array) -> tuple[Array, Array]:
    """Codes (uint8) and scales of roots of second moments; no root above 0 gets code 0."""
    scale = scales(r)
    codes = encode(_shares(r, scale), ROOT_BITS, chance)
    usable = np.repeat((scale > 0) & np.isfinite(scale), BLOCK)[: len(r)]
    return np.where(usable, np.maximum(codes, r > 0), 0).astype(np.uint8), scale


def unpack_root(codes: Array, scale: Array) -> Array:
    """Roots of second moments, in the precision of the scales."""
    return decode(codes, ROOT_BITS).astype(scale.dtype) * np.repeat(scale, BLOCK)[: len(codes)]
