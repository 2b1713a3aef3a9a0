"""What is measured: each work with its operations, its bytes, the ceiling it runs against and the bar it must reach.

A work makes its inputs once from NumPy, so that both sides compute the same thing, and gives back a call without
arguments and a way to read the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

import numpy as np

from .. import kernels
from ..context import Context
from ..tensor import Tensor

Array = np.ndarray
Floor = Literal["fma_f32", "dot_bf16", "read", "copy"]


@dataclass(frozen=True)
class Side:
    """One side of a comparison, ready to run; `result` gives what the last call computed as float32 arrays."""

    run: Callable[[], object]
    result: Callable[[], list[Array]]


@dataclass(frozen=True)
class Work:
    """One line of the benchmark.

    `flops` and `bytes` are what the work needs at least. `times_peer` is the least ratio of the peer's time to ours,
    `share` the least share of the floor; None where none is asked for. `peer` names a function of the peer's module
    with the same inputs.
    """

    group: str
    name: str
    inputs: Callable[[np.random.Generator], dict[str, Array]]
    ours: Callable[[Context, dict[str, Array]], Side]
    peer: str
    peer_options: dict[str, object]
    flops: float
    bytes: float
    floor: Floor
    times_peer: float | None = None
    share: float | None = None


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)


def _read(*tensors: Tensor) -> Callable[[], list[Array]]:
    return lambda: [np.asarray(t.numpy(), dtype=np.float32) for t in tensors]


def _gemm(m: int, k: int, n: int, dtype: str) -> Work:
    def inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {"x": _normal(rng, m, k), "w": _normal(rng, n, k)}

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        x, w = (_to(ctx, arrays[name], dtype) for name in ("x", "w"))
        y = ctx.empty((m, n), dtype)
        return Side(lambda: kernels.gemm(x, w, c=y, trans_b=True), _read(y))

    size = 4 if dtype == "f32" else 2
    return Work(
        group=f"products {dtype}",
        name=f"{m}x{k}x{n}",
        inputs=inputs,
        ours=ours,
        peer="linear",
        peer_options={"dtype": dtype},
        flops=2.0 * m * k * n,
        bytes=float(size * (m * k + n * k + m * n)),
        floor="fma_f32" if dtype == "f32" else "dot_bf16",
        times_peer=1.0 if dtype == "f32" else 0.95,
    )


_COLD_BYTES = 3 << 29  # weights in rotation: far beyond any cache


def _gemv(k: int, n: int, dtype: str) -> Work:
    size = 4 if dtype == "f32" else 2
    copies = max(2, _COLD_BYTES // (k * n * size))

    def inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {"x": _normal(rng, 1, k), "w": _normal(rng, n, k)}

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        x = _to(ctx, arrays["x"], dtype)
        weights = cycle([_to(ctx, arrays["w"], dtype) for _ in range(copies)])
        y = ctx.empty((1, n), dtype)
        return Side(lambda: kernels.gemm(x, next(weights), c=y, trans_b=True), _read(y))

    return Work(
        group=f"one-row products, cold weights, {dtype}",
        name=f"1x{k}x{n}",
        inputs=inputs,
        ours=ours,
        peer="linear",
        peer_options={"dtype": dtype, "copies": copies},
        flops=2.0 * k * n,
        bytes=float(size * k * n),
        floor="read",
        share=0.80,
    )


def _attention(tokens: int, backward: bool) -> Work:
    heads, dim = 12, 64

    def inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {name: _normal(rng, 1, tokens, heads, dim) for name in ("q", "k", "v", "dout")}

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        q, k, v, dout = (ctx.tensor(arrays[name].reshape(tokens, heads, dim)) for name in ("q", "k", "v", "dout"))
        out, lse = ctx.empty((tokens, heads, dim)), ctx.empty((1, heads, tokens))
        gradients = {name: ctx.empty((tokens, heads, dim)) for name in ("dq", "dk", "dv")}

        def run() -> None:
            kernels.flash_attention(q, k, v, out=out, lse=lse, batch=1, scale=dim**-0.5, causal=True)
            if backward:
                kernels.flash_attention_backward(
                    dout, q, k, v, out, lse, **gradients, batch=1, scale=dim**-0.5, causal=True
                )

        return Side(run, _read(out, *(gradients.values() if backward else ())))

    forward = 4.0 * dim * heads * tokens * (tokens + 1) / 2
    return Work(
        group="flash_attention causal f32, 12 heads x 64",
        name=f"T {tokens} " + ("forward + backward" if backward else "forward"),
        inputs=inputs,
        ours=ours,
        peer="attention",
        peer_options={"backward": backward},
        flops=forward * (3.5 if backward else 1.0),
        bytes=4.0 * tokens * heads * dim * (12 if backward else 4),
        floor="fma_f32",
        times_peer=1.4,
        share=0.60 if tokens >= 2048 else None,
    )


def _softmax() -> Work:
    rows, cols = 2048, 32000

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        x, y = ctx.tensor(arrays["x"]), ctx.empty((rows, cols))
        return Side(lambda: kernels.softmax(x, y=y), _read(y))

    return Work(
        "rows f32", f"softmax {rows}x{cols}", lambda rng: {"x": _normal(rng, rows, cols)}, ours, "softmax", {},
        flops=8.0 * rows * cols, bytes=8.0 * rows * cols, floor="copy", times_peer=1.5,
    )  # fmt: skip


def _cross_entropy() -> Work:
    rows, vocab = 512, 32000

    def inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {"logits": _normal(rng, rows, vocab), "targets": rng.integers(0, vocab, rows, dtype=np.int32)}

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        logits, targets = ctx.tensor(arrays["logits"]), ctx.tensor(arrays["targets"])
        lse, total, count = ctx.empty((rows,)), ctx.empty((1,)), ctx.empty((1,), "i32")
        scale, dlogits = ctx.tensor(np.full(1, 1 / rows, np.float32)), ctx.empty((rows, vocab))

        def run() -> None:
            kernels.cross_entropy_forward(logits, targets, lse=lse, loss_sum=total, count=count, ignore_index=-100)
            kernels.cross_entropy_backward(logits, targets, lse, scale, dlogits=dlogits, ignore_index=-100)

        return Side(run, _read(dlogits))

    return Work(
        "rows f32", f"cross-entropy forward + backward {rows}x{vocab}", inputs, ours, "cross_entropy", {},
        flops=16.0 * rows * vocab, bytes=12.0 * rows * vocab, floor="copy", times_peer=2.5,
    )  # fmt: skip


def _rmsnorm() -> Work:
    rows, cols = 2048, 768

    def inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {"x": _normal(rng, rows, cols), "dy": _normal(rng, rows, cols), "weight": 1 + 0.1 * _normal(rng, cols)}

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        x, dy, weight = (ctx.tensor(arrays[name]) for name in ("x", "dy", "weight"))
        y, dx, rstd = ctx.empty((rows, cols)), ctx.empty((rows, cols)), ctx.empty((rows,))
        dweight = ctx.zeros((cols,))

        def run() -> None:
            kernels.rmsnorm(x, weight, y=y, rstd=rstd, eps=1e-5)
            kernels.rmsnorm_backward(dy, x, weight, rstd, None, dweight, dx=dx)

        return Side(run, _read(y, dx))

    return Work(
        "rows f32", f"rmsnorm forward + backward {rows}x{cols}", inputs, ours, "rmsnorm", {},
        flops=12.0 * rows * cols, bytes=20.0 * rows * cols, floor="copy", times_peer=8.0,
    )  # fmt: skip


def _swiglu() -> Work:
    rows, dim = 2048, 6144

    def inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {"gate": _normal(rng, rows, dim), "up": _normal(rng, rows, dim)}

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        gate, up, y = ctx.tensor(arrays["gate"]), ctx.tensor(arrays["up"]), ctx.empty((rows, dim))
        return Side(lambda: kernels.swiglu(gate, up, y=y), _read(y))

    return Work(
        "element-wise f32", f"silu(gate)*up {rows}x{dim}", inputs, ours, "swiglu", {},
        flops=7.0 * rows * dim, bytes=12.0 * rows * dim, floor="copy", share=0.80,
    )  # fmt: skip


def _add() -> Work:
    n = 1 << 25

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        a, b, y = ctx.tensor(arrays["a"]), ctx.tensor(arrays["b"]), ctx.empty((n,))
        return Side(lambda: kernels.add(a, b, y=y), _read(y))

    return Work(
        "element-wise f32", "add of 2^25", lambda rng: {"a": _normal(rng, n), "b": _normal(rng, n)}, ours, "add", {},
        flops=float(n), bytes=12.0 * n, floor="copy", share=0.80,
    )  # fmt: skip


def _rope() -> Work:
    tokens, heads, dim = 32768, 12, 64

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        x, y = ctx.tensor(arrays["x"]), ctx.empty((tokens, heads, dim))
        cosine, sine = kernels.rope_freqs(ctx=ctx, first=0, positions=tokens, head_dim=dim, base=10000.0, ntk_alpha=1.0)
        positions = ctx.tensor(np.arange(tokens, dtype=np.int32))
        return Side(lambda: kernels.rope_forward(x, cosine, sine, positions, y=y, layout=0), _read(y))

    return Work(
        "element-wise f32", f"rope {tokens}x{heads}x{dim}", lambda rng: {"x": _normal(rng, tokens, heads, dim)},
        ours, "rope", {},
        flops=3.0 * tokens * heads * dim, bytes=8.0 * tokens * heads * dim + 4.0 * tokens * dim, floor="copy",
        share=0.80,
    )  # fmt: skip


def _adamw() -> Work:
    n = 50_000_000

    def inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {"param": _normal(rng, n), "grad": 0.01 * _normal(rng, n)}

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        param, grad, m, v = ctx.tensor(arrays["param"]), ctx.tensor(arrays["grad"]), ctx.zeros((n,)), ctx.zeros((n,))
        lr, step = ctx.tensor(np.full(1, 1e-3, np.float32)), ctx.tensor(np.ones(1, np.int32))

        def run() -> None:
            kernels.adamw_step(
                grad, lr, step, None, None, param, m, v,
                n_decay=n, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, dtype="f32",
            )  # fmt: skip

        return Side(run, _read(param))

    return Work(
        "optimizer", "AdamW, 50 M parameters", inputs, ours, "adamw", {},
        flops=15.0 * n, bytes=28.0 * n, floor="copy", times_peer=1.0,
    )  # fmt: skip


def _top_p() -> Work:
    rows, vocab = 8, 32000

    def ours(ctx: Context, arrays: dict[str, Array]) -> Side:
        logits, ids = ctx.tensor(arrays["logits"]), ctx.empty((rows,), "i32")
        temperature, top_p = (ctx.tensor(np.full(rows, value, np.float32)) for value in (1.0, 0.9))
        seeds, steps = ctx.tensor(np.arange(rows, dtype=np.int64)), ctx.tensor(np.zeros(rows, np.int32))
        return Side(lambda: kernels.topp_sample(logits, temperature, None, top_p, seeds, steps, ids=ids), list)

    return Work(
        "decode", f"top-p 0.9 of {rows}x{vocab}", lambda rng: {"logits": 2 * _normal(rng, rows, vocab)}, ours, "top_p",
        {}, flops=8.0 * rows * vocab, bytes=4.0 * rows * vocab, floor="read", times_peer=5.0,
    )  # fmt: skip


def _to(ctx: Context, array: Array, dtype: str) -> Tensor:
    tensor = ctx.tensor(array)
    return tensor if dtype == "f32" else kernels.cast(tensor, dtype_y=dtype)


def catalogue() -> list[Work]:
    """Every work, in the order of the table in the README."""
    products = [(2048, 768, 768), (2048, 768, 6144), (2048, 6144, 768), (512, 768, 32000), (2048, 2048, 2048)]
    rows = [(768, 6144), (2048, 5632), (2048, 32000)]
    return [
        *(_gemm(m, k, n, dtype) for dtype in ("f32", "bf16") for m, k, n in products),
        *(_gemv(k, n, dtype) for dtype in ("f32", "bf16") for k, n in rows),
        *(_attention(tokens, backward) for tokens in (512, 2048) for backward in (False, True)),
        _softmax(),
        _cross_entropy(),
        _rmsnorm(),
        _swiglu(),
        _rope(),
        _add(),
        _adamw(),
        _top_p(),
    ]
