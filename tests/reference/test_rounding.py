"""The reference's storage formats against ml_dtypes and NumPy, on every pattern and around every border."""

import ml_dtypes
import numpy as np
import pytest

from nncuda.reference.rounding import SMALLEST, UNIT, from_bits, rounded, to_bits

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_pattern_widens(dtype):
    with np.errstate(invalid="ignore"):
        expected = PATTERNS.view(TYPES[dtype]).astype(np.float32)
    assert np.array_equal(from_bits(PATTERNS, dtype), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_pattern_returns(dtype):
    numbers = from_bits(PATTERNS, dtype)
    finite = ~np.isnan(numbers)
    assert np.array_equal(to_bits(numbers, dtype)[finite], PATTERNS[finite])
    assert np.all(np.isnan(from_bits(to_bits(numbers, dtype)[~finite], dtype)))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_ties_go_to_even_and_their_neighbours_do_not(dtype, precision):
    """From float64 as well, where rounding by way of float32 would take a neighbour for the tie."""
    numbers = from_bits(PATTERNS, dtype)
    numbers = np.sort(numbers[np.isfinite(numbers)].astype(np.float64))
    low, high = numbers[:-1], numbers[1:]
    middle = ((low + high) / 2).astype(precision)
    tie = middle.astype(np.float64) == (low + high) / 2
    even = np.where(to_bits(low.astype(np.float32), dtype) & 1, high, low)
    assert np.array_equal(rounded(middle, dtype)[tie], even[tie].astype(precision))
    if precision is np.float64:
        assert np.array_equal(rounded(np.nextafter(middle, np.inf), dtype), high)
        assert np.array_equal(rounded(np.nextafter(middle, -np.inf), dtype), low)


@pytest.mark.parametrize("dtype", ["f32", *TYPES])
def test_unit_and_smallest(dtype):
    one = np.array([1.0])
    assert rounded(one + UNIT[dtype], dtype)[0] == 1.0  # the tie
    assert rounded(one + UNIT[dtype] * 1.5, dtype)[0] == 1.0 + 2 * UNIT[dtype]
    assert rounded(one * SMALLEST[dtype], dtype)[0] == SMALLEST[dtype]
    assert rounded(one * SMALLEST[dtype] / 2, dtype)[0] == 0.0
