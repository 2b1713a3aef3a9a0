"""Stored weights for tests, products with them, and memory that ends with a wall."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import engine
import numpy as np
from cases.case import Draw
from cases.quant import BLOCKS, CODES, HALVES, SIDE_BY_SIDE
from cases.quant import weights as drawn
from engine import Engine

#: Formats whose rows lie one by one; those in blocks; and of those that have it, the form with rows side by side.
PLAIN = [name for name in CODES if name not in SIDE_BY_SIDE]
IN_BLOCKS = [name for name in PLAIN if BLOCKS[name] > 1]
SIDES = {plain: side for side, plain in SIDE_BY_SIDE.items()}


def engines() -> list[Engine]:
    return [Engine(threads=2, isa=isa) for isa in range(Engine().isa + 1)]


def weights(rows: int, k: int, name: str, seed: int = 0) -> np.ndarray:
    """Any codes, scales of ordinary size. A format and its form side by side have the same numbers."""
    return np.ascontiguousarray(drawn(Draw(SIDE_BY_SIDE.get(name, name), seed), rows, k, name))


def numbers(*shape: int, dtype: str = "f32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32).astype(engine.DTYPES[dtype])


def name_of(dtype: np.dtype) -> str:
    return next(name for name, known in engine.DTYPES.items() if np.dtype(known) == dtype)


def gemm(cpu: Engine, x: np.ndarray, w: np.ndarray, name: str, n: int, **options: object) -> np.ndarray:
    """y in the dtype of x; `options`: offsets, groups, bias, residual, activation."""
    m, k = x.shape
    dtype = name_of(x.dtype)
    y = engine.empty((m, n), dtype)
    cpu.gemm_quant(x, w, options.get("offsets"), options.get("bias"), options.get("residual"), y,
                   options.get("groups", 1), m, n, k, w.shape[1], options.get("activation", 0), CODES[name],
                   dtype)  # fmt: skip
    return y


def swiglu(
    cpu: Engine,
    x: np.ndarray,
    gate: np.ndarray,
    up: np.ndarray,
    names: tuple[str, str],
    n: int,
    offsets: np.ndarray | None = None,
    norm: np.ndarray | None = None,
    eps: float = 0.0,
) -> np.ndarray:
    m, k = x.shape
    dtype = name_of(x.dtype)
    y = engine.empty((m, n), dtype)
    groups = 1 if offsets is None else len(offsets) - 1
    codes = (CODES[name] for name in names)
    cpu.gemm_quant_swiglu(x, gate, up, offsets, norm, y, groups, m, n, k, gate.shape[1], up.shape[1], eps, *codes,
                          dtype)  # fmt: skip
    return y


def qkv(cpu: Engine, x: np.ndarray, matrices: list[np.ndarray], names: list[str], bias: np.ndarray | None,
        norm: np.ndarray | None = None, eps: float = 0.0) -> np.ndarray:  # fmt: skip
    (m, k), rows, dtype = x.shape, [len(w) for w in matrices], name_of(x.dtype)
    y = engine.empty((m, sum(rows)), dtype)
    bytes_, codes = (w.shape[1] for w in matrices), (CODES[name] for name in names)
    cpu.gemm_quant_qkv(x, *matrices, bias, norm, y, m, *rows[:2], sum(rows), k, *bytes_, eps, *codes, dtype)
    return y


class Walled:
    """Copies of arrays that end with a page behind which nothing may be touched, and begin at any address."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._areas: list[mmap.mmap] = []

    def place(self, array: np.ndarray) -> np.ndarray:
        pages = -(-array.nbytes // mmap.PAGESIZE)
        area = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        there = np.frombuffer(area, array.dtype, array.size, pages * mmap.PAGESIZE - array.nbytes).reshape(array.shape)
        there[...] = array
        self._areas.append(area)
        self._protect(area, 0)
        return there

    def _protect(self, area: mmap.mmap, access: int) -> None:
        last = np.frombuffer(area, np.uint8).ctypes.data + len(area) - mmap.PAGESIZE
        assert self._libc.mprotect(ctypes.c_void_p(last), ctypes.c_size_t(mmap.PAGESIZE), access) == 0

    def open(self) -> None:
        for area in self._areas:
            self._protect(area, 3)


@contextmanager
def walled() -> Iterator[Walled]:
    made = Walled()
    try:
        yield made
    finally:
        made.open()


__all__ = ["BLOCKS", "CODES", "HALVES", "IN_BLOCKS", "PLAIN", "SIDES", "SIDE_BY_SIDE", "Walled"]
