"""Causal attention, forward and with its gradients."""

from __future__ import annotations

from .. import kernels
from ..device import Context
from .work import SIZES, TOLERANCES, Bar, Floor, Side, Tensors, Work, normal, side


def attention(
    tokens: int, heads: int, kv_heads: int, dim: int, dtype: str, backward: bool, floor: Floor | None, bar: Bar
) -> Work:
    def inputs(ctx: Context, seed: int) -> Tensors:
        heads_of = {"q": heads, "k": kv_heads, "v": kv_heads, "dout": heads}
        return {
            name: normal(ctx, seed, dtype, tokens, count, dim, stream=i)
            for i, (name, count) in enumerate(heads_of.items())
        }

    def ours(ctx: Context, t: Tensors) -> Side:
        q, k, v = t["q"], t["k"], t["v"]
        out, lse = ctx.empty(q.shape, dtype), ctx.empty((1, heads, tokens))
        gradients = {name: ctx.empty(like.shape, dtype) for name, like in (("dq", q), ("dk", k), ("dv", v))}

        def run() -> None:
            kernels.flash_attention(q, k, v, out=out, lse=lse, batch=1, scale=dim**-0.5, causal=True)
            if backward:
                kernels.flash_attention_backward(
                    t["dout"], q, k, v, out, lse, **gradients, batch=1, scale=dim**-0.5, causal=True
                )

        return side(run, out, *(gradients.values() if backward else ()))

    shared = f" over {kv_heads} of keys" if kv_heads != heads else ""
    forward = 4.0 * dim * heads * tokens * (tokens + 1) / 2
    return Work(
        group=f"flash_attention causal {dtype}, {heads} heads{shared} x {dim}",
        name=f"T {tokens} " + ("forward + backward" if backward else "forward"),
        inputs=inputs,
        ours=ours,
        flops=forward * (3.5 if backward else 1.0),
        bytes=float(SIZES[dtype] * tokens * dim * (heads + kv_heads) * (6 if backward else 2)),
        floor=floor,
        bar=bar,
        peer="attention",
        peer_options={"backward": backward},
        tolerance=TOLERANCES[dtype],
    )
