"""Numbers and stored bytes that our kernels and the gguf package are given alike: the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np

from nncuda.formats.block_formats import FORMATS
from nncuda.reference import random

STORED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "f16", "bf16", "f32")
SEARCHED = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
ROWS, K = 48, 512
BYTE_ROWS = 64
NUMBERS = ("bell", "sizes", "grid", "sparse", "offset")
#: Those whose scales f16 holds: llama.cpp stores others in the K formats as infinities.
ORDINARY = ("bell", "grid", "sparse", "offset")


def _bell(seed: int) -> np.ndarray:
    """Near to normal, float32: sums of four whole numbers, exact in any order."""
    words = random.words(4 * ROWS * K, seed, 0, 0).reshape(4, ROWS, K) >> np.uint64(12)
    whole = words.astype(np.int64).sum(axis=0) - 2 * 2**20
    return (whole.astype(np.float64) * 1.75 * 2.0**-20).astype(np.float32)


def numbers(name: str) -> np.ndarray:
    """Rows to store; no zero is negative, since the sign of a minimum that is zero is not the package's to say."""
    x = _bell(NUMBERS.index(name) + 1)
    row = np.arange(ROWS)[:, None]
    if name == "sizes":  # from where reciprocals of scales still fit to where scales leave f16
        x = np.ldexp(x, (row * 3 - 118).astype(np.int32))
    elif name == "grid":  # ties between codes, and for the largest magnitude
        x = np.rint(x * 4) / 4
    elif name == "sparse":
        x = np.where(np.abs(x) > 1.5, x, 0)
    elif name == "offset":
        x = x * np.float32(0.125) + np.where(row % 2, 1, -1)
    return x.astype(np.float32) + np.float32(0)


def stored_bytes(name: str) -> np.ndarray:
    """Any bytes, as rows of a format."""
    length = FORMATS[name].row_bytes(K)
    words = random.words(BYTE_ROWS * length, FORMATS[name].code, 1, 0)
    return (words >> np.uint64(24)).astype(np.uint8).reshape(BYTE_ROWS, length)


def digest(x: np.ndarray) -> str:
    """Of the bytes; every NaN counts as the same one."""
    x = np.ascontiguousarray(x)
    if x.dtype == np.float32:
        x = np.where(np.isnan(x), np.float32(np.nan), x)
    return hashlib.sha256(x.tobytes()).hexdigest()
