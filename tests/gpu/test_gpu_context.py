"""A GPU's context: what it says of itself, memory, order, errors that the device finds."""

from __future__ import annotations

import ctypes
import json
import threading

import numpy as np
import pytest
from devices import CUDA, driver, gpus

import nncuda
from nncuda import kernels
from nncuda.binding import library


def test_attributes(gpu: nncuda.Context) -> None:
    assert gpu.device_type == CUDA and gpu.device_index == 0
    assert gpu.threads == 0
    assert gpu.isa.startswith("sm_") and repr(gpu) == f"Context(cuda, {gpu.isa})"
    with pytest.raises(nncuda.ArgumentError, match="only the CPU engine"):
        gpu.threads = 2
    with pytest.raises(nncuda.ArgumentError, match="read-only on a GPU"):
        gpu.isa = "avx2"
    assert not gpu.tf32
    gpu.tf32 = True
    assert gpu.tf32
    free, total = gpu.memory_info()
    assert 0 < free <= total
    with nncuda.Context("auto", threads=2) as chosen:
        assert chosen.device == "cuda"


def test_memory_in_parts(gpu: nncuda.Context) -> None:
    """Zeroed, and as much as its ranges are in pages of 2 MiB; the other addresses cost nothing."""
    page = 2 << 20
    ranges = [(5, 100), (page - 1, page + 1), (40 * page, 40 * page + 7), (99 * page, 100 * page)]
    counts = [end - begin for begin, end in ranges]
    used, free = gpu.bytes_used, gpu.memory_info()[0]
    for turn in range(3):
        x = gpu.zeros_parts(100 * page, "i8", ranges)
        other = gpu.zeros_parts(100 * page, "i8", [(7, 8)])
        assert gpu.bytes_used == used + sum(counts) + 1
        assert gpu.memory_info()[0] == free - 5 * page
        for (begin, _), count in zip(ranges, counts, strict=True):
            part = x.narrow(0, begin, count)
            assert not part.numpy().any()
            part.copy_(gpu.tensor(np.full(count, turn + 1, np.int8)))
            assert (part.numpy() == turn + 1).all()
        assert other.narrow(0, 7, 1).tolist() == [0]
        del x, part, other
        gpu.trim()
        assert gpu.memory_info()[0] == free and gpu.bytes_used == used
    with pytest.raises(MemoryError, match=str(1 << 40)):
        gpu.zeros_parts(1 << 40, "i8", [(0, page), (4 * page, 1 << 40)])
    assert gpu.memory_info()[0] == free and gpu.bytes_used == used


def test_there_are_no_more_gpus_than_there_are(gpu: nncuda.Context) -> None:
    count = library.load().device_count(CUDA)
    for index in range(count):
        with nncuda.Context(f"cuda:{index}") as one:
            assert one.tensor([1.0, 2.0]).tolist() == [1.0, 2.0]
    with pytest.raises(nncuda.DeviceNotFoundError, match=f"driver finds {count} GPU"):
        nncuda.Context(f"cuda:{count}")


@pytest.mark.parametrize("has_one", [False, True])
def test_a_thread_keeps_its_own_current_context(gpu: nncuda.Context, has_one: bool) -> None:
    """A new thread has none, or that of another GPU where there are several; the shadow of a run has a third one."""
    seen: list[int | None] = []
    cuda, last = driver(), gpus() - 1

    def current() -> int | None:
        context = ctypes.c_void_p()
        assert cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    def work() -> None:
        if has_one:
            primary = ctypes.c_void_p()
            assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0) == 0
            assert cuda.cuCtxSetCurrent(primary) == 0
        seen.append(current())
        with nncuda.Context(f"cuda:{last}") as ctx, nncuda.Context("cuda") as reference:
            seen.append(current())
            x = ctx.tensor(np.ones(8, np.float32))
            seen.append(current())
            assert ctx._lib.cuda_silu(ctx._handle, x._pointer, ctx._ffi.NULL, 8, 0) != 0
            seen.append(current())
            assert ctx._lib.nncuda_trace_begin_shadow(ctx._handle, reference._handle) == 0
            seen.append(current())
            kernels.silu(x, y=x)
            seen.append(current())
            assert ctx._lib.nncuda_trace_end(ctx._handle) == 0
            assert x.tolist() == 8 * [x.tolist()[0]]
            seen.append(current())
        seen.append(current())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (seen[0] is not None) == has_one
    assert seen == 8 * [seen[0]]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "i8"])
def test_values_go_there_and_come_back(gpu: nncuda.Context, dtype: str) -> None:
    values = np.arange(-60, 60).reshape(8, 15)
    tensor = gpu.tensor(values, dtype)
    np.testing.assert_array_equal(tensor.numpy().astype(np.int64), values)
    np.testing.assert_array_equal(tensor.narrow(1, 3, 5).numpy().astype(np.int64), values[:, 3:8])
    assert not tensor.zero_().numpy().any()
    with pytest.raises(TypeError, match="cannot be read in place"):
        np.asarray(tensor)


def test_kernels_take_only_memory_of_their_gpu(gpu: nncuda.Context) -> None:
    there, host = gpu.tensor(np.ones(8, np.float32)), np.ones(8, np.float32)
    lib, ffi, handle = gpu._lib, gpu._ffi, gpu._handle
    status = lib.nncuda_malloc_host(handle, 64, pinned := ffi.new("void **"))
    assert status == 0
    for name, pointer in (("an array", ffi.cast("void *", host.ctypes.data)), ("page-locked memory", pinned[0])):
        for arguments in ((pointer, there._pointer), (there._pointer, pointer)):
            assert lib.cuda_silu(handle, *arguments, 8, 0) == 16, name
            assert "is not memory of GPU 0" in ffi.string(lib.nncuda_last_error(handle)).decode()
    assert lib.nncuda_free_host(handle, pinned[0]) == 0


def test_a_bad_index_is_told_at_the_next_synchronise(gpu: nncuda.Context) -> None:
    table, ids = gpu.tensor(np.arange(12.0).reshape(4, 3)), gpu.tensor(np.array([0, 7, 2], np.int32))
    rows = kernels.embedding(table, ids)
    with pytest.raises(nncuda.OutOfRangeError, match=r"cuda_embedding: ids\[1\] is 7; it must be 0 to 3"):
        gpu.synchronize()
    gpu.synchronize()  # it was told once
    np.testing.assert_array_equal(rows.numpy()[[0, 2]], [[0, 1, 2], [6, 7, 8]])
    kernels.embedding(table, ids)
    with pytest.raises(nncuda.OutOfRangeError, match="ids"):  # a copy to the host waits, too
        rows.numpy()
    assert kernels.embedding(table, gpu.tensor(np.array([3], np.int32))).tolist() == [[9, 10, 11]]


def test_a_counter_does_not_wrap(gpu: nncuda.Context) -> None:
    counts = gpu.tensor(np.array([3, 2**31 - 1, 4], np.int32))
    kernels.increment(counts, by=2)
    with pytest.raises(nncuda.OutOfRangeError, match=r"x\[1\] is 2147483647; .* to 2147483645, so that x \+ by is"):
        gpu.synchronize()
    assert counts.tolist() == [5, 2**31 - 1, 6]


def test_out_of_memory_says_how_much_and_leaves_the_context_usable(gpu: nncuda.Context) -> None:
    _, total = gpu.memory_info()
    with pytest.raises(nncuda.OutOfMemoryError, match=f"bytes is {2 * total}; of {total} bytes in all [0-9]+ are free"):
        gpu.empty((2 * total,), "i8")
    kept = []
    with pytest.raises(nncuda.OutOfMemoryError):
        while True:
            kept.append(gpu.empty((total // 8,), "i8"))
    assert len(kept) >= 4
    kept.clear()
    assert kernels.add(gpu.tensor([1.0]), gpu.tensor([2.0])).tolist() == [3.0]


def test_freed_memory_is_used_again_and_trimmed(gpu: nncuda.Context) -> None:
    size = 50 << 20
    address = gpu.empty((size,), "i8").ptr
    assert gpu.empty((size,), "i8").ptr == address
    assert gpu.bytes_peak >= size
    gpu.trim()
    assert gpu.bytes_pooled == 0 and gpu.bytes_used == 0


def test_streams_and_events_order_copies(gpu: nncuda.Context) -> None:
    stream, before, after = gpu.stream(), gpu.event(), gpu.event()
    host, back = gpu.host_array((1000,)), gpu.host_array((1000,))
    host[...] = np.arange(1000)
    device = gpu.zeros((1000,))
    before.record()
    stream.wait(before)
    stream.copy(device, host)
    after.record(stream)
    gpu.wait(after)
    doubled = kernels.add(device, device)
    before.record()
    stream.wait(before)
    stream.copy(back, doubled)
    stream.synchronize()
    np.testing.assert_array_equal(back, 2 * host)
    assert before.query() and after.query() and after.elapsed(before) >= 0
    with pytest.raises(ValueError, match="one of the two must be a tensor"):
        stream.copy(back, host)
    with pytest.raises(ValueError, match="shape and dtype"):
        stream.copy(device, np.zeros(1000, np.int32))


def test_the_profile_and_the_trace_know_every_call(gpu: nncuda.Context) -> None:
    x = gpu.tensor(np.linspace(-1, 1, 1000))
    with gpu.profile() as profile, gpu.trace(values=2) as trace:
        for _ in range(3):
            y = kernels.silu(x)
        kernels.add(x, y)
    entries = {entry["kernel"]: entry for entry in json.loads(json.dumps(profile.json()))["kernels"]}
    assert entries["cuda_silu"]["calls"] == 3 and entries["cuda_add"]["calls"] == 1
    assert entries["cuda_silu"]["bytes"] == 3 * 8000
    assert len(trace.lines) == 4 and "y = {-0.268941" in trace.lines[0]


def test_a_graph_has_the_bits_of_its_calls_and_its_own_scratch(gpu: nncuda.Context) -> None:
    x = gpu.tensor(np.random.default_rng(0).standard_normal((37, 100)).astype(np.float32))
    norm = gpu.zeros((1,))

    def calls() -> nncuda.Tensor:
        y = kernels.softmax(kernels.silu(x))
        kernels.grad_norm(y, norm=norm)
        return y

    eager, eager_norm = calls().numpy(), norm.item()
    with gpu.capture() as graph:
        captured = calls()
    norm.zero_()
    assert len(graph) == 3 and norm.item() == 0.0
    graph.launch()
    kernels.grad_norm(gpu.tensor(np.ones(3_000_000, np.float32)))  # a call that wants more scratch must not disturb it
    np.testing.assert_array_equal(captured.numpy().view(np.int32), eager.view(np.int32))
    assert norm.item() == eager_norm
    x.copy_(np.zeros((37, 100)))
    graph.launch()
    np.testing.assert_array_equal(captured.numpy(), np.full((37, 100), np.float32(0.01)))
    with gpu.profile() as profile:
        graph.launch()
    assert sum(entry["calls"] for entry in profile.json()["kernels"]) == 3


def test_capturing_forbids_what_waits(gpu: nncuda.Context) -> None:
    x = gpu.tensor([1.0])
    with pytest.raises(nncuda.StateError, match="only NNCUDA_DEVICE_TO_DEVICE"), gpu.capture():
        x.copy_(np.zeros(1))
    with pytest.raises(nncuda.StateError, match="capturing"), gpu.capture():
        gpu.synchronize()
    assert kernels.add(x, x).item() == 2.0


def test_ranks_in_threads_are_none_on_a_gpu(gpu: nncuda.Context) -> None:
    with pytest.raises(nncuda.UnsupportedError, match=r"is for the CPU engine; between GPUs use NNCUDA_TRANSPORT_NCCL"):
        nncuda.Comm(gpu, "threads", "gpus", 0, 1)
    with nncuda.Comm(gpu) as alone:
        assert (alone.rank, alone.ranks, alone.sum(3)) == (0, 1, 3)
