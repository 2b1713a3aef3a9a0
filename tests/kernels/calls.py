"""Runs one kernel on guarded buffers.

`run` takes the values of a call by name. Every tensor gets memory with guard bytes on both sides, outputs filled with
NaN; inputs must come out unchanged, and nothing may be written outside a tensor or between its rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from engine import DTYPES, Engine

from nncuda.binding import header

HEADER = header.parse(header.find())
GUARD = 256  # bytes on either side
PATTERN = 0xA5


class Buffer:
    """Guarded memory of a tensor whose first dimension has stride `ld`, `shift` elements behind a cache line."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, ld: int | None = None, shift: int = 0) -> None:
        width = int(np.prod(shape[1:], dtype=np.int64))
        ld = width if ld is None else ld
        elements = (shape[0] - 1) * ld + width if shape[0] else 0
        self.bytes = np.full(elements * dtype.itemsize + 2 * GUARD + 128, PATTERN, np.uint8)
        self.begin = GUARD + (-(self.bytes.ctypes.data + GUARD)) % 64 + shift * dtype.itemsize
        self.end = self.begin + elements * dtype.itemsize
        self.flat = self.bytes[self.begin : self.end].view(dtype)
        inner = tuple(dtype.itemsize * int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(1, len(shape)))
        strides = (ld * dtype.itemsize, *inner)
        self.view = np.lib.stride_tricks.as_strided(self.flat, shape, strides)
        self.gaps = np.ones(elements, bool)
        if elements:
            np.lib.stride_tricks.as_strided(self.gaps, shape, tuple(s // dtype.itemsize for s in strides))[...] = False

    def check(self, name: str) -> None:
        around = np.concatenate([self.bytes[: self.begin], self.bytes[self.end :]])
        assert np.all(around == PATTERN), f"{name}: written outside its memory"
        gap = self.bytes[self.begin : self.end].reshape(self.gaps.size, self.flat.itemsize)[self.gaps]
        assert np.all(gap == PATTERN), f"{name}: written between its rows"


def run(
    engine: Engine, kernel: str, values: Mapping[str, object], shift: int = 0, alias: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """Calls cuda_<kernel>. `values`: arrays (None for an absent optional one), sizes, options and dtypes by name.

    Outputs need no value; one that is in `alias` shares the memory of the input named there. Returns what was written.
    """
    function = HEADER.kernels[kernel]
    alias = alias or {}
    sizes = {param.name: values[param.name] for param in function.of_kind("size")}
    buffers: dict[str, Buffer] = {}
    args: list[object] = []
    for param in sorted(function.pointers, key=lambda p: p.name in alias):
        if param.name in values and values[param.name] is None:
            continue
        if param.name in alias:
            buffers[param.name] = buffers[alias[param.name]]
            continue
        shape = tuple(dim.value(sizes) for dim in param.dims)
        dtype = np.dtype(DTYPES[values[param.dtype] if param.dtype in values else param.dtype])
        buffer = buffers[param.name] = Buffer(shape, dtype, sizes[param.ld] if param.ld else None, shift)
        if param.reads:
            assert np.shape(values[param.name]) == shape, f"{param.name}: {np.shape(values[param.name])} is not {shape}"
            buffer.view[...] = values[param.name]
        elif param.dtype in ("i32",) or values.get(param.dtype) in ("i32", "i8"):
            buffer.view[...] = -77
        else:
            buffer.view[...] = np.nan
    for param in function.params:
        if param.kind == "pointer":
            args.append(buffers[param.name].flat if param.name in buffers else None)
        elif param.kind != "context":
            args.append(values[param.name])
    before = {name: buffer.bytes.copy() for name, buffer in buffers.items()}
    getattr(engine, kernel)(*args)
    outputs = {}
    written = {id(buffers[param.name]) for param in function.pointers if param.writes and param.name in buffers}
    for param in function.pointers:
        if param.name not in buffers:
            continue
        buffer = buffers[param.name]
        buffer.check(param.name)
        if param.writes:
            outputs[param.name] = buffer.view.copy()
        elif id(buffer) not in written:
            assert np.array_equal(buffer.bytes, before[param.name]), f"{param.name}: an input was written"
    return outputs


def same_bits(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name
