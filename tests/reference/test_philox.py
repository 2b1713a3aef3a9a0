"""The reference's generator against the published test vectors, its numbers against their distributions."""

import numpy as np
import pytest

from nncuda.binding import library
from nncuda.golden import Runner
from nncuda.reference import data, decode, random

# Counter, key and output of philox4x32 with 10 rounds, from kat_vectors of Random123 (Salmon et al. 2011).
PUBLISHED = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def numbers(text):
    return np.array([int(word, 16) for word in text.split()], np.uint64)


@pytest.mark.parametrize(("counter", "key", "output"), PUBLISHED)
def test_published_vectors(counter, key, output):
    assert np.array_equal(random.philox(numbers(counter), numbers(key)), numbers(output))


def test_any_part_of_a_sequence_stands_alone():
    whole = random.random_bits(40, -5, 3, 2**32 - 2)["y"]
    assert np.array_equal(random.random_bits(20, -5, 3, 2**32 + 3)["y"], whole[20:])


def test_normal_numbers_are_normal():
    z = random.normal(200_000, 0.0, 1.0, 1, 0, 0)["y"]
    bound = 5 / np.sqrt(len(z))  # five standard deviations of a mean of as many
    assert abs(np.mean(z)) < bound
    assert abs(np.mean(z**2) - 1) < np.sqrt(2) * bound
    assert abs(np.mean(z**3)) < np.sqrt(15) * bound
    assert abs(np.mean(z**4) - 3) < np.sqrt(96) * bound


def test_draws_follow_the_softmax():
    """Chi-square of 5 000 draws over five tokens: 4 degrees of freedom, beyond 23.5 once in 10 000 times."""
    logits = np.tile(np.array([0.5, -1.0, 1.5, -np.inf, 0.0, 0.7]), (5_000, 1))
    n = len(logits)
    ids, _ = decode.decisions(logits, np.full(n, 0.8), np.full(n, 99), np.arange(n))
    weights = np.exp(logits[0] / 0.8)
    expected = n * weights / np.sum(weights)
    counts = np.bincount(ids, minlength=6)
    assert counts[3] == 0
    seen = expected > 0
    assert np.sum((counts - expected)[seen] ** 2 / expected[seen]) < 23.5


@pytest.mark.parametrize("windows", [1, 2, 3, 17, 64, 1000])
def test_data_order_permutes_every_epoch(windows):
    first, second = (data.data_order(7, epoch * windows, windows, windows) for epoch in (0, 1))
    assert np.array_equal(np.sort(first), np.arange(windows))
    assert np.array_equal(np.sort(second), np.arange(windows))
    assert windows < 17 or not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("seed", "first", "count", "windows"), [(0, 0, 30, 10), (-1, 2**40, 50, 1001), (5, 3, 9, 2**40 + 1), (9, 0, 3, 1)]
)
def test_data_order_is_the_librarys(seed, first, count, windows):
    with Runner() as runner:
        ffi = library.load().ffi
        found = ffi.new("int64_t[]", count)
        status = runner.lib.nncuda_data_order(runner.ctx, seed, first, count, windows, found)
        runner.library.check(status, runner.ctx)
        assert list(found) == list(data.data_order(seed, first, count, windows))
