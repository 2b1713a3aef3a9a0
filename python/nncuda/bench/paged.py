"""Attention over caches: over pages, as the inference engine calls it, and over one piece, as models that train do."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..device import Context
from ..formats.block_formats import FORMATS
from .work import SIZES, TOLERANCES, Bar, Floor, Side, Tensors, Work, cold, normal, side

_PAGE = 128


def _work(
    kind: str,
    keys: int,
    heads: int,
    kv_heads: int,
    dim: int,
    floor: Floor | None,
    bar: Bar,
    cache: float = 0,
    calls: int = 1,
    form: str = "f16",
) -> Work:
    """Pages in any order; `kind` is "decode", one query after `keys` of them, or "prefill", a query a key."""
    count = -(-keys // _PAGE)
    page_bytes = kv_heads * _PAGE * FORMATS[form].row_bytes(dim)
    queries = keys if kind == "prefill" else 1

    def integers(ctx: Context, *values: int) -> object:
        return ctx.tensor(np.array(values, np.int32))

    def inputs(ctx: Context, seed: int) -> Tensors:
        table = np.random.default_rng(seed).permutation(count).astype(np.int32)[None]
        found = {
            "q": normal(ctx, seed, "f32", queries, heads, dim),
            "offsets": integers(ctx, 0, queries),
            "lengths": integers(ctx, keys),
            "table": ctx.tensor(table),
            "k": ctx.zeros((count, page_bytes), "u8"),
            "v": ctx.zeros((count, page_bytes), "u8"),
        }
        rows = (normal(ctx, seed, "f32", keys, kv_heads, dim, stream=stream) for stream in (1, 2))
        whole = integers(ctx, 0, keys)
        kernels.kv_append_paged(*rows, whole, found["lengths"], found["table"], found["k"], found["v"], format=form)
        return found

    def ours(ctx: Context, t: Tensors) -> Side:
        q, pages = t["q"], (t["k"], t["v"])
        out = ctx.empty(q.shape)
        options = {"out": out, "kv_heads": kv_heads, "format": form}
        if kind == "prefill":
            where = t["offsets"], t["lengths"], t["table"]
            return side(lambda: kernels.flash_attention_paged(q, *pages, *where, **options), out)
        return side(lambda: kernels.attention_decode_paged(q, *pages, t["lengths"], t["table"], **options), out)

    stored = 2.0 * keys * kv_heads * FORMATS[form].row_bytes(dim)
    pairs = keys * (keys + 1) / 2 if kind == "prefill" else keys
    return Work(
        group=f"paged attention {form}, {heads} heads over {kv_heads} of keys x {dim}",
        name=f"{kind} {keys}",
        inputs=inputs,
        ours=ours,
        flops=4.0 * heads * dim * pairs,
        bytes=stored + 8.0 * queries * heads * dim,
        floor=floor,
        bar=bar,
        tolerance=TOLERANCES["f32"],
        copies=1 if kind == "prefill" else cold(stored, cache),
        captured=True,  # a launch takes longer than a step
        calls=calls,
    )


def decode(
    keys: int, heads: int, kv_heads: int, dim: int, floor: Floor | None, bar: Bar, cache: float, form: str = "f16"
) -> Work:
    return _work("decode", keys, heads, kv_heads, dim, floor, bar, cache, form=form)


def decode_one_piece(
    keys: int, heads: int, kv_heads: int, dim: int, dtype: str, floor: Floor, bar: Bar, cache: float
) -> Work:
    """One query after `keys` keys, in a cache [1, keys, kv_heads, dim]."""

    def inputs(ctx: Context, seed: int) -> Tensors:
        k, v = (normal(ctx, seed, dtype, 1, keys, kv_heads, dim, stream=stream) for stream in (1, 2))
        lengths = ctx.tensor(np.array([keys], np.int32))
        return {"q": normal(ctx, seed, dtype, 1, heads, dim), "k": k, "v": v, "lengths": lengths}

    def ours(ctx: Context, t: Tensors) -> Side:
        out = ctx.empty(t["q"].shape, dtype)
        return side(lambda: kernels.attention_decode(t["q"], t["k"], t["v"], t["lengths"], out=out), out)

    stored = 2.0 * keys * kv_heads * dim * SIZES[dtype]
    return Work(
        group=f"attention over one piece {dtype}, {heads} heads over {kv_heads} of keys x {dim}",
        name=f"decode {keys}",
        inputs=inputs,
        ours=ours,
        flops=4.0 * heads * dim * keys,
        bytes=stored + 2.0 * heads * dim * SIZES[dtype],
        floor=floor,
        bar=bar,
        tolerance=TOLERANCES[dtype],
        copies=cold(stored, cache),
        captured=True,
    )


def prefill(tokens: int, heads: int, kv_heads: int, dim: int, floor: Floor | None, bar: Bar, calls: int = 1) -> Work:
    return _work("prefill", tokens, heads, kv_heads, dim, floor, bar, calls=calls)
