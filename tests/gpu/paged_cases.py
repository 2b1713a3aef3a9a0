"""Paged caches for tests: sequences of given lengths, their pages scattered over a pool that is filled with NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from cases.case import Draw
from cases.kvcache import STORAGE, page_bytes, page_table
from devices import random

import nncuda
from nncuda import kernels


@dataclass
class Sequences:
    """Keys, values and queries of whole sequences, and where their pages lie."""

    lengths: list[int]
    heads: int
    kv_heads: int
    dim: int
    form: str
    dtype: str
    seed: int = 0
    window: int = 0
    softcap: float = 0.0
    sinks: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.q, self.k, self.v = (
            [random(rng, n, heads, self.dim, dtype=self.dtype) for n in self.lengths]
            for heads in (self.heads, self.kv_heads, self.kv_heads)
        )
        self.table, self.pages = page_table(Draw("pages", self.seed), self.lengths, room=1)
        self.page_bytes = page_bytes(self.form, self.kv_heads, self.dim)

    def options(self, ctx: nncuda.Context) -> dict[str, Any]:
        """Of all three calls of attention."""
        sinks = ctx.tensor(np.array(self.sinks, np.float32)) if self.sinks else None
        return {"format": STORAGE[self.form], "window": self.window, "softcap": self.softcap, "sinks": sinks}

    def caches(self, ctx: nncuda.Context, shift: int = 0) -> tuple[nncuda.Tensor, nncuda.Tensor]:
        """Pages that hold NaN (in blocks: scales that are NaN), `shift` bytes behind an aligned address."""
        memory = np.full(shift + self.pages * self.page_bytes, 0xFF, np.uint8)
        placed = [ctx.tensor(memory).narrow(0, shift, memory.size - shift) for _ in range(2)]
        return placed[0].view(self.pages, self.page_bytes), placed[1].view(self.pages, self.page_bytes)

    def ragged(self, parts: list[np.ndarray], cuts: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        """Rows cuts[b] of each sequence one after another, and their offsets."""
        rows = [part[begin:end] for part, (begin, end) in zip(parts, cuts, strict=True)]
        return np.concatenate(rows), np.cumsum([0] + [len(row) for row in rows]).astype(np.int32)

    def append(
        self, ctx: nncuda.Context, caches: tuple[nncuda.Tensor, nncuda.Tensor], cuts: list[tuple[int, int]]
    ) -> None:
        k, offsets = self.ragged(self.k, cuts)
        v, _ = self.ragged(self.v, cuts)
        lengths = np.array([end for _, end in cuts], np.int32)
        kernels.kv_append_paged(*(ctx.tensor(x) for x in (k, v, offsets, lengths, self.table)), *caches,
                                format=STORAGE[self.form])  # fmt: skip

    def prefill(
        self, ctx: nncuda.Context, caches: tuple[nncuda.Tensor, nncuda.Tensor], cuts: list[tuple[int, int]]
    ) -> list[np.ndarray]:
        q, offsets = self.ragged(self.q, cuts)
        lengths = np.array([end for _, end in cuts], np.int32)
        out = kernels.flash_attention_paged(
            ctx.tensor(q), *caches, *(ctx.tensor(x) for x in (offsets, lengths, self.table)),
            **self.options(ctx), kv_heads=self.kv_heads)  # fmt: skip
        return np.split(out.numpy(), offsets[1:-1])

    def decode(
        self, ctx: nncuda.Context, caches: tuple[nncuda.Tensor, nncuda.Tensor], lengths: list[int]
    ) -> np.ndarray:
        q = np.stack([part[min(max(n, 1), len(part)) - 1] for part, n in zip(self.q, lengths, strict=True)])
        out = kernels.attention_decode_paged(
            ctx.tensor(q), *caches, *(ctx.tensor(x) for x in (np.array(lengths, np.int32), self.table)),
            **self.options(ctx), kv_heads=self.kv_heads)  # fmt: skip
        return out.numpy()

    def step(
        self,
        ctx: nncuda.Context,
        caches: tuple[nncuda.Tensor, nncuda.Tensor],
        lengths: list[int],
        layout: str,
        whole: bool,
    ) -> np.ndarray:
        """Rotates and appends row lengths[b] - 1 of each sequence and attends to the rows up to it, by one call or by
        the three that it stands for. Query, key and value of a sequence lie side by side."""
        batch = len(lengths)
        rows = [np.stack([part[n - 1] for part, n in zip(parts, lengths, strict=True)])
                for parts in (self.q, self.k, self.v)]  # fmt: skip
        fused = ctx.tensor(np.concatenate([x.reshape(batch, -1) for x in rows], axis=1))
        q, k, v = (
            fused.narrow(1, first * self.dim, heads * self.dim).view(batch, heads, self.dim)
            for first, heads in (
                (0, self.heads),
                (self.heads, self.kv_heads),
                (self.heads + self.kv_heads, self.kv_heads),
            )
        )
        angles = np.random.default_rng(1).uniform(0, 6, (max(lengths), self.dim // 2))
        tables = [ctx.tensor(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
        positions, ends, table = (ctx.tensor(x) for x in (np.array(lengths, np.int32) - 1,
                                                          np.array(lengths, np.int32), self.table))  # fmt: skip
        options = self.options(ctx)
        if whole:
            sinks = options.pop("sinks")
            out = kernels.attention_step_paged(q, k, v, *tables, positions, ends, table, sinks, *caches, layout=layout,
                                               **options)  # fmt: skip
        else:
            kernels.rope_qk(q, k, *tables, positions, layout=layout)
            each = ctx.tensor(np.arange(batch + 1, dtype=np.int32))
            kernels.kv_append_paged(k, v, each, ends, table, *caches, format=options["format"])
            out = kernels.attention_decode_paged(q, *caches, ends, table, kv_heads=self.kv_heads, **options)
        return out.numpy()
