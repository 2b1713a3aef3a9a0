"""`Context`: a device with its stream, workers, memory pool and scratch arena.

It closes with ``with`` or `close`; a finalizer does it for what was forgotten."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import dtypes, errors
from ..binding import exchange, library
from .bound import DeviceBound
from .graphs import Capture, Graph
from .layout import NOT_REUSED, Buffer, Layout, Shape, shape_of
from .profiles import NonFiniteTrace, Profile, ShadowRun, Trace
from .streams import Event, Handle, Stream
from .tensor import Tensor
from .turns import Turns

if TYPE_CHECKING:
    import numpy as np

    from ..dtypes import DTypeLike

#: From the plainest to the widest, numbered as NNCUDA_ISA_*: those of x86-64, then those of AArch64.
INSTRUCTION_SETS = ("baseline", "avx2", "avx512", "avx512bf16", "amx", "neon", "dotprod", "i8mm")
_COPIES = {"host_to_device": 1, "device_to_host": 2, "device_to_device": 3}


class Context(DeviceBound):
    """A device to compute on.

    `device` is "cpu", "cuda", "cuda:1", or "auto" for the first GPU if there is one, else the CPU. Of the CPU engine
    alone: `threads` is the number of worker threads (default: the cores that this process may use), `isa` the
    instruction set, one of "baseline", "avx2", "avx512", "avx512bf16", "amx" and, on AArch64, "neon", "dotprod",
    "i8mm" (default: the widest that this processor has). Calls on one context happen in order, and one thread at a
    time may make them; different contexts are independent.

    DeviceNotFoundError when the machine has no such device, ArgumentError for threads or an instruction set that it
    does not have.
    """

    _instead = "make another with nncuda.Context(device)"

    def __init__(self, device: str = "cpu", threads: int | None = None, isa: str | None = None) -> None:
        self._library = library.load()
        kind, index = self._library.device_named(device)
        if device == "auto" and kind == "cuda":
            threads = isa = None  # they were for the other case
        self._open(kind, index, self._library.create_context(kind, index))
        try:
            if threads is not None:
                self.threads = threads
            if isa is not None:
                self.isa = isa
        except BaseException:
            self.close()
            raise

    @classmethod
    def measuring(
        cls,
        device: str = "cpu",
        *,
        threads: int | None = None,
        isa: str | None = None,
        capability: int | None = None,
        multiprocessors: int | None = None,
    ) -> Context:
        """A context that measures what a program would need of a device, which this machine need not have.

        The same program runs on it as on the real one, but its kernels do nothing: arguments are checked, `bytes_peak`
        and its like are those of the real device, and `profile` gives calls, bytes and operations, without times. Its
        memory costs none and cannot be read: `Tensor.numpy` gives zeros, and zero-copy exchange raises BufferError.

        `threads` and `isa` are those of the CPU engine, `capability` (90 for 9.0) and `multiprocessors` those of a GPU;
        without them, this machine's, and as many multiprocessors as the usual GPU of that capability has.
        """
        made = cls.__new__(cls)
        made._library = library.load()
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device is {device!r}; a context that measures is for 'cpu' or 'cuda'")
        if isa is not None and isa not in INSTRUCTION_SETS:
            raise ValueError(f"isa is {isa!r}; it must be one of {', '.join(INSTRUCTION_SETS)}")
        cpu_only, gpu_only = (threads, isa), (capability, multiprocessors)
        if any(option is not None for option in (gpu_only if device == "cpu" else cpu_only)):
            raise ValueError("threads and isa are for 'cpu'; capability and multiprocessors are for 'cuda'")
        number = INSTRUCTION_SETS.index(isa) if isa is not None else capability
        made._open(device, 0, made._library.create_measuring(device, number, threads, multiprocessors))
        return made

    def _open(self, kind: str, index: int, handle: Any) -> None:
        self._handle = handle
        self.device_index = index
        self._exports: set[int] = set()  # ids of what other libraries hold; a set, as they may release it in any thread
        self._last_handle: Any = None  # of a closed context whose memory others still look at
        self._capture: Capture | None = None
        self._traced = False  # whether a trace runs, which wants labels
        self._label = ""
        self._children: weakref.WeakSet[Handle] = weakref.WeakSet()
        # What finalizers leave to be freed: bytes (NOT_REUSED for what is no tensor's memory), the function that frees,
        # what.
        # They may run in any thread, in the middle of a call too, where the context would refuse them.
        self._waiting: deque[tuple[int, Callable[[Any, Any], int], Any]] = deque()
        self._turns = Turns()
        self._ffi = self._library.ffi
        self._lib = self._library.lib
        self._null = self._ffi.NULL
        self._new_pointer = self._ffi.typeof("void *[1]")
        self._malloc = self._lib.nncuda_malloc
        self._free = self._lib.nncuda_free
        self.device_type = library.DEVICES[kind]
        self.device = kind if self.device_index == 0 else f"{kind}:{self.device_index}"
        self.measures = bool(self._get("NNCUDA_CTX_MEASURING"))

    # Life

    @property
    def closed(self) -> bool:
        return not self._handle

    def close(self) -> None:
        """Waits for the context's work and frees it with all its memory: its tensors are unusable from here on.

        Memory that another library still looks at (DLPack, NumPy) stays until that library lets go. Closing twice is
        fine.
        """
        if self.closed:
            return
        for child in list(self._children):
            child.close()
        self._free_waiting()
        # Without its handle no tensor can call anything; what is exported keeps the memory until it is released.
        self._last_handle, self._handle = self._handle, self._null
        self._waiting.clear()
        if not self._exports:
            self._destroy()

    def _destroy(self) -> None:
        handle, self._last_handle = self._last_handle, None
        if handle:
            self._library.check(self._lib.nncuda_ctx_destroy(handle))

    def _end_export(self, export: object) -> None:
        self._exports.discard(id(export))
        if self._last_handle and not self._exports:
            self._destroy()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            with contextlib.suppress(Exception):  # it could not be caught here
                self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"Context({self.device}, closed)"
        what = ", measures" if self.measures else ""
        if self.device_type != exchange.CPU:
            return f"Context({self.device}, {self.isa}{what})"
        return f"Context({self.device}, threads={self.threads}, isa={self.isa}{what})"

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
        self._free_waiting()
        value = self._ffi.new("int64_t *")
        self._check(self._lib.nncuda_ctx_get(self._handle, self._library.header.constants[attribute], value))
        return int(value[0])

    def _set(self, attribute: str, value: int) -> None:
        self._free_waiting()
        self._check(self._lib.nncuda_ctx_set(self._handle, self._library.header.constants[attribute], value))

    def _copy(self, target: Any, source: Any, nbytes: int, kind: str) -> None:
        self._check(self._lib.nncuda_memcpy(self._handle, target, source, nbytes, _COPIES[kind]))

    def synchronize(self) -> None:
        """Waits until all work of the context is done; raises the first error that the device met."""
        self._check(self._lib.nncuda_ctx_synchronize(self._handle))

    # Attributes

    @property
    def threads(self) -> int:
        """Worker threads of the CPU engine, the caller included; 0 on a GPU. May be set, 1 to 256; results do not
        depend on it."""
        return self._get("NNCUDA_CTX_THREADS")

    @threads.setter
    def threads(self, count: int) -> None:
        self._set("NNCUDA_CTX_THREADS", count)

    @property
    def nodes(self) -> int:
        """Memory nodes (NUMA) over which worker threads are spread; 0 on a GPU. May be set, 1 to as many as this
        process may use: with more than 1 each thread stays on one, and what a copy or a kernel writes first lies on the
        node whose threads read it later. With 1, as it is unless set, the system decides. Results do not depend on
        it."""
        return self._get("NNCUDA_CTX_NODES")

    @nodes.setter
    def nodes(self, count: int) -> None:
        self._set("NNCUDA_CTX_NODES", count)

    @property
    def isa(self) -> str:
        """Instruction set of the CPU engine, which may be set to any that this processor has, and to any at all where
        the context measures; of a GPU its architecture, such as "sm_90"."""
        number = self._get("NNCUDA_CTX_ISA")
        return INSTRUCTION_SETS[number] if self.device_type == exchange.CPU else f"sm_{number}"

    @isa.setter
    def isa(self, name: str) -> None:
        if name not in INSTRUCTION_SETS:
            raise ValueError(f"isa is {name!r}; it must be one of {', '.join(INSTRUCTION_SETS)}")
        self._set("NNCUDA_CTX_ISA", INSTRUCTION_SETS.index(name))

    @property
    def tf32(self) -> bool:
        """Whether f32 products on a GPU may round their factors to tf32, 10 bits of mantissa; False unless set."""
        return bool(self._get("NNCUDA_CTX_TF32"))

    @tf32.setter
    def tf32(self, allowed: bool) -> None:
        self._set("NNCUDA_CTX_TF32", int(allowed))

    @property
    def two_parts(self) -> bool:
        """Whether the backward pass of attention in 16 bits multiplies probabilities and their gradients as two 16-bit
        numbers each on every GPU, however long a sequence is: on Hopper slower, and closer where few keys count; False
        unless set."""
        return bool(self._get("NNCUDA_CTX_TWO_PARTS"))

    @two_parts.setter
    def two_parts(self, wanted: bool) -> None:
        self._set("NNCUDA_CTX_TWO_PARTS", int(wanted))

    @property
    def multiprocessors(self) -> int:
        """Multiprocessors of the GPU; 0 on the CPU engine."""
        return self._get("NNCUDA_CTX_MULTIPROCESSORS")

    @property
    def bytes_used(self) -> int:
        """Bytes of tensors now."""
        return self._get("NNCUDA_CTX_BYTES_USED")

    @property
    def bytes_peak(self) -> int:
        """The peak of bytes of tensors and scratch together, since `reset_peak`."""
        return self._get("NNCUDA_CTX_BYTES_PEAK")

    @property
    def bytes_held(self) -> int:
        """`bytes_peak` in the pages that a GPU gives at once; on the CPU `bytes_peak`."""
        return self._get("NNCUDA_CTX_BYTES_HELD")

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
        """Free and total bytes of the device."""
        self._free_waiting()
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
        pointer = self._free_waiting(nbytes) if self._waiting and capture is None else None
        if pointer is None:
            out = self._ffi.new(self._new_pointer)
            status = self._malloc(self._handle, nbytes, out)
            if status:
                self._fail(status)
            pointer = out[0]
        buffer = Buffer(self, pointer, nbytes)
        buffer.captured = capture
        return Tensor(self, buffer, layout, pointer)

    def _release(self, buffer: Buffer) -> None:
        """Takes back a buffer's memory; called by its finalizer."""
        capture = buffer.captured
        if capture is not None and capture.open:
            capture.free.setdefault(buffer.nbytes, []).append(buffer.pointer)
        else:
            self._waiting.append((buffer.nbytes, self._free, buffer.pointer))

    def _free_waiting(self, nbytes: int | None = None) -> Any:
        """Frees what finalizers left, but for one piece of `nbytes` bytes, which it returns for use again."""
        found = None
        for _ in range(len(self._waiting)):
            size, free, pointer = self._waiting.popleft()
            if found is None and size == nbytes and self._handle:
                found = pointer
            elif self._handle and free(self._handle, pointer):
                self._waiting.append(
                    (size, free, pointer)
                )  # not now: the context captures, or works for another thread
        return found

    def empty(self, shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
        """A tensor whose values are not set."""
        return self._new(Layout.of(shape_of(shape), dtypes.name_of(dtype)))

    def zeros(self, shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
        """A tensor of zeros."""
        tensor = self.empty(shape, dtype)
        self._check(self._lib.nncuda_memset(self._handle, tensor._pointer, 0, tensor.nbytes))
        return tensor

    def zeros_parts(self, shape: Shape, dtype: DTypeLike, ranges: Sequence[tuple[int, int]]) -> Tensor:
        """A tensor of zeros of which only some elements are memory: those from the first number of a range on and
        before its second, in ascending order. The others have addresses alone, and on the CPU a program that touches
        them, by `numpy` of the whole tensor, say, ends with a segmentation fault."""
        layout = Layout.of(shape_of(shape), dtypes.name_of(dtype))
        self._free_waiting()
        numbers = self._ffi.new("int64_t[]", [end * layout.itemsize for ends in ranges for end in ends])
        out = self._ffi.new(self._new_pointer)
        self._check(self._lib.nncuda_malloc_parts(self._handle, layout.nbytes, numbers, len(ranges), out))
        return Tensor(self, Buffer(self, out[0], NOT_REUSED), layout, out[0])

    def tensor(self, values: Any, dtype: DTypeLike | None = None) -> Tensor:
        """A copy of an array, a nested list, a number or a tensor.

        Without `dtype`, arrays keep theirs (f64 becomes f32), Python's floats become f32 and its ints i32. TypeError
        for fractions, and OverflowError for numbers out of range, where the dtype is one of integers.
        """
        import numpy as np

        if isinstance(values, Tensor) and values.ctx is self and dtype in (None, values.dtype):
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

    def from_numpy(self, array: np.ndarray) -> Tensor:
        """A tensor over the memory of a NumPy array, without a copy: of weights in a mapped file, for one. It is
        read-only when the array is, and keeps it alive. BufferError on a GPU, or when the array is not C-contiguous."""
        if self.device_type != exchange.CPU:
            raise BufferError("memory of the host cannot be used in place by a GPU; Context.tensor(array) copies it")
        if not array.flags.c_contiguous:
            raise BufferError("the array is not C-contiguous; numpy.ascontiguousarray makes a copy that is")
        layout = Layout.of(array.shape, dtypes.name_of(array.dtype), None, not array.flags.writeable)
        pointer = self._ffi.cast("void *", array.ctypes.data if layout.numel else 0)
        return Tensor(self, Buffer(self, pointer, layout.nbytes, array), layout, pointer)

    def host_array(self, shape: Shape, dtype: DTypeLike = "f32") -> np.ndarray:
        """A NumPy array, its values not set, in host memory that the device copies from and to at full speed
        (page-locked on a GPU). It lives as long as anyone looks at it."""
        import numpy as np

        layout = Layout.of(shape_of(shape), dtypes.name_of(dtype))
        array = np.asarray(exchange.HostMemory(self, layout.nbytes))
        return array.view(dtypes.to_numpy(layout.dtype)).reshape(layout.shape)

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

    def wait(self, event: Event) -> None:
        """Kernels and copies of the context's own stream wait for the event from now on."""
        self._check(self._lib.nncuda_stream_wait_event(self._handle, self._null, event._pointer))

    @contextlib.contextmanager
    def capture(self) -> Iterator[Graph]:
        """``with ctx.capture() as graph:`` records the kernel calls of the block instead of running them;
        ``graph.launch()`` runs them. When the block raises, nothing is kept."""
        self._free_waiting()  # nothing can be given back while capturing
        self._check(self._lib.nncuda_graph_begin(self._handle))
        capture = Capture()
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
        profile = Profile()
        try:
            yield profile
        finally:
            self._check(self._lib.nncuda_profile_end(self._handle))
            for form in (0, 1, 2):
                profile._texts[form] = self._sized_text(self._lib.nncuda_profile_report, form)

    @contextlib.contextmanager
    def trace(self, values: int = 0) -> Iterator[Trace]:
        """``with ctx.trace() as trace:`` keeps a line of each kernel call of the block in ``trace.lines``; with
        `values` also that many leading values of each output."""
        trace = Trace()
        with self._tracing(lambda: self._lib.nncuda_trace_begin(self._handle, values), trace):
            yield trace

    @contextlib.contextmanager
    def trace_nonfinite(self) -> Iterator[NonFiniteTrace]:
        """``with ctx.trace_nonfinite() as trace:`` looks for the first value that is not finite in what the kernel
        calls of the block read and write: ``trace.found``, afterwards."""
        trace = NonFiniteTrace()
        with self._tracing(lambda: self._lib.nncuda_trace_begin_nonfinite(self._handle), trace):
            yield trace

    @contextlib.contextmanager
    def shadow(self, reference: Context) -> Iterator[ShadowRun]:
        """``with ctx.shadow(reference) as run:`` runs every kernel call of the block a second time on another context
        (instruction set, threads, device), and compares what both wrote: ``run.first``, ``run.kernels``, afterwards."""
        run = ShadowRun()
        with self._tracing(lambda: self._lib.nncuda_trace_begin_shadow(self._handle, reference._handle), run):
            yield run

    def label(self, words: str = "") -> None:
        """Says what the calls from here on belong to, which a running trace notes; it costs nothing without one."""
        if self._traced:
            self._label = words
            text = words.encode()
            self._check(self._lib.nncuda_trace_label(self._handle, text, len(text)))

    @contextlib.contextmanager
    def _tracing(self, begin: Callable[[], int], trace: Trace | NonFiniteTrace | ShadowRun) -> Iterator[None]:
        self._check(begin())
        self._traced = True
        try:
            yield
        finally:
            self._traced = False
            self._check(self._lib.nncuda_trace_end(self._handle))
            trace._read(self._sized_text(self._lib.nncuda_trace_read))

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
