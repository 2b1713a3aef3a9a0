"""Streams and events of a context, and what all things that the library makes on a context have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context
    from .tensor import Tensor


class Handle:
    """Something that the library made on a context and that is destroyed with it, or before."""

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
            self.ctx._waiting.append((-1, getattr(self.ctx._lib, self._destroy), self._pointer))


class Stream(Handle):
    """Carries copies beside the kernels, which run on the context's own stream. Events order the two."""

    _destroy = "nncuda_stream_destroy"

    def synchronize(self) -> None:
        """Waits until the stream has done all that was given to it."""
        self.ctx._check(self.ctx._lib.nncuda_stream_synchronize(self.ctx._handle, self._pointer))

    def wait(self, event: Event) -> None:
        """What is given to the stream from now on waits for the event."""
        self.ctx._check(self.ctx._lib.nncuda_stream_wait_event(self.ctx._handle, self._pointer, event._pointer))

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copies a dense tensor into another without waiting; both must live until the stream has done it."""
        if target.shape != source.shape or target.dtype != source.dtype or not (target.is_dense and source.is_dense):
            raise ValueError(f"cannot copy {source!r} into {target!r}: both must be dense and of one shape and dtype")
        self.ctx._check(
            self.ctx._lib.nncuda_memcpy_async(
                self.ctx._handle, self._pointer, target._pointer, source._pointer, source.nbytes, 3
            )
        )


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
