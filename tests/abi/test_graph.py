"""Graphs: what is captured, that a replay gives the same bits, and what is refused meanwhile."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from raw import HEADER, C, Context
from samples import Sample

KERNELS = sorted(HEADER.kernels.values(), key=lambda function: function.name)


@pytest.mark.parametrize("function", KERNELS, ids=lambda function: function.kernel)
def test_a_replay_gives_the_same_bits(context, function):
    """Captured calls do not run; two launches equal two calls, for every kernel."""
    called, replayed = Sample(function), Sample(function)
    before = replayed.image()
    with context.captured() as graph:
        context.ok(function.name, *replayed.values())
    assert replayed.image() == before, "the call ran while it was captured"
    for _ in range(2):
        context.ok(function.name, *called.values())
        context.ok("nncuda_graph_launch", graph)
        assert replayed.image() == called.image()


def size(context: Context, graph: ctypes.c_void_p) -> int:
    nodes = ctypes.c_int64(-1)
    context.ok("nncuda_graph_size", graph, ctypes.byref(nodes))
    return nodes.value


def test_a_sequence_with_moves_reads_memory_at_launch(context):
    """The whole point of a graph: the scalars stay, what lies in memory may change between launches."""
    n = 1000
    x, y, z = (np.zeros(n, np.float32) for _ in range(3))
    with context.captured() as graph:
        context.ok("nncuda_memset", z.ctypes.data, 0, z.nbytes)
        context.ok("cuda_scale", x.ctypes.data, y.ctypes.data, n, 3.0, C.F32)
        context.ok("nncuda_memcpy", z.ctypes.data, y.ctypes.data, y.nbytes, C.DEVICE_TO_DEVICE)
        context.ok("nncuda_memcpy_async", None, x.ctypes.data, z.ctypes.data, z.nbytes, C.DEVICE_TO_DEVICE)
    assert size(context, graph) == 4
    for value in (1, 7):
        x.fill(value)
        context.ok("nncuda_graph_launch", graph)
        assert (y == 3 * value).all() and (z == 3 * value).all() and (x == 3 * value).all()


def test_the_same_bits_for_any_number_of_threads(context):
    x = np.random.default_rng(7).standard_normal(200_001, dtype=np.float32)
    norm, want = np.zeros(1, np.float32), np.zeros(1, np.float32)
    context.ok("cuda_grad_norm", x.ctypes.data, want.ctypes.data, x.size, C.F32)
    with context.captured() as graph:
        context.ok("cuda_grad_norm", x.ctypes.data, norm.ctypes.data, x.size, C.F32)
    for threads in (1, 2, 3, 7):
        context.set(C.CTX_THREADS, threads)
        norm.fill(0)
        context.ok("nncuda_graph_launch", graph)
        assert norm.tobytes() == want.tobytes()


def test_several_graphs_in_any_order(context):
    x = np.zeros(10, np.float32)
    graphs = []
    for value in range(5):
        with context.captured() as graph:
            context.ok("cuda_fill", x.ctypes.data, x.size, float(value), C.F32)
        graphs.append(graph)
    for value in (3, 0, 4, 1, 2, 2):
        context.ok("nncuda_graph_launch", graphs[value])
        assert (x == value).all()
    context.ok("nncuda_graph_destroy", graphs[3])
    context.fails(C.ERROR_WRONG_DEVICE, "graph", "nncuda_graph_launch", graphs[3])
    context.ok("nncuda_graph_launch", graphs[4])


def test_an_empty_graph(context):
    with context.captured() as graph:
        context.ok("cuda_fill", None, 0, 1.0, C.F32)  # nothing to do, nothing to record
    assert size(context, graph) == 0
    context.ok("nncuda_graph_launch", graph)
    context.ok("nncuda_graph_destroy", graph)
    context.ok("nncuda_graph_destroy", None)


def test_a_call_that_fails_its_checks_is_not_recorded(context):
    x = np.zeros(10, np.float32)
    with context.captured() as graph:
        context.fails(C.ERROR_NULL_POINTER, "y", "cuda_fill", None, 10, 1.0, C.F32)
        context.ok("cuda_fill", x.ctypes.data, 10, 1.0, C.F32)
    assert size(context, graph) == 1


def test_a_launch_reports_the_call_that_fails(context):
    """Ids are read at launch; the error is that of the call inside the graph, and the calls after it do not run."""
    table, out, later = np.ones((4, 2), np.float32), np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
    ids = np.array([0, 9, 1], np.int32)
    with context.captured() as graph:
        context.ok("cuda_embedding", table.ctypes.data, ids.ctypes.data, out.ctypes.data, 3, 4, 2, C.F32)
        context.ok("cuda_fill", later.ctypes.data, 3, 1.0, C.F32)
    assert context.call("nncuda_graph_launch", graph) == C.ERROR_OUT_OF_RANGE
    assert context.error.startswith("cuda_embedding: ids")
    assert not out.any() and not later.any()
    ids[1] = 2
    context.ok("nncuda_graph_launch", graph)
    assert out.all() and later.all()


def test_what_is_refused_while_capturing(context):
    memory = context.made("nncuda_malloc", 64)
    stream = context.made("nncuda_stream_create")
    event = context.made("nncuda_event_create")
    with context.captured() as ready:
        pass
    buffer = np.zeros(64, np.uint8)
    out = ctypes.c_void_p()
    where = ctypes.byref(out)
    a, b = buffer.ctypes.data, buffer.ctypes.data + 32
    context.ok("nncuda_graph_begin")
    for name, *args in (
        ("nncuda_free", memory),
        ("nncuda_free_host", None),
        ("nncuda_ctx_synchronize",),
        ("nncuda_memcpy", a, b, 8, C.HOST_TO_DEVICE),
        ("nncuda_memcpy", a, b, 8, C.DEVICE_TO_HOST),
        ("nncuda_memcpy_async", None, a, b, 8, C.DEVICE_TO_HOST),
        ("nncuda_memcpy_async", stream, a, b, 8, C.DEVICE_TO_DEVICE),
        ("nncuda_stream_create", where),
        ("nncuda_stream_synchronize", None),
        ("nncuda_stream_synchronize", stream),
        ("nncuda_stream_destroy", stream),
        ("nncuda_stream_wait_event", stream, event),
        ("nncuda_event_create", where),
        ("nncuda_event_record", stream, event),
        ("nncuda_event_synchronize", event),
        ("nncuda_event_query", event, where),
        ("nncuda_event_destroy", event),
        ("nncuda_graph_launch", ready),
    ):
        context.fails(C.ERROR_CAPTURING, "captur", name, *args)
    context.fails(C.ERROR_STATE, "nncuda_graph_end", "nncuda_graph_begin")
    context.fails(C.ERROR_NULL_POINTER, "graph", "nncuda_graph_end", None)
    graph = context.made("nncuda_graph_end")
    assert size(context, graph) == 0
    context.fails(C.ERROR_STATE, "nncuda_graph_begin", "nncuda_graph_end", where)
    context.fails(C.ERROR_NULL_POINTER, "nodes", "nncuda_graph_size", graph, None)
    context.ok("nncuda_free", memory)


def test_memory_may_be_taken_while_capturing(context):
    """The outputs of captured calls need a place."""
    with context.captured() as graph:
        memory = context.made("nncuda_malloc", 4)
        context.ok("cuda_fill", memory, 1, 5.0, C.F32)
    context.ok("nncuda_graph_launch", graph)
    assert ctypes.c_float.from_address(memory.value or 0).value == 5.0


def test_a_context_may_be_destroyed_while_capturing():
    x = np.zeros(8, np.float32)
    with Context() as context:
        context.ok("nncuda_graph_begin")
        context.ok("cuda_fill", x.ctypes.data, 8, 1.0, C.F32)
    assert not x.any()
