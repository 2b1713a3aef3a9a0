"""Finds libnncuda, loads it through cffi with the declarations of the real header, and checks its ABI version."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi

from .. import errors
from . import header as header_module

#: Names the library file and nothing else is tried, so that a test or a developer gets exactly that build.
ENVIRONMENT_VARIABLE = "NNCUDA_LIBRARY"
#: NNCUDA_DEVICE_* by the names that users give.
DEVICES = {"cpu": 1, "cuda": 2}


@dataclass(frozen=True)
class Library:
    """The loaded library: `lib` has its functions (cffi), `ffi` makes their arguments."""

    place: str  # one of those that `candidates` gives
    path: str
    ffi: cffi.FFI
    lib: Any
    header: header_module.Header
    abi: tuple[int, int]

    @property
    def build_info(self) -> str:
        """Version, compiler, instruction sets and CUDA architectures of the build, as one line."""
        return self.text(self.lib.nncuda_build_info())

    def text(self, pointer: Any) -> str:
        """A C string as a str; empty for a null pointer."""
        return self.ffi.string(pointer).decode("utf-8", "replace") if pointer else ""

    def status_name(self, status: int) -> str:
        return self.text(self.lib.nncuda_status_name(status))

    def check(self, status: int, ctx: Any = None) -> None:
        """Raises the exception of a status that is not success; `ctx` is the context that knows the details."""
        if status:
            raise self.error(status, ctx)

    def error(self, status: int, ctx: Any = None) -> errors.Error:
        sentence = self.text(self.lib.nncuda_last_error(ctx)) if ctx else ""
        return errors.from_status(
            status, sentence or self.text(self.lib.nncuda_status_string(status)), self.status_name(status)
        )

    def device_count(self, device: int) -> int:
        """How many devices of a kind (1 CPU, 2 CUDA) this machine offers."""
        count = self.ffi.new("int32_t *")
        self.check(self.lib.nncuda_device_count(device, count))
        return int(count[0])

    def device_named(self, device: str) -> tuple[str, int]:
        """Kind and index of "cpu", "cuda", "cuda:1", or "auto": the first GPU if there is one, else the CPU.

        ValueError for any other word; whether the machine has the device, `create_context` says.
        """
        if device == "auto":
            return ("cuda" if self.device_count(DEVICES["cuda"]) else "cpu"), 0
        kind, _, index = device.partition(":")
        if kind not in DEVICES or not (index or "0").isdigit():
            raise ValueError(f"device is {device!r}; it must be 'auto', 'cpu', 'cuda' or 'cuda:INDEX'")
        return kind, int(index or 0)

    def create_context(self, kind: str, index: int) -> Any:
        """A new context's handle. DeviceNotFoundError when the machine has no such device."""
        out = self.ffi.new("nncuda_ctx *[1]")
        status = self.lib.nncuda_ctx_create(DEVICES[kind], index, out)
        if status:  # there is no context yet that could say which device it was
            error = self.error(status)
            missing = isinstance(error, errors.DeviceNotFoundError)
            why = self.why_no_device(DEVICES[kind], index) if missing else error.message
            raise type(error)(status, f"device '{kind}{f':{index}' if index else ''}': {why}", error.name)
        return out[0]

    def create_measuring(self, kind: str, isa: int | None, threads: int | None, multiprocessors: int | None) -> Any:
        """The handle of a new context that measures; None is this machine's, or usual. ArgumentError for a machine that
        cannot be."""
        out = self.ffi.new("nncuda_ctx *[1]")
        options = (-1 if isa is None else isa, threads or 0, multiprocessors or 0)
        status = self.lib.nncuda_ctx_create_measuring(DEVICES[kind], *options, out)
        if status:
            error = self.error(status)
            if isinstance(error, errors.DeviceNotFoundError):
                why = f"{self.why_no_device(DEVICES[kind], 0)}. Give the capability of one to measure for"
            else:
                why = (
                    f"isa or capability is {isa}, threads {threads}, multiprocessors {multiprocessors}: threads must "
                    "be 1 to 256, a capability 70 to 999, multiprocessors 1 to 65536"
                )
            raise type(error)(status, f"device {kind!r} to measure: {why}", error.name)
        return out[0]

    def why_no_device(self, device: int, index: int) -> str:
        """Why `device_text` has nothing to say: no driver, an old one, a library without that engine."""
        text = self.ffi.new("char[]", 512)
        self.lib.nncuda_device_describe(device, index, text, 512)
        return self.text(text)

    def device_text(self, device: int, index: int) -> str:
        """A device in words."""
        text = self.ffi.new("char[]", 512)
        self.check(self.lib.nncuda_device_describe(device, index, text, 512))
        return self.text(text)


def file_name() -> str:
    """What the library's file is called on this platform."""
    if sys.platform == "darwin":
        return "libnncuda.dylib"
    return "nncuda.dll" if sys.platform == "win32" else "libnncuda.so"


def candidates() -> list[tuple[str, str]]:
    """Where the library is looked for, in order: (place, path or name for the system's loader).

    When NNCUDA_LIBRARY is set nothing else is tried. Otherwise: inside this package; in the Python environment in use,
    for an editable installation, which runs the source tree's modules; in build/lib of the source tree, where
    `make lib` puts it; where the system's loader looks.
    """
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        return [(ENVIRONMENT_VARIABLE, chosen)]
    name, package = file_name(), Path(__file__).resolve().parent.parent
    folders = {package: "the package"}
    folders.setdefault(Path(sysconfig.get_path("platlib")) / "nncuda", "the Python environment in use")
    tree = package.parent.parent
    if (tree / "bindings.h").is_file():
        folders[tree / "build" / "lib"] = "the source tree"
    found = [(place, str(folder / name)) for folder, place in folders.items()]
    return [*found, ("the system", name), ("the system", f"{name}.{header_module.parse().abi[0]}")]


#: Threads that need the library first at the same time must all get one: types of two do not mix.
_loading = threading.Lock()


def load() -> Library:
    """The library, loaded once. LibraryError names every place that was tried and what was wrong there."""
    with _loading:
        return _load()


@functools.cache
def _load() -> Library:
    header = header_module.parse()
    ffi = cffi.FFI()
    ffi.cdef(header.cdef)
    places = candidates()
    tried = [] if places[0][0] == ENVIRONMENT_VARIABLE else [f"{ENVIRONMENT_VARIABLE}: is not set"]
    for place, path in places:
        if os.path.dirname(path) and not os.path.exists(path):
            tried.append(f"{place}: {path} does not exist")
            continue
        try:
            lib = ffi.dlopen(path)
        except OSError as error:
            tried.append(f"{place}: {error}")
            continue
        # Of a file with the wrong content this is an error: another place would hide it.
        return Library(place, path, ffi, lib, header, check_abi(lib, header.abi, path))
    remedy = (
        "Install it (`pip install nncuda`, which is found while its environment is active, or `make install` in the "
        f"source tree), or set {ENVIRONMENT_VARIABLE} to the file"
    )
    if len(places) == 1:
        remedy = f"{ENVIRONMENT_VARIABLE} is set, so no other place is tried: correct it or unset it"
    raise errors.LibraryError("\n".join([f"{file_name()} was not found:", *(f"  {line}" for line in tried), remedy]))


def check_abi(lib: Any, expected: tuple[int, int], path: str) -> tuple[int, int]:
    """The library's ABI version; LibraryError when it is not one that this package's header describes.

    Another major version means other signatures or meanings, so calling anything would be undefined. An older minor
    version lacks functions that the header promises.
    """
    try:
        major, minor = divmod(int(lib.nncuda_abi_version()), 1000)
    except AttributeError:
        raise errors.LibraryError(f"{path} is no libnncuda: it has no nncuda_abi_version") from None
    if major != expected[0] or minor < expected[1]:
        raise errors.LibraryError(
            f"{path} has ABI version {major}.{minor}, but this package was made for {expected[0]}.{expected[1]}: "
            f"the major version must be the same and the minor version not lower. Install matching versions of both"
        )
    return major, minor
