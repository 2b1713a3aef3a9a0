"""`Tensor`: memory of a context with a shape and a dtype, and `Layout`, the part of it that shapes are checked on.

A tensor is row-major. Its first dimension may have a stride (`ld`) larger than a row, as the halves of a fused product
have; all dimensions after the first are dense. Tensors share memory (`view`, `narrow`), keep it and their context
alive, and give it back to the context's pool when the last of them is gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from . import dtypes, errors
from .binding import exchange

if TYPE_CHECKING:
    import numpy as np

    from .context import Context


class Layout:
    """Shape, stride, dtype and whether the memory may be written. Equal layouts are one object, so that a kernel call
    can look up its sizes by the identity of its tensors' layouts instead of computing them again."""

    __slots__ = ("dense", "dtype", "inner", "itemsize", "ld", "nbytes", "numel", "readonly", "shape")

    _known: ClassVar[dict[tuple[Any, ...], Layout]] = {}

    def __init__(self, shape: tuple[int, ...], dtype: str, ld: int, readonly: bool) -> None:
        self.shape = shape
        self.dtype = dtype
        self.ld = ld
        self.readonly = readonly
        self.itemsize = dtypes.DTYPES[dtype].itemsize
        self.inner = math.prod(shape[1:])  # elements of one entry of the first dimension
        self.numel = math.prod(shape)
        self.dense = ld == self.inner or self.numel == 0 or shape[0] == 1
        # The last row ends after its own elements: a narrowed tensor must not claim what lies behind them.
        self.nbytes = 0 if self.numel == 0 else ((shape[0] - 1) * ld + self.inner if shape else 1) * self.itemsize

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: str, ld: int | None = None, readonly: bool = False) -> Layout:
        """The layout; `ld` defaults to dense. `shape` holds ints, `dtype` is a name of `dtypes.DTYPES`."""
        key = (shape, dtype, ld, readonly)
        layout = cls._known.get(key)
        if layout is None:
            inner = math.prod(shape[1:])
            if ld is None or ld == inner:
                # Dense is one object, however it was asked for.
                layout = cls._known.get((shape, dtype, inner, readonly)) or cls(shape, dtype, inner, readonly)
                cls._known[(shape, dtype, inner, readonly)] = layout
            else:
                layout = cls(shape, dtype, ld, readonly)
            if len(cls._known) > 100_000:  # a program of ever new shapes must not grow for ever
                cls._known.clear()
            cls._known[key] = layout
        return layout

    def __repr__(self) -> str:
        stride = "" if self.dense else f", ld={self.ld}"
        return f"Layout({self.shape}, {self.dtype}{stride}{', readonly' if self.readonly else ''})"


class Buffer:
    """A piece of memory, freed when the last tensor over it is gone.

    `owner` is what keeps foreign memory alive (a DLPack import); it is None for memory of the context's pool.
    """

    __slots__ = ("__weakref__", "captured", "ctx", "nbytes", "owner", "pointer")

    def __init__(self, ctx: Context, pointer: Any, nbytes: int, owner: Any = None) -> None:
        self.ctx = ctx
        self.pointer = pointer
        self.nbytes = nbytes
        self.owner = owner
        self.captured: Any = None  # the graph capture that this memory belongs to

    def __del__(self) -> None:
        if self.owner is None and self.pointer:
            self.ctx._release(self)


class Tensor(exchange.BufferProtocol):
    """Memory of a context with a shape and a dtype.

    Make one with `Context.empty`, `zeros`, `tensor` (copies an array) or `from_dlpack` (shares its memory). NumPy reads
    it without a copy through ``numpy.asarray(t)`` on the CPU engine, any other library through ``from_dlpack(t)``.
    """

    __slots__ = ("__weakref__", "_buffer", "_layout", "_pointer", "ctx")

    def __init__(self, ctx: Context, buffer: Buffer, layout: Layout, pointer: Any) -> None:
        self.ctx = ctx
        self._buffer = buffer
        self._layout = layout
        self._pointer = pointer

    # What it is

    @property
    def ptr(self) -> int:
        """The address of the first element; 0 when there is none."""
        return int(self.ctx._ffi.cast("intptr_t", self._pointer))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._layout.shape

    @property
    def dtype(self) -> str:
        return self._layout.dtype

    @property
    def ld(self) -> int:
        """Elements between entries of the first dimension; 1 for a tensor of one dimension."""
        return self._layout.ld

    @property
    def ndim(self) -> int:
        return len(self._layout.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._layout.numel

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        return self._layout.nbytes

    @property
    def is_dense(self) -> bool:
        return self._layout.dense

    @property
    def readonly(self) -> bool:
        """Whether the memory belongs to an array that must not be written."""
        return self._layout.readonly

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours in each dimension."""
        shape = self._layout.shape
        inner = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return (self._layout.ld, *inner[1:]) if shape else ()

    def __len__(self) -> int:
        if not self._layout.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self._layout.shape[0]

    def __repr__(self) -> str:
        stride = "" if self._layout.dense else f", ld={self._layout.ld}"
        return f"Tensor(shape={self.shape}, dtype={self.dtype}{stride}, device={self.ctx.device})"

    # Other tensors over the same memory

    def view(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements in another shape, without a copy; one dimension may be -1.

        Of a tensor with a row stride only the dimensions after the first may change. ValueError when the number of
        elements differs or the stride is in the way.
        """
        wanted = _shape_of(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape, allow_rest=True)
        layout = self._layout
        if -1 in wanted:
            known = -math.prod(wanted)
            if wanted.count(-1) > 1 or known == 0 or layout.numel % known:
                raise ValueError(f"a tensor of shape {layout.shape} cannot be viewed as {wanted}")
            wanted = tuple(layout.numel // known if size == -1 else size for size in wanted)
        if math.prod(wanted) != layout.numel:
            raise ValueError(f"a tensor of shape {layout.shape} cannot be viewed as {wanted}: other number of elements")
        if layout.ld == layout.inner or layout.numel == 0:
            return Tensor(self.ctx, self._buffer, Layout.of(wanted, layout.dtype, None, layout.readonly), self._pointer)
        if wanted and wanted[0] == layout.shape[0]:
            view = Layout.of(wanted, layout.dtype, layout.ld, layout.readonly)
        elif layout.dense:
            view = Layout.of(wanted, layout.dtype, None, layout.readonly)
        else:
            raise ValueError(
                f"a tensor of shape {layout.shape} with rows {layout.ld} elements apart cannot be viewed as {wanted}: "
                "its first dimension must stay; contiguous() makes a dense copy"
            )
        return Tensor(self.ctx, self._buffer, view, self._pointer)

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """Elements start .. start+length-1 of a dimension, without a copy.

        `dim` is 0, or 1 (-1 for the last of a 2-D tensor), which gives rows that lie further apart than they are long.
        IndexError when the range is not inside the tensor.
        """
        layout = self._layout
        axis = dim + self.ndim if dim < 0 else dim
        if axis not in (0, 1) or axis >= self.ndim:
            raise ValueError(f"dim is {dim}; a tensor of shape {layout.shape} can be narrowed in dimension 0 or 1 only")
        if start < 0 or length < 0 or start + length > layout.shape[axis]:
            raise IndexError(f"{start} .. {start}+{length} is not inside dimension {dim} of shape {layout.shape}")
        shape = (*layout.shape[:axis], length, *layout.shape[axis + 1 :])
        offset = start * (layout.ld if axis == 0 else layout.inner // max(layout.shape[1], 1)) * layout.itemsize
        narrowed = Layout.of(shape, layout.dtype, layout.ld, layout.readonly)
        ffi = self.ctx._ffi
        pointer = ffi.cast("void *", ffi.cast("char *", self._pointer) + offset) if offset else self._pointer
        return Tensor(self.ctx, self._buffer, narrowed, pointer)

    def contiguous(self) -> Tensor:
        """Itself when it is dense, else a dense copy."""
        if self._layout.dense:
            return self
        return self.ctx.empty(self.shape, self.dtype).copy_(self)

    def _rows(self, other: Tensor | None = None) -> list[tuple[tuple[Any, Any], int]]:
        """Pointers of each dense run of this tensor (and of `other`, of the same shape), and its bytes."""
        layouts = [self._layout, other._layout if other is not None else self._layout]
        pointers = [self._pointer, other._pointer if other is not None else self._pointer]
        if self._layout.numel == 0:
            return []
        if layouts[0].dense and layouts[1].dense:
            return [((pointers[0], pointers[1]), layouts[0].numel * layouts[0].itemsize)]
        ffi = self.ctx._ffi
        first, second = (ffi.cast("char *", pointer) for pointer in pointers)
        steps = [layout.ld * layout.itemsize for layout in layouts]
        nbytes = layouts[0].inner * layouts[0].itemsize
        return [((first + row * steps[0], second + row * steps[1]), nbytes) for row in range(self.shape[0])]

    # Values

    def numpy(self) -> np.ndarray:
        """A copy of the values as a NumPy array, after all work given to the context is done."""
        import numpy as np

        array = np.empty(self.shape, dtypes.to_numpy(self.dtype))
        ffi = self.ctx._ffi
        target = ffi.cast("char *", array.ctypes.data)
        for (source, _), nbytes in self._rows():
            self.ctx._copy(target, source, nbytes, "device_to_host")
            target += nbytes
        return array

    def copy_(self, source: Any) -> Tensor:
        """Overwrites the values with those of a tensor or array of the same shape; returns itself.

        An array is converted to this dtype; a tensor must have it already (`kernels.cast` converts on the device).
        """
        if self._layout.readonly:
            raise ValueError("the tensor is read-only")
        if isinstance(source, Tensor):
            if source.shape != self.shape or source.dtype != self.dtype:
                raise ValueError(f"cannot copy {source!r} into {self!r}: shape and dtype must be the same")
            for (to, of), nbytes in self._rows(source):
                self.ctx._copy(to, of, nbytes, "device_to_device")
            if self.ctx._capture is not None:
                self.ctx._capture.keep(self, source)
            return self
        import numpy as np

        array = np.ascontiguousarray(source, dtypes.to_numpy(self.dtype)).reshape(np.shape(source))
        if array.shape != self.shape:
            raise ValueError(f"an array of shape {array.shape} cannot be copied into a tensor of shape {self.shape}")
        if array.size == 0:
            return self
        ffi = self.ctx._ffi
        data = ffi.cast("char *", array.ctypes.data)
        for (target, _), nbytes in self._rows():
            self.ctx._copy(target, data, nbytes, "host_to_device")
            data += nbytes
        return self

    def zero_(self) -> Tensor:
        """Sets every value to zero; returns itself."""
        if self._layout.readonly:
            raise ValueError("the tensor is read-only")
        for (target, _), nbytes in self._rows():
            self.ctx._check(self.ctx._lib.nncuda_memset(self.ctx._handle, target, 0, nbytes))
        if self.ctx._capture is not None:
            self.ctx._capture.keep(self)
        return self

    def item(self) -> float | int:
        """The value of a tensor of one element."""
        if self._layout.numel != 1:
            raise ValueError(f"item() is for tensors of one element; this one has shape {self.shape}")
        if self.dtype == "bf16":
            # The upper half of an f32: no NumPy type is needed to read it.
            import struct

            raw = self.ctx._ffi.new("char[2]")
            self.ctx._copy(raw, self._pointer, 2, "device_to_host")
            return float(struct.unpack("<f", b"\0\0" + bytes(self.ctx._ffi.buffer(raw)))[0])
        return self.numpy().reshape(()).item()

    def tolist(self) -> Any:
        """The values as nested lists."""
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    # Exchange with other libraries, without a copy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        import numpy as np

        if copy is True:
            array = self.numpy()
        else:
            if self.ctx.device_type != exchange.CPU:
                raise TypeError("memory of a GPU cannot be read in place by NumPy; numpy() makes a copy")
            array = np.asarray(exchange.ArrayInterface(self))
            if self.dtype == "bf16":
                array = array.view(dtypes.to_numpy("bf16"))
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"a {self.dtype} tensor cannot become {dtype} without a copy")
            array = array.astype(dtype)
        return array

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over this memory, which stays alive until its consumer lets go. BufferError when `copy` or
        another device is asked for; ImportError when the package was installed without a C++ compiler."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on DLPack device {self.__dlpack_device__()}, not on {tuple(dl_device)}")
        if copy:
            raise BufferError("a tensor is exported without a copy; copy it on the other side")
        self.ctx.synchronize()
        return exchange.export_capsule(self, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.ctx.device_type, self.ctx.device_index

    def _check_open(self) -> None:
        if not self.ctx._handle:
            raise errors.StateError(10, "the tensor's context is closed, and its memory with it")


def _shape_of(shape: Any, allow_rest: bool = False) -> tuple[int, ...]:
    """A shape as a tuple of ints that are not negative (-1 too where the rest may be left to the tensor)."""
    try:
        sizes = (shape.__index__(),) if hasattr(shape, "__index__") else tuple(size.__index__() for size in shape)
    except (AttributeError, TypeError):
        raise TypeError(f"a shape is an int or a sequence of ints, not {shape!r}") from None
    if any(size < (-1 if allow_rest else 0) for size in sizes):
        raise ValueError(f"a shape has no negative sizes: {sizes}")
    return sizes


class HostCopy:
    """A NumPy array that a dense tensor is copied to again and again.

    For what is read after every step: all that reading needs is made once, since while the host makes things between
    two steps nothing is computed.
    """

    def __init__(self, tensor: Tensor):
        import numpy as np

        self._ctx = tensor.ctx
        self._array = np.empty(tensor.shape, dtypes.to_numpy(tensor.dtype))
        if not tensor._layout.dense:
            raise ValueError("a host copy is of a dense tensor")
        self._copy = tensor.ctx._ffi.from_buffer(self._array), tensor._pointer, tensor.nbytes, "device_to_host"
        self._kept = tensor

    def read(self) -> np.ndarray:
        """The values, after all work given to the context is done; the same array every time."""
        self._ctx._copy(*self._copy)
        return self._array
