"""Ternary weights and stored bytes that this library, the gguf package and transformers are given alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nncuda.formats.block_formats import TERNARY_FORMATS
from nncuda.reference import random

RECORD = Path(__file__).parent / "recorded" / "ternary_by_others.json"
ROWS, COLUMNS = 40, 768
#: f16 holds it, so that the package's blocks and ours have the same scale.
SCALE = 0.37109375
BLOCKS = ("tq1_0", "tq2_0")


def codes() -> np.ndarray:
    """i8 [ROWS, COLUMNS], every third of each kind or so."""
    words = random.words(ROWS * COLUMNS, 5, 0, 0).reshape(ROWS, COLUMNS)
    return ((words >> np.uint64(8)) % np.uint64(3)).astype(np.int8) - np.int8(1)


def stored_bytes(name: str) -> np.ndarray:
    """Any bytes that are weights in a format, u8 [ROWS, row bytes], the scale of every block being 1."""
    entry = TERNARY_FORMATS[name]
    blocks = ROWS * COLUMNS // entry.elements
    words = random.words(blocks * entry.bytes, entry.gguf_type, 0, 0)
    data = (words >> np.uint64(24)).astype(np.uint8).reshape(blocks, entry.bytes)
    if name == "tq2_0":
        data &= ~(data >> 1 & 0x55)  # of two bits 3 the lower goes
    data[:, -2:] = np.array([1], "<f2").view(np.uint8)
    return data.reshape(ROWS, -1)
