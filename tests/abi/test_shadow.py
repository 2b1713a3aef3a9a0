"""The shadow run: every call a second time on another context, and what both wrote compared."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest
from raw import LIB, C, Context

from nncuda.golden import Runner, find_folder, read_folder


def at(array: np.ndarray) -> int:
    return int(array.ctypes.data)


@contextlib.contextmanager
def shadowed(context: Context, reference: Context) -> Iterator[dict]:
    """Shadows the calls of the block; the object is filled when it ends."""
    found: dict = {}
    context.ok("nncuda_trace_begin_shadow", reference.handle)
    try:
        yield found
    finally:
        context.ok("nncuda_trace_end")
        found.update(json.loads(context.text("nncuda_trace_read")))


@pytest.fixture
def reference():
    with Context(threads=1, isa=C.ISA_BASELINE) as made:
        yield made


def test_correct_calls(context, reference):
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((40, 64)).astype(np.float32) for _ in range(2))
    y, before = np.zeros((40, 40), np.float32), x.copy()
    with context.captured() as graph:
        context.ok("cuda_scale", at(x), at(x), x.size, 3.0, C.F32)
        context.ok("cuda_gemm", at(x), at(w), at(y), 40, 40, 64, 0, 1, C.F32, C.F32)
    with shadowed(context, reference) as found:
        context.ok("nncuda_graph_launch", graph)
        context.ok("nncuda_memset", at(y), 0, y.nbytes)
    np.testing.assert_array_equal(x, 3 * before)  # in place, and once
    assert (found["calls"], found["compared"], found["moves"], found["over"]) == (3, 2, 1, 0)
    assert found["first"] is None and [k["kernel"] for k in found["kernels"]] == ["cuda_scale", "cuda_gemm"]
    assert all(k["why"] is None and k["calls"] == k["compared"] == 1 for k in found["kernels"])
    largest = [k["largest"]["share"] for k in found["kernels"] if k["largest"]]
    assert max(largest, default=0.0) <= 1 and (not largest or found["largest"]["share"] == max(largest))
    assert reference.get(C.CTX_BYTES_USED) == 0


@contextlib.contextmanager
def memory_twice() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One page of memory at two addresses, as floats."""
    file = os.memfd_create("twice")
    os.ftruncate(file, mmap.PAGESIZE)
    pages = [mmap.mmap(file, mmap.PAGESIZE) for _ in range(2)]
    views = [np.frombuffer(page, np.float32) for page in pages]
    try:
        yield views[0], views[1]
    finally:
        os.close(file)


def test_a_fault_is_found(context, reference):
    """An output over an input under another address, which the check of aliases cannot see: what the kernel has written
    it reads again. The reference has memory of its own for the output."""
    with memory_twice() as (x, y):
        x[:4] = [1, 2, 3, 4]
        with shadowed(context, reference) as found:
            label = b"model.norm"
            context.ok("nncuda_trace_label", label, len(label))
            context.ok("cuda_scale", at(x), at(y) + 8, 2, 1.0, C.F32)  # y[2:4] = x[:2]
            # Rows of one element, gathered in order: the second one reads what the first one wrote.
            ids = np.array([0, 3, 3, 3], np.int32)
            context.ok("cuda_embedding", at(x), at(ids), at(y) + 4 * 3, 4, 4, 1, C.F32)
    assert (found["calls"], found["compared"], found["over"]) == (2, 2, 1)
    first = found["first"]
    assert first == found["largest"] == found["kernels"][1]["largest"]
    assert (first["call"], first["label"], first["kernel"], first["argument"]) == (
        1,
        "model.norm",
        "cuda_embedding",
        "y",
    )
    assert (first["shape"], first["index"], first["bound"], first["share"]) == ([4, 1], [1, 0], 0, None)
    assert (first["value"], first["reference"]) == ("1", "2")


def test_what_is_left_alone(context, reference):
    """The last row of a product keeps its bytes on both sides; the reference never saw them."""
    x, weight, y = np.ones((2, 4), np.float32), np.ones((1, 4, 4), np.float32), np.full((2, 4), 7, np.float32)
    offsets = np.array([0, 1], np.int32)
    with shadowed(context, reference) as found:
        arguments = at(x), at(weight), at(offsets), at(y), 1, 2, 4, 4, 0.0, 1, C.F32, C.F32
        context.ok("cuda_grouped_gemm", *arguments)
    assert (found["compared"], found["over"], found["largest"]) == (1, 0, None) and (y[1] == 7).all()


def test_a_nan_without_a_sign(context, reference):
    """The output is the input under another address; the call reads its own NaN where the reference reads 3."""
    with memory_twice() as (x, y):
        x.view(np.uint32)[:2] = [0xFFC00000, 0x40400000]
        with shadowed(context, reference) as found:
            ids = np.array([0, 1], np.int32)
            context.ok("cuda_embedding", at(x), at(ids), at(y) + 4, 2, 4, 1, C.F32)
    assert (found["first"]["value"], found["first"]["reference"]) == ("nan", "3")


def test_all_rows_may_be_of_one_group(reference, context):
    """The bound is of the group that has them all, not of what the groups have on the average."""
    rng = np.random.default_rng(2)
    groups, rows, m, n = 16, 512, 8, 8
    x, dy = (rng.standard_normal((rows, 8)).astype(np.float32) for _ in range(2))
    dw, offsets = np.zeros((groups, m, n), np.float32), np.full(groups + 1, rows, np.int32)
    offsets[0] = 0
    with shadowed(context, reference) as found:
        context.ok("cuda_grouped_gemm_wgrad", at(x), at(dy), at(offsets), at(dw), groups, rows, m, n, 0.0, C.F32, C.F32)
    largest = np.abs(dw).max()
    assert found["over"] == 0 and found["largest"]["bound"] == pytest.approx(
        2 * (2 * rows * 2.0**-24 + 2.0**-24) * float(largest), rel=1e-5
    )


def test_calls_that_fail(context, reference):
    table, out, ids = np.ones((4, 2), np.float32), np.zeros((1, 2), np.float32), np.array([7], np.int32)
    with shadowed(context, reference) as found:
        context.fails(C.ERROR_OUT_OF_RANGE, "ids", "cuda_embedding", at(table), at(ids), at(out), 1, 4, 2, C.F32)
    (kernel,) = found["kernels"]
    assert (kernel["calls"], kernel["compared"]) == (1, 0)
    assert kernel["why"].startswith("NNCUDA_ERROR_OUT_OF_RANGE: cuda_embedding: ids")


def test_states(context, reference):
    context.fails(C.ERROR_INVALID_VALUE, "reference is the context itself", "nncuda_trace_begin_shadow", context.handle)
    context.fails(C.ERROR_INVALID_CONTEXT, "reference", "nncuda_trace_begin_shadow", None)
    measuring = ctypes.c_void_p()
    assert LIB.nncuda_ctx_create_measuring(C.DEVICE_CPU, 0, 1, 0, ctypes.byref(measuring)) == C.SUCCESS
    context.fails(C.ERROR_UNSUPPORTED, "reference is a context that measures", "nncuda_trace_begin_shadow", measuring)
    for name, *arguments in (("nncuda_trace_begin_nonfinite",), ("nncuda_trace_begin_shadow", context.handle)):
        assert getattr(LIB, name)(measuring, *arguments) == C.ERROR_UNSUPPORTED
    assert LIB.nncuda_ctx_destroy(measuring) == C.SUCCESS
    context.ok("nncuda_trace_begin_shadow", reference.handle)
    context.fails(C.ERROR_STATE, "nncuda_trace_end", "nncuda_trace_begin_shadow", reference.handle)
    assert LIB.nncuda_ctx_destroy(reference.handle) == C.ERROR_STATE
    assert "reference of a shadow run" in reference.error
    context.ok("nncuda_trace_end")


FIXTURES = list(read_folder(find_folder()))


def test_every_fixture_within_its_bound(reference):
    """The widest instruction set against the plainest. No sum of a fixture cancels so far that the bound fails."""
    with Runner() as runner:
        handle = int(runner.ffi.cast("intptr_t", runner.ctx))
        assert LIB.nncuda_trace_begin_shadow(handle, reference.handle) == C.SUCCESS
        for fixture in FIXTURES:
            runner.outputs(fixture)
        needed = ctypes.c_int64()
        assert LIB.nncuda_trace_end(handle) == C.SUCCESS
        assert LIB.nncuda_trace_read(handle, None, 0, ctypes.byref(needed)) == C.SUCCESS
        text = ctypes.create_string_buffer(needed.value)
        assert LIB.nncuda_trace_read(handle, text, needed.value, ctypes.byref(needed)) == C.SUCCESS
    found = json.loads(text.value)
    kernels = {kernel["kernel"]: kernel for kernel in found["kernels"]}
    assert set(kernels) == {f"cuda_{fixture.kernel}" for fixture in FIXTURES}
    assert {name: kernel["why"] for name, kernel in kernels.items() if kernel["why"]} == {}
    over = {name: kernel["largest"] for name, kernel in kernels.items() if kernel["over"]}
    assert not over, over
