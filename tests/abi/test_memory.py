"""Device and host memory: alignment, accounting, reuse, foreign pointers, running out."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from raw import C, Context

SIZES = [1, 2, 255, 256, 257, 4095, 4096, 4097, 65_536, 100_001, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_001]


def view(pointer: ctypes.c_void_p, bytes_: int) -> np.ndarray:
    assert pointer.value is not None
    return np.ctypeslib.as_array((ctypes.c_uint8 * bytes_).from_address(pointer.value))


@pytest.mark.parametrize("kind", ["", "_host"])
def test_every_size_is_aligned_writable_and_apart(context, kind):
    blocks = [(context.made("nncuda_malloc" + kind, size), size) for size in SIZES]
    for index, (pointer, size) in enumerate(blocks):
        assert pointer.value % 256 == 0
        view(pointer, size)[:] = index
    for index, (pointer, size) in enumerate(blocks):
        assert (view(pointer, size) == index).all()
    for pointer, _ in blocks:
        context.ok("nncuda_free" + kind, pointer)


def test_accounting(context):
    assert [context.get(a) for a in (C.CTX_BYTES_USED, C.CTX_BYTES_PEAK, C.CTX_BYTES_POOLED)] == [0, 0, 0]
    first = context.made("nncuda_malloc", 1000)
    second = context.made("nncuda_malloc", 3_000_000)
    assert context.get(C.CTX_BYTES_USED) == 3_001_000
    assert context.get(C.CTX_BYTES_PEAK) == 3_001_000
    context.ok("nncuda_free", second)
    assert context.get(C.CTX_BYTES_USED) == 1000
    assert context.get(C.CTX_BYTES_PEAK) == 3_001_000
    pooled = context.get(C.CTX_BYTES_POOLED)
    assert 3_000_000 <= pooled <= 3_000_000 * 9 // 8 + 256
    context.set(C.CTX_BYTES_PEAK, 0)
    assert context.get(C.CTX_BYTES_PEAK) == 1000
    context.set(C.CTX_BYTES_POOLED, 0)
    assert context.get(C.CTX_BYTES_POOLED) == 0
    host = context.made("nncuda_malloc_host", 5000)
    assert context.get(C.CTX_BYTES_USED) == 1000  # host memory is not the device's
    context.ok("nncuda_free_host", host)
    context.ok("nncuda_free", first)
    assert context.get(C.CTX_BYTES_USED) == 0


@pytest.mark.parametrize("size", SIZES)
def test_a_freed_buffer_is_used_again(context, size):
    pointer = context.made("nncuda_malloc", size)
    context.ok("nncuda_free", pointer)
    assert context.made("nncuda_malloc", size).value == pointer.value
    assert context.get(C.CTX_BYTES_POOLED) == 0


def test_the_pool_does_not_grow_without_bound(context):
    """Buffers of ever new sizes: what is kept stays below the highest use and a quarter, and a fixed slack."""
    for size in range(20 << 20, 60 << 20, 1 << 20):
        context.ok("nncuda_free", context.made("nncuda_malloc", size))
    assert context.get(C.CTX_BYTES_POOLED) <= (60 << 20) * 9 // 8 * 5 // 4 + (64 << 20)


def test_a_model_of_the_pool(context):
    """Random allocations and frees, each block filled with its own number: none ever overlaps another."""
    random = np.random.default_rng(4)
    live: list[tuple[ctypes.c_void_p, int, int]] = []
    for step in range(3000):
        if live and random.random() < 0.5:
            pointer, size, number = live.pop(random.integers(len(live)))
            assert (view(pointer, size) == number).all()
            context.ok("nncuda_free", pointer)
        else:
            size = int(2 ** random.uniform(0, 17))
            pointer = context.made("nncuda_malloc", size)
            view(pointer, size)[:] = step % 251
            live.append((pointer, size, step % 251))
        assert context.get(C.CTX_BYTES_USED) == sum(size for _, size, _ in live)


def test_nothing_and_null(context):
    assert context.made("nncuda_malloc", 0).value is None
    assert context.made("nncuda_malloc_host", 0).value is None
    context.ok("nncuda_free", None)
    context.ok("nncuda_free_host", None)
    for name in ("nncuda_malloc", "nncuda_malloc_host"):
        context.fails(C.ERROR_NULL_POINTER, "pointer", name, 8, None)
        out = ctypes.c_void_p(1)
        for size in (-1, -(2**63)):
            context.fails(C.ERROR_INVALID_SIZE, "bytes", name, size, ctypes.byref(out))
            assert out.value is None


def test_foreign_pointers_are_refused(context):
    mine = np.zeros(512, np.uint8)
    pointer = context.made("nncuda_malloc", 100)
    host = context.made("nncuda_malloc_host", 100)
    with Context() as other:
        theirs = other.made("nncuda_malloc", 100)
        for wrong in (1, mine.ctypes.data, pointer.value + 256, pointer.value - 1, theirs.value, host.value):
            context.fails(C.ERROR_WRONG_DEVICE, "pointer", "nncuda_free", wrong)
        context.fails(C.ERROR_WRONG_DEVICE, "nncuda_free", "nncuda_free_host", pointer)
    context.ok("nncuda_free", pointer)
    context.fails(C.ERROR_WRONG_DEVICE, "pointer", "nncuda_free", pointer)  # freed twice
    context.ok("nncuda_free_host", host)


@pytest.mark.parametrize("bytes_", [1 << 44, 1 << 55, 1 << 62, 2**63 - 1])
def test_running_out_says_how_much_was_asked_for(context, bytes_):
    kept = context.made("nncuda_malloc", 1000)
    view(kept, 1000)[:] = 7
    for name in ("nncuda_malloc", "nncuda_malloc_host"):
        out = ctypes.c_void_p(1)
        context.fails(C.ERROR_OUT_OF_MEMORY, str(bytes_), name, bytes_, ctypes.byref(out))
        assert out.value is None
    assert (view(kept, 1000) == 7).all()
    context.ok("nncuda_free", context.made("nncuda_malloc", 5000))
    context.ok("nncuda_free", kept)


def ranges_of(*ends: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(ends))(*ends)


def in_parts(context: Context, bytes_: int, *ends: int) -> ctypes.c_void_p:
    return context.made("nncuda_malloc_parts", bytes_, ranges_of(*ends), len(ends) // 2)


@pytest.mark.parametrize("bytes_", [4096, 100_000, (1 << 21) - 1, 5_000_001, 1 << 40])
def test_memory_in_parts(context, bytes_):
    """Zeroed, aligned, apart, and each byte of the ranges counts once."""
    ends = (1, 2, 2, 100, 3000, 3000, bytes_ - 1000, bytes_)
    first, second = in_parts(context, bytes_, *ends), in_parts(context, bytes_, *ends)
    assert first.value % 256 == second.value % 256 == 0 and abs(first.value - second.value) >= bytes_
    for number, pointer in enumerate((first, second)):
        for begin, end in ((1, 100), (bytes_ - 1000, bytes_)):
            part = view(ctypes.c_void_p(pointer.value + begin), end - begin)
            assert (part == 0).all()
            part[:] = 7 + number
    assert (view(ctypes.c_void_p(first.value + 1), 99) == 7).all()
    assert context.get(C.CTX_BYTES_USED) == context.get(C.CTX_BYTES_PEAK) == 2 * 1099
    context.ok("nncuda_free", first)
    assert context.get(C.CTX_BYTES_USED) == 1099
    assert context.get(C.CTX_BYTES_POOLED) == 0  # its addresses are the system's again
    context.fails(C.ERROR_WRONG_DEVICE, "pointer", "nncuda_free", first)
    context.fails(C.ERROR_WRONG_DEVICE, "pointer", "nncuda_free", second.value + 1)
    again = in_parts(context, bytes_, 0, 8)
    assert (view(again, 8) == 0).all()


def test_addresses_cost_nothing(context):
    """More terabytes than an address space has, one after the other; what is not freed goes with the context."""
    for _ in range(100):
        context.ok("nncuda_free", in_parts(context, 1 << 42))
    for _ in range(10):
        with Context() as other:
            for _ in range(10):
                in_parts(other, 1 << 42, 0, 1)
            assert other.get(C.CTX_BYTES_USED) == 10


@pytest.mark.parametrize("address", [0, 8191, 3 << 20, (8 << 20) - 1])
def test_what_touches_the_rest_ends(address):
    program = (
        "import ctypes, nncuda\n"
        "with nncuda.Context(threads=1) as ctx:\n"
        "    x = ctx.zeros_parts(8 << 20, 'i8', [(8192, 8292), (1 << 20, 3 << 20)])\n"
        "    first = int(ctx._ffi.cast('intptr_t', x._pointer))\n"
        "    for held in (8192, 8291, 1 << 20, (3 << 20) - 1):\n"
        "        ctypes.memset(first + held, 1, 1)\n"
        "    print('held', flush=True)\n"
        f"    ctypes.memset(first + {address}, 1, 1)\n"
    )
    unwatched = {**os.environ, "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:handle_segv=0"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, env=unwatched)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "held\n")


@pytest.mark.parametrize(
    "ends, sentence",
    [
        ((-1, 5), "range 0 is -1 to 5; it must lie within 0 to 100"),
        ((5, 4), "range 0 is 5 to 4; it must lie within 0 to 100"),
        ((0, 101), "range 0 is 0 to 101; it must lie within 0 to 100"),
        ((0, 5, 4, 8), "range 1 is 4 to 8; it must lie within 5 to 100"),
        ((50, 60, 0, 5), "range 1 is 0 to 5; it must lie within 60 to 100"),
    ],
)
def test_parts_that_are_none(context, ends, sentence):
    out = ctypes.c_void_p(1)
    arguments = ("nncuda_malloc_parts", 100, ranges_of(*ends), len(ends) // 2, ctypes.byref(out))
    context.fails(C.ERROR_INVALID_VALUE, sentence, *arguments)
    assert out.value is None


def test_no_parts(context):
    out = ctypes.c_void_p(1)
    assert context.made("nncuda_malloc_parts", 0, None, 0).value is None
    context.fails(C.ERROR_NULL_POINTER, "pointer", "nncuda_malloc_parts", 8, None, 0, None)
    context.fails(C.ERROR_NULL_POINTER, "ranges", "nncuda_malloc_parts", 8, None, 1, ctypes.byref(out))
    context.fails(C.ERROR_INVALID_SIZE, "count", "nncuda_malloc_parts", 8, None, -1, ctypes.byref(out))
    context.fails(C.ERROR_INVALID_SIZE, "bytes", "nncuda_malloc_parts", -8, None, 0, ctypes.byref(out))
    huge = ranges_of(0, 1 << 60)
    context.fails(C.ERROR_OUT_OF_MEMORY, str(1 << 60), "nncuda_malloc_parts", 1 << 60, huge, 1, ctypes.byref(out))
    assert out.value is None


def test_memory_info(context):
    free, total = ctypes.c_int64(), ctypes.c_int64()
    context.ok("nncuda_memory_info", ctypes.byref(free), ctypes.byref(total))
    assert 0 < free.value
    assert 1 << 28 < total.value
    context.fails(C.ERROR_NULL_POINTER, "free_bytes", "nncuda_memory_info", None, ctypes.byref(total))
    context.fails(C.ERROR_NULL_POINTER, "total_bytes", "nncuda_memory_info", ctypes.byref(free), None)


@pytest.mark.parametrize("bytes_", [0, 1, 100, (1 << 20) - 1, 1 << 20, 3_333_333])
def test_memset_and_memcpy(context, bytes_):
    source = np.random.default_rng(5).integers(0, 256, bytes_ + 2, np.uint8)
    for kind in (C.HOST_TO_DEVICE, C.DEVICE_TO_HOST, C.DEVICE_TO_DEVICE):
        target = np.full(bytes_ + 2, 9, np.uint8)
        context.ok("nncuda_memcpy", target.ctypes.data + 1, source.ctypes.data + 1, bytes_, kind)
        assert target[0] == target[-1] == 9
        np.testing.assert_array_equal(target[1:-1], source[1:-1])
        context.ok("nncuda_memset", target.ctypes.data + 1, 200, bytes_)
        assert target[0] == target[-1] == 9
        assert (target[1:-1] == 200).all()


def test_moves_are_checked(context):
    memory = np.zeros(64, np.uint8)
    a, b = memory.ctypes.data, memory.ctypes.data + 32
    for value in (-1, 256):
        context.fails(C.ERROR_INVALID_VALUE, "value", "nncuda_memset", a, value, 8)
    context.fails(C.ERROR_NULL_POINTER, "pointer", "nncuda_memset", None, 0, 8)
    context.fails(C.ERROR_INVALID_SIZE, "bytes", "nncuda_memset", a, 0, -1)
    context.fails(C.ERROR_INVALID_SIZE, "bytes", "nncuda_memset", a, 0, 2**62)
    for before in ((), (None,)):
        name = "nncuda_memcpy_async" if before else "nncuda_memcpy"
        context.fails(C.ERROR_NULL_POINTER, "destination", name, *before, None, b, 8, C.HOST_TO_DEVICE)
        context.fails(C.ERROR_NULL_POINTER, "source", name, *before, a, None, 8, C.HOST_TO_DEVICE)
        context.fails(C.ERROR_INVALID_SIZE, "bytes", name, *before, a, b, -8, C.HOST_TO_DEVICE)
        context.fails(C.ERROR_ALIASED, "destination", name, *before, a, a + 8, 16, C.DEVICE_TO_DEVICE)
        context.fails(C.ERROR_ALIASED, "destination", name, *before, a, a, 16, C.DEVICE_TO_DEVICE)
        for kind in (0, 4, -1):
            context.fails(C.ERROR_INVALID_VALUE, "kind", name, *before, a, b, 8, kind)
    assert not memory.any()


def test_a_steady_sequence_does_not_grow_the_arena(context):
    """Scratch settles after the first calls and then stays."""
    rows, cols = 64, 32_000
    logits = np.random.default_rng(6).standard_normal((rows, cols), dtype=np.float32)
    ids = np.zeros(rows, np.int32)
    arrays = {"temperature": np.ones(rows, np.float32), "top_p": np.full(rows, 0.9, np.float32),
              "seeds": np.zeros(rows, np.int64), "steps": np.zeros(rows, np.int32)}  # fmt: skip
    pointers = {name: array.ctypes.data for name, array in arrays.items()}
    sizes = []
    for _ in range(6):
        context.ok("cuda_topp_sample", logits.ctypes.data, pointers["temperature"], None, pointers["top_p"],
                   pointers["seeds"], pointers["steps"], ids.ctypes.data, rows, cols, C.F32)  # fmt: skip
        sizes.append(context.get(C.CTX_BYTES_ARENA))
    assert len(set(sizes[2:])) == 1
    assert context.get(C.CTX_BYTES_PEAK) >= max(sizes)
