"""Memory shared with other libraries: values, strides, read-only arrays, and that memory lives as long as its users."""

from __future__ import annotations

import binascii
import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import nncuda
from nncuda import kernels
from nncuda.binding import exchange

needs_extension = pytest.mark.skipif(not exchange.available(), reason="installed without a C++ compiler")


class Owned(np.ndarray):
    """An array that can be watched: plain arrays take no weak references to their views."""


def test_asarray_shares_memory(ctx: nncuda.Context) -> None:
    tensor = ctx.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    array = np.asarray(tensor)
    array[1, 2] = 50
    assert tensor.numpy()[1, 2] == 50
    kernels.scale(tensor, alpha=2.0, y=tensor)
    assert array[1, 2] == 100
    assert np.asarray(tensor, np.float64).dtype == np.float64
    columns = tensor.narrow(1, 1, 2)
    np.testing.assert_array_equal(np.asarray(columns), tensor.numpy()[:, 1:])
    assert np.asarray(columns).base is not None


def test_asarray_of_bf16_shares_memory(ctx: nncuda.Context) -> None:
    tensor = ctx.tensor(np.arange(4), "bf16")
    array = np.asarray(tensor)
    assert array.dtype == ml_dtypes.bfloat16
    array[0] = 9
    assert tensor.numpy()[0] == 9


def test_array_interface_alone_shares_memory(ctx: nncuda.Context) -> None:
    """What NumPy uses where the package was installed without a C++ compiler."""
    tensor = ctx.tensor(np.arange(6, dtype=np.int32).reshape(2, 3))
    array = np.asarray(exchange.ArrayInterface(tensor.narrow(1, 1, 2)))
    np.testing.assert_array_equal(array, [[1, 2], [4, 5]])
    pointer = tensor.ptr
    del tensor
    assert array.__array_interface__["data"][0] == pointer + 4
    used = ctx.bytes_used
    del array
    assert ctx.bytes_used < used


@needs_extension
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "i8", "i64", "u8"])
def test_buffer_protocol(ctx: nncuda.Context, dtype: str) -> None:
    tensor = ctx.tensor(np.arange(6).reshape(2, 3), dtype)
    view = memoryview(tensor)
    assert view.shape == (2, 3) and not view.readonly and view.c_contiguous
    np.testing.assert_array_equal(np.asarray(view), tensor.numpy())
    columns = memoryview(tensor.narrow(1, 1, 1))
    assert columns.strides == (3 * columns.itemsize, columns.itemsize)
    np.testing.assert_array_equal(np.asarray(columns), [[1], [4]])
    assert bytes(tensor) == tensor.numpy().tobytes()
    binascii.crc32(tensor)  # asks for plain bytes
    with pytest.raises(BufferError, match="not contiguous"):
        binascii.crc32(tensor.narrow(1, 0, 2))


@needs_extension
def test_buffer_protocol_refuses(ctx: nncuda.Context) -> None:
    with pytest.raises(BufferError, match="bf16"):
        memoryview(ctx.zeros(3, "bf16"))
    values = np.arange(3, dtype=np.float32)
    values.flags.writeable = False
    shared = ctx.from_dlpack(values)
    assert memoryview(shared).readonly
    assert not np.asarray(shared).flags.writeable


@needs_extension
def test_buffer_keeps_memory(ctx: nncuda.Context) -> None:
    before = ctx.bytes_used
    view = memoryview(ctx.tensor([1.0, 2.0]))
    gc.collect()
    assert ctx.bytes_used > before and view.tolist() == [1.0, 2.0]
    view.release()
    assert ctx.bytes_used == before


@needs_extension
def test_dlpack_to_numpy(ctx: nncuda.Context) -> None:
    before = ctx.bytes_used
    tensor = ctx.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    array = np.from_dlpack(tensor)
    columns = np.from_dlpack(tensor.narrow(1, 1, 2))
    np.testing.assert_array_equal(columns, [[1, 2], [4, 5]])
    address = tensor.ptr
    del tensor
    gc.collect()
    assert ctx.bytes_used > before
    assert array.__array_interface__["data"][0] == address
    np.testing.assert_array_equal(array, [[0, 1, 2], [3, 4, 5]])
    del array, columns
    assert ctx.bytes_used == before


@needs_extension
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
def test_capsules_release_their_memory_unused_or_used(ctx: nncuda.Context, version: tuple[int, int] | None) -> None:
    before = ctx.bytes_used
    capsule = ctx.tensor([1.0, 2.0]).__dlpack__(max_version=version)
    assert ("versioned" in repr(capsule)) == (version is not None and version[0] >= 1)
    assert ctx.bytes_used > before
    del capsule
    assert ctx.bytes_used == before, "a capsule that nobody took gives its memory back"

    class Producer:
        def __init__(self) -> None:
            self.tensor = ctx.tensor([3.0, 4.0])

        def __dlpack__(self, max_version: object = None) -> object:
            return self.tensor.__dlpack__(max_version=version)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.tensor.__dlpack_device__()

    back = ctx.from_dlpack(Producer())
    gc.collect()
    assert back.tolist() == [3.0, 4.0] and ctx.bytes_used > before
    del back
    assert ctx.bytes_used == before


@needs_extension
def test_a_capsule_is_taken_once(ctx: nncuda.Context) -> None:
    class Producer:
        capsule = ctx.tensor([1.0]).__dlpack__()

        def __dlpack__(self) -> object:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    producer = Producer()
    ctx.from_dlpack(producer)
    with pytest.raises(TypeError, match="no fresh DLPack capsule"):
        ctx.from_dlpack(producer)


@needs_extension
def test_from_dlpack_shares_memory_and_keeps_it(ctx: nncuda.Context) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    references = sys.getrefcount(values)
    tensor = nncuda.from_dlpack(values, ctx)
    assert tensor.ptr == values.ctypes.data and tensor.shape == (2, 3)
    values[0, 0] = 5
    assert tensor.tolist()[0][0] == 5
    kernels.scale(tensor, alpha=2.0, y=tensor)
    assert values[0, 0] == 10
    part = tensor.narrow(0, 1, 1)
    del tensor
    assert sys.getrefcount(values) > references
    assert part.tolist() == [[6, 8, 10]]
    del part
    assert sys.getrefcount(values) == references


@needs_extension
def test_from_dlpack_keeps_the_only_reference(ctx: nncuda.Context) -> None:
    values = np.arange(4, dtype=np.int32).view(Owned)
    watch = weakref.ref(values)
    tensor = ctx.from_dlpack(values)
    del values
    gc.collect()
    assert watch() is not None and tensor.tolist() == [0, 1, 2, 3]
    del tensor
    assert watch() is None


@needs_extension
def test_row_strides_come_in(ctx: nncuda.Context) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    part = ctx.from_dlpack(values[:, 1:4])
    assert (part.shape, part.ld) == ((4, 3), 6)
    np.testing.assert_array_equal(part.numpy(), values[:, 1:4])
    # A single row, or a dimension of one, has whatever stride its library gave it.
    assert ctx.from_dlpack(values[1:2, 1:4]).is_dense
    assert ctx.from_dlpack(values[:, 2:3]).ld == 6
    assert ctx.from_dlpack(values[0:0]).shape == (0, 6)


@needs_extension
@pytest.mark.parametrize(
    ("array", "error", "text"),
    [
        (np.zeros((2, 3), np.float32).T, BufferError, "strides"),
        (np.zeros((2, 6), np.float32)[:, ::2], BufferError, "strides"),
        (np.zeros(4, np.float32)[::-1], BufferError, "overlap"),
        (np.zeros(3), TypeError, "DLPack code 2, 64 bits"),
        (np.zeros(3, np.complex64), TypeError, "DLPack code 5"),
        ([1.0, 2.0], TypeError, "no __dlpack__"),
        (np.frombuffer(bytearray(9), np.uint8)[1:].view(np.float32), BufferError, "not aligned"),
        (np.broadcast_to(np.zeros(3, np.float32), (2, 3)), BufferError, "overlap"),
    ],
)
def test_what_cannot_come_in(ctx: nncuda.Context, array: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ctx.from_dlpack(array)


@needs_extension
def test_read_only_arrays_are_not_written(ctx: nncuda.Context) -> None:
    values = np.arange(3, dtype=np.float32)
    values.flags.writeable = False
    tensor = ctx.from_dlpack(values)
    assert tensor.readonly and tensor.view(3, 1).readonly and tensor.narrow(0, 1, 1).readonly
    assert not kernels.silu(tensor).readonly
    with pytest.raises(ValueError, match="y is written, but its memory is read-only"):
        kernels.silu(tensor, y=tensor)
    with pytest.raises(ValueError, match="read-only"):
        tensor.copy_([1, 2, 3])
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
    assert not np.from_dlpack(tensor).flags.writeable
    np.testing.assert_array_equal(values, [0, 1, 2])


@needs_extension
def test_what_an_export_refuses(ctx: nncuda.Context) -> None:
    tensor = ctx.zeros(3)
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="device"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy"):
        tensor.__dlpack__(copy=True)


@needs_extension
def test_exports_outlive_a_closed_context() -> None:
    ctx = nncuda.Context(threads=1)
    tensor = ctx.tensor([1.0, 2.0])
    arrays = [np.from_dlpack(tensor), np.asarray(tensor), np.asarray(exchange.ArrayInterface(tensor))]
    view = memoryview(tensor)
    ctx.close()
    assert ctx.closed
    for array in arrays:
        np.testing.assert_array_equal(array, [1, 2])
    assert view.tolist() == [1, 2]
    for use in (tensor.numpy, tensor.__dlpack__, lambda: kernels.silu(tensor), lambda: np.asarray(tensor)):
        with pytest.raises(nncuda.StateError, match="closed"):
            use()
    assert ctx._last_handle
    view.release()
    arrays.clear()
    del array
    gc.collect()
    assert not ctx._last_handle, "the context's memory goes with the last export"


@needs_extension
def test_dlpack_between_contexts(ctx: nncuda.Context) -> None:
    with nncuda.Context(threads=1) as other:
        source = other.tensor(np.arange(4), "bf16")
        shared = ctx.from_dlpack(source)
        assert shared.dtype == "bf16" and shared.ptr == source.ptr and shared.ctx is ctx
        source.copy_([4, 5, 6, 7])
        np.testing.assert_array_equal(shared.numpy().astype(np.float32), [4, 5, 6, 7])


def test_without_the_extension_the_error_says_what_to_install(
    ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_exchange", None)
    monkeypatch.setattr(exchange, "_reason", "not built", raising=False)
    tensor = ctx.tensor([1.0])
    with pytest.raises(ImportError, match=r"Install a C\+\+17 compiler"):
        tensor.__dlpack__()
    with pytest.raises(ImportError, match=r"Install a C\+\+17 compiler"):
        ctx.from_dlpack(np.zeros(3, np.float32))
