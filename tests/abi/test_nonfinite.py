"""The trace that looks for the first value that is not finite."""

from __future__ import annotations

import ctypes
import json
import math

import numpy as np
import pytest
from raw import C, Context

NAN = math.nan


def at(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def product(context: Context, x: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """y = x weight^T"""
    (m, k), n = x.shape, len(weight)
    context.ok("cuda_gemm", at(x), at(weight), at(y), m, n, k, 0, 1, C.F32, C.F32)


def read(context: Context) -> dict:
    return json.loads(context.text("nncuda_trace_read"))


def label(context: Context, words: str) -> None:
    text = words.encode()
    context.ok("nncuda_trace_label", text, len(text))


def arrays() -> tuple[np.ndarray, ...]:
    return np.ones((2, 4), np.float32), np.ones((3, 4), np.float32), np.full((2, 3), NAN, np.float32)


def test_nothing_is_found(context):
    x, weight, y = arrays()  # what is overwritten may have been anything
    context.ok("nncuda_trace_begin_nonfinite")
    product(context, x, weight, y)
    context.ok("nncuda_trace_end")
    assert read(context) == {"calls": 1, "found": None}


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_in_a_weight(context, value):
    x, weight, y = arrays()
    weight[1, 2] = value
    context.ok("nncuda_trace_begin_nonfinite")
    context.ok("cuda_scale", at(x), at(x), x.size, 2.0, C.F32)
    label(context, "model.layers.3.mlp")
    product(context, x, weight, y)
    product(context, x, weight, y)
    context.ok("nncuda_trace_end")
    found = read(context)["found"]
    assert found.pop("address") == at(weight) + 4 * (4 + 2)
    assert found == {
        "call": 1, "label": "model.layers.3.mlp", "kernel": "cuda_gemm", "argument": "b", "use": "in", "dtype": "f32",
        "shape": [3, 4], "index": [1, 2], "value": str(value),
    }  # fmt: skip


def test_in_an_output(context):
    x, weight, y = arrays()
    x[1], weight[2] = 1e30, 1e30
    context.ok("nncuda_trace_begin_nonfinite")
    product(context, x, weight, y)
    context.ok("cuda_scale", at(y), at(y), y.size, 2.0, C.F32)
    context.ok("nncuda_trace_end")
    found = read(context)["found"]
    assert (found["call"], found["label"], found["argument"], found["use"]) == (0, None, "c", "out")
    assert (found["index"], found["value"], found["address"]) == ([1, 2], "inf", at(y) + 4 * 5)


@pytest.mark.parametrize("beta", [None, 0.0])
def test_the_same_bits_as_of_an_earlier_run(context, beta):
    """The memory still has what the fault left the first time."""
    x, weight, y = arrays()
    x[1], weight[2] = 1e30, 1e30
    for _ in range(2):
        context.ok("nncuda_trace_begin_nonfinite")
        if beta is None:
            product(context, x, weight, y)
        else:
            arguments = at(x), at(weight), at(y), 2, 3, 4, 4, 4, 3, 1.0, beta, 0, 1, C.F32, C.F32
            context.ok("cuda_gemm_beta", *arguments)
        context.ok("nncuda_trace_end")
        found = read(context)["found"]
        assert found is not None and (found["argument"], found["index"], found["value"]) == ("c", [1, 2], "inf")


def test_what_was_there_before_an_addition(context):
    """Not the call's fault where it stays as it was."""
    x, weight, _ = arrays()
    y = np.zeros((2, 3), np.float32)
    y[0, 0] = NAN
    context.ok("nncuda_trace_begin_nonfinite")
    arguments = at(x), at(weight), at(y), 2, 3, 4, 4, 4, 3, 1.0, 1.0, 0, 1, C.F32, C.F32
    context.ok("cuda_gemm_beta", *arguments)
    context.ok("nncuda_trace_end")
    assert read(context)["found"] is None and (y.reshape(-1)[1:] == 4).all()


def test_a_call_that_fails_leaves_its_output(context):
    table, out, ids = np.ones((4, 2), np.float32), np.full((1, 2), 7, np.float32), np.array([7], np.int32)
    context.ok("nncuda_trace_begin_nonfinite")
    arguments = at(table), at(ids), at(out), 1, 4, 2, C.F32
    context.fails(C.ERROR_OUT_OF_RANGE, "ids", "cuda_embedding", *arguments)
    context.ok("nncuda_trace_end")
    assert (out == 7).all() and read(context) == {"calls": 1, "found": None}


@pytest.mark.parametrize(("dtype", "bits"), [("F16", 0x7C00), ("BF16", 0xFF80)])
def test_16_bits_in_rows_apart(context, dtype, bits):
    """What lies between the rows does not count."""
    x, y = np.zeros((2, 4), np.uint16), np.zeros((2, 3), np.uint16)
    x[:, 3], x[1, 1] = 0x7FFF, bits
    context.ok("nncuda_trace_begin_nonfinite")
    context.ok("cuda_swiglu", at(x), at(x), 0, at(y), 2, 3, 4, getattr(C, dtype))
    context.ok("nncuda_trace_end")
    found = read(context)["found"]
    assert (found["argument"], found["index"], found["address"]) == ("gate", [1, 1], at(x) + 2 * 5)
    assert found["value"] == {"F16": "inf", "BF16": "-inf"}[dtype]


def test_rows_that_are_left_alone(context):
    """The last row of a product is in no group: the search ignores what is there, also in later calls that read it."""
    x, weight, y = np.ones((2, 4), np.float32), np.ones((1, 4, 4), np.float32), np.full((2, 4), NAN, np.float32)
    offsets, out = np.array([0, 1], np.int32), np.zeros((2, 4), np.float32)
    context.ok("nncuda_trace_begin_nonfinite")
    for given, result in ((x, y), (y, out)):
        arguments = at(given), at(weight), at(offsets), at(result), 1, 2, 4, 4, 0.0, 1, C.F32, C.F32
        context.ok("cuda_grouped_gemm", *arguments)
    context.ok("nncuda_trace_end")
    assert np.isnan(y[1]).all() and read(context) == {"calls": 2, "found": None}


def test_moves_of_bytes_have_no_numbers(context):
    x, y = np.full(4, NAN, np.float32), np.zeros(4, np.float32)
    context.ok("nncuda_trace_begin_nonfinite")
    context.ok("nncuda_memcpy", at(y), at(x), 16, C.DEVICE_TO_DEVICE)
    context.ok("nncuda_memset", at(y), 0xFF, 16)
    assert read(context)["found"] is None
    context.ok("cuda_scale", at(y), at(y), 4, 1.0, C.F32)
    assert read(context)["found"]["argument"] == "x"
    context.ok("nncuda_trace_end")


def test_a_graph_is_searched_call_by_call(context):
    x, weight, y = arrays()
    with context.captured() as graph:
        product(context, x, weight, y)
        context.ok("cuda_scale", at(y), at(y), y.size, 1e38, C.F32)
    context.ok("nncuda_trace_begin_nonfinite")
    context.ok("nncuda_graph_launch", graph)
    context.ok("nncuda_trace_end")
    found = read(context)["found"]
    assert found is not None and (found["call"], found["kernel"], found["use"]) == (1, "cuda_scale", "out")


ALL_ONES = 0xFFFFFFFF


def test_a_nan_that_was_copied_stays(context):
    """Even one of ones alone. No group has the last row of the product, so nobody looks at it until it moves on."""
    x, weight, table = np.ones((2, 4), np.float32), np.ones((1, 4, 4), np.float32), np.zeros((2, 4), np.uint32)
    table[1] = ALL_ONES
    offsets, ids, out = np.array([0, 1], np.int32), np.array([1], np.int32), np.full((1, 4), 7, np.float32)
    context.ok("nncuda_trace_begin_nonfinite")
    context.ok("cuda_grouped_gemm", at(x), at(weight), at(offsets), at(table), 1, 2, 4, 4, 0.0, 1, C.F32, C.F32)
    context.ok("cuda_embedding", at(table), at(ids), at(out), 1, 2, 4, C.F32)
    context.ok("nncuda_trace_end")
    assert (out.view(np.uint32) == ALL_ONES).all()
    found = read(context)["found"]
    assert found is not None and (found["kernel"], found["argument"]) == ("cuda_embedding", "y")


@pytest.mark.parametrize("how", ["nncuda_memcpy", "nncuda_memset", "nncuda_memcpy_async", "stream"])
@pytest.mark.parametrize("was", ["checked", "written"])
def test_bytes_that_arrive_later(context, how, was):
    """Where a call has read or written already, and in the middle of it."""
    bad, x, out = np.full(2, NAN, np.float32), np.ones(8, np.float32), np.zeros(8, np.float32)
    stream = context.made("nncuda_stream_create") if how == "stream" else None
    context.ok("nncuda_trace_begin_nonfinite")
    context.ok("cuda_scale", at(x), at(x if was == "written" else out), x.size, 1.0, C.F32)
    if how == "nncuda_memset":
        context.ok(how, at(x) + 12, 0xFF, bad.nbytes)
    elif how == "nncuda_memcpy":
        context.ok(how, at(x) + 12, at(bad), bad.nbytes, C.DEVICE_TO_DEVICE)
    else:
        context.ok("nncuda_memcpy_async", stream, at(x) + 12, at(bad), bad.nbytes, C.DEVICE_TO_DEVICE)
        context.ok("nncuda_ctx_synchronize")
    context.ok("cuda_scale", at(x) + 12, at(out), 2, 1.0, C.F32)
    context.ok("nncuda_trace_end")
    if stream is not None:
        context.ok("nncuda_stream_destroy", stream)
    found = read(context)["found"]
    assert found is not None and (found["argument"], found["use"], found["index"]) == ("x", "in", [0])


def test_memory_that_is_given_out_again(context):
    """The host writes to it, as nobody sees, but it was another tensor then."""
    out = np.zeros(64, np.float32)
    context.ok("nncuda_trace_begin_nonfinite")
    for value in (1.0, NAN):
        address = context.made("nncuda_malloc", out.nbytes).value
        np.frombuffer((ctypes.c_char * out.nbytes).from_address(address), np.float32)[:] = value
        context.ok("cuda_scale", address, at(out), out.size, 1.0, C.F32)
        context.ok("nncuda_free", address)
    context.ok("nncuda_trace_end")
    found = read(context)["found"]
    assert found is not None and (found["call"], found["use"]) == (1, "in")


def test_what_lies_between_the_rows_of_an_output_was_not_written(context):
    both, weight = np.ones((3, 8), np.float32), np.eye(4, dtype=np.float32)
    x, y = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    both[1, 6] = NAN
    context.ok("nncuda_trace_begin_nonfinite")
    for a, lda, c, ldc in ((at(x), 4, at(both), 8), (at(both) + 16, 8, at(y), 4)):
        context.ok("cuda_gemm_beta", a, at(weight), c, 3, 4, 4, lda, 4, ldc, 1.0, 0.0, 0, 0, C.F32, C.F32)
    context.ok("nncuda_trace_end")
    found = read(context)["found"]
    assert found is not None and (found["argument"], found["use"], found["index"]) == ("a", "in", [1, 2])


def test_calls_of_a_graph_have_no_label(context):
    x = np.zeros(2, np.float32)
    with context.captured() as graph:
        context.ok("cuda_fill", at(x), 2, 0.0, C.F32)
    context.ok("nncuda_trace_begin", 0)
    label(context, "eager")
    context.ok("nncuda_graph_launch", graph)
    context.ok("cuda_fill", at(x), 2, 0.0, C.F32)
    context.ok("nncuda_trace_end")
    call = "cuda_fill(y: f32 [2])\n"
    assert context.text("nncuda_trace_read") == f"0 {call}eager: 1 {call}"


def test_nan_has_no_sign(context):
    x = np.array([0xFFC00000, 0x7FC00000, 0x7F800000, 0xFF800000], np.uint32)
    context.ok("nncuda_trace_begin", 4)
    context.ok("cuda_scale", at(x), at(x), x.size, 1.0, C.F32)
    context.ok("nncuda_trace_end")
    assert context.text("nncuda_trace_read").endswith("{nan, nan, inf, -inf} min -inf max inf mean nan nan 2\n")


def test_labels(context):
    x = np.zeros(2, np.float32)
    label(context, "before any trace")
    context.ok("nncuda_trace_begin", 0)
    context.ok("cuda_fill", at(x), 2, 0.0, C.F32)
    for words in ("a", 'quote " and \\ and \n', "ä" * 100):
        label(context, words)
        context.ok("cuda_fill", at(x), 2, 0.0, C.F32)
    context.ok("nncuda_trace_label", None, 0)
    context.ok("cuda_fill", at(x), 2, 0.0, C.F32)
    context.fails(C.ERROR_INVALID_SIZE, "length", "nncuda_trace_label", b"a", -1)
    context.ok("nncuda_trace_end")
    call = "cuda_fill(y: f32 [2])\n"
    assert context.text("nncuda_trace_read") == (
        f'0 {call}a: 1 {call}quote " and \\ and \n: 2 {call}{"ä" * 63}: 3 {call}4 {call}'
    )
    context.ok("nncuda_trace_begin_nonfinite")
    label(context, 'quote " and \\ and \n')
    x[0] = NAN
    context.ok("cuda_scale", at(x), at(x), 2, 1.0, C.F32)
    assert read(context)["found"]["label"] == 'quote " and \\ and \n'
    context.fails(C.ERROR_STATE, "nncuda_trace_end", "nncuda_trace_begin_nonfinite")
    context.ok("nncuda_trace_end")


def test_memory_that_is_allocated_meanwhile_holds_nothing(context):
    """What a kernel makes of rows that none wrote is no fault of its own."""
    array = np.full(64, NAN, np.float32)
    for begins in (False, True):  # the second takes from the pool what the first gave back
        if begins:
            context.ok("nncuda_trace_begin_nonfinite")
        address = context.made("nncuda_malloc", array.nbytes).value
        if begins:
            context.ok("cuda_scale", address, address, array.size, 2.0, C.F32)
        else:
            context.ok("nncuda_memcpy", address, at(array), array.nbytes, C.HOST_TO_DEVICE)
        context.ok("nncuda_free", address)
    context.ok("nncuda_trace_end")
    assert read(context)["found"] is None
