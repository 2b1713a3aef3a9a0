"""Contexts: attributes, errors, one thread at a time, independence of each other."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from raw import HEADER, LIB, C, Context, status_name


def silu(context: Context, x: np.ndarray, y: np.ndarray) -> int:
    return context.call("cuda_silu", x.ctypes.data, y.ctypes.data, x.size, C.F32)


def test_create_and_destroy():
    made = ctypes.c_void_p(1)
    assert LIB.nncuda_ctx_create(C.DEVICE_CPU, 0, None) == C.ERROR_NULL_POINTER
    for device, index, status in (
        (0, 0, C.ERROR_INVALID_VALUE),
        (3, 0, C.ERROR_INVALID_VALUE),
        (C.DEVICE_CPU, 1, C.ERROR_NO_DEVICE),
        (C.DEVICE_CPU, -1, C.ERROR_NO_DEVICE),
        (C.DEVICE_CUDA, 10**6, C.ERROR_NO_DEVICE),
    ):
        made.value = 1
        assert LIB.nncuda_ctx_create(device, index, ctypes.byref(made)) == status
        assert made.value is None
    assert LIB.nncuda_ctx_destroy(None) == C.SUCCESS


def test_something_else_is_no_context():
    other = np.zeros(4096, np.uint8)
    assert LIB.nncuda_ctx_synchronize(other.ctypes.data) == C.ERROR_INVALID_CONTEXT
    assert LIB.nncuda_ctx_destroy(other.ctypes.data) == C.ERROR_INVALID_CONTEXT
    assert b"not a context" in LIB.nncuda_last_error(other.ctypes.data)
    assert b"null" in LIB.nncuda_last_error(None)


@pytest.mark.parametrize(
    "name", [f.name for f in HEADER.functions.values() if f.params[:1] and f.params[0].name == "ctx"]
)
def test_every_function_refuses_a_null_context_and_a_foreign_one(name):
    function = HEADER.functions[name]
    rest = [0 if "int" in p.ctype and "*" not in p.ctype else 0.0 if p.ctype in ("float", "double") else None
            for p in function.params[1:]]  # fmt: skip
    foreign = np.zeros(4096, np.uint8)
    if function.returns == "int32_t" and name not in (
        "nncuda_ctx_create",
        "nncuda_ctx_create_measuring",
        "nncuda_ctx_destroy",
    ):
        assert getattr(LIB, name)(None, *rest) == C.ERROR_INVALID_CONTEXT
        assert getattr(LIB, name)(foreign.ctypes.data, *rest) == C.ERROR_INVALID_CONTEXT


def test_attributes(context):
    assert context.get(C.CTX_DEVICE) == C.DEVICE_CPU
    assert context.get(C.CTX_DEVICE_INDEX) == 0
    assert context.get(C.CTX_THREADS) == 2
    widest = context.get(C.CTX_ISA)
    for isa in range(widest + 1):
        context.set(C.CTX_ISA, isa)
        assert context.get(C.CTX_ISA) == isa
    context.fails(C.ERROR_INVALID_VALUE, "CTX_ISA", "nncuda_ctx_set", C.CTX_ISA, widest + 1)
    context.fails(C.ERROR_INVALID_VALUE, "CTX_ISA", "nncuda_ctx_set", C.CTX_ISA, -1)
    for threads in (0, -1, 257, 2**40):
        context.fails(C.ERROR_INVALID_VALUE, "CTX_THREADS", "nncuda_ctx_set", C.CTX_THREADS, threads)
    assert context.get(C.CTX_NODES) == 1
    context.set(C.CTX_NODES, 1)
    for nodes in (0, -1, 257, 2**40):
        most = f"CTX_NODES must be 1 to {len(_nodes())}"
        context.fails(C.ERROR_INVALID_VALUE, most, "nncuda_ctx_set", C.CTX_NODES, nodes)
    for attribute in (
        C.CTX_DEVICE,
        C.CTX_DEVICE_INDEX,
        C.CTX_BYTES_USED,
        C.CTX_BYTES_ARENA,
        C.CTX_MEASURING,
        C.CTX_MULTIPROCESSORS,
        C.CTX_BYTES_HELD,
    ):
        context.fails(C.ERROR_INVALID_VALUE, "read-only", "nncuda_ctx_set", attribute, 1)
    for attribute in (C.CTX_BYTES_PEAK, C.CTX_BYTES_POOLED):
        context.fails(C.ERROR_INVALID_VALUE, "0", "nncuda_ctx_set", attribute, 1)
    for name in ("CTX_TF32", "CTX_TWO_PARTS"):
        flag = getattr(C, name)
        assert context.get(flag) == 0
        for allowed in (1, 0):
            context.set(flag, allowed)
            assert context.get(flag) == allowed
        for allowed in (-1, 2):
            context.fails(C.ERROR_INVALID_VALUE, name, "nncuda_ctx_set", flag, allowed)
    value = ctypes.c_int64()
    for attribute in (-1, 14, 1000):
        context.fails(C.ERROR_INVALID_VALUE, "attribute", "nncuda_ctx_get", attribute, ctypes.byref(value))
        context.fails(C.ERROR_INVALID_VALUE, "attribute", "nncuda_ctx_set", attribute, 0)
    context.fails(C.ERROR_NULL_POINTER, "value", "nncuda_ctx_get", C.CTX_ISA, None)


def _nodes() -> list[Path]:
    """The memory nodes of which this process may use a processor, as the system lists them; one where it lists none."""
    listed = [path for path in Path("/sys/devices/system/node").glob("node[0-9]*") if _allowed(path)]
    return listed or [Path()]


def _allowed(node: Path) -> bool:
    return any((node / f"cpu{processor}").exists() for processor in os.sched_getaffinity(0))


def test_the_default_number_of_threads_is_that_of_the_cores_allowed():
    with Context() as context:
        assert 1 <= context.get(C.CTX_THREADS) <= len(os.sched_getaffinity(0))


def test_the_cores_allowed_are_those_of_this_process_alone():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # of this thread, who asks; other processes have more
    try:
        with Context() as context:
            assert context.get(C.CTX_THREADS) == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_error_is_cleared_by_a_success(context):
    context.fails(C.ERROR_INVALID_VALUE, "attribute", "nncuda_ctx_set", -1, 0)
    context.ok("nncuda_ctx_synchronize")
    assert context.error == ""


def test_the_first_of_several_errors_is_reported(context):
    status = context.call("cuda_silu", None, None, -3, 99)
    assert status == C.ERROR_INVALID_DTYPE
    assert "dtype is 99" in context.error


def test_a_second_thread_is_refused_and_nothing_breaks(context):
    """Two threads hammer one context: each call succeeds or says BUSY, and each success is a right result."""
    x = np.linspace(-4, 4, 1 << 16, dtype=np.float32)
    want = np.empty_like(x)
    assert silu(context, x, want) == C.SUCCESS
    seen: list[set[int]] = []

    def hammer() -> None:
        statuses = set()
        y = np.empty_like(x)
        for _ in range(300):
            status = silu(context, x, y)
            statuses.add(status)
            if status == C.SUCCESS:
                np.testing.assert_array_equal(y, want)
                y.fill(0)
        seen.append(statuses)

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 3
    for statuses in seen:
        assert statuses <= {C.SUCCESS, C.ERROR_BUSY}, [status_name(status) for status in statuses]
    assert silu(context, x, np.empty_like(x)) == C.SUCCESS


def test_busy_while_another_thread_is_inside(context):
    """A long copy holds the context; every other call in the meantime says so and does not wait."""
    source, target = np.ones(1 << 28, np.uint8), np.zeros(1 << 28, np.uint8)
    started = threading.Event()

    def copy() -> None:
        started.set()
        assert context.call("nncuda_memset", target.ctypes.data, 3, target.size) == C.SUCCESS

    thread = threading.Thread(target=copy)
    thread.start()
    started.wait()
    statuses = set()
    while thread.is_alive():
        statuses.add(context.call("nncuda_ctx_synchronize"))
        if C.ERROR_BUSY in statuses and "another thread" in context.error:
            break
    thread.join()
    assert statuses <= {C.SUCCESS, C.ERROR_BUSY}
    assert C.ERROR_BUSY in statuses
    assert source.all()
    context.ok("nncuda_ctx_synchronize")


def test_contexts_are_independent():
    """As many threads as contexts, all at once, with different numbers of workers: the same bits everywhere."""
    x = np.random.default_rng(1).standard_normal(1 << 17, dtype=np.float32)
    with Context(threads=1) as one:
        want = np.empty_like(x)
        assert silu(one, x, want) == C.SUCCESS
    results = [np.empty_like(x) for _ in range(6)]

    def work(index: int) -> None:
        with Context(threads=1 + index % 3) as mine:
            for _ in range(20):
                results[index].fill(0)
                assert silu(mine, x, results[index]) == C.SUCCESS

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_any_number_of_threads_gives_the_same_bits(threads):
    x = np.random.default_rng(2).standard_normal(300_001, dtype=np.float32)
    with Context(threads=1) as one, Context(threads=threads) as many:
        want, got = np.empty_like(x), np.empty_like(x)
        assert silu(one, x, want) == C.SUCCESS
        for _ in range(5):
            got.fill(0)
            assert silu(many, x, got) == C.SUCCESS
            np.testing.assert_array_equal(got, want)


def test_threads_are_changed_on_the_fly(context):
    x = np.ones(1 << 18, np.float32)
    y = np.empty_like(x)
    for threads in (1, 7, 2, 3, 1, 2):
        context.set(C.CTX_THREADS, threads)
        assert silu(context, x, y) == C.SUCCESS


def test_results_do_not_depend_on_the_caller_s_rounding(context):
    """A library built with -ffast-math flushes subnormals in the whole process; the kernels must not notice."""
    libm = ctypes.CDLL("libm.so.6")
    fe_upward = 0x800 if os.uname().machine == "x86_64" else 0x400000
    x = np.random.default_rng(3).standard_normal(4096, dtype=np.float32)
    want, got = np.empty_like(x), np.empty_like(x)
    assert silu(context, x, want) == C.SUCCESS
    assert libm.fesetround(fe_upward) == 0
    try:
        status = silu(context, x, got)
        assert libm.fegetround() == fe_upward  # and it is given back as it was
    finally:
        libm.fesetround(0)
    assert status == C.SUCCESS
    np.testing.assert_array_equal(got, want)


def test_a_forked_child_still_computes():
    """Worker threads do not survive a fork; the calling thread then does the work itself."""
    x = np.ones(1 << 18, np.float32)
    y = np.empty_like(x)
    context = Context(threads=3)
    stream = context.made("nncuda_stream_create")
    assert silu(context, x, y) == C.SUCCESS
    child = os.fork()
    if child == 0:
        code = silu(context, x, y)
        code = code or context.call("nncuda_stream_synchronize", stream)
        code = code or LIB.nncuda_ctx_destroy(context.handle)
        os._exit(code)
    _, state = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(state) == 0
    assert LIB.nncuda_ctx_destroy(context.handle) == C.SUCCESS


def test_devices():
    count = ctypes.c_int32(-1)
    assert LIB.nncuda_device_count(C.DEVICE_CPU, ctypes.byref(count)) == C.SUCCESS
    assert count.value == 1
    assert LIB.nncuda_device_count(C.DEVICE_CUDA, ctypes.byref(count)) == C.SUCCESS
    assert count.value >= 0
    assert LIB.nncuda_device_count(C.DEVICE_CPU, None) == C.ERROR_NULL_POINTER
    assert LIB.nncuda_device_count(9, ctypes.byref(count)) == C.ERROR_INVALID_VALUE
    text = ctypes.create_string_buffer(b"x" * 400, 400)
    assert LIB.nncuda_device_describe(C.DEVICE_CPU, 0, text, 400) == C.SUCCESS
    whole = text.value
    assert b"GiB" in whole and b"threads" in whole
    for capacity in (1, 2, 10):
        text.raw = b"x" * 400
        assert LIB.nncuda_device_describe(C.DEVICE_CPU, 0, text, capacity) == C.SUCCESS
        assert text.value == whole[: capacity - 1]
        assert text.raw[capacity:] == b"x" * (400 - capacity)
    for capacity in (0, -1):
        assert LIB.nncuda_device_describe(C.DEVICE_CPU, 0, text, capacity) == C.ERROR_INVALID_SIZE
    assert LIB.nncuda_device_describe(C.DEVICE_CPU, 0, None, 10) == C.ERROR_NULL_POINTER
    assert LIB.nncuda_device_describe(C.DEVICE_CPU, 1, text, 10) == C.ERROR_NO_DEVICE
    assert LIB.nncuda_device_describe(7, 0, text, 10) == C.ERROR_INVALID_VALUE


def test_dtype_sizes():
    size = ctypes.c_int64(-1)
    for dtype, bytes_ in ((C.F32, 4), (C.F16, 2), (C.BF16, 2), (C.I32, 4), (C.I8, 1)):
        assert LIB.nncuda_dtype_size(dtype, ctypes.byref(size)) == C.SUCCESS
        assert size.value == bytes_
    for dtype in (-1, 5, 1000, 2**31 - 1):
        assert LIB.nncuda_dtype_size(dtype, ctypes.byref(size)) == C.ERROR_INVALID_DTYPE
    assert LIB.nncuda_dtype_size(C.F32, None) == C.ERROR_NULL_POINTER
