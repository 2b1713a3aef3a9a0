"""Products with stored weights, and with ternary ones."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..device import Context
from ..formats.block_formats import FORMATS
from .work import Bar, Floor, Side, Tensors, Work, cold, normal, side

_DIFFERENT_ROWS = 64  # making them takes its time; more would not change how fast they are read


def product(m: int, k: int, n: int, name: str, floor: Floor | None, bar: Bar, cache: float = 0) -> Work:
    """y = x Wᵀ with weights in the format `name`; cold weights where a `cache` is named that they go beyond.

    A name that ends with _r16 is that of a format whose rows lie side by side, as the engine has them on a CPU.
    """
    plain = name.removesuffix("_r16")
    row_bytes = FORMATS[plain].row_bytes(k)

    def inputs(ctx: Context, seed: int) -> Tensors:
        few = normal(ctx, seed, "f32", _DIFFERENT_ROWS, k, std=0.02, stream=1)
        quantized = kernels.quantize(few, format=plain, row_bytes=row_bytes)
        if plain != name:
            quantized = kernels.interleave_rows(quantized, format=plain, k=k)
        stored = quantized.numpy()
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


def ternary(m: int, k: int, n: int, floor: Floor, bar: Bar, cache: float = 0) -> Work:
    """A linear layer with packed ternary weights on activations in 8 bits; cold weights as in `product`."""
    stored, row_bytes = -(-n // 16) * 16, -(-k // 16) * 4

    def inputs(ctx: Context, seed: int) -> Tensors:
        codes, _ = kernels.ternary_quantize(normal(ctx, seed, "f32", _DIFFERENT_ROWS, k, std=0.02, stream=1))
        packed = kernels.ternary_pack(codes, stored=_DIFFERENT_ROWS, row_bytes=row_bytes).numpy()
        w = np.tile(packed, (-(-stored // _DIFFERENT_ROWS), 1))[:stored]
        left, scale = kernels.act_quant_i8(normal(ctx, seed, "f32", m, k))
        w_scale = ctx.tensor(np.full(n, 0.02, np.float32))
        return {"codes": left, "scale": scale, "w": ctx.tensor(np.ascontiguousarray(w)), "w_scale": w_scale}

    def ours(ctx: Context, t: Tensors) -> Side:
        y = ctx.empty((m, n), "f32")
        return side(lambda: kernels.bitlinear(t["codes"], t["scale"], t["w"], t["w_scale"], n=n, y=y), y)

    needed = float(stored * row_bytes)
    return Work(
        group="products with ternary weights" + (", cold" if cache else ""),
        name=f"{m}x{k}x{n}",
        inputs=inputs,
        ours=ours,
        flops=2.0 * m * k * n,
        bytes=needed,
        floor=floor,
        bar=bar,
        copies=max(2, cold(needed, cache)) if cache else 1,
    )
