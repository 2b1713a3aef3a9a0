"""Products with ternary weights on a GPU, beside dense ones in bf16."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .. import kernels
from ..device import Context
from .work import TOLERANCES, Bar, Side, Tensors, Work, cold, side

_DIFFERENT_ROWS = 64  # what the weights are decides no time


def product(m: int, k: int, n: int, bar: Bar, cache: float, calls: int = 1) -> Work:
    """y = x Wᵀ with W of -1, 0 and 1 and x of whole numbers to 127, so that the peer's bf16 factors are the same
    numbers. `cache`: bytes of packed weights that take turns; 0 for the same ones again, `calls` times."""

    def inputs(ctx: Context, seed: int) -> Tensors:
        rng = np.random.default_rng(seed)
        codes = rng.integers(-127, 128, (m, k), np.int8)
        few = rng.integers(-1, 2, (min(n, _DIFFERENT_ROWS), k), np.int8)
        weights = ctx.tensor(np.tile(few, (-(-n // len(few)), 1))[:n])
        dense = np.tile(few.astype(ml_dtypes.bfloat16), (-(-n // len(few)), 1))[:n]
        stored, row_bytes = -(-n // 16) * 16, -(-k // 16) * 4
        return {
            "codes": ctx.tensor(codes),
            "scale": ctx.tensor(np.ones(m, np.float32)),
            "packed": kernels.ternary_pack(weights, stored=stored, row_bytes=row_bytes),
            "w_scale": ctx.tensor(np.ones(n, np.float32)),
            "x": ctx.tensor(codes.astype(ml_dtypes.bfloat16)),
            "w": ctx.tensor(dense),
        }

    def ours(ctx: Context, t: Tensors) -> Side:
        y = ctx.empty((m, n), "bf16")
        return side(lambda: kernels.bitlinear(t["codes"], t["scale"], t["packed"], t["w_scale"], n=n, y=y), y)

    needed = n * k / 4
    return Work(
        group=f"products with ternary weights, {'cold' if cache else 'warm'}",
        name=f"{m}x{k}x{n}",
        inputs=inputs,
        ours=ours,
        flops=2.0 * m * k * n,
        bytes=needed + m * (k + 2.0 * n),
        floor="copy" if cache and m == 1 else None,
        bar=bar,
        peer="linear",
        tolerance=TOLERANCES["bf16"],
        copies=cold(needed, cache) if cache else 1,
        captured=True,
        calls=calls,
    )
