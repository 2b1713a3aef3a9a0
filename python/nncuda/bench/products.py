"""Matrix products: dense, of one row, and of ragged groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .. import kernels
from ..device import Context
from .stored import product
from .work import SIZES, TOLERANCES, Bar, Floor, Side, Tensors, Work, cold, normal, side


def gemm(m: int, k: int, n: int, dtype: str, floor: Floor | None, bar: Bar, cache: float = 0, calls: int = 1) -> Work:
    """y = x Wᵀ. With a `cache` to go beyond, it is for a GPU, where both sides run as graphs."""

    def inputs(ctx: Context, seed: int) -> Tensors:
        return {"x": normal(ctx, seed, dtype, m, k), "w": normal(ctx, seed, dtype, n, k, stream=1)}

    def ours(ctx: Context, t: Tensors) -> Side:
        y = ctx.empty((m, n), t["x"].dtype)
        return side(lambda: kernels.gemm(t["x"], t["w"], c=y, trans_b=True), y)

    needed = float(SIZES[dtype] * (m * k + n * k + m * n))
    return Work(
        group=f"products {dtype}",
        name=f"{m}x{k}x{n}",
        inputs=inputs,
        ours=ours,
        flops=2.0 * m * k * n,
        bytes=needed,
        floor=floor,
        bar=bar,
        peer="linear",
        tolerance=TOLERANCES[dtype],
        copies=cold(needed, cache),
        captured=cache > 0,
        calls=calls,
        tf32=dtype == "tf32",
    )


def gemv(k: int, n: int, dtype: str, cache: float) -> Work:
    """One row by weights that no cache holds, which are all that is read."""
    needed = float(SIZES[dtype] * k * n)
    return replace(
        gemm(1, k, n, dtype, "read", Bar(share=0.80)),
        group=f"one-row products, cold weights, {dtype}",
        bytes=needed,
        copies=max(2, cold(needed, cache)),
    )


def stored(m: int, k: int, n: int, form: str, bar: Bar, cache: float) -> Work:
    """y = x Wᵀ with W in a format of GGUF files, for a GPU; of few rows W is all that is read."""
    work = product(m, k, n, form, "copy" if m == 1 else None, bar)
    needed = work.bytes + 4.0 * m * (k + n)
    return replace(work, bytes=needed, copies=cold(work.bytes, cache), captured=cache > 0)


def routed(tokens: int, top_k: int, experts: int, seed: int) -> np.ndarray:
    """Row offsets [experts+1] of tokens that chose `top_k` different experts each, some experts liked better."""
    rng = np.random.default_rng(seed)
    liked = rng.gumbel(size=(tokens, experts)) + 0.3 * rng.standard_normal(experts)
    chosen = np.argpartition(-liked, top_k - 1, axis=1)[:, :top_k]
    counts = np.bincount(chosen.ravel(), minlength=experts)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def grouped(
    kind: str, tokens: int, top_k: int, experts: int, k: int, n: int, bar: Bar, precision: str = "bf16"
) -> Work:
    """The products of the experts' layer k -> n of bf16: "forward", or the gradients of its "inputs" or "weights".

    In ``precision`` "fp8" factors are rounded to 8 bits first, which is timed with the products.
    """
    rows = tokens * top_k
    x, dy, w = (rows, k), (rows, n), (experts, n, k)
    factors = {"forward": (x, w), "inputs": (dy, w), "weights": (dy, x)}[kind]
    out = {"forward": dy, "inputs": x, "weights": w}[kind]
    codes = precision == "fp8"
    product = kernels.grouped_gemm_fp8 if codes else kernels.grouped_gemm
    gradient = kernels.grouped_gemm_wgrad_fp8 if codes else kernels.grouped_gemm_wgrad

    def inputs(ctx: Context, seed: int) -> Tensors:
        a, b = (normal(ctx, seed, "bf16", *shape, stream=i) for i, shape in enumerate(factors))
        return {"a": a, "b": b, "offsets": ctx.tensor(routed(tokens, top_k, experts, seed))}

    def ours(ctx: Context, t: Tensors) -> Side:
        y = ctx.empty(out, "bf16")
        if kind == "weights":
            return side(lambda: gradient(t["a"], t["b"], t["offsets"], c=y), y)
        return side(lambda: product(t["a"], t["b"], t["offsets"], c=y, trans_b=kind == "forward"), y)

    label = "forward" if kind == "forward" else f"gradient of {kind}"
    return Work(
        group=f"grouped_gemm {precision}, {tokens} tokens, {experts} experts, top-{top_k}",
        name=f"{k} -> {n}, {label}",
        inputs=inputs,
        ours=ours,
        flops=2.0 * rows * k * n,
        bytes=2.0 * (rows * k + rows * n + experts * k * n),
        bar=bar,
        peer="grouped",
        peer_options={"kind": kind},
        tolerance=TOLERANCES[precision],
    )
