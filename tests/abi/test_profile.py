"""The profiler and the trace: that they tell what was called, and that their reports can be read."""

from __future__ import annotations

import ctypes
import itertools
import json

import numpy as np
import pytest
from raw import C, Context


def product(context: Context, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    m, k = a.shape
    context.ok("cuda_gemm", a.ctypes.data, b.ctypes.data, c.ctypes.data, m, c.shape[1], k, 0, 0, C.F32, C.F32)


@pytest.fixture
def profiled(context):
    """Three products and a scaling, two of them from a graph."""
    a, b, c = np.ones((5, 7), np.float32), np.ones((7, 3), np.float32), np.zeros((5, 3), np.float32)
    with context.captured() as graph:
        product(context, a, b, c)
        context.ok("cuda_scale", c.ctypes.data, c.ctypes.data, c.size, 2.0, C.F32)
    context.ok("nncuda_profile_begin")
    product(context, a, b, c)
    product(context, a, b, c)
    context.ok("nncuda_graph_launch", graph)
    context.ok("nncuda_profile_end")
    product(context, a, b, c)  # not profiled any more
    return context


def test_json(profiled):
    report = json.loads(profiled.text("nncuda_profile_report", C.REPORT_JSON))
    kernels = {entry["kernel"]: entry for entry in report["kernels"]}
    assert set(kernels) == {"cuda_gemm", "cuda_scale"}
    gemm = kernels["cuda_gemm"]
    assert gemm["calls"] == 3
    assert gemm["flops"] == 3 * 2 * 5 * 7 * 3
    assert gemm["bytes"] == 3 * 4 * (5 * 7 + 7 * 3 + 5 * 3)
    assert kernels["cuda_scale"]["bytes"] == 2 * 4 * 15
    assert 0 < gemm["shortest_ns"] <= gemm["longest_ns"] <= gemm["total_ns"]
    assert sum(entry["total_ns"] for entry in kernels.values()) <= report["profiled_ns"]
    assert report["lost_calls"] == 0
    assert profiled.text("nncuda_profile_report", C.REPORT_JSON) == profiled.text(
        "nncuda_profile_report", C.REPORT_JSON
    )


def test_chrome_trace(profiled):
    events = json.loads(profiled.text("nncuda_profile_report", C.REPORT_CHROME_TRACE))["traceEvents"]
    assert [event["name"] for event in events] == ["cuda_gemm", "cuda_gemm", "cuda_gemm", "cuda_scale"]
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)
    for first, second in itertools.pairwise(events):
        assert first["ts"] + first["dur"] <= second["ts"] + 0.001
    assert events[0]["args"] == {"bytes": 4 * (35 + 21 + 15), "flops": 210}


def test_table(profiled):
    lines = profiled.text("nncuda_profile_report", C.REPORT_TABLE).splitlines()
    assert lines[0].split()[:2] == ["kernel", "calls"]
    assert {line.split()[0]: line.split()[1] for line in lines[1:]} == {"cuda_gemm": "3", "cuda_scale": "1", "all": "4"}


def test_a_report_is_cut_to_fit(profiled):
    whole = profiled.text("nncuda_profile_report", C.REPORT_TABLE)
    needed = ctypes.c_int64()
    for capacity in (1, 2, 10, len(whole), len(whole) + 1, len(whole) + 50):
        buffer = ctypes.create_string_buffer(b"~" * (len(whole) + 60), len(whole) + 60)
        profiled.ok("nncuda_profile_report", C.REPORT_TABLE, buffer, capacity, ctypes.byref(needed))
        assert needed.value == len(whole) + 1
        assert buffer.value.decode() == whole[: capacity - 1]
        assert buffer.raw[capacity:] == b"~" * (len(buffer) - capacity)


def test_begin_starts_afresh(profiled):
    profiled.ok("nncuda_profile_begin")
    profiled.ok("nncuda_profile_end")
    assert json.loads(profiled.text("nncuda_profile_report", C.REPORT_JSON))["kernels"] == []
    assert json.loads(profiled.text("nncuda_profile_report", C.REPORT_CHROME_TRACE))["traceEvents"] == []


def test_many_calls(context):
    x = np.zeros(4, np.float32)
    context.ok("nncuda_profile_begin")
    for _ in range(5000):
        context.ok("cuda_fill", x.ctypes.data, 4, 1.0, C.F32)
    context.ok("nncuda_profile_end")
    report = json.loads(context.text("nncuda_profile_report", C.REPORT_JSON))
    assert report["kernels"][0]["calls"] == 5000


def test_trace_of_values(context):
    x = np.array([[1, 2, 3, 99], [4, 5, 6, 99]], np.float32)
    y = np.zeros((2, 3), np.float32)
    context.ok("nncuda_trace_begin", 4)
    context.ok("cuda_swiglu", x.ctypes.data, x.ctypes.data, 0, y.ctypes.data, 2, 3, 4, C.F32)
    context.ok("cuda_fill", y.ctypes.data, 6, float("nan"), C.F32)
    context.ok("cuda_fill", y.ctypes.data, 0, 0.0, C.F32)  # nothing to do: no line
    context.ok("nncuda_trace_end")
    context.ok("cuda_fill", y.ctypes.data, 6, 1.0, C.F32)
    first, second = context.text("nncuda_trace_read").splitlines()
    silu = x[:, :3] / (1 + np.exp(-x[:, :3])) * x[:, :3]
    shapes, values = first.split(") ", 1)
    assert shapes == "0 cuda_swiglu(gate: f32 [2:4, 3], up: f32 [2:4, 3], used: i32 null, y: f32 [2, 3]"
    numbers = values.removeprefix("y = {").split(", ...}")[0].split(", ")
    np.testing.assert_allclose([float(number) for number in numbers], silu.reshape(-1)[:4], rtol=1e-6)
    words = values.split()
    for word, want in (("min", silu.min()), ("max", silu.max()), ("mean", silu.mean())):
        np.testing.assert_allclose(float(words[words.index(word) + 1]), want, rtol=1e-6)
    assert second == "1 cuda_fill(y: f32 [6]) y = {nan, nan, nan, nan, ...} nan 6"


def test_trace_of_every_dtype(context):
    context.ok("nncuda_trace_begin", 2)
    for dtype, numpy_dtype, name in (
        (C.F32, np.float32, "f32"),
        (C.F16, np.uint16, "f16"),
        (C.BF16, np.uint16, "bf16"),
        (C.I32, np.int32, "i32"),
        (C.I8, np.int8, "i8"),
    ):
        y = np.zeros(2, numpy_dtype)
        context.ok("cuda_fill", y.ctypes.data, 2, -3.0, dtype)
        line = context.text("nncuda_trace_read").splitlines()[-1]
        assert line.endswith(f"cuda_fill(y: {name} [2]) y = {{-3, -3}} min -3 max -3 mean -3")
    context.ok("nncuda_trace_end")


def test_trace_without_values_and_with_an_error(context):
    table, out, ids = np.ones((4, 2), np.float32), np.zeros((1, 2), np.float32), np.array([7], np.int32)
    context.ok("nncuda_trace_begin", 0)
    args = (table.ctypes.data, ids.ctypes.data, out.ctypes.data, 1, 4, 2, C.F32)
    context.fails(C.ERROR_OUT_OF_RANGE, "ids", "cuda_embedding", *args)
    ids[0] = 3
    context.ok("cuda_embedding", *args)
    context.ok("nncuda_trace_end")
    failed, passed = context.text("nncuda_trace_read").splitlines()
    assert "NNCUDA_ERROR_OUT_OF_RANGE: cuda_embedding: ids" in failed
    assert passed == "1 cuda_embedding(table: f32 [4, 2], ids: i32 [1], y: f32 [1, 2])"


def test_states_and_arguments(context):
    needed = ctypes.c_int64()
    context.fails(C.ERROR_STATE, "nncuda_profile_begin", "nncuda_profile_end")
    context.fails(C.ERROR_STATE, "nncuda_trace_begin", "nncuda_trace_end")
    context.ok("nncuda_profile_begin")
    context.fails(C.ERROR_STATE, "nncuda_profile_end", "nncuda_profile_begin")
    context.fails(C.ERROR_STATE, "nncuda_profile_end", "nncuda_profile_report", 0, None, 0, ctypes.byref(needed))
    context.ok("nncuda_profile_end")
    context.ok("nncuda_trace_begin", 64)
    context.fails(C.ERROR_STATE, "nncuda_trace_end", "nncuda_trace_begin", 0)
    context.ok("nncuda_trace_end")
    for values in (-1, 65):
        context.fails(C.ERROR_INVALID_VALUE, "values", "nncuda_trace_begin", values)
    for form in (-1, 3):
        context.fails(C.ERROR_INVALID_VALUE, "form", "nncuda_profile_report", form, None, 0, ctypes.byref(needed))
    for name, *before in (("nncuda_profile_report", 0), ("nncuda_trace_read",)):
        context.fails(C.ERROR_NULL_POINTER, "text", name, *before, None, 5, ctypes.byref(needed))
        context.fails(C.ERROR_NULL_POINTER, "needed", name, *before, None, 0, None)
        context.fails(C.ERROR_INVALID_SIZE, "capacity", name, *before, None, -1, ctypes.byref(needed))
