"""Streams and events: order, overlap, waiting, and what is refused."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest
from raw import C, Context

BIG = 1 << 28


def copy(context: Context, stream: ctypes.c_void_p | None, target: np.ndarray, source: np.ndarray) -> None:
    context.ok("nncuda_memcpy_async", stream, target.ctypes.data, source.ctypes.data, source.nbytes, C.HOST_TO_DEVICE)


def happened(context: Context, event: ctypes.c_void_p) -> bool:
    answer = ctypes.c_int32(-1)
    context.ok("nncuda_event_query", event, ctypes.byref(answer))
    assert answer.value in (0, 1)
    return bool(answer.value)


def elapsed(context: Context, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
    milliseconds = ctypes.c_float(-1)
    context.ok("nncuda_event_elapsed", start, end, ctypes.byref(milliseconds))
    return milliseconds.value


def test_a_copy_does_not_wait_and_kernels_run_beside_it(context):
    stream = context.made("nncuda_stream_create")
    done = context.made("nncuda_event_create")
    source, target = np.ones(BIG, np.uint8), np.zeros(BIG, np.uint8)
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    copy(context, stream, target, source)
    context.ok("nncuda_event_record", stream, done)
    kernels = 0
    while not happened(context, done):
        context.ok("cuda_silu", x.ctypes.data, y.ctypes.data, x.size, C.F32)
        kernels += 1
    assert kernels > 10
    assert target.all()


def test_a_stream_is_in_order(context):
    stream = context.made("nncuda_stream_create")
    buffers = [np.full(100_000, value, np.uint8) for value in range(20)]
    target = np.zeros(100_000, np.uint8)
    for buffer in buffers:
        copy(context, stream, target, buffer)
    context.ok("nncuda_stream_synchronize", stream)
    assert (target == 19).all()


def test_a_stream_waits_for_an_event_of_another(context):
    first, second = context.made("nncuda_stream_create"), context.made("nncuda_stream_create")
    event = context.made("nncuda_event_create")
    source, middle, target = np.full(BIG // 4, 5, np.uint8), np.zeros(BIG // 4, np.uint8), np.zeros(BIG // 4, np.uint8)
    copy(context, first, middle, source)
    context.ok("nncuda_event_record", first, event)
    context.ok("nncuda_stream_wait_event", second, event)
    copy(context, second, target, middle)
    context.ok("nncuda_stream_synchronize", second)
    assert (target == 5).all()


def test_the_context_s_own_stream_waits_for_an_event(context):
    stream = context.made("nncuda_stream_create")
    event = context.made("nncuda_event_create")
    x = np.full(BIG // 4, 3, np.float32)
    middle, y = np.zeros_like(x), np.zeros_like(x)
    copy(context, stream, middle, x)
    context.ok("nncuda_event_record", stream, event)
    context.ok("nncuda_stream_wait_event", None, event)
    context.ok("cuda_scale", middle.ctypes.data, y.ctypes.data, y.size, 2.0, C.F32)
    assert (y == 6).all()


def test_events(context):
    event, later = context.made("nncuda_event_create"), context.made("nncuda_event_create")
    milliseconds = ctypes.c_float()
    assert happened(context, event)  # never recorded counts as happened
    context.ok("nncuda_event_synchronize", event)
    context.fails(C.ERROR_STATE, "start", "nncuda_event_elapsed", event, later, ctypes.byref(milliseconds))
    context.ok("nncuda_event_record", None, event)
    assert happened(context, event)
    context.fails(C.ERROR_STATE, "end", "nncuda_event_elapsed", event, later, ctypes.byref(milliseconds))
    time.sleep(0.02)
    context.ok("nncuda_event_record", None, later)
    assert elapsed(context, event, later) >= 20
    assert elapsed(context, later, event) <= -20
    assert elapsed(context, event, event) == 0
    context.fails(C.ERROR_NULL_POINTER, "milliseconds", "nncuda_event_elapsed", event, later, None)
    context.fails(C.ERROR_NULL_POINTER, "happened", "nncuda_event_query", event, None)


def test_an_event_recorded_again_means_the_latest_record(context):
    stream = context.made("nncuda_stream_create")
    event = context.made("nncuda_event_create")
    source, target = np.ones(BIG // 2, np.uint8), np.zeros(BIG // 2, np.uint8)
    context.ok("nncuda_event_record", stream, event)
    context.ok("nncuda_event_synchronize", event)
    assert happened(context, event)
    copy(context, stream, target, source)
    context.ok("nncuda_event_record", stream, event)
    context.ok("nncuda_event_synchronize", event)
    assert target.all()


def test_time_of_a_copy(context):
    stream = context.made("nncuda_stream_create")
    start, end = context.made("nncuda_event_create"), context.made("nncuda_event_create")
    source, target = np.ones(BIG, np.uint8), np.zeros(BIG, np.uint8)
    begin = time.monotonic()
    context.ok("nncuda_event_record", stream, start)
    copy(context, stream, target, source)
    context.ok("nncuda_event_record", stream, end)
    context.ok("nncuda_ctx_synchronize")
    whole = (time.monotonic() - begin) * 1e3
    assert 0 < elapsed(context, start, end) <= whole + 1


def test_destroying_a_stream_waits_for_its_work(context):
    stream = context.made("nncuda_stream_create")
    source, target = np.ones(BIG // 4, np.uint8), np.zeros(BIG // 4, np.uint8)
    copy(context, stream, target, source)
    context.ok("nncuda_stream_destroy", stream)
    assert target.all()


def test_destroying_a_context_waits_for_its_streams():
    source, target = np.ones(BIG // 4, np.uint8), np.zeros(BIG // 4, np.uint8)
    with Context() as context:
        copy(context, context.made("nncuda_stream_create"), target, source)
    assert target.all()


def test_an_event_may_be_destroyed_while_it_is_awaited(context):
    first, second = context.made("nncuda_stream_create"), context.made("nncuda_stream_create")
    source, target = np.ones(BIG // 4, np.uint8), np.zeros(BIG // 4, np.uint8)
    event = context.made("nncuda_event_create")
    copy(context, first, target, source)
    context.ok("nncuda_event_record", first, event)
    context.ok("nncuda_stream_wait_event", second, event)
    context.ok("nncuda_event_destroy", event)
    context.ok("nncuda_stream_synchronize", second)
    assert target.all()


def test_the_null_stream(context):
    source, target = np.full(1000, 8, np.uint8), np.zeros(1000, np.uint8)
    copy(context, None, target, source)
    context.ok("nncuda_stream_synchronize", None)
    assert (target == 8).all()
    context.ok("nncuda_stream_destroy", None)
    context.ok("nncuda_event_destroy", None)


HANDLES = [
    ("nncuda_stream_destroy", "stream", ()),
    ("nncuda_stream_synchronize", "stream", ()),
    ("nncuda_stream_wait_event", "event", (None,)),
    ("nncuda_event_destroy", "event", ()),
    ("nncuda_event_record", "event", (None,)),
    ("nncuda_event_synchronize", "event", ()),
    ("nncuda_event_query", "event", ()),
    ("nncuda_graph_launch", "graph", ()),
    ("nncuda_graph_size", "graph", ()),
    ("nncuda_graph_destroy", "graph", ()),
]


@pytest.mark.parametrize(("name", "word", "before"), HANDLES)
def test_foreign_handles_are_refused(context, name, word, before):
    """Of another kind, of another context, already destroyed, or no address at all: never followed."""
    out = ctypes.c_int64()
    after = (ctypes.byref(out),) if name in ("nncuda_event_query", "nncuda_graph_size") else ()
    with Context() as other:
        foreign = {
            "stream": other.made("nncuda_stream_create"),
            "event": other.made("nncuda_event_create"),
        }
        other.ok("nncuda_graph_begin")
        foreign["graph"] = other.made("nncuda_graph_end")
        gone = context.made("nncuda_event_create")
        context.ok("nncuda_event_destroy", gone)
        wrong_kind = context.made("nncuda_stream_create" if word != "stream" else "nncuda_event_create")
        for handle in (foreign[word].value, gone.value, wrong_kind.value, 1, 2**63):
            context.fails(C.ERROR_WRONG_DEVICE, word, name, *before, handle, *after)
    if name not in (
        "nncuda_stream_destroy",
        "nncuda_event_destroy",
        "nncuda_graph_destroy",
        "nncuda_stream_synchronize",
    ):
        context.fails(C.ERROR_INVALID_CONTEXT, word, name, *before, None, *after)


def test_a_place_for_the_handle_is_needed(context):
    context.fails(C.ERROR_NULL_POINTER, "stream", "nncuda_stream_create", None)
    context.fails(C.ERROR_NULL_POINTER, "event", "nncuda_event_create", None)
    stream = context.made("nncuda_event_create")
    memory = np.zeros(16, np.uint8)
    context.fails(C.ERROR_WRONG_DEVICE, "stream", "nncuda_memcpy_async", stream, memory.ctypes.data,
                  memory.ctypes.data + 8, 8, C.HOST_TO_DEVICE)  # fmt: skip
