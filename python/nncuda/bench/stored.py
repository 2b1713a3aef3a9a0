"""Products with stored weights, and with ternary ones."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..device import INSTRUCTION_SETS, Context, Tensor
from ..formats.block_formats import FORMATS, INTERLEAVED, INTERLEAVED_ROWS
from .work import Bar, Floor, Side, Tensors, Work, cold, normal, side

_DIFFERENT_ROWS = 64  # making them takes its time; more would not change how fast they are read


def _weights(ctx: Context, seed: int, name: str, n: int, k: int) -> Tensor:
    """A matrix [n, k] in a format, of some rows again and again."""
    stored = _stored(ctx, seed, name, k)
    return ctx.tensor(np.ascontiguousarray(np.tile(stored, (-(-n // _DIFFERENT_ROWS), 1))[:n]))


def _stored(ctx: Context, seed: int, name: str, k: int) -> np.ndarray:
    """Some rows in a format; any codes, with scales of about 2^-7, where numbers are not stored in it."""
    entry = FORMATS[name]
    if entry.stores:
        few = normal(ctx, seed, "f32", _DIFFERENT_ROWS, k, std=0.02, stream=1)
        return kernels.quantize(few, format=entry.code, row_bytes=entry.row_bytes(k)).numpy()
    rows = np.random.default_rng(seed).integers(0, 256, (_DIFFERENT_ROWS, entry.row_bytes(k)), np.uint8)
    scale = np.array([121], np.uint8) if name == "mxfp4" else np.array([2.0**-7], np.float16).view(np.uint8)
    rows.reshape(-1, entry.bytes)[:, : len(scale)] = scale
    return rows


def product(m: int, k: int, n: int, name: str, floor: Floor | None, bar: Bar, cache: float = 0) -> Work:
    """y = x Wᵀ with weights in the format `name`, in the form in which the engine of this instruction set keeps them:
    with sixteen rows side by side where there is that form. Cold weights where a `cache` is named that they go beyond.
    """
    row_bytes, code = FORMATS[name].row_bytes(k), FORMATS[name].code

    def side_by_side(ctx: Context) -> bool:
        return ctx.isa != INSTRUCTION_SETS[0] and code in INTERLEAVED and n % INTERLEAVED_ROWS == 0

    def inputs(ctx: Context, seed: int) -> Tensors:
        w = _weights(ctx, seed, name, n, k)
        if side_by_side(ctx):
            w = kernels.interleave_rows(w, format=code, k=k)
        return {"x": normal(ctx, seed, "f32", m, k), "w": w}

    def ours(ctx: Context, t: Tensors) -> Side:
        y = ctx.empty((m, n), "f32")
        form = INTERLEAVED[code] if side_by_side(ctx) else code
        return side(lambda: kernels.gemm_quant(t["x"], t["w"], format=form, y=y), y)

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


def gradient(m: int, k: int, n: int, name: str, dtype: str, floor: Floor | None, bar: Bar) -> Work:
    """dx = dy W with weights [n, k] in the format `name`, as they are stored."""
    row_bytes, code = FORMATS[name].row_bytes(k), FORMATS[name].code

    def inputs(ctx: Context, seed: int) -> Tensors:
        return {"dy": normal(ctx, seed, dtype, m, n), "w": _weights(ctx, seed, name, n, k)}

    def ours(ctx: Context, t: Tensors) -> Side:
        dx = ctx.empty((m, k), dtype)
        return side(lambda: kernels.gemm_quant_backward(t["dy"], t["w"], None, dx, format=code), dx)

    return Work(
        group=f"gradients through stored weights, {name}, {dtype}",
        name=f"{m}x{n}x{k}",
        inputs=inputs,
        ours=ours,
        flops=2.0 * m * k * n,
        bytes=float(row_bytes * n),
        floor=floor,
        bar=bar,
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
