"""What this machine can do at most: the floors under every benchmark.

The CPU's probes are C (probe.c, a small library beside the package's own), run on as many threads at once as the
benchmark uses; a GPU's is its own copy of memory.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cffi

from ..device import INSTRUCTION_SETS, Context
from ..errors import LibraryError
from .timing import device_clock
from .work import Floor, normal

_CDEF = """
double probe_fma_f32(int32_t isa, double seconds);
double probe_dot_bf16(int32_t isa, double seconds);
double probe_dot_int8(int32_t isa, double seconds);
double probe_read(const void *buffer, int64_t bytes);
double probe_copy(void *destination, const void *source, int64_t bytes);
"""

_PIECE_BYTES = 1 << 24  # that a thread reads before it takes the next
_BUFFER_BYTES = 1 << 30  # beyond the caches that one tenant of a shared machine can count on


@dataclass(frozen=True)
class Ceilings:
    """Peaks of `threads` threads together with the instruction set `isa`. Rates in operations a second (a multiply-add
    is two), bandwidths in bytes a second; these are the memory's, whatever the set.

    `copy` counts the bytes read and the bytes written. A peak of 0 means that the set has no such instruction.
    """

    isa: str
    threads: int
    fma_f32: float
    dot_bf16: float
    dot_int8: float
    read: float
    copy: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def of(self, floor: Floor) -> tuple[Floor, float]:
        """The peak of a floor. Without bf16 instructions bf16 products run against multiply-adds in f32, which they are
        widened for."""
        if floor == "dot_bf16" and not self.dot_bf16:
            floor = "fma_f32"
        return floor, getattr(self, floor)

    def lines(self) -> list[tuple[str, str]]:
        """What stands in the table: (what, at most)."""
        values = (
            ("f32 multiply-add", self.fma_f32, "GFLOP/s"),
            ("bf16 dot products", self.dot_bf16, "GFLOP/s"),
            ("int8 dot products", self.dot_int8, "GOP/s"),
            ("DRAM read", self.read, "GB/s"),
            ("DRAM copy (read + written)", self.copy, "GB/s"),
        )
        return [(what, f"{v / 1e9:,.0f} {unit}" if v else "no such instruction") for what, v, unit in values]


@dataclass(frozen=True)
class DeviceCeilings:
    """Of a GPU: bytes a second of copying within its memory, read and written bytes counted. The ceiling of arithmetic
    is the peer's, since each product is measured beside it."""

    copy: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)

    def of(self, floor: Floor) -> tuple[Floor, float]:
        return floor, getattr(self, floor)

    def lines(self) -> list[tuple[str, str]]:
        return [("copy within device memory (read + written)", f"{self.copy / 1e9:,.0f} GB/s")]


class DeviceBandwidth:
    """Probes a GPU's memory over two buffers that are kept between probes."""

    def __init__(self, ctx: Context, buffer_bytes: int = _BUFFER_BYTES) -> None:
        self._source = normal(ctx, 0, "f32", buffer_bytes // 4)
        self._target = ctx.empty(self._source.shape)
        self._clock = device_clock(ctx)

    def copy(self) -> float:
        """Bytes a second, read and written bytes counted."""
        repeats = 4
        seconds = self._clock(lambda: self._target.copy_(self._source), repeats)
        return 2.0 * self._source.nbytes * repeats / max(seconds, 1e-9)

    def measure(self) -> DeviceCeilings:
        return DeviceCeilings(copy=max(self.copy() for _ in range(5)))


@cache
def _library() -> tuple[cffi.FFI, Any]:
    ffi = cffi.FFI()
    ffi.cdef(_CDEF)
    places = [Path(__file__).parent / "libnncuda_probe.so"]
    if explicit := os.environ.get("NNCUDA_LIBRARY"):
        places.insert(0, Path(explicit).parent / "libnncuda_probe.so")
    for place in places:
        if place.exists():
            return ffi, ffi.dlopen(str(place))
    listed = ", ".join(map(str, places))
    raise LibraryError(
        f"libnncuda_probe.so was not found (looked at {listed}); build it with `make lib` or `pip install .`"
    )


def _together(threads: int, work: Callable[[int], float]) -> list[float]:
    """Runs work(0) .. work(threads - 1) at once; cffi calls leave the interpreter lock."""
    results = [0.0] * threads

    def run(index: int) -> None:
        results[index] = work(index)

    pool = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    return results


class Bandwidth:
    """Probes DRAM over large buffers, in huge pages where the system has them, that are kept between probes."""

    def __init__(self, threads: int, buffer_bytes: int = _BUFFER_BYTES) -> None:
        self._ffi, self._probe = _library()
        self._threads = threads
        self._part = buffer_bytes // threads // 4096 * 4096
        self._maps: list[mmap.mmap] = []
        self._source = self._buffer()
        self._target: Any = None  # made when it is needed
        #: Seconds of the processor, all threads together, that the last probe took.
        self.cpu_seconds = 0.0

    @property
    def bytes(self) -> int:
        """That a probe reads."""
        return self._part * self._threads

    def read(self) -> float:
        """Bytes a second of reading, all threads together.

        They take pieces in turns, so that one that the system holds up does not hold up all, as a kernel's do.
        """
        size = self.bytes
        pieces, lock = iter(range(0, size, _PIECE_BYTES)), threading.Lock()

        def work(_: int) -> float:
            while True:
                with lock:
                    at = next(pieces, None)
                if at is None:
                    return 0.0
                self._probe.probe_read(self._source + at, min(_PIECE_BYTES, size - at))

        began, cpu = time.perf_counter(), time.process_time()
        _together(self._threads, work)
        self.cpu_seconds = time.process_time() - cpu
        return size / (time.perf_counter() - began)

    def copy(self) -> float:
        """Bytes a second of copying past the caches, read and written bytes counted."""
        if self._target is None:
            self._target = self._buffer()
        to, source = self._target, self._source
        seconds = _together(
            self._threads,
            lambda i: self._probe.probe_copy(to + i * self._part, source + i * self._part, self._part),
        )
        return 2 * self.bytes / max(seconds)

    def _buffer(self) -> Any:
        """Memory of which every page is there: private, since shared memory has no huge pages, and written once."""
        size = self.bytes
        area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._maps.append(area)
        if hasattr(area, "madvise") and hasattr(mmap, "MADV_HUGEPAGE"):
            area.madvise(mmap.MADV_HUGEPAGE)
        base = self._ffi.cast("char *", self._ffi.from_buffer(area))
        piece = b"\x01" * _PIECE_BYTES
        for at in range(0, size, _PIECE_BYTES):
            self._ffi.memmove(base + at, piece, min(_PIECE_BYTES, size - at))
        return base


def measure(
    threads: int, isas: Sequence[str], bandwidth: Bandwidth | None = None, seconds: float = 0.2
) -> dict[str, Ceilings]:
    """Measures all ceilings of each instruction set, which this processor must have; the best of three each: a ceiling
    is what the machine can do when nothing disturbs it."""
    _, probe = _library()
    bandwidth = bandwidth or Bandwidth(threads)
    read, copy = (max(probed() for _ in range(3)) for probed in (bandwidth.read, bandwidth.copy))

    def best(kernel: Callable[[int, float], float], isa: str) -> float:
        number = INSTRUCTION_SETS.index(isa)
        return max(sum(_together(threads, lambda _: kernel(number, seconds))) for _ in range(3))

    return {
        isa: Ceilings(
            isa=isa,
            threads=threads,
            fma_f32=best(probe.probe_fma_f32, isa),
            dot_bf16=best(probe.probe_dot_bf16, isa),
            dot_int8=best(probe.probe_dot_int8, isa),
            read=read,
            copy=copy,
        )
        for isa in isas
    }
