"""Memory shared with other libraries: the Python half of DLPack, the buffer protocol and NumPy's array interface.

The compiled half is `_exchange` (pybind11). Without it, as when the package was installed on a machine without a C++
compiler, NumPy still shares memory through its array interface; DLPack and memoryview then say what to install.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .. import dtypes

if TYPE_CHECKING:
    from ..device import Context, Tensor

try:
    from . import _exchange  # type: ignore[attr-defined]  # compiled
except ImportError as _error:  # installed without a C++ compiler, or run from the source tree
    _exchange = None
    _reason = str(_error)

#: Device types, as in DLPack and in bindings.h.
CPU, CUDA, CUDA_HOST = 1, 2, 3

# Where memory without elements lies, since NumPy before 2.3 takes no null pointer for it.
_NOTHING = (ctypes.c_char * 8)()
_ADDRESS_OF_NOTHING = ctypes.addressof(_NOTHING)


class MissingExtension(ImportError):
    """DLPack and the buffer protocol need the compiled module, which this installation lacks."""


def _need_extension() -> Any:
    if _exchange is None:
        raise MissingExtension(
            "DLPack and memoryview need the compiled module nncuda.binding._exchange, which this installation lacks "
            f"({_reason}). Install a C++17 compiler (Debian: apt install g++) and install nncuda again: "
            "pip install --force-reinstall --no-deps nncuda, or pip install . in its source tree. "
            "numpy.asarray(tensor) and Context.tensor(array) work without it"
        )
    return _exchange


def available() -> bool:
    """Whether the compiled module is there."""
    return _exchange is not None


class _PlainBufferProtocol:
    """Stands in for the compiled base class of `Tensor`, which adds the buffer protocol."""

    __slots__ = ()


BufferProtocol: Any = _exchange.BufferProtocol if _exchange is not None else _PlainBufferProtocol


class Export:
    """Keeps a tensor's memory, and with it its context, alive while another library looks at it.

    A context that is closed while exports exist is destroyed when the last of them is gone.
    """

    __slots__ = ("ctx", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        tensor._check_open()
        if tensor.ctx.measures:
            raise BufferError("a context that measures has no memory to look at; numpy() gives zeros")
        self.tensor: Tensor | None = tensor
        self.ctx = tensor.ctx
        self.ctx._exports.add(id(self))

    def __del__(self) -> None:
        if hasattr(self, "ctx"):
            self.tensor = None
            self.ctx._end_export(self)


class ArrayInterface:
    """What NumPy asks for to share memory without any compiled module; NumPy keeps this object alive."""

    def __init__(self, tensor: Tensor) -> None:
        self.export = Export(tensor)
        dtype = dtypes.DTYPES[tensor.dtype]
        self.__array_interface__ = {
            "version": 3,
            "shape": tensor.shape,
            "data": (tensor.ptr or _ADDRESS_OF_NOTHING, tensor.readonly),
            "strides": None if tensor.is_dense else tuple(step * dtype.itemsize for step in tensor.strides),
            # NumPy has no bf16: its bits stand in.
            "typestr": "<u2" if tensor.dtype == "bf16" else _typestr(tensor.dtype),
        }


class HostMemory:
    """Bytes of page-locked host memory, as NumPy asks for them; freed when this object is gone."""

    def __init__(self, ctx: Context, nbytes: int) -> None:
        out = ctx._ffi.new("void *[1]")
        ctx._check(ctx._lib.nncuda_malloc_host(ctx._handle, nbytes, out))
        self._ctx = ctx
        self._pointer = out[0]
        ctx._exports.add(id(self))
        address = int(ctx._ffi.cast("intptr_t", self._pointer))
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1"}
        self.__array_interface__["data"] = (address or _ADDRESS_OF_NOTHING, False)

    def __del__(self) -> None:
        if hasattr(self, "__array_interface__"):
            self._ctx._waiting.append((-1, self._ctx._lib.nncuda_free_host, self._pointer))
            self._ctx._end_export(self)


def _typestr(name: str) -> str:
    import numpy as np

    return np.dtype(dtypes.DTYPES[name].numpy_name).str


def buffer_fields(tensor: Tensor) -> tuple[Export, int, str, int, tuple[int, ...], tuple[int, ...], bool]:
    """What the buffer protocol tells: keeper, address, format, item size, shape, strides in bytes, read-only."""
    dtype = dtypes.DTYPES[tensor.dtype]
    if not dtype.buffer_format:
        raise BufferError(f"the buffer protocol has no {tensor.dtype}; use numpy() or DLPack")
    if tensor.ctx.device_type != CPU:
        raise BufferError("memory of a GPU cannot be read in place; numpy() makes a copy")
    strides = tuple(step * dtype.itemsize for step in tensor.strides)
    return Export(tensor), tensor.ptr, dtype.buffer_format, dtype.itemsize, tensor.shape, strides, tensor.readonly


def export_capsule(tensor: Tensor, max_version: tuple[int, int] | None) -> Any:
    """A DLPack capsule: of version 1 when the consumer knows it, else of the first form."""
    extension = _need_extension()
    code, bits = dtypes.DTYPES[tensor.dtype].dlpack
    versioned = max_version is not None and max_version[0] >= 1
    if tensor.readonly and not versioned:
        raise BufferError("the tensor is read-only, which only DLPack 1.0 can say; the consumer asked for an older one")
    device = tensor.__dlpack_device__()
    return extension.to_capsule(
        Export(tensor), tensor.ptr, device, (code, bits), tensor.shape, tensor.strides, tensor.readonly, versioned
    )


def import_capsule(
    array: Any, device: tuple[int, int]
) -> tuple[Any, int, dtypes.DTypeName, tuple[int, ...], int, bool]:
    """Takes over an array's memory: keeper, address, dtype, shape, row stride in elements, read-only.

    BufferError when it lies on another device or its strides are none that a tensor can have.
    """
    extension = _need_extension()
    if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
        raise TypeError(f"{type(array).__name__} has no __dlpack__; Context.tensor(array) copies any array")
    theirs = tuple(int(part) for part in array.__dlpack_device__())
    if theirs[0] != device[0] and not (device[0] == CPU and theirs[0] == CUDA_HOST):
        raise BufferError(f"the array is on DLPack device {theirs}, the context on {device}; copy it there first")
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # libraries from before DLPack 1.0 do not know the keyword
        capsule = array.__dlpack__()
    keeper, address, code, shape, strides, readonly = extension.from_capsule(capsule)
    dtype = dtypes.from_dlpack(*code)
    expected = 1
    for axis in range(len(shape) - 1, 0, -1):
        if strides[axis] != expected and shape[axis] > 1 and 0 not in shape:
            raise BufferError(
                f"the array has strides {tuple(strides)} for shape {tuple(shape)}; only the first dimension may have a "
                "stride of its own: make it contiguous first"
            )
        expected *= shape[axis]
    ld = strides[0] if shape and shape[0] > 1 and 0 not in shape else expected
    if ld < expected:
        raise BufferError(f"the array's rows overlap (strides {tuple(strides)}); make it contiguous first")
    if address % dtypes.DTYPES[dtype].itemsize:
        raise BufferError("the array's memory is not aligned to its element's size; copy it first")
    return keeper, address, dtype, tuple(shape), ld, readonly
