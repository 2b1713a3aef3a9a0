"""Sequences in paged caches, for the tests of the kernels that write and read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cases.case import Draw
from cases.kvcache import STORAGE, page_bytes, page_table

from nncuda.reference.kvcache import kv_append_paged, rows_of_pages


def offsets(fresh: Sequence[int]) -> np.ndarray:
    return np.array([0, *np.cumsum(fresh)], np.int32)


@dataclass
class Pages:
    """Keys and values of some sequences: pages in any order, bytes of NaN where no row is, -1 where a table ends."""

    storage: str
    kv_heads: int
    head_dim: int
    lengths: np.ndarray
    table: np.ndarray
    k: np.ndarray
    v: np.ndarray

    @property
    def sizes(self) -> tuple[int, int]:
        """max_pages and pages."""
        return self.table.shape[1], len(self.k)

    @property
    def page_bytes(self) -> int:
        return page_bytes(self.storage, self.kv_heads, self.head_dim)

    @property
    def number(self) -> int:
        return STORAGE[self.storage]

    def rows(self, of: np.ndarray, b: int) -> np.ndarray:
        """What the rows of sequence b stand for: [length, kv_heads, head_dim]."""
        return rows_of_pages(of, self.table[b], int(self.lengths[b]), self.kv_heads, self.number)


def blank(storage: str, kv_heads: int, head_dim: int, lengths: Sequence[int], seed: int = 0) -> Pages:
    """Room for `lengths`, and for a page more of each."""
    table, pages = page_table(Draw("pages", seed), lengths, room=1)
    empty = np.full((pages, page_bytes(storage, kv_heads, head_dim)), 0xFF, np.uint8)
    return Pages(storage, kv_heads, head_dim, np.array(lengths, np.int32), table, empty, empty.copy())


def filled(storage: str, kv_heads: int, head_dim: int, lengths: Sequence[int], seed: int = 0) -> Pages:
    """Sequences of Normal(0, 1)."""
    pages = blank(storage, kv_heads, head_dim, lengths, seed)
    rng = np.random.default_rng(seed + 1)
    k, v = (rng.standard_normal((sum(lengths), kv_heads, head_dim)).astype(np.float32) for _ in "kv")
    new = kv_append_paged(k, v, offsets(lengths), pages.lengths, pages.table, pages.k, pages.v, pages.number)
    pages.k, pages.v = new["k_pages"], new["v_pages"]
    return pages
