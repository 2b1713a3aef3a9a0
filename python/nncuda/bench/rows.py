"""Kernels that move memory: element by element, row by row, the optimizer, and tokens on their way to the experts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .. import kernels
from ..device import Context
from .work import SIZES, TOLERANCES, Bar, Side, Tensors, Work, cold, constant, normal, side


class Mover:
    """Makes the works of one dtype whose floor is the copy bandwidth; `cache` bytes of what they touch take turns."""

    def __init__(self, dtype: str, cache: float = 0) -> None:
        self.dtype = dtype
        self.size = float(SIZES[dtype])
        self.cache = cache

    def _work(
        self,
        group: str,
        name: str,
        inputs: Callable[[Context, int], Tensors],
        ours: Callable[[Context, Tensors], Side],
        moved: float,
        bar: Bar,
        peer: str | None,
    ) -> Work:
        return Work(
            group=group,
            name=name,
            inputs=inputs,
            ours=ours,
            flops=0.0,
            bytes=moved,
            floor="copy",
            bar=bar,
            peer=peer,
            tolerance=TOLERANCES[self.dtype],
            copies=cold(moved, self.cache),
        )

    def _normals(self, **shapes: tuple[int, ...]) -> Callable[[Context, int], Tensors]:
        def inputs(ctx: Context, seed: int) -> Tensors:
            return {name: normal(ctx, seed, self.dtype, *own, stream=i) for i, (name, own) in enumerate(shapes.items())}

        return inputs

    def _elements(
        self, kernel: str, group: str, name: str, shape: tuple[int, ...], given: str, made: str, bar: Bar
    ) -> Work:
        """A kernel whose tensors are all of one shape: those of `given` and `made`, the names of its arguments."""

        def ours(ctx: Context, t: Tensors) -> Side:
            results = {result: ctx.empty(shape, self.dtype) for result in made.split()}
            return side(lambda: getattr(kernels, kernel)(*t.values(), **results), *results.values())

        inputs = self._normals(**dict.fromkeys(given.split(), shape))
        moved = self.size * math.prod(shape) * len([*given.split(), *made.split()])
        return self._work(f"{group} {self.dtype}", name, inputs, ours, moved, bar, kernel)

    def add(self, n: int, bar: Bar) -> Work:
        return self._elements("add", "element-wise", f"add of {n}", (n,), "a b", "y", bar)

    def swiglu(self, rows: int, dim: int, bar: Bar) -> Work:
        return self._elements("swiglu", "element-wise", f"silu(gate)*up {rows}x{dim}", (rows, dim), "gate up", "y", bar)

    def swiglu_backward(self, rows: int, dim: int, bar: Bar) -> Work:
        name = f"gradient of silu(gate)*up {rows}x{dim}"
        return self._elements("swiglu_backward", "element-wise", name, (rows, dim), "dy gate up", "dgate dup", bar)

    def softmax(self, rows: int, cols: int, bar: Bar) -> Work:
        return self._elements("softmax", "rows", f"softmax {rows}x{cols}", (rows, cols), "x", "y", bar)

    def rope(self, tokens: int, heads: int, dim: int, bar: Bar) -> Work:
        def ours(ctx: Context, t: Tensors) -> Side:
            y = ctx.empty((tokens, heads, dim), self.dtype)
            cosine, sine = kernels.rope_freqs(ctx=ctx, positions=tokens, head_dim=dim, base=10000.0)
            positions = ctx.tensor(np.arange(tokens, dtype=np.int32))
            return side(lambda: kernels.rope_forward(t["x"], cosine, sine, positions, y=y), y)

        return self._work(
            f"element-wise {self.dtype}", f"rope {tokens}x{heads}x{dim}", self._normals(x=(tokens, heads, dim)), ours,
            2 * self.size * tokens * heads * dim + 4.0 * tokens * dim, bar, "rope",
        )  # fmt: skip

    def cross_entropy(self, rows: int, vocab: int, bar: Bar) -> Work:
        def inputs(ctx: Context, seed: int) -> Tensors:
            targets = np.random.default_rng(seed).integers(0, vocab, rows, dtype=np.int32)
            return {"logits": normal(ctx, seed, self.dtype, rows, vocab), "targets": ctx.tensor(targets)}

        def ours(ctx: Context, t: Tensors) -> Side:
            logits, targets = t["logits"], t["targets"]
            lse, total, count = ctx.empty((rows,)), ctx.empty((1,)), ctx.empty((1,), "i32")
            scale, dlogits = constant(ctx, 1 / rows), ctx.empty((rows, vocab), self.dtype)

            def run() -> None:
                kernels.cross_entropy_forward(logits, targets, lse=lse, loss_sum=total, count=count)
                kernels.cross_entropy_backward(logits, targets, lse, scale, dlogits=dlogits)

            return side(run, dlogits)

        return self._work(
            f"rows {self.dtype}", f"cross-entropy forward + backward {rows}x{vocab}", inputs, ours,
            3 * self.size * rows * vocab, bar, "cross_entropy",
        )  # fmt: skip

    def rmsnorm(self, rows: int, cols: int, bar: Bar, backward: bool = True) -> Work:
        def inputs(ctx: Context, seed: int) -> Tensors:
            found = self._normals(x=(rows, cols), dy=(rows, cols))(ctx, seed)
            gain = kernels.normal(ctx=ctx, n=(cols,), dtype=self.dtype, seed=seed, stream=2, mean=1.0, std=0.1)
            return {**found, "weight": gain}

        def ours(ctx: Context, t: Tensors) -> Side:
            x, weight = t["x"], t["weight"]
            y, dx = (ctx.empty((rows, cols), self.dtype) for _ in range(2))
            rstd, dweight = ctx.empty((rows,)), ctx.zeros((cols,))

            def run() -> None:
                kernels.rmsnorm(x, weight, y=y, rstd=rstd, eps=1e-5)
                if backward:
                    kernels.rmsnorm_backward(t["dy"], x, weight, rstd, None, dweight, dx=dx)

            return side(run, *((y, dx) if backward else (y,)))

        return self._work(
            f"rows {self.dtype}", f"rmsnorm forward{' + backward' if backward else ''} {rows}x{cols}", inputs, ours,
            (5 if backward else 2) * self.size * rows * cols, bar, "rmsnorm" if backward else "rmsnorm_forward",
        )  # fmt: skip

    def adamw(self, n: int, bar: Bar) -> Work:
        def inputs(ctx: Context, seed: int) -> Tensors:
            return {"param": normal(ctx, seed, "f32", n), "grad": normal(ctx, seed, "f32", n, std=0.01, stream=1)}

        def ours(ctx: Context, t: Tensors) -> Side:
            param, m, v = ctx.tensor(t["param"]), ctx.zeros((n,)), ctx.zeros((n,))  # the peer has its own, too
            lr, step = constant(ctx, 1e-3), ctx.tensor(np.ones(1, np.int32))

            def run() -> None:
                kernels.adamw_step(
                    t["grad"], lr, step, None, None, param, m, v,
                    n_decay=n, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, dtype="f32",
                )  # fmt: skip

            return side(run, param)

        return self._work("optimizer", f"AdamW, {n:,} parameters", inputs, ours, 28.0 * n, bar, "adamw")

    # Tokens and experts

    def _plan(self, ctx: Context, seed: int, tokens: int, k: int, experts: int) -> Tensors:
        rng = np.random.default_rng(seed)
        chosen = rng.permuted(np.tile(np.arange(experts, dtype=np.int32), (tokens, 1)), axis=1)[:, :k]
        _, _, slot_row, row_slot = kernels.moe_plan(ctx.tensor(np.ascontiguousarray(chosen)), experts=experts)
        return {"slot_row": slot_row, "row_slot": row_slot}

    def gather(self, tokens: int, k: int, experts: int, dim: int, bar: Bar) -> Work:
        def inputs(ctx: Context, seed: int) -> Tensors:
            return {"x": normal(ctx, seed, self.dtype, tokens, dim), **self._plan(ctx, seed, tokens, k, experts)}

        def ours(ctx: Context, t: Tensors) -> Side:
            y = ctx.empty((tokens * k, dim), self.dtype)
            return side(lambda: kernels.moe_gather(t["x"], t["row_slot"], tokens=tokens, k=k, y=y), y)

        return self._work(
            f"experts {self.dtype}", f"moe_gather {tokens}x{k}x{dim}", inputs, ours,
            self.size * tokens * (k + 1) * dim, bar, "gather",
        )  # fmt: skip

    def combine(self, tokens: int, k: int, experts: int, dim: int, bar: Bar, backward: bool = False) -> Work:
        def inputs(ctx: Context, seed: int) -> Tensors:
            return {
                "y": normal(ctx, seed, self.dtype, tokens * k, dim),
                "dout": normal(ctx, seed, self.dtype, tokens, dim, stream=1),
                "weights": kernels.uniform(ctx=ctx, n=(tokens, k), dtype="f32", seed=seed, stream=2),
                **self._plan(ctx, seed, tokens, k, experts),
            }

        def ours(ctx: Context, t: Tensors) -> Side:
            y, weights, slot_row = t["y"], t["weights"], t["slot_row"]
            if not backward:
                out = ctx.empty((tokens, dim), self.dtype)
                return side(lambda: kernels.moe_combine(y, weights, slot_row, tokens=tokens, k=k, out=out), out)
            dy, dweights = ctx.empty((tokens * k, dim), self.dtype), ctx.empty((tokens, k))
            return side(
                lambda: kernels.moe_combine_backward(
                    t["dout"], y, weights, slot_row, t["row_slot"], tokens=tokens, k=k, dy=dy, dweights=dweights
                ),
                dy,
                dweights,
            )

        return self._work(
            f"experts {self.dtype}", f"{'gradients of ' if backward else ''}moe_combine {tokens}x{k}x{dim}", inputs,
            ours, self.size * tokens * ((2 * k if backward else k) + 1) * dim, bar,
            "combine_backward" if backward else "combine",
        )  # fmt: skip
