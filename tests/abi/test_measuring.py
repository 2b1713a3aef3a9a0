"""Contexts that measure: what they count, what they refuse, and that they take no memory for it."""

from __future__ import annotations

import ctypes
import json
import resource
from collections.abc import Iterator

import numpy as np
import pytest
from raw import LIB, C, Context


class Measuring(Context):
    """A context that measures, of this machine's processor unless the options say another machine."""

    def __init__(self, device: int = C.DEVICE_CPU, isa: int = -1, threads: int = 0, multiprocessors: int = 0) -> None:
        made = ctypes.c_void_p()
        status = LIB.nncuda_ctx_create_measuring(device, isa, threads, multiprocessors, ctypes.byref(made))
        assert status == C.SUCCESS
        self.handle = made
        self.on_gpu = device == C.DEVICE_CUDA


@pytest.fixture
def measuring() -> Iterator[Context]:
    with Measuring(threads=2) as made:
        yield made


@pytest.fixture
def measured_gpu() -> Iterator[Context]:
    with Measuring(C.DEVICE_CUDA, 90) as made:
        yield made


def memory(context: Context) -> list[int]:
    return [context.get(attribute) for attribute in (C.CTX_BYTES_USED, C.CTX_BYTES_PEAK, C.CTX_BYTES_ARENA)]


@pytest.mark.parametrize(
    ("device", "isa", "threads", "multiprocessors"),
    [
        (0, -1, 0, 0),
        (3, -1, 0, 0),
        (C.DEVICE_CPU, 5, 0, 0),
        (C.DEVICE_CPU, -2, 0, 0),
        (C.DEVICE_CPU, -1, 257, 0),
        (C.DEVICE_CPU, -1, -1, 0),
        (C.DEVICE_CPU, -1, 0, 1),
        (C.DEVICE_CUDA, 61, 0, 0),
        (C.DEVICE_CUDA, 1000, 0, 0),
        (C.DEVICE_CUDA, 90, 1, 0),
        (C.DEVICE_CUDA, 90, 0, -1),
    ],
)
def test_a_machine_that_cannot_be(device: int, isa: int, threads: int, multiprocessors: int) -> None:
    made = ctypes.c_void_p(1)
    status = LIB.nncuda_ctx_create_measuring(device, isa, threads, multiprocessors, ctypes.byref(made))
    assert status == C.ERROR_INVALID_VALUE
    assert made.value is None
    assert LIB.nncuda_ctx_create_measuring(device, isa, threads, multiprocessors, None) == C.ERROR_NULL_POINTER


def test_attributes(measuring: Context, measured_gpu: Context, context: Context) -> None:
    assert context.get(C.CTX_MEASURING) == 0
    assert measuring.get(C.CTX_MEASURING) == measured_gpu.get(C.CTX_MEASURING) == 1
    assert measuring.get(C.CTX_ISA) == context.get(C.CTX_ISA)
    assert measuring.get(C.CTX_THREADS) == 2
    for isa in range(C.ISA_AMX + 1):  # whatever this processor has
        measuring.set(C.CTX_ISA, isa)
    measuring.set(C.CTX_THREADS, 256)
    assert (measured_gpu.get(C.CTX_ISA), measured_gpu.get(C.CTX_MULTIPROCESSORS)) == (90, 132)
    assert measured_gpu.get(C.CTX_DEVICE) == C.DEVICE_CUDA
    with Measuring(C.DEVICE_CUDA, 75, 0, 7) as small:
        assert (small.get(C.CTX_ISA), small.get(C.CTX_MULTIPROCESSORS)) == (75, 7)


@pytest.mark.parametrize("device", [C.DEVICE_CPU, C.DEVICE_CUDA])
def test_a_model_larger_than_the_machine(device: int) -> None:
    """7 B parameters in f32 with gradients and moments, 112 GB, and a call over all of them."""
    parameters = 7_000_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Measuring(device, 90 if device == C.DEVICE_CUDA else -1) as made:
        arenas = [made.made("nncuda_malloc", 4 * parameters) for _ in range(4)]
        assert made.get(C.CTX_BYTES_USED) == 16 * parameters
        norm = made.made("nncuda_malloc", 4)
        made.ok("nncuda_memset", arenas[1], 0, 4 * parameters)
        made.ok("cuda_grad_norm", arenas[1], norm, parameters, C.F32)
        chunk = 1 << (15 if device == C.DEVICE_CUDA else 14)
        assert made.get(C.CTX_BYTES_ARENA) >= parameters // chunk * 8
        for arena in arenas:
            made.ok("nncuda_free", arena)
        assert made.get(C.CTX_BYTES_PEAK) > 16 * parameters
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000, f"{grown} KiB"


def test_copies(measuring: Context) -> None:
    """Nothing leaves the host, and zeros come back."""
    host = np.arange(8, dtype=np.float32)
    there, other = (measuring.made("nncuda_malloc", host.nbytes) for _ in range(2))
    measuring.ok("nncuda_memcpy", there, host.ctypes.data, host.nbytes, C.HOST_TO_DEVICE)
    measuring.ok("nncuda_memcpy", other, there, host.nbytes, C.DEVICE_TO_DEVICE)
    stream = measuring.made("nncuda_stream_create")
    measuring.ok("nncuda_memcpy_async", stream, other, host.ctypes.data, host.nbytes, C.HOST_TO_DEVICE)
    measuring.ok("nncuda_stream_synchronize", stream)
    assert host[7] == 7
    measuring.ok("nncuda_memcpy", host.ctypes.data, other, host.nbytes, C.DEVICE_TO_HOST)
    assert not host.any()
    pinned = measuring.made("nncuda_malloc_host", 64)
    ctypes.memset(pinned.value, 1, 64)  # of the host, hence real
    measuring.ok("nncuda_memcpy_async", stream, pinned, there, host.nbytes, C.DEVICE_TO_HOST)
    assert ctypes.string_at(pinned.value, 33) == bytes(32) + b"\1"
    measuring.ok("nncuda_free_host", pinned)


def test_events(measuring: Context) -> None:
    first, second = measuring.made("nncuda_event_create"), measuring.made("nncuda_event_create")
    milliseconds = ctypes.c_float(1)
    arguments = (first, second, ctypes.byref(milliseconds))
    measuring.ok("nncuda_event_record", None, first)
    measuring.fails(C.ERROR_STATE, "end has not happened", "nncuda_event_elapsed", *arguments)
    measuring.ok("nncuda_event_record", None, second)
    measuring.ok("nncuda_event_elapsed", *arguments)
    assert milliseconds.value == 0
    measuring.ok("nncuda_event_destroy", first)  # the other one goes with the context


def test_profile_and_trace(measuring: Context, context: Context) -> None:
    """Calls, bytes and operations of the real context; no times, no values."""
    reports, lines = [], []
    for made in (context, measuring):
        a, b, c = (made.made("nncuda_malloc", 4 * 64 * 64) for _ in range(3))
        made.ok("nncuda_memset", a, 0, 4 * 64 * 64)
        made.ok("nncuda_memset", b, 0, 4 * 64 * 64)
        made.ok("nncuda_profile_begin")
        made.ok("nncuda_trace_begin", 3)
        for _ in range(2):
            made.ok("cuda_gemm", a, b, c, 64, 64, 64, 0, 1, C.F32, C.F32)
        made.ok("nncuda_trace_end")
        made.ok("nncuda_profile_end")
        reports.append(json.loads(made.text("nncuda_profile_report", C.REPORT_JSON)))
        lines.append(made.text("nncuda_trace_read").splitlines())
    (real,), (counted,) = (report["kernels"] for report in reports)
    assert {key: real[key] for key in ("kernel", "calls", "bytes", "flops")} == {
        key: counted[key] for key in ("kernel", "calls", "bytes", "flops")
    }
    assert counted["total_ns"] == 0
    assert [line.split(" c = {")[0] for line in lines[0]] == lines[1]


def test_the_real_sentence_for_a_bad_call(measuring: Context, context: Context) -> None:
    for name, *arguments in (
        ("cuda_silu", None, None, -1, C.F32),
        ("cuda_silu", None, None, 4, 9),
        ("cuda_silu", None, None, 4, C.F32),
        ("cuda_silu", 1026, 4096, 4, C.F32),
        ("cuda_silu", 4096, 4100, 4, C.F32),
        ("nncuda_memset", None, 300, 4),
        ("nncuda_malloc", -1, None),
    ):
        assert measuring.call(name, *arguments) == context.call(name, *arguments) != C.SUCCESS
        assert measuring.error == context.error


def test_a_gpu_reaches_its_own_memory_alone(measured_gpu: Context) -> None:
    pointer = measured_gpu.made("nncuda_malloc", 64)
    host = np.zeros(16, np.float32)
    measured_gpu.ok("cuda_silu", pointer.value + 32, pointer.value, 8, C.F32)
    measured_gpu.fails(C.ERROR_WRONG_DEVICE, "not memory of GPU 0", "cuda_silu", host.ctypes.data, pointer, 16, C.F32)


@pytest.mark.parametrize("threads", [1, 5])
def test_a_graph(threads: int) -> None:
    """Captured calls take their memory when they are launched, as on the real context."""
    seen = []
    for made in (Context(threads=threads), Measuring(threads=threads)):
        with made:
            x, norm = made.made("nncuda_malloc", 4 << 20), made.made("nncuda_malloc", 4)
            made.ok("nncuda_memset", x, 0, 4 << 20)
            steps = [memory(made)]
            made.ok("nncuda_graph_begin")
            made.ok("cuda_grad_norm", x, norm, 1 << 20, C.F32)
            made.ok("cuda_gemm", x, x, x.value + (2 << 20), 256, 256, 256, 0, 1, C.F32, C.F32)
            graph = made.made("nncuda_graph_end")
            steps.append(memory(made))
            made.ok("nncuda_graph_launch", graph)
            steps.append(memory(made))
            seen.append(steps)
    assert seen[0] == seen[1]
    assert seen[0][2][2] > seen[0][0][2] == 0


def test_a_graph_of_a_gpu_keeps_its_workspace(measured_gpu: Context) -> None:
    x, norm = measured_gpu.made("nncuda_malloc", 4 << 20), measured_gpu.made("nncuda_malloc", 4)
    measured_gpu.ok("nncuda_graph_begin")
    measured_gpu.ok("cuda_grad_norm", x, norm, 1 << 20, C.F32)
    graph = measured_gpu.made("nncuda_graph_end")
    kept = measured_gpu.get(C.CTX_BYTES_ARENA)
    assert kept > 0
    measured_gpu.ok("nncuda_graph_launch", graph)
    assert measured_gpu.get(C.CTX_BYTES_ARENA) == kept
    measured_gpu.ok("nncuda_graph_destroy", graph)
    assert measured_gpu.get(C.CTX_BYTES_ARENA) == 0


def test_buffers(measuring: Context, context: Context) -> None:
    """Of every kind of size, given back and taken again: the same counts as the real pool's."""
    seen = []
    for made in (context, measuring):
        steps, live = [], []
        for size in (1, 300, 70_000, 30_000_000, 3_000_000, 70_001):
            live.append(made.made("nncuda_malloc", size))
            made.ok("nncuda_free", live.pop(0)) if len(live) > 2 else None
            steps.append([*memory(made), made.get(C.CTX_BYTES_POOLED)])
        made.set(C.CTX_BYTES_POOLED, 0)
        steps.append([*memory(made), made.get(C.CTX_BYTES_POOLED)])
        seen.append(steps)
    assert seen[0] == seen[1]
