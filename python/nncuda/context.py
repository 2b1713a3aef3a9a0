"""`Context`: a device with its stream, workers, memory pool and scratch arena, and what hangs on it: streams, events,
graphs, profiles and traces. All of them close with ``with`` or `close`; a finalizer does it for what was forgotten."""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import dtypes, errors
from .binding import exchange, library
from .tensor import Buffer, Layout, Tensor, _shape_of

if TYPE_CHECKING:
    import numpy as np

_DEVICES = {"cpu": 1, "cuda": 2}
_ISAS = ("baseline", "avx2", "avx512", "avx512bf16", "amx")
_COPIES = {"host_to_device": 1, "device_to_host": 2, "device_to_device": 3}


class _Handle:
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
        if getattr(self, "_pointer", None):
            with contextlib.suppress(Exception):  # nobody could catch it here
                self.close()


class Stream(_Handle):
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


class Event(_Handle):
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
        self.ctx._check(
            self.ctx._lib.nncuda_event_elapsed(self.ctx._handle, self._pointer, end._pointer, milliseconds)
        )
        return float(milliseconds[0])


class _Capture:
    """Memory that belongs to a graph: what the captured calls used stays, and what they allocated is reused only by
    later calls of the same capture, whose order every replay repeats."""

    def __init__(self) -> None:
        self.free: dict[int, list[Any]] = {}  # by size: allocated while capturing, not used by a tensor now
        self.kept: dict[int, Buffer] = {}  # buffers of the tensors that captured calls name
        self.open = True

    def keep(self, *tensors: Tensor | None) -> None:
        for tensor in tensors:
            # Memory of this capture needs no keeping: its release gives it to `free`, not to the pool.
            if tensor is not None and tensor._buffer.captured is not self:
                self.kept[id(tensor._buffer)] = tensor._buffer


class Graph(_Handle):
    """Recorded kernel calls. `launch` runs them again with the same memory and scalars; what changes from launch to
    launch (step, rate, lengths, seeds) lies in tensors. The tensors used stay allocated while the graph lives."""

    _destroy = "nncuda_graph_destroy"

    def __init__(self, ctx: Context, capture: _Capture) -> None:
        super().__init__(ctx, ctx._null)
        self._capture = capture

    def launch(self) -> None:
        """Runs the graph: the same bits as the calls it was captured from."""
        if self.closed:
            raise errors.StateError(10, "the graph is closed, or its capture has not ended")
        self.ctx._check(self.ctx._lib.nncuda_graph_launch(self.ctx._handle, self._pointer))

    def __len__(self) -> int:
        nodes = self.ctx._ffi.new("int64_t *")
        self.ctx._check(self.ctx._lib.nncuda_graph_size(self.ctx._handle, self._pointer, nodes))
        return int(nodes[0])

    def __bool__(self) -> bool:
        return not self.closed

    def close(self) -> None:
        super().close()
        capture = self._capture
        capture.open = False
        capture.kept.clear()
        pointers = [pointer for free in capture.free.values() for pointer in free]
        capture.free.clear()
        for pointer in pointers:
            self.ctx._free(pointer)


class Profile:
    """What the profiler measured between the start and the end of its ``with`` block."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._texts: dict[int, str] = {}

    def _text(self, form: int) -> str:
        # Read at the end of the block, since the next profile of the context starts afresh.
        if form not in self._texts:
            raise errors.StateError(51, "the profile has not ended: read it after its with block")
        return self._texts[form]

    def table(self) -> str:
        """One line a kernel: calls, time, bytes, operations."""
        return self._text(0)

    def json(self) -> Any:
        """The same as Python objects."""
        return json.loads(self._text(1))

    def chrome_trace(self) -> str:
        """Every call, as JSON for chrome://tracing or ui.perfetto.dev."""
        return self._text(2)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the Chrome trace to a file."""
        Path(path).write_text(self.chrome_trace(), encoding="utf-8")

    def __str__(self) -> str:
        return self.table()


class Trace:
    """The lines that traced kernel calls left: names, dtypes, shapes and, if asked for, values."""

    def __init__(self) -> None:
        self.text = ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def __str__(self) -> str:
        return self.text


class Context:
    """A device to compute on.

    `device` is "cpu", "cuda" or "cuda:1"; `threads` the number of worker threads of the CPU engine (default: the cores
    that this process may use); `isa` its instruction set, one of "baseline", "avx2", "avx512", "avx512bf16", "amx"
    (default: the widest that this processor has). Calls on one context happen in order, and one thread at a time may
    make them; different contexts are independent.

    DeviceNotFoundError when the machine has no such device, ArgumentError for threads or an instruction set that it
    does not have.
    """

    def __init__(self, device: str = "cpu", threads: int | None = None, isa: str | None = None) -> None:
        self._exports = 0
        self._closing = False
        self._capture: _Capture | None = None
        self._children: weakref.WeakSet[_Handle] = weakref.WeakSet()
        self._unfreed: list[Any] = []
        self._handle: Any = None
        kind, _, index = device.partition(":")
        if kind not in _DEVICES or not (index or "0").isdigit():
            raise ValueError(f"device is {device!r}; it must be 'cpu', 'cuda' or 'cuda:INDEX'")
        self._library = library.load()
        self._ffi = self._library.ffi
        self._lib = self._library.lib
        self._null = self._ffi.NULL
        self._new_pointer = self._ffi.typeof("void *[1]")
        self._malloc = self._lib.nncuda_malloc
        self._free_call = self._lib.nncuda_free
        self.device_type = _DEVICES[kind]
        self.device_index = int(index or 0)
        self.device = kind if self.device_index == 0 else f"{kind}:{self.device_index}"
        out = self._ffi.new("nncuda_ctx *[1]")
        self._library.check(self._lib.nncuda_ctx_create(self.device_type, self.device_index, out))
        self._handle = out[0]
        try:
            if threads is not None:
                self.threads = threads
            if isa is not None:
                self.isa = isa
        except BaseException:
            self.close()
            raise

    # Life

    @property
    def closed(self) -> bool:
        return not self._handle or self._closing

    def close(self) -> None:
        """Waits for the context's work and frees it with all its memory: its tensors are unusable from here on.

        Memory that another library still looks at (DLPack, NumPy) stays until that library lets go. Closing twice is
        fine.
        """
        if self.closed:
            return
        for child in list(self._children):
            child.close()
        self._closing = True
        if self._exports == 0:
            self._destroy()

    def _destroy(self) -> None:
        handle, self._handle = self._handle, self._null
        self._unfreed.clear()
        if handle:
            self._library.check(self._lib.nncuda_ctx_destroy(handle))

    def _end_export(self) -> None:
        self._exports -= 1
        if self._closing and self._exports == 0:
            self._destroy()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            with contextlib.suppress(Exception):  # nobody could catch it here
                self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"Context({self.device}, closed)"
        return f"Context({self.device}, threads={self.threads}, isa={self.isa})"

    # Calls

    def _check(self, status: int) -> None:
        if status:
            self._fail(status)

    def _fail(self, status: int) -> None:
        """Raises the exception of a status that is not success, with the context's own sentence."""
        if not self._handle:
            raise errors.StateError(10, "the context is closed", self._library.status_name(10))
        raise self._library.error(status, self._handle)

    def _get(self, attribute: str) -> int:
        value = self._ffi.new("int64_t *")
        self._check(self._lib.nncuda_ctx_get(self._handle, self._library.header.constants[attribute], value))
        return int(value[0])

    def _set(self, attribute: str, value: int) -> None:
        self._check(self._lib.nncuda_ctx_set(self._handle, self._library.header.constants[attribute], value))

    def _copy(self, target: Any, source: Any, nbytes: int, kind: str) -> None:
        self._check(self._lib.nncuda_memcpy(self._handle, target, source, nbytes, _COPIES[kind]))

    def synchronize(self) -> None:
        """Waits until all work of the context is done; raises the first error that the device met."""
        self._check(self._lib.nncuda_ctx_synchronize(self._handle))

    # Attributes

    @property
    def threads(self) -> int:
        """Worker threads of the CPU engine, the caller included. May be set, 1 to 256; results do not depend on it."""
        return self._get("NNCUDA_CTX_THREADS")

    @threads.setter
    def threads(self, count: int) -> None:
        self._set("NNCUDA_CTX_THREADS", count)

    @property
    def isa(self) -> str:
        """Instruction set of the CPU engine. May be set to any that this processor has."""
        return _ISAS[self._get("NNCUDA_CTX_ISA")]

    @isa.setter
    def isa(self, name: str) -> None:
        if name not in _ISAS:
            raise ValueError(f"isa is {name!r}; it must be one of {', '.join(_ISAS)}")
        self._set("NNCUDA_CTX_ISA", _ISAS.index(name))

    @property
    def bytes_used(self) -> int:
        """Bytes of tensors now."""
        return self._get("NNCUDA_CTX_BYTES_USED")

    @property
    def bytes_peak(self) -> int:
        """The most bytes that tensors and scratch together ever took, since `reset_peak`."""
        return self._get("NNCUDA_CTX_BYTES_PEAK")

    @property
    def bytes_pooled(self) -> int:
        """Bytes freed and kept for reuse; `trim` returns them to the system."""
        return self._get("NNCUDA_CTX_BYTES_POOLED")

    @property
    def bytes_arena(self) -> int:
        """Bytes of the scratch arena."""
        return self._get("NNCUDA_CTX_BYTES_ARENA")

    def reset_peak(self) -> None:
        self._set("NNCUDA_CTX_BYTES_PEAK", 0)

    def trim(self) -> None:
        """Returns pooled memory to the system."""
        self._set("NNCUDA_CTX_BYTES_POOLED", 0)

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and in all on the device."""
        free, total = self._ffi.new("int64_t *"), self._ffi.new("int64_t *")
        self._check(self._lib.nncuda_memory_info(self._handle, free, total))
        return int(free[0]), int(total[0])

    # Memory

    def _new(self, layout: Layout) -> Tensor:
        """An uninitialised tensor. On the path of every kernel call, so nothing here that a call can do without."""
        nbytes = layout.nbytes
        capture = self._capture
        if capture is not None:
            free = capture.free.get(nbytes)
            if free:
                buffer = Buffer(self, free.pop(), nbytes)
                buffer.captured = capture
                return Tensor(self, buffer, layout, buffer.pointer)
        if self._unfreed:
            self._free_later()
        out = self._ffi.new(self._new_pointer)
        status = self._malloc(self._handle, nbytes, out)
        if status:
            self._fail(status)
        pointer = out[0]
        buffer = Buffer(self, pointer, nbytes)
        buffer.captured = capture
        return Tensor(self, buffer, layout, pointer)

    def _release(self, buffer: Buffer) -> None:
        """Takes back a buffer's memory; called by its finalizer, which may run in any thread and at any moment."""
        capture = buffer.captured
        if capture is not None and capture.open:
            capture.free.setdefault(buffer.nbytes, []).append(buffer.pointer)
        else:
            self._free(buffer.pointer)

    def _free(self, pointer: Any) -> None:
        # A finalizer may meet the context inside a call of another thread, or capturing: then it waits for the next
        # allocation.
        if self._handle and self._free_call(self._handle, pointer):
            self._unfreed.append(pointer)

    def _free_later(self) -> None:
        pointers, self._unfreed = self._unfreed, []
        for pointer in pointers:
            self._free(pointer)

    def empty(self, shape: Any, dtype: Any = "f32") -> Tensor:
        """A tensor whose values are not set."""
        return self._new(Layout.of(_shape_of(shape), dtypes.name_of(dtype)))

    def zeros(self, shape: Any, dtype: Any = "f32") -> Tensor:
        """A tensor of zeros."""
        tensor = self.empty(shape, dtype)
        self._check(self._lib.nncuda_memset(self._handle, tensor._pointer, 0, tensor.nbytes))
        return tensor

    def tensor(self, values: Any, dtype: Any = None) -> Tensor:
        """A copy of an array, a nested list, a number or a tensor.

        Without `dtype`, arrays keep theirs (f64 becomes f32), Python's floats become f32 and its ints i32.
        """
        import numpy as np

        if isinstance(values, Tensor) and values.ctx is self and (dtype is None or dtypes.name_of(dtype) == values.dtype):
            return self.empty(values.shape, values.dtype).copy_(values)
        array = values.numpy() if isinstance(values, Tensor) else np.asarray(values)
        if dtype is not None:
            name = dtypes.name_of(dtype)
        elif array.dtype == np.float64:
            name = "f32"
        elif array.dtype.kind == "i" and not hasattr(values, "dtype"):
            name = "i32"
        else:
            name = dtypes.name_of(array.dtype)
        target = dtypes.to_numpy(name)
        if target.kind in "iu" and array.dtype.kind in "iu" and array.size:
            limits = np.iinfo(target)
            if array.min() < limits.min or array.max() > limits.max:
                raise OverflowError(f"values {array.min()} .. {array.max()} do not fit into {name}")
        return self.empty(array.shape, name).copy_(array)

    def from_dlpack(self, array: Any) -> Tensor:
        """A tensor over the memory of an array of NumPy, PyTorch, CuPy, JAX or any other library with DLPack, without a
        copy. The array's memory stays alive with the tensor. BufferError when it is on another device or its strides
        are none that a tensor can have."""
        keeper, address, dtype, shape, ld, readonly = exchange.import_capsule(
            array, (self.device_type, self.device_index)
        )
        layout = Layout.of(shape, dtype, ld, readonly)
        pointer = self._ffi.cast("void *", address if layout.numel else 0)
        return Tensor(self, Buffer(self, pointer, layout.nbytes, keeper), layout, pointer)

    # Streams, events, graphs

    def _create(self, kind: type[Any], function: str, ctype: str) -> Any:
        out = self._ffi.new(f"{ctype} *[1]")
        self._check(getattr(self._lib, function)(self._handle, out))
        return kind(self, out[0])

    def stream(self) -> Stream:
        """A new stream, for copies beside the kernels."""
        stream: Stream = self._create(Stream, "nncuda_stream_create", "nncuda_stream")
        return stream

    def event(self) -> Event:
        """A new event."""
        event: Event = self._create(Event, "nncuda_event_create", "nncuda_event")
        return event

    @contextlib.contextmanager
    def capture(self) -> Iterator[Graph]:
        """``with ctx.capture() as graph:`` records the kernel calls of the block instead of running them;
        ``graph.launch()`` runs them. When the block raises, nothing is kept."""
        self._check(self._lib.nncuda_graph_begin(self._handle))
        capture = _Capture()
        graph = Graph(self, capture)
        self._capture = capture
        out = self._ffi.new("nncuda_graph *[1]")
        try:
            yield graph
        except BaseException:
            self._capture = None
            self._lib.nncuda_graph_end(self._handle, out)
            graph._pointer = out[0]
            graph.close()
            raise
        self._capture = None
        status = self._lib.nncuda_graph_end(self._handle, out)
        graph._pointer = out[0]
        if status:
            error = self._library.error(status, self._handle)
            graph.close()
            raise error

    # Profile and trace

    @contextlib.contextmanager
    def profile(self) -> Iterator[Profile]:
        """``with ctx.profile() as profile:`` measures the kernel calls of the block; afterwards ``print(profile)``,
        ``profile.json()``, ``profile.save("trace.json")``."""
        self._check(self._lib.nncuda_profile_begin(self._handle))
        profile = Profile(self)
        try:
            yield profile
        finally:
            self._check(self._lib.nncuda_profile_end(self._handle))
            for form in (0, 1, 2):
                profile._texts[form] = self._sized_text(self._lib.nncuda_profile_report, form)

    @contextlib.contextmanager
    def trace(self, values: int = 0) -> Iterator[Trace]:
        """``with ctx.trace() as trace:`` keeps a line of each kernel call of the block in ``trace.lines``; with `values`
        also that many leading values of each output."""
        self._check(self._lib.nncuda_trace_begin(self._handle, values))
        trace = Trace()
        try:
            yield trace
        finally:
            self._check(self._lib.nncuda_trace_end(self._handle))
            trace.text = self._sized_text(self._lib.nncuda_trace_read)

    def _sized_text(self, function: Any, *options: int) -> str:
        needed = self._ffi.new("int64_t *")
        self._check(function(self._handle, *options, self._null, 0, needed))
        text = self._ffi.new("char[]", needed[0])
        self._check(function(self._handle, *options, text, needed[0], needed))
        return self._library.text(text)

    # Data

    def data_order(self, seed: int, first: int, count: int, windows: int) -> np.ndarray:
        """Which windows of training data stand at positions first .. first+count-1 of the endless shuffled sequence of
        this seed (int64, NumPy): each epoch of `windows` positions visits every window once. A function of its
        arguments alone, the same in every language."""
        import numpy as np

        indices = np.empty(count, np.int64)
        pointer = self._ffi.cast("int64_t *", indices.ctypes.data)
        self._check(self._lib.nncuda_data_order(self._handle, seed, first, count, windows, pointer))
        return indices
