"""The library as plain ctypes sees it: signatures from bindings.h, no checks and no conveniences in between."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from nncuda.binding import header as header_module
from nncuda.binding import library as library_module

_SCALARS = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float, "double": ctypes.c_double}
_RETURNS = {"int32_t": ctypes.c_int32, "const char *": ctypes.c_char_p}


def _path() -> str:
    """The library that the package would load."""
    return library_module.load().path


HEADER = header_module.parse()
PATH = _path()


class _Library:
    """The functions of the header, each given its types when it is first asked for."""

    def __init__(self, path: str) -> None:
        self._entries = ctypes.CDLL(path)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = HEADER.functions[name]
        entry = getattr(self._entries, name)
        entry.restype = _RETURNS[function.returns]
        entry.argtypes = [_SCALARS.get(param.ctype, ctypes.c_void_p) for param in function.params]
        setattr(self, name, entry)
        return entry


LIB = _Library(PATH)

#: The constants without their prefix: C.F32, C.ERROR_BUSY, C.CTX_THREADS.
C = type("C", (), {name.removeprefix("NNCUDA_"): value for name, value in HEADER.constants.items()})


def status_name(status: int) -> str:
    return str(LIB.nncuda_status_name(status).decode())


def gpus() -> int:
    """GPUs that the library finds, real or emulated."""
    count = ctypes.c_int32()
    assert LIB.nncuda_device_count(C.DEVICE_CUDA, ctypes.byref(count)) == C.SUCCESS
    return count.value


class Context:
    """A context, destroyed at the end of a with block. `handle` is what the functions take."""

    def __init__(self, threads: int | None = None, isa: int | None = None, device: int = C.DEVICE_CPU) -> None:
        made = ctypes.c_void_p()
        assert LIB.nncuda_ctx_create(device, 0, ctypes.byref(made)) == C.SUCCESS
        self.handle = made
        self.on_gpu = device == C.DEVICE_CUDA
        if threads is not None:
            self.set(C.CTX_THREADS, threads)
        if isa is not None:
            self.set(C.CTX_ISA, isa)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        assert LIB.nncuda_ctx_destroy(self.handle) == C.SUCCESS

    @property
    def error(self) -> str:
        return str(LIB.nncuda_last_error(self.handle).decode())

    def call(self, name: str, *args: object) -> int:
        """The status of a call, with the context put before the arguments."""
        return int(getattr(LIB, name)(self.handle, *args))

    def ok(self, name: str, *args: object) -> None:
        """A call that must succeed."""
        status = self.call(name, *args)
        assert status == C.SUCCESS, f"{name}: {status_name(status)}: {self.error}"

    def fails(self, status: int, words: str, name: str, *args: object) -> None:
        """A call that must fail with this status and name this in its sentence."""
        got = self.call(name, *args)
        assert got == status, f"{name}: {status_name(got)} instead of {status_name(status)}: {self.error}"
        assert self.error.startswith(name) and words in self.error, self.error

    def get(self, attribute: int) -> int:
        value = ctypes.c_int64()
        self.ok("nncuda_ctx_get", attribute, ctypes.byref(value))
        return value.value

    def set(self, attribute: int, value: int) -> None:
        self.ok("nncuda_ctx_set", attribute, value)

    def made(self, name: str, *args: object) -> ctypes.c_void_p:
        """The handle or pointer that a function gives through its last argument."""
        handle = ctypes.c_void_p()
        self.ok(name, *args, ctypes.byref(handle))
        return handle

    def text(self, name: str, *args: object) -> str:
        """What a function writes in the form (text, capacity, needed)."""
        needed = ctypes.c_int64()
        self.ok(name, *args, None, 0, ctypes.byref(needed))
        buffer = ctypes.create_string_buffer(needed.value)
        self.ok(name, *args, buffer, needed.value, ctypes.byref(needed))
        assert len(buffer.value) + 1 == needed.value
        return buffer.value.decode()

    @contextlib.contextmanager
    def captured(self) -> Iterator[ctypes.c_void_p]:
        """Captures the calls of the block; the handle is filled when it ends."""
        graph = ctypes.c_void_p()
        self.ok("nncuda_graph_begin")
        yield graph
        self.ok("nncuda_graph_end", ctypes.byref(graph))
