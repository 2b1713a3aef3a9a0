"""The order in which windows of training data are visited."""

import numpy as np

from nncuda.reference import random
from nncuda.reference.arithmetic import Array

__all__ = ["data_order"]

ROUNDS = 4


def data_order(seed: int, first: int, count: int, windows: int) -> Array:
    """Positions first .. first+count-1 of an endless sequence of permutations of 0 .. windows-1, one an epoch.

    A Feistel network whose round function is word 0 of Philox for (half, 2^31 + round, epoch low, epoch high), walked
    until it lands inside. Black, Rogaway 2002, "Ciphers with arbitrary finite domains", section 3 (cycle walking) and
    section 5 (generalised Feistel).
    """
    bits = (windows - 1).bit_length()
    right_bits = bits - bits // 2

    def scramble(epoch: int, number: int, half: int) -> int:
        return int(random.words(1, seed, epoch, ((1 << 31) + number) << 32 | half)[0])

    def permuted(epoch: int, x: int) -> int:
        while True:
            left, right = x >> right_bits, x & ((1 << right_bits) - 1)
            for number in range(0, ROUNDS, 2):
                left ^= scramble(epoch, number, right) & ((1 << bits // 2) - 1)
                right ^= scramble(epoch, number + 1, left) & ((1 << right_bits) - 1)
            x = left << right_bits | right
            if x < windows:
                return x

    positions = range(first, first + count)
    return np.array([permuted(p // windows, p % windows) for p in positions], np.int64)
