"""Paged caches for tests: sequences of given lengths, their pages scattered over a pool that is filled with NaN."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from devices import DTYPES

import nncuda
from nncuda import kernels

PAGE = 128
#: Codes of the formats of pages, and bytes of a row of d elements.
FORMATS = {"f32": 0, "f16": 1, "bf16": 2, "q8_0": 14}


def row_bytes(form: str, dim: int) -> int:
    return dim // 32 * 34 if form == "q8_0" else dim * (4 if form == "f32" else 2)


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

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        number = DTYPES[self.dtype]
        self.q = [rng.standard_normal((n, self.heads, self.dim), np.float32).astype(number) for n in self.lengths]
        self.k = [rng.standard_normal((n, self.kv_heads, self.dim), np.float32).astype(number) for n in self.lengths]
        self.v = [rng.standard_normal((n, self.kv_heads, self.dim), np.float32).astype(number) for n in self.lengths]
        needed = [-(-n // PAGE) for n in self.lengths]
        self.max_pages = max([*needed, 1]) + 1
        self.pages = sum(needed) + 2
        free = list(rng.permutation(self.pages))
        self.table = np.full((len(self.lengths), self.max_pages), -7, np.int32)  # entries that are not read
        for b, count in enumerate(needed):
            self.table[b, :count] = [free.pop() for _ in range(count)]

    @property
    def page_bytes(self) -> int:
        return self.kv_heads * PAGE * row_bytes(self.form, self.dim)

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
                                format=FORMATS[self.form])  # fmt: skip

    def prefill(
        self, ctx: nncuda.Context, caches: tuple[nncuda.Tensor, nncuda.Tensor], cuts: list[tuple[int, int]]
    ) -> list[np.ndarray]:
        q, offsets = self.ragged(self.q, cuts)
        lengths = np.array([end for _, end in cuts], np.int32)
        out = kernels.flash_attention_paged(
            ctx.tensor(q), *caches, *(ctx.tensor(x) for x in (offsets, lengths, self.table)),
            format=FORMATS[self.form], kv_heads=self.kv_heads)  # fmt: skip
        return np.split(out.numpy(), offsets[1:-1])

    def decode(
        self, ctx: nncuda.Context, caches: tuple[nncuda.Tensor, nncuda.Tensor], lengths: list[int]
    ) -> np.ndarray:
        q = np.stack([part[min(max(n, 1), len(part)) - 1] for part, n in zip(self.q, lengths, strict=True)])
        out = kernels.attention_decode_paged(
            ctx.tensor(q), *caches, *(ctx.tensor(x) for x in (np.array(lengths, np.int32), self.table)),
            format=FORMATS[self.form], kv_heads=self.kv_heads)  # fmt: skip
        return out.numpy()
