"""Kernels with little work, as decoding a few sequences at hidden 768 calls them: microseconds each, in a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from .work import Bar, Side, Tensors, Work, normal, side

BAR = Bar(seconds=5e-6)


def _work(rows: int, name: str, prepare: Callable[[Context], Callable[[], object]], calls: int) -> Work:
    def ours(ctx: Context, t: Tensors) -> Side:
        return side(prepare(ctx))

    return Work(
        group=f"little work in a graph, {rows} tokens, bf16",
        name=name,
        inputs=lambda ctx, seed: {},
        ours=ours,
        flops=0.0,
        bytes=0.0,
        bar=BAR,
        captured=True,
        calls=calls,
    )


def little(
    rows: int, hidden: int, heads: int, dim: int, experts: int, k: int, ffn: int, cached: int, calls: int
) -> list[Work]:
    """The calls of a decoding step, `calls` of each in one graph."""

    def bf16(ctx: Context, *shape: int) -> Tensor:
        return normal(ctx, 0, "bf16", *shape)

    def rmsnorm(ctx: Context) -> Callable[[], object]:
        x, weight, y = bf16(ctx, rows, hidden), bf16(ctx, hidden), bf16(ctx, rows, hidden)
        return lambda: kernels.rmsnorm(x, weight, eps=1e-5, y=y)

    def rmsnorm_residual(ctx: Context) -> Callable[[], object]:
        x, residual, weight = bf16(ctx, rows, hidden), bf16(ctx, rows, hidden), bf16(ctx, hidden)
        total, y = bf16(ctx, rows, hidden), bf16(ctx, rows, hidden)
        return lambda: kernels.rmsnorm_residual(x, residual, weight, eps=1e-5, sum=total, y=y)

    def rope(ctx: Context) -> Callable[[], object]:
        q, key = bf16(ctx, rows, heads, dim), bf16(ctx, rows, 1, dim)
        cosine, sine = kernels.rope_freqs(ctx=ctx, positions=cached, head_dim=dim)
        positions = ctx.tensor(np.full(rows, cached - 1, np.int32))
        return lambda: kernels.rope_qk(q, key, cosine, sine, positions)

    def append(ctx: Context) -> Callable[[], object]:
        key, value = bf16(ctx, rows, 1, dim), bf16(ctx, rows, 1, dim)
        caches = bf16(ctx, rows, cached, 1, dim), bf16(ctx, rows, cached, 1, dim)
        starts = ctx.tensor(np.full(rows, cached - 1, np.int32))
        return lambda: kernels.kv_append(key, value, starts, *caches, batch=rows)

    def attend(ctx: Context) -> Callable[[], object]:
        q, out = bf16(ctx, rows, heads, dim), bf16(ctx, rows, heads, dim)
        caches = bf16(ctx, rows, cached, 1, dim), bf16(ctx, rows, cached, 1, dim)
        lengths = ctx.tensor(np.full(rows, cached, np.int32))
        return lambda: kernels.attention_decode(q, *caches, lengths, out=out)

    def project(ctx: Context) -> Callable[[], object]:
        x, w, y = bf16(ctx, rows, hidden), bf16(ctx, hidden, hidden), bf16(ctx, rows, hidden)
        return lambda: kernels.gemm(x, w, c=y, trans_b=True)

    def route(ctx: Context) -> Callable[[], object]:
        x, probs = bf16(ctx, rows, experts), ctx.empty((rows, experts))
        weights, indices = ctx.empty((rows, k)), ctx.empty((rows, k), "i32")
        return lambda: kernels.softmax_topk(x, k=k, norm=True, weights=weights, indices=indices, probs=probs)

    def planned(ctx: Context) -> tuple[Callable[[], object], list[Tensor]]:
        chosen = (np.arange(rows)[:, None] + np.arange(k)) % experts
        indices = ctx.tensor(np.ascontiguousarray(chosen, np.int32))
        shapes = (experts,), (experts + 1,), (rows, k), (rows * k,)
        counts, offsets, slot_row, row_slot = (ctx.empty(shape, "i32") for shape in shapes)

        def run() -> object:
            return kernels.moe_plan(
                indices, experts=experts, counts=counts, offsets=offsets, slot_row=slot_row, row_slot=row_slot
            )

        run()
        return run, [slot_row, row_slot]

    def gather(ctx: Context) -> Callable[[], object]:
        (_, (_, row_slot)), x, y = planned(ctx), bf16(ctx, rows, hidden), bf16(ctx, rows * k, hidden)
        return lambda: kernels.moe_gather(x, row_slot, tokens=rows, k=k, y=y)

    def combine(ctx: Context) -> Callable[[], object]:
        (_, (slot_row, _)), y, out = planned(ctx), bf16(ctx, rows * k, hidden), bf16(ctx, rows, hidden)
        weights = normal(ctx, 0, "f32", rows, k)
        return lambda: kernels.moe_combine(y, weights, slot_row, tokens=rows, k=k, out=out)

    def swiglu(ctx: Context) -> Callable[[], object]:
        gate, up, y = (bf16(ctx, rows * k, ffn) for _ in range(3))
        return lambda: kernels.swiglu(gate, up, y=y)

    def add(ctx: Context) -> Callable[[], object]:
        a, b, y = (bf16(ctx, rows, hidden) for _ in range(3))
        return lambda: kernels.add(a, b, y=y)

    made: dict[str, Callable[[Context], Callable[[], object]]] = {
        f"add {rows}x{hidden}": add,
        f"rmsnorm {rows}x{hidden}": rmsnorm,
        f"rmsnorm_residual {rows}x{hidden}": rmsnorm_residual,
        f"gemm {rows}x{hidden}x{hidden}": project,
        f"rope_qk {rows}x{heads}x{dim}": rope,
        f"kv_append {rows}x{dim}": append,
        f"attention_decode {rows}x{heads}x{dim}, {cached} keys": attend,
        f"softmax_topk {rows}x{experts}, {k}": route,
        f"moe_plan {rows}x{k}": lambda ctx: planned(ctx)[0],
        f"moe_gather {rows}x{k}x{hidden}": gather,
        f"swiglu {rows * k}x{ffn}": swiglu,
        f"moe_combine {rows}x{k}x{hidden}": combine,
    }
    return [_work(rows, name, prepare, calls) for name, prepare in made.items()]
