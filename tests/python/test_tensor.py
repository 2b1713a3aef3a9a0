"""Tensors: what they hold, views of them, and copies in and out."""

from __future__ import annotations

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import nncuda
from nncuda import kernels

NUMPY = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
    "i8": np.int8,
    "i64": np.int64,
    "u8": np.uint8,
}


@pytest.mark.parametrize("dtype", NUMPY)
def test_round_trip(ctx: nncuda.Context, dtype: str) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(NUMPY[dtype])
    tensor = ctx.tensor(values)
    assert (tensor.dtype, tensor.shape, tensor.ld, tensor.size) == (dtype, (2, 3, 4), 12, 24)
    assert tensor.nbytes == values.nbytes and tensor.ndim == 3 and len(tensor) == 2
    assert tensor.ptr % 256 == 0
    back = tensor.numpy()
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)
    assert ctx.tensor(values.reshape(-1)[:1]).item() == values.flat[0]


def test_what_dtype_values_get(ctx: nncuda.Context) -> None:
    assert ctx.tensor([1.5, 2.0]).dtype == "f32"
    assert ctx.tensor([1, 2]).dtype == "i32"
    assert ctx.tensor(3.0).shape == ()
    assert ctx.tensor(np.zeros(2)).dtype == "f32"
    assert ctx.tensor(np.zeros(2, np.int64)).dtype == "i64"
    assert ctx.tensor([1, 2], "f16").dtype == "f16"
    assert ctx.tensor([1, 2], np.float16).dtype == "f16"
    assert ctx.tensor([1, 2], "float32").dtype == "f32"
    assert ctx.tensor([1, 2], ml_dtypes.bfloat16).dtype == "bf16"
    with pytest.raises(OverflowError, match="do not fit into i32"):
        ctx.tensor([1 << 40])
    with pytest.raises(TypeError, match="must be one of"):
        ctx.tensor([1 + 2j])
    for unknown in ("f64", None, 7, "complex64"):
        with pytest.raises(TypeError, match="dtype is"):
            ctx.empty((2,), unknown)


@pytest.mark.parametrize("shape", [-1, (2, -3), (2.5,), "ab", None])
def test_bad_shapes(ctx: nncuda.Context, shape: object) -> None:
    with pytest.raises((TypeError, ValueError), match="shape"):
        ctx.empty(shape)


def test_views_share_memory(ctx: nncuda.Context) -> None:
    tensor = ctx.tensor(np.arange(24, dtype=np.float32))
    view = tensor.view(2, 3, 4)
    assert view.ptr == tensor.ptr and view.shape == (2, 3, 4)
    assert tensor.view(-1, 4).shape == (6, 4)
    assert tensor.view((4, -1)).shape == (4, 6)
    kernels.fill(view, value=7.0)
    assert set(tensor.tolist()) == {7.0}
    for wrong in ((5, 5), (-1, 5), (-1, -1), (0, -1)):
        with pytest.raises(ValueError, match="cannot be viewed"):
            tensor.view(*wrong)


def test_bytes_share_memory(ctx: nncuda.Context) -> None:
    whole = ctx.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    raw = whole.as_bytes()
    assert raw.shape == (3, 16) and raw.dtype == "u8"
    np.testing.assert_array_equal(raw.numpy(), whole.numpy().view(np.uint8))
    raw.zero_()
    assert not whole.numpy().any()
    with pytest.raises(ValueError, match="is not dense"):
        whole.narrow(1, 0, 2).as_bytes()


def test_narrow(ctx: nncuda.Context) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensor = ctx.tensor(values)
    np.testing.assert_array_equal(tensor.narrow(0, 1, 2).numpy(), values[1:3])
    columns = tensor.narrow(1, 2, 3)
    assert (columns.shape, columns.ld, columns.is_dense) == ((4, 3), 6, False)
    assert columns.ptr == tensor.ptr + 8
    # It ends with the last element of its last row, not a whole row further.
    assert columns.nbytes == (3 * 6 + 3) * 4
    np.testing.assert_array_equal(columns.numpy(), values[:, 2:5])
    np.testing.assert_array_equal(tensor.narrow(-1, 5, 1).numpy(), values[:, 5:])
    np.testing.assert_array_equal(columns.narrow(0, 1, 2).numpy(), values[1:3, 2:5])
    np.testing.assert_array_equal(columns.contiguous().numpy(), values[:, 2:5])
    assert columns.contiguous().ld == 3 and tensor.contiguous() is tensor
    assert tensor.narrow(0, 4, 0).numpy().shape == (0, 6)
    heads = tensor.narrow(1, 0, 4).view(4, 2, 2)
    assert heads.ld == 6
    np.testing.assert_array_equal(heads.numpy(), values[:, :4].reshape(4, 2, 2))
    with pytest.raises(ValueError, match="first dimension must stay"):
        columns.view(12)
    for start, length in ((-1, 2), (3, 2), (0, 5), (0, -1)):
        with pytest.raises(IndexError):
            tensor.narrow(0, start, length)
    with pytest.raises(ValueError, match="dimension 0 or 1"):
        heads.narrow(2, 0, 1)


def test_copies_into_a_part_leave_the_rest(ctx: nncuda.Context) -> None:
    tensor = ctx.zeros((3, 4))
    tensor.narrow(1, 1, 2).copy_([[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(tensor.numpy(), [[0, 1, 2, 0], [0, 3, 4, 0], [0, 5, 6, 0]])
    other = ctx.empty((3, 2)).copy_(tensor.narrow(1, 1, 2))
    np.testing.assert_array_equal(other.numpy(), [[1, 2], [3, 4], [5, 6]])
    # A Fortran-ordered array is taken by its values, not by its memory.
    np.testing.assert_array_equal(ctx.tensor(np.arange(6.0).reshape(2, 3).T).numpy(), np.arange(6.0).reshape(2, 3).T)
    with pytest.raises(ValueError, match="shape"):
        tensor.copy_(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="shape and dtype"):
        tensor.copy_(ctx.zeros((3, 4), "f16"))


def test_item_and_conversions(ctx: nncuda.Context) -> None:
    assert ctx.tensor([2.5]).item() == 2.5
    assert ctx.tensor(np.array([1.5, 2.5], ml_dtypes.bfloat16)).narrow(0, 1, 1).item() == 2.5
    assert float(ctx.tensor(0.5)) == 0.5 and int(ctx.tensor(7)) == 7
    with pytest.raises(ValueError, match="one element"):
        ctx.zeros(2).item()
    with pytest.raises(TypeError, match="no length"):
        len(ctx.tensor(1.0))


def test_empty_tensors(ctx: nncuda.Context) -> None:
    tensor = ctx.zeros((0, 4))
    assert tensor.nbytes == 0 and tensor.ptr == 0
    assert tensor.numpy().shape == (0, 4)
    assert np.asarray(tensor).shape == (0, 4)
    assert kernels.silu(tensor).shape == (0, 4)


def test_memory_goes_back_to_the_pool(ctx: nncuda.Context) -> None:
    before = ctx.bytes_used
    tensor = ctx.empty(1 << 20, "i8")
    assert ctx.bytes_used >= before + (1 << 20)
    part = tensor.narrow(0, 5, 10).view(2, 5)
    address = tensor.ptr
    del tensor
    assert ctx.bytes_used > before, "a view keeps the memory"
    del part
    assert ctx.bytes_used == before
    assert ctx.bytes_pooled >= 1 << 20
    assert ctx.empty(1 << 20, "i8").ptr == address, "freed memory is used again"
    ctx.trim()
    assert ctx.bytes_pooled == 0


def test_host_arrays(ctx: nncuda.Context) -> None:
    before = ctx.bytes_used
    array = ctx.host_array((3, 4), "bf16")
    assert array.shape == (3, 4) and array.dtype == ml_dtypes.bfloat16 and array.flags.writeable
    array[:] = 2
    assert ctx.tensor(array).numpy().astype(np.float32).sum() == 24
    part = array[1:]
    del array
    assert part[0, 0] == 2
    assert ctx.host_array((0, 4)).shape == (0, 4)
    for _ in range(100):
        ctx.host_array(1 << 16)
    del part
    assert ctx.bytes_used == before


def test_host_arrays_outlive_a_closed_context() -> None:
    ctx = nncuda.Context(threads=1)
    array = ctx.host_array(4)
    array[:] = 3
    ctx.close()
    assert array.sum() == 12 and ctx._last_handle
    del array
    assert not ctx._last_handle


def test_from_numpy_uses_the_array_in_place(ctx: nncuda.Context) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = ctx.from_numpy(array)
    assert tensor.shape == (2, 3) and tensor.ptr == array.ctypes.data and not tensor.readonly
    kernels.scale(tensor, alpha=2.0, y=tensor)
    assert array[1, 2] == 10
    fixed = np.frombuffer(bytes(range(8)), np.uint8)
    assert ctx.from_numpy(fixed).readonly
    weak = weakref.ref(array)
    del array
    gc.collect()
    assert weak() is not None and tensor.numpy()[0, 1] == 2  # it lives as long as the tensor
    assert ctx.from_numpy(np.empty((0, 4), np.float16)).size == 0
    with pytest.raises(BufferError, match="not C-contiguous"):
        ctx.from_numpy(np.zeros((4, 4), np.float32)[:, ::2])
    with pytest.raises(TypeError, match="float64"):
        ctx.from_numpy(np.zeros(3))
