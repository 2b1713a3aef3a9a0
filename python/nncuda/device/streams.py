"""Streams and events of a context, and what all things that the library makes on a context have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from .bound import DeviceBound
from .layout import NOT_REUSED

if TYPE_CHECKING:
    import numpy as np

    from .context import Context
    from .tensor import Tensor


class Handle(DeviceBound):
    """Something that the library made on a context and that is destroyed with it, or before."""

    _instead = "make another with its context"
    _destroy = ""  # the function that does it

    def __init__(self, ctx: Context, pointer: Any) -> None:
        self.ctx = ctx
        self._pointer = pointer
        ctx._children.add(self)

    @property
    def closed(self) -> bool:
        return not self._pointer

    def close(self) -> None:
        """Frees it now. Closing twice is fine."""
        pointer, self._pointer = self._pointer, self.ctx._null
        if pointer and self.ctx._handle:
            self.ctx._check(getattr(self.ctx._lib, self._destroy)(self.ctx._handle, pointer))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The context frees it at its next allocation: a finalizer may run in the middle of a call of another thread.
        if getattr(self, "_pointer", None) and self.ctx._handle:
            self.ctx._waiting.append((NOT_REUSED, getattr(self.ctx._lib, self._destroy), self._pointer))


class Stream(Handle):
    """Carries copies alongside the kernels, which run on the context's own stream. Events order the two."""

    _destroy = "nncuda_stream_destroy"

    def synchronize(self) -> None:
        """Waits until the stream has done all that was given to it."""
        self.ctx._check(self.ctx._lib.nncuda_stream_synchronize(self.ctx._handle, self._pointer))

    def wait(self, event: Event) -> None:
        """What is given to the stream from now on waits for the event."""
        self.ctx._check(self.ctx._lib.nncuda_stream_wait_event(self.ctx._handle, self._pointer, event._pointer))

    def copy(self, target: Tensor | np.ndarray, source: Tensor | np.ndarray) -> None:
        """Copies a dense tensor or a C-contiguous array into another without waiting.

        At most one of them may be an array; one from `Context.host_array` is copied at full speed, beside the kernels.
        Both must live, and the source stay as it is, until the stream has done it.
        """
        sides = [self._side(target), self._side(source)]
        if sides[0][1:] != sides[1][1:]:
            raise ValueError(f"cannot copy {sides[1][1:]} into {sides[0][1:]}: shape and dtype must be the same")
        kind = (1 if sides[1][0] else 3) if not sides[0][0] else 2
        if sides[0][0] and sides[1][0]:
            raise ValueError("one of the two must be a tensor; NumPy copies between arrays")
        pointers = [
            self.ctx._ffi.cast("void *", side.ctypes.data) if array else side._pointer  # type: ignore[union-attr]
            for side, (array, *_) in zip((target, source), sides, strict=True)
        ]
        nbytes = int(source.nbytes)
        self.ctx._check(self.ctx._lib.nncuda_memcpy_async(self.ctx._handle, self._pointer, *pointers, nbytes, kind))

    @staticmethod
    def _side(side: Tensor | np.ndarray) -> tuple[bool, tuple[int, ...], str]:
        """Whether it is an array, its shape and its dtype."""
        array = not hasattr(side, "is_dense")
        dense = side.flags.c_contiguous if array else side.is_dense  # type: ignore[union-attr]
        if not dense:
            raise ValueError(f"cannot copy {side!r} on a stream: it must be dense")
        return array, tuple(side.shape), dtypes.name_of(side.dtype)


class Event(Handle):
    """A point in a stream's work."""

    _destroy = "nncuda_event_destroy"

    def record(self, stream: Stream | None = None) -> None:
        """Happens when the stream (by default the context's own) has done all that was given to it so far."""
        pointer = stream._pointer if stream is not None else self.ctx._null
        self.ctx._check(self.ctx._lib.nncuda_event_record(self.ctx._handle, pointer, self._pointer))

    def synchronize(self) -> None:
        """Waits until the event has happened."""
        self.ctx._check(self.ctx._lib.nncuda_event_synchronize(self.ctx._handle, self._pointer))

    def query(self) -> bool:
        """Whether the event has happened."""
        happened = self.ctx._ffi.new("int32_t *")
        self.ctx._check(self.ctx._lib.nncuda_event_query(self.ctx._handle, self._pointer, happened))
        return bool(happened[0])

    def elapsed(self, end: Event) -> float:
        """Milliseconds from this event to `end`."""
        milliseconds = self.ctx._ffi.new("float *")
        self.ctx._check(self.ctx._lib.nncuda_event_elapsed(self.ctx._handle, self._pointer, end._pointer, milliseconds))
        return float(milliseconds[0])
