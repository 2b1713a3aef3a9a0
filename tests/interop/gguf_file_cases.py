"""What stands in the GGUF file that the `gguf` package wrote, for both sides of the comparison."""

from __future__ import annotations

import numpy as np

from nncuda.formats.block_formats import FORMATS

SCALARS = {
    "u8": 200,
    "i8": -100,
    "u16": 60000,
    "i16": -30000,
    "u32": 2**32 - 1,
    "i32": -(2**31),
    "f32": 0.5,
    "bool": True,
    "string": "ünï 🙂",
    "u64": 2**64 - 1,
    "i64": -(2**63),
    "f64": 0.1,
}
ARRAYS = {"strings": ["a", "", "日本"], "whole": [1, -2, 3], "fractions": [0.5, -0.25], "truths": [True, False]}


def tensors() -> dict[str, tuple[str, tuple[int, ...], np.ndarray]]:
    """Format, shape and bytes of each tensor by name: bytes of any kind, since nothing reads them as numbers here."""
    random = np.random.default_rng(6)
    made = {}
    for name, entry in FORMATS.items():
        shape = (3, 2 * entry.elements)
        made[f"{name}.weight"] = name, shape, random.integers(0, 256, 3 * entry.row_bytes(shape[1]), np.uint8)
    made["vector"] = "f32", (5,), np.arange(5, dtype="<f4").view(np.uint8)
    made["experts"] = "q8_0", (2, 3, 32), random.integers(0, 256, 2 * 3 * 34, np.uint8)
    return made
