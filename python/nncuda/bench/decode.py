"""Choosing the next token."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..device import Context
from .work import Bar, Floor, Side, Tensors, Work, cold, constant, normal, side


def _sampling(kind: str, rows: int, vocab: int, floor: Floor | None, bar: Bar, peer: str, cache: float) -> Work:
    """`kind` is "top-p 0.9" or "top-k 50". The two sides draw different tokens, so nothing is compared."""

    def ours(ctx: Context, t: Tensors) -> Side:
        ids, temperature = ctx.empty((rows,), "i32"), constant(ctx, *[1.0] * rows)
        seeds, steps = ctx.tensor(np.arange(rows, dtype=np.int64)), ctx.tensor(np.zeros(rows, np.int32))
        if kind.startswith("top-p"):
            top_p = constant(ctx, *[0.9] * rows)
            return side(lambda: kernels.topp_sample(t["logits"], temperature, None, top_p, seeds, steps, ids=ids))
        top_k = ctx.tensor(np.full(rows, min(50, vocab), np.int32))
        return side(lambda: kernels.topk_sample(t["logits"], temperature, top_k, seeds, steps, ids=ids))

    needed = 4.0 * rows * vocab
    return Work(
        group="decode",
        name=f"{kind} of {rows}x{vocab}",
        inputs=lambda ctx, seed: {"logits": normal(ctx, seed, "f32", rows, vocab, std=2.0)},
        ours=ours,
        flops=8.0 * rows * vocab,
        bytes=needed,
        floor=floor,
        bar=bar,
        peer=peer,
        copies=cold(needed, cache),
    )


def top_p(rows: int, vocab: int, floor: Floor | None, bar: Bar, peer: str, cache: float = 0) -> Work:
    return _sampling("top-p 0.9", rows, vocab, floor, bar, peer, cache)


def top_k(rows: int, vocab: int, floor: Floor | None, bar: Bar, peer: str, cache: float = 0) -> Work:
    return _sampling("top-k 50", rows, vocab, floor, bar, peer, cache)
