"""Philox4x32-10, and uniform and normal numbers made of its words.

Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, cos, log, sin, sqrt

__all__ = ["normal", "random_bits", "uniform"]

ROUNDINGS = {
    "random_bits": 0,
    "uniform": 3,
    "normal": 8,
}

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(counter: Array, key: Array) -> Array:
    """Philox4x32-10 of counters [..., 4] under keys [..., 2]; words below 2^32 in uint64. Salmon et al. 2011, 3.3."""
    c0, c1, c2, c3 = (np.asarray(counter, np.uint64)[..., i] for i in range(4))
    k0, k1 = (np.asarray(key, np.uint64)[..., i] for i in range(2))
    for _ in range(ROUNDS):
        p0, p1 = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + np.uint64(WEYL[0])) & LOW, (k1 + np.uint64(WEYL[1])) & LOW
    return np.stack([c0, c1, c2, c3], axis=-1)


def _halves(x: int) -> tuple[int, int]:
    """A 64-bit number, negative ones as two's complement, as (low, high) words."""
    x %= 1 << 64
    return x & 0xFFFFFFFF, x >> 32


def words(n: int, seed: int, stream: int, offset: int) -> Array:
    """The first n words (uint64, below 2^32) of blocks offset, offset + 1, ...; key = seed, upper counter = stream."""
    blocks = np.uint64(offset % (1 << 64)) + np.arange(-(-n // 4), dtype=np.uint64)
    counter = np.empty((len(blocks), 4), np.uint64)
    counter[:, 0], counter[:, 1] = blocks & LOW, blocks >> HALF
    counter[:, 2:] = _halves(stream)
    return philox(counter, np.array(_halves(seed), np.uint64)).ravel()[:n]


def random_bits(n: int, seed: int, stream: int, offset: int) -> Outputs:
    """The words themselves, as the bits of i32."""
    return {"y": words(n, seed, stream, offset).astype(np.uint32).view(np.int32)}


def uniform(
    n: int, low: float, high: float, seed: int, stream: int, offset: int, precision: type = np.float64
) -> Outputs:
    """y = low + (high - low) (word >> 8) 2^-24: the 24 leading bits, which float32 holds exactly."""
    fraction = (words(n, seed, stream, offset) >> np.uint64(8)).astype(precision) * precision(2.0**-24)
    low, high = precision(low), precision(high)
    return {"y": low + (high - low) * fraction}


def normal(
    n: int, mean: float, std: float, seed: int, stream: int, offset: int, precision: type = np.float64
) -> Outputs:
    """y = mean + std r (cos, sin)(2 pi w), r = sqrt(-2 log u), of each pair of words.

    Box, Muller 1958, "A note on the generation of random normal deviates".
    """
    pairs = words(n + n % 2, seed, stream, offset).reshape(-1, 2) >> np.uint64(8)
    u, w = ((pairs + np.array([1, 0], np.uint64)).astype(precision) * precision(2.0**-24)).T
    r = sqrt(precision(-2) * log(u))
    angle = precision(2 * np.pi) * w
    z = np.stack([r * cos(angle), r * sin(angle)], axis=-1)
    return {"y": precision(mean) + precision(std) * z.ravel()[:n]}
