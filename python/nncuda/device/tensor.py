"""`Tensor`: memory of a context with a shape and a dtype.

A tensor is row-major. Its first dimension may have a stride (`ld`) larger than a row, as the halves of a fused product
have; all dimensions after the first are dense. Tensors share memory (`view`, `narrow`, slices), keep it and their
context alive, and give it back to the context's pool when the last of them is gone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from .. import dtypes, errors
from ..binding import exchange
from ..dtypes import DTypeLike, DTypeName
from .arithmetic import Arithmetic
from .layout import Buffer, Layout, shape_of

if TYPE_CHECKING:
    import numpy as np

    from .context import Context

    class _BufferProtocol:
        def __buffer__(self, flags: int, /) -> memoryview: ...

else:
    _BufferProtocol = exchange.BufferProtocol

#: How many values a tensor's repr shows.
_SHOWN = 6


class Tensor(_BufferProtocol, Arithmetic):
    """Memory of a context with a shape and a dtype.

    Make one with `Context.empty`, `zeros`, `tensor` (copies an array) or `from_dlpack` (shares its memory). NumPy reads
    it without a copy through ``numpy.asarray(t)`` on the CPU engine, any other library through ``from_dlpack(t)``.

    ``t[2]`` and ``t[2:5]`` are views along the first dimension; for `+`, `-`, `*` and `/` see `nncuda.arithmetic`.
    Tensors are not compared with ``==``, which raises TypeError, and as keys of a dictionary count by identity.
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
    def dtype(self) -> DTypeName:
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
        return f"Tensor(shape={self.shape}, dtype={self.dtype}{stride}, device={self.ctx.device}{self._shown()})"

    def _shown(self) -> str:
        """The first values, for the repr. Not on a GPU, where reading waits for all work and would take its errors from
        the call that is to raise them; nor where the context is closed, captures, works for another thread, or has no
        values, since it measures."""
        ctx, layout = self.ctx, self._layout
        if not ctx._handle:
            return ", closed"
        if ctx.device_type != exchange.CPU or ctx._capture is not None or ctx.measures:
            return ""
        count = min(_SHOWN, layout.numel if layout.dense else layout.inner)
        raw = bytearray(count * layout.itemsize)
        if count and ctx._lib.nncuda_memcpy(ctx._handle, ctx._ffi.from_buffer(raw), self._pointer, len(raw), 2):
            return ""
        import numpy as np

        values = np.frombuffer(raw, dtypes.to_numpy(layout.dtype)).tolist()
        text = ", ".join(f"{value:.6g}" for value in values) + (", ..." if count < layout.numel else "")
        return f", values=[{text}]"

    # Operations whose usual meaning would be a mistake here raise an error that says what to write instead.

    def __eq__(self, other: NoReturn) -> NoReturn:  # type: ignore[override]
        raise TypeError(
            "tensors are not compared with == or !=: compare values with numpy.array_equal(a.numpy(), b.numpy()) or "
            "a.numpy() == b.numpy(), and objects with `is`"
        )

    __ne__ = __eq__  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        if self._layout.numel != 1:
            raise ValueError(
                f"whether a tensor of shape {self.shape} is true is not defined: use `is not None`, .size or "
                ".numpy().any()"
            )
        return bool(self.item())

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Tensor cannot be pickled, since it is memory of a device: pickle tensor.numpy(), and make a tensor from "
            "it with Context.tensor(array)"
        )

    def __copy__(self) -> Tensor:
        """A dense copy on the same device, as ``copy.copy`` and ``copy.deepcopy`` make it."""
        return self.ctx.empty(self.shape, self.dtype).copy_(self)

    def __deepcopy__(self, memo: object) -> Tensor:
        return self.__copy__()

    # Other tensors over the same memory

    def view(self, *shape: SupportsIndex | Sequence[SupportsIndex]) -> Tensor:
        """The same elements in another shape, without a copy; one dimension may be -1.

        Of a tensor with a row stride only the dimensions after the first may change. ValueError when the number of
        elements differs or the stride is in the way.
        """
        wanted = shape_of(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape, allow_rest=True)
        layout = self._layout
        if -1 in wanted:
            known = -math.prod(wanted)
            if wanted.count(-1) > 1 or known == 0 or layout.numel % known:
                raise ValueError(f"a tensor of shape {layout.shape} cannot be viewed as {wanted}")
            wanted = tuple(layout.numel // known if size == -1 else size for size in wanted)
        if math.prod(wanted) != layout.numel:
            raise ValueError(
                f"a tensor of shape {layout.shape} cannot be viewed as {wanted}: the number of elements differs"
            )
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

    def reshape(self, *shape: SupportsIndex | Sequence[SupportsIndex]) -> Tensor:
        """As `view`: never a copy. Where a row stride is in the way, `contiguous` makes one first."""
        return self.view(*shape)

    def __getitem__(self, key: SupportsIndex | slice) -> Tensor:
        """A view of one entry, or of some entries, of the first dimension; a slice may have a positive step.

        IndexError for an entry that is not there, TypeError for other kinds of index, ValueError for a step below 1.
        """
        layout = self._layout
        if not layout.shape:
            raise IndexError("a tensor without dimensions has no entries; item() is its value")
        count = layout.shape[0]
        if isinstance(key, slice):
            start, stop, step = key.indices(count)
            if step < 1:
                raise ValueError(f"the step of a slice is {step}; it must be positive, so that no copy is needed")
            length = len(range(start, stop, step))
            part = self.narrow(0, start, max(0, (length - 1) * step + 1))
            if step > 1:
                part._layout = Layout.of((length, *layout.shape[1:]), layout.dtype, layout.ld * step, layout.readonly)
            return part
        try:
            at = operator.index(None if isinstance(key, bool) else key)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(
                f"a tensor takes one index or slice, of its first dimension, not {key!r:.60}; narrow(1, start, length) "
                "cuts the second, and numpy() gives an array that takes any index"
            ) from None
        if not -count <= at < count:
            raise IndexError(f"index {at} is not inside the first dimension of shape {layout.shape}")
        entry = self.narrow(0, at % count, 1)
        entry._layout = Layout.of(layout.shape[1:], layout.dtype, None, layout.readonly)
        return entry

    def __setitem__(self, key: SupportsIndex | slice, values: Any) -> None:
        """Overwrites entries of the first dimension; see `copy_`."""
        self[key].copy_(values)

    def __iter__(self) -> Iterator[Tensor]:
        """Views of the entries of the first dimension."""
        return map(self.__getitem__, range(len(self)))

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

    def as_bytes(self) -> Tensor:
        """The memory of each entry of the first dimension, u8 [entries, bytes], without a copy. ValueError for one that
        is not dense."""
        layout = self._layout
        if not layout.dense:
            raise ValueError(f"a tensor of shape {layout.shape} with rows {layout.ld} elements apart is not dense")
        shape = (layout.shape[0], layout.inner * layout.itemsize)
        return Tensor(self.ctx, self._buffer, Layout.of(shape, "u8", None, layout.readonly), self._pointer)

    def contiguous(self) -> Tensor:
        """Itself when it is dense, else a dense copy."""
        if self._layout.dense:
            return self
        return self.__copy__()

    @property
    def T(self) -> Tensor:
        """The transpose of a tensor of two dimensions: a dense copy, which is made on the host. Products need none:
        ``kernels.gemm`` has `trans_a` and `trans_b`. ValueError for other numbers of dimensions."""
        if self.ndim != 2:
            raise ValueError(f"T is for tensors of two dimensions; this one has shape {self.shape}")
        return self.ctx.tensor(self.numpy().T)

    def to(self, dtype: DTypeLike) -> Tensor:
        """The values in another dtype, rounded by ``kernels.cast``; itself when it has that dtype already. TypeError
        for what no kernel converts: f32, f16 and bf16 become one another."""
        from .. import kernels

        name = dtypes.name_of(dtype)
        if name == self.dtype:
            return self
        if self.dtype in ("f32", "f16", "bf16") and (name == "f32" or name == "f16" or name == "bf16"):
            return kernels.cast(self.contiguous(), dtype_y=name)
        raise TypeError(
            f"no kernel converts {self.dtype} to {name}, only f32, f16 and bf16 to one another; on the host: "
            f'ctx.tensor(tensor.numpy(), "{name}")'
        )

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

        An array is converted to this dtype, but fractions not to integers (TypeError), nor numbers that do not fit
        (OverflowError); a tensor must have it already (`to` converts on the device).
        """
        if self._layout.readonly:
            raise ValueError("the tensor is read-only")
        if isinstance(source, Tensor):
            if source.shape != self.shape or source.dtype != self.dtype:
                theirs, ours = (f"{one.dtype} of shape {one.shape}" for one in (source, self))
                raise ValueError(f"cannot copy {theirs} into {ours}: shape and dtype must be the same")
            if source._pointer == self._pointer and source._layout is self._layout:
                return self
            for (to, of), nbytes in self._rows(source):
                self.ctx._copy(to, of, nbytes, "device_to_device")
            if self.ctx._capture is not None:
                self.ctx._capture.keep(self, source)
            return self
        import numpy as np

        array = np.asarray(source)
        if array.shape != self.shape:
            raise ValueError(f"an array of shape {array.shape} cannot be copied into a tensor of shape {self.shape}")
        if array.size == 0:
            return self
        array = dtypes.convert(array, self.dtype)
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
        value: float | int = self.numpy().reshape(()).item()
        return value

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
            raise ValueError("only a dense tensor can be copied to the host")
        self._copy = tensor.ctx._ffi.from_buffer(self._array), tensor._pointer, tensor.nbytes, "device_to_host"
        self._kept = tensor

    def read(self) -> np.ndarray:
        """The values, after all work given to the context is done; the same array every time."""
        self._ctx._copy(*self._copy)
        return self._array
