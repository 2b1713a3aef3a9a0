"""Contexts and what hangs on them: attributes, closing, streams, events, graphs, profiles, traces, errors."""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import nncuda
from nncuda import kernels


def test_attributes(ctx: nncuda.Context) -> None:
    assert ctx.device == "cpu" and ctx.device_type == 1 and ctx.device_index == 0
    assert ctx.threads == 2
    ctx.threads = 3
    assert ctx.threads == 3
    widest = ctx.isa
    ctx.isa = "baseline"
    assert ctx.isa == "baseline"
    ctx.isa = widest
    free, total = ctx.memory_info()
    assert 0 < free <= total
    assert "threads=3" in repr(ctx)
    with nncuda.Context(threads=1, isa="baseline") as other:
        assert (other.threads, other.isa) == (1, "baseline")


def test_memory_in_parts(ctx: nncuda.Context) -> None:
    """The elements of the ranges, zeroed; given back, it is no other tensor's of as many bytes."""
    before = ctx.bytes_used
    x = ctx.zeros_parts((1000, 1000), "f16", [(0, 10), (500_000, 501_000)])
    assert x.shape == (1000, 1000) and ctx.bytes_used - before == 2 * 1010
    np.testing.assert_array_equal(x[500].numpy(), np.zeros(1000, np.float16))
    kernels.add(x[500], ctx.tensor(np.ones(1000, np.float16)), y=x[500])
    assert x[500].numpy().sum() == 1000
    address = ctx._ffi.cast("intptr_t", x._pointer)
    with ctx.capture() as graph:
        kernels.add(x[500], x[500], y=x[500])
    del x
    y = ctx.zeros((1000, 1000), "f16")
    assert ctx._ffi.cast("intptr_t", y._pointer) != address and y.numpy().sum() == 0
    graph.launch()  # it keeps what it uses
    graph.close()
    del graph, y
    z = ctx.zeros((1000, 1000), "f16")
    assert z.numpy().sum() == 0 and ctx.bytes_used - before == z.nbytes
    with pytest.raises(nncuda.ArgumentError, match="range 1 is 4 to 12; it must lie within 8 to 16"):
        ctx.zeros_parts(4, "f32", [(0, 2), (1, 3)])


def test_bad_attributes(ctx: nncuda.Context) -> None:
    for threads in (0, -1, 257):
        with pytest.raises(nncuda.ArgumentError):
            ctx.threads = threads
        with pytest.raises(ValueError):
            nncuda.Context(threads=threads)
    with pytest.raises(ValueError, match="isa is 'sse9'"):
        ctx.isa = "sse9"
    for device in ("gpu", "cpu:x", "cpu:-1", "CPU", ""):
        with pytest.raises(ValueError, match="device is"):
            nncuda.Context(device)
    with pytest.raises(nncuda.DeviceNotFoundError, match="device 'cpu:7': "):
        nncuda.Context("cpu:7")


def test_peak(ctx: nncuda.Context) -> None:
    tensor = ctx.empty(1 << 20, "i8")
    assert ctx.bytes_held == ctx.bytes_peak >= 1 << 20
    del tensor
    ctx.trim()
    ctx.reset_peak()
    assert ctx.bytes_peak < 1 << 20


def test_close_is_final_and_may_be_repeated() -> None:
    ctx = nncuda.Context(threads=1)
    tensor = ctx.tensor([1.0])
    stream, event = ctx.stream(), ctx.event()
    ctx.close()
    ctx.close()
    assert ctx.closed and stream.closed and event.closed
    assert repr(ctx) == "Context(cpu, closed)"
    for use in (tensor.numpy, ctx.synchronize, lambda: ctx.empty(3), lambda: ctx.threads, stream.synchronize):
        with pytest.raises(nncuda.StateError, match="closed"):
            use()
    stream.close()
    del tensor, stream, event


def test_finalizers_free_what_was_forgotten(ctx: nncuda.Context) -> None:
    other = nncuda.Context(threads=1)
    watch = weakref.ref(other)
    tensor = other.tensor([1.0])
    other.stream()
    del other
    gc.collect()
    assert watch() is not None, "a tensor keeps its context"
    assert tensor.item() == 1.0
    del tensor
    assert watch() is None
    before = ctx.bytes_used
    for _ in range(100):
        ctx.empty(1000)
    assert ctx.bytes_used == before


def test_a_tensor_let_go_in_another_thread_while_the_context_works(ctx: nncuda.Context) -> None:
    """A finalizer never calls the library, which would refuse one of the threads; the next allocation frees."""
    before = ctx.bytes_used
    a = ctx.zeros((512, 512))
    tensors = [ctx.empty(100) for _ in range(2000)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    while thread.is_alive():
        kernels.add(a, a, y=a)
    thread.join()
    ctx.empty(1)
    del a
    assert ctx.bytes_used == before


def test_exit_of_the_interpreter_with_everything_open() -> None:
    code = """
import nncuda, numpy as np
from nncuda import kernels
ctx = nncuda.Context(threads=2)
x = ctx.tensor([1.0, 2.0]); stream = ctx.stream(); event = ctx.event()
view = np.asarray(x)
with ctx.capture() as graph:
    y = kernels.silu(x)
cycle = [x]; cycle.append(cycle)
print("done")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def test_streams_and_events(ctx: nncuda.Context) -> None:
    source, target = ctx.tensor(np.arange(1000.0)), ctx.zeros(1000)
    with ctx.stream() as stream, ctx.event() as start, ctx.event() as end:
        assert start.query(), "an event that was never recorded counts as happened"
        start.record()
        stream.wait(start)
        stream.copy(target, source)
        end.record(stream)
        end.synchronize()
        assert end.query() and start.elapsed(end) >= 0
        stream.synchronize()
    np.testing.assert_array_equal(target.numpy(), np.arange(1000.0))
    with pytest.raises(ValueError, match="cannot copy"):
        ctx.stream().copy(target, ctx.zeros(3))


def test_graph_replays_with_new_values(ctx: nncuda.Context) -> None:
    x = ctx.tensor(np.arange(8.0))
    with ctx.capture() as graph:
        y = kernels.add(kernels.silu(x), x)
        z = kernels.scale(y, alpha=2.0)
    assert len(graph) == 3 and graph
    for values in (np.arange(8.0), np.arange(8.0) - 4):
        x.copy_(values)
        graph.launch()
        expected = kernels.scale(kernels.add(kernels.silu(x), x), alpha=2.0)
        np.testing.assert_array_equal(z.numpy(), expected.numpy())
    graph.close()
    assert not graph
    with pytest.raises(nncuda.StateError):
        graph.launch()


def test_graph_memory_is_its_own(ctx: nncuda.Context) -> None:
    """Memory that captured calls use is not reused while the graph lives, and is freed with it."""
    before = ctx.bytes_used
    x = ctx.tensor(np.ones(1000, np.float32))
    with ctx.capture() as graph:
        result = x
        for _ in range(10):
            result = kernels.add(result, x)
    used = ctx.bytes_used - before
    assert used <= 4 * 4096, "within a capture dead memory is used again"
    result_pointer = result.ptr
    del result, x
    others = [ctx.zeros(1000) for _ in range(20)]
    assert result_pointer not in [tensor.ptr for tensor in others]
    graph.launch()
    assert not any(tensor.numpy().any() for tensor in others)
    del others
    graph.close()
    assert ctx.bytes_used == before


def test_copies_are_captured_too(ctx: nncuda.Context) -> None:
    source, target = ctx.tensor([[1.0, 2.0], [3.0, 4.0]]), ctx.zeros((2, 1))
    with ctx.capture() as graph:
        target.copy_(source.narrow(1, 1, 1))
        zeros = ctx.zeros(2)
    pointer = source.ptr
    assert target.tolist() == [[0.0], [0.0]]
    del source
    assert ctx.zeros((2, 2)).ptr != pointer, "the graph keeps what its copies read"
    graph.launch()
    assert target.tolist() == [[2.0], [4.0]] and zeros.tolist() == [0.0, 0.0]


def test_a_capture_that_fails_leaves_nothing(ctx: nncuda.Context) -> None:
    x = ctx.tensor([1.0])
    before = ctx.bytes_used
    with pytest.raises(ZeroDivisionError), ctx.capture() as graph:
        y = kernels.silu(x)
        _ = 1 / 0
    assert not graph
    del y
    assert ctx.bytes_used == before
    assert kernels.silu(x).item() != 0
    with ctx.capture() as outer, pytest.raises(nncuda.StateError), ctx.capture():
        pass
    assert len(outer) == 0


def test_values_cannot_be_read_while_capturing(ctx: nncuda.Context) -> None:
    x = ctx.tensor([1.0])
    with ctx.capture(), pytest.raises(nncuda.StateError):
        kernels.silu(x).numpy()


def test_profile(ctx: nncuda.Context, tmp_path: object) -> None:
    x = ctx.zeros(1000)
    with ctx.profile() as profile:
        with pytest.raises(nncuda.StateError, match="has not ended"):
            profile.table()
        for _ in range(3):
            kernels.silu(x)
    assert "cuda_silu" in profile.table() and str(profile) == profile.table()
    assert "cuda_silu" in json.dumps(profile.json())
    path = tmp_path / "trace.json"  # type: ignore[operator]
    profile.save(path)
    text = path.read_text()
    assert text.count("cuda_silu") == 3 and json.loads(text)
    with ctx.profile() as second:
        kernels.add(x, x)
    assert "cuda_silu" not in second.table() and "cuda_silu" in profile.table()


def test_trace(ctx: nncuda.Context) -> None:
    x = ctx.tensor([0.0, 1.0])
    with ctx.trace(values=2) as trace:
        kernels.add(x, x)
    assert len(trace.lines) == 1
    assert "cuda_add" in trace.lines[0] and "[2]" in trace.lines[0] and "f32" in trace.lines[0]
    with pytest.raises(nncuda.ArgumentError), ctx.trace(values=-1):
        pass


def test_the_first_value_that_is_not_finite(ctx: nncuda.Context) -> None:
    x, one, huge = ctx.tensor([[1.0, 2.0], [3.0, np.inf]]), ctx.tensor([[1.0]]), ctx.tensor([3e38])
    with ctx.trace_nonfinite() as trace:
        ctx.label("model.norm")
        kernels.softmax(one)
        kernels.softmax(x)
    found = trace.found
    assert found is not None and trace.calls == 2 and found.address == x.ptr + 12 and not found.written
    assert (found.call, found.label, found.kernel, found.argument) == (1, "model.norm", "cuda_softmax", "x")
    assert (found.dtype, found.shape, found.index, found.value) == ("f32", (2, 2), (1, 1), np.inf)
    with ctx.trace_nonfinite() as trace:
        kernels.add(huge, huge)
    assert trace.found is not None and trace.found.written and trace.found.label == ""
    with ctx.trace_nonfinite() as trace:
        kernels.softmax(one)
    assert trace.found is None and trace.calls == 1
    with nncuda.Context.measuring() as measuring, pytest.raises(nncuda.UnsupportedError, match="measures"):
        measuring.trace_nonfinite().__enter__()


def test_a_shadow_run(ctx: nncuda.Context) -> None:
    rng = np.random.default_rng(1)
    a, b = (ctx.tensor(rng.standard_normal((20, 30)).astype(np.float32)) for _ in range(2))
    with nncuda.Context(isa="baseline", threads=1) as reference:
        with ctx.shadow(reference) as run:
            kernels.gemm(a, b, trans_b=True)
            kernels.softmax(a)
            with pytest.raises(nncuda.StateError, match="reference of a shadow run"):
                reference._check(reference._lib.nncuda_ctx_destroy(reference._handle))
        assert (run.calls, run.compared, run.over, run.first) == (2, 2, 0, None)
        assert [(k.kernel, k.calls, k.over, k.why) for k in run.kernels] == [
            ("cuda_softmax", 1, 0, None), ("cuda_gemm", 1, 0, None)
        ]  # fmt: skip
        for difference in (run.largest, *(kernel.largest for kernel in run.kernels)):
            assert difference is None or 0 < difference.share <= 1
        with pytest.raises(nncuda.ArgumentError, match="itself"), ctx.shadow(ctx):
            pass


def test_data_order(ctx: nncuda.Context) -> None:
    order = ctx.data_order(seed=1, first=0, count=20, windows=10)
    assert order.dtype == np.int64
    assert sorted(order[:10]) == list(range(10)) == sorted(order[10:])
    np.testing.assert_array_equal(ctx.data_order(1, 5, 10, 10), order[5:15])
    with pytest.raises(nncuda.ArgumentError):
        ctx.data_order(1, -1, 10, 10)


def test_errors_are_built_in_exceptions_too(ctx: nncuda.Context) -> None:
    table, ids = ctx.zeros((4, 2)), ctx.tensor([0, 9])
    with pytest.raises(IndexError) as caught:
        kernels.embedding(table, ids)
    error = caught.value
    assert isinstance(error, nncuda.OutOfRangeError) and isinstance(error, nncuda.Error)
    assert error.status == 20 and error.name == "NNCUDA_ERROR_OUT_OF_RANGE"
    assert "ids" in str(error) and "9" in str(error)
    with pytest.raises(MemoryError) as full:
        ctx.empty(1 << 60)
    assert isinstance(full.value, nncuda.OutOfMemoryError)
    ctx.empty(10)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.status, str(copy)) == (type(error), error.status, str(error))
    from nncuda import errors

    assert type(errors.from_status(12345, "", "unknown status")) is nncuda.Error


def test_bytes_that_a_gpu_holds() -> None:
    """An eighth of a doubling at least, and whole pages of 2 MiB where it is large; both start again together."""
    with nncuda.Context.measuring("cuda", capability=90) as ctx:
        small, large = ctx.empty((1,)), ctx.empty((5 << 20,))
        assert (ctx.bytes_peak, ctx.bytes_held) == (4 + (20 << 20), 256 + (20 << 20))
        del large
        ctx.empty((4097,))
        ctx.reset_peak()
        assert small.nbytes == 4 and ctx.bytes_peak < ctx.bytes_held < 1 << 20


def test_bytes_that_parts_hold_on_a_gpu() -> None:
    """Pages of 2 MiB, those that two parts share once."""
    page = 2 << 20
    with nncuda.Context.measuring("cuda", capability=90) as ctx:
        ranges = [(5, 100), (page - 1, page + 1), (40 * page, 40 * page + 7), (99 * page, 100 * page)]
        parts = ctx.zeros_parts(100 * page, "i8", ranges)
        assert ctx.bytes_used == ctx.bytes_peak == 95 + 2 + 7 + page
        assert ctx.bytes_held == 4 * page
        del parts
        ctx.reset_peak()
        assert ctx.bytes_used == ctx.bytes_held == 0
