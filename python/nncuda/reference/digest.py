"""Sums over the mixed bits and places of elements, modulo 2^64.

Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", for the mixing.
"""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs

__all__ = ["digest"]

ROUNDINGS = {"digest": 0}


def _xor_shift(z: Array, by: int) -> Array:
    return z ^ (z >> np.uint64(by))


def digest(x: Array, sums: Array, first: int) -> Outputs:
    """sums[0] += z and sums[1] += a further mix of z, where z is the mix of index and bits of each row of bytes."""
    weights = np.uint64(256) ** np.arange(x.shape[1], dtype=np.uint64)
    bits = (x.astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
    index = np.uint64(first) + np.arange(len(x), dtype=np.uint64)
    half = np.uint64(32)
    z = ((index << half) | bits) + (np.uint64(1) + (index >> half)) * np.uint64(0x9E3779B97F4A7C15)
    z = _xor_shift(z, 30) * np.uint64(0xBF58476D1CE4E5B9)
    z = _xor_shift(_xor_shift(z, 27) * np.uint64(0x94D049BB133111EB), 31)
    second = _xor_shift(_xor_shift(z, 32) * np.uint64(0xD6E8FEB86659FD93), 32)
    parts = np.array([z.sum(dtype=np.uint64), second.sum(dtype=np.uint64)])
    return {"sums": (sums.astype(np.int64).view(np.uint64) + parts).view(np.int64)}
