"""Products with stored weights."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..context import Context
from ..formats.block_formats import FORMATS
from .work import Bar, Floor, Side, Tensors, Work, cold, normal, side

_DIFFERENT_ROWS = 64  # the search for scales takes its time; more would not change how fast they are read


def product(m: int, k: int, n: int, name: str, floor: Floor, bar: Bar, cache: float = 0) -> Work:
    """y = x Wᵀ with weights in the format `name`; cold weights where a `cache` is named that they go beyond."""
    row_bytes = FORMATS[name].row_bytes(k)

    def inputs(ctx: Context, seed: int) -> Tensors:
        few = normal(ctx, seed, "f32", _DIFFERENT_ROWS, k, std=0.02, stream=1)
        stored = kernels.quantize(few, format=name, row_bytes=row_bytes).numpy()
        w = np.tile(stored, (-(-n // _DIFFERENT_ROWS), 1))[:n]
        return {"x": normal(ctx, seed, "f32", m, k), "w": ctx.tensor(np.ascontiguousarray(w))}

    def ours(ctx: Context, t: Tensors) -> Side:
        y = ctx.empty((m, n), "f32")
        return side(lambda: kernels.gemm_quant(t["x"], t["w"], format=name, y=y), y)

    needed = float(row_bytes * n)
    return Work(
        group=f"products with stored weights, {name}" + (", cold" if cache else ""),
        name=f"{m}x{k}x{n}",
        inputs=inputs,
        ours=ours,
        flops=2.0 * m * k * n,
        bytes=needed,
        floor=floor,
        bar=bar,
        copies=max(2, cold(needed, cache)) if cache else 1,
    )
