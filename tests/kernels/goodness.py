"""Tests of goodness of fit, from their formulas: SciPy is not among the requirements."""

from __future__ import annotations

import math

import numpy as np

#: A fixed seed fails once in a million honest draws; a wrong distribution fails by many orders of magnitude.
LEAST_P = 1e-6


def chi_square_tail(x: float, degrees: int) -> float:
    """P(X >= x) of the chi-square distribution, by its recurrence in steps of two degrees of freedom.

    Abramowitz and Stegun 1964, 26.4.4 and 26.4.5.
    """
    half = x / 2
    start = 1 if degrees % 2 else 2
    tail = math.erfc(math.sqrt(half)) if start == 1 else math.exp(-half)
    for k in range(start, degrees, 2):
        tail += math.exp(k / 2 * math.log(half) - half - math.lgamma(k / 2 + 1)) if half > 0 else 0.0
    return min(tail, 1.0)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """p-value of counts against a distribution (Pearson 1900); categories that expect fewer than 10 count as one."""
    expected = probabilities * counts.sum()
    assert not counts[probabilities == 0].any(), "something impossible was drawn"
    rare = expected < 10
    observed, expected = (np.append(v[~rare], v[rare].sum()) for v in (counts, expected))
    keep = expected > 0
    observed, expected = observed[keep], expected[keep]
    assert len(observed) > 1, "one category cannot be tested"
    return chi_square_tail(float(((observed - expected) ** 2 / expected).sum()), len(observed) - 1)


def kolmogorov_smirnov(sample: np.ndarray, distribution: np.ndarray) -> float:
    """p-value of a large sorted sample against the distribution function at its points (Kolmogorov 1933)."""
    n = len(sample)
    assert (np.diff(sample) >= 0).all()
    steps = np.arange(n + 1) / n
    distance = max(np.max(steps[1:] - distribution), np.max(distribution - steps[:-1]))
    x = distance * math.sqrt(n)
    return min(1.0, 2 * sum((-1) ** (j - 1) * math.exp(-2 * (j * x) ** 2) for j in range(1, 101)))


def normal_distribution(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
