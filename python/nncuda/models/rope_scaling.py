"""How the rotary embedding of a model is scaled: what its frequencies are divided by, rounded to f32.

Python, Go and Rust compute these numbers in f64 and round them once, so that they have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats.errors import shown

#: What the frequency of a pair that is not rotated is divided by: its angle is too small to change an f32.
UNROTATED = float(np.float32(3e38))


def rope_options(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of the rotary embedding in a config.json: transformers 5 writes rope_parameters, earlier ones wrote
    rope_scaling for stretched models, which stands above the former where both are there. None of them: no options.

    Raises ValueError for what is no object.
    """
    for name in ("rope_scaling", "rope_parameters"):
        if found := values.get(name):
            if not isinstance(found, Mapping):
                raise ValueError(f"{name} is {shown(found)}; it must be an object")
            return found
    return {}


def llama3_divisors(
    base: float, head_dim: int, factor: float, low: float, high: float, original_context: float
) -> tuple[float, ...]:
    """What the frequencies of Llama 3.1 are divided by, a number a pair, rounded to f32.

    Waves shorter than original_context/high stay, those longer than original_context/low are stretched by `factor`,
    between them the frequency goes over linearly in original_context/wavelength. (Dubey et al. 2024, and its reference
    code; https://github.com/meta-llama/llama-models)
    """
    divisors = []
    for pair in range(head_dim // 2):
        turns = original_context * base ** (-2 * pair / head_dim) / (2 * math.pi)
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(float(np.float32(1 / ((1 - share) / factor + share))))
    return tuple(divisors)


def yarn_divisors(
    base: float,
    head_dim: int,
    factor: float,
    fast: float,
    slow: float,
    original_context: float,
    truncate: bool = True,
) -> tuple[float, ...]:
    """What YaRN divides the frequencies by, a number a pair, rounded to f32.

    Pairs that turn more than `fast` times in the original context stay, those that turn less than `slow` times are
    stretched by `factor`, between them the frequency goes over linearly in the pair's number. `truncate` moves both
    ends to whole numbers. (Peng et al. 2023, "YaRN", 3.2, and its reference code)
    """

    def end(turns: float) -> float:
        return head_dim * math.log(original_context / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = end(fast), end(slow)
    if truncate:
        first, last = float(math.floor(first)), float(math.ceil(last))
    first, last = max(first, 0.0), min(last, float(head_dim - 1))
    width = last - first if last != first else 0.001
    divisors = []
    for pair in range(head_dim // 2):
        stretched = min(max((pair - first) / width, 0.0), 1.0)
        divisors.append(float(np.float32(1 / (stretched / factor + (1 - stretched)))))
    return tuple(divisors)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """What YaRN multiplies cosines and sines with, rounded to f32. (Peng et al. 2023, eq. 22)"""
    return float(np.float32(_yarn_magnitude(factor, weight)))


def yarn_magnitude_ratio(factor: float, weight: float, all_dims: float) -> float:
    """The same where the softmax has its own part of it already, as DeepSeek's models have."""
    return float(np.float32(_yarn_magnitude(factor, weight) / _yarn_magnitude(factor, all_dims)))


def _yarn_magnitude(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1


def longrope_magnitude(factor: float, original_context: float) -> float:
    """What LongRoPE multiplies cosines and sines with, rounded to f32. (Ding et al. 2024, "LongRoPE", and Phi-3's
    reference code)"""
    if factor <= 1:
        return 1.0
    return float(np.float32(math.sqrt(1 + math.log(factor) / math.log(original_context))))


def base_of_part(base: float, head_dim: int, rotated: int) -> float:
    """The base with which whole heads have the frequencies of their `rotated` first elements, rounded to f32."""
    return base if rotated == head_dim else float(np.float32(base ** (head_dim / rotated)))
