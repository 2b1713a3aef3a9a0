"""Runs fixtures through the library, by the header alone, and through none of Python's own layers above it.

Outputs start as NaN (integers as a pattern). Every buffer lies between guard bytes; guards, inputs and the gaps between
strided rows must be untouched afterwards. Each call is made with buffers that are aligned to their element and no more,
and again with aligned ones, since kernels may take another path there. Where the header lets an output be an input, the
calls are made once more that way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from ..binding import header, library
from ..errors import Error
from .fixtures import Fixture

GUARD = 64
GUARD_BYTE = 0xC3
ISAS = ("baseline", "avx2", "avx512", "avx512bf16", "amx", "neon", "dotprod", "i8mm")
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


@dataclass(frozen=True)
class Outcome:
    """What one output of one call came to. `problem` says in words what was wrong, and is empty when nothing was."""

    fixture: Fixture
    output: str
    aliased: str  # the input that the output was written over; empty in the plain call
    error: float
    tolerance: float
    problem: str

    @property
    def share(self) -> float:
        """Part of the tolerance that was used; 0 when none was given and none was needed."""
        if self.tolerance == 0:
            return 0.0 if self.error == 0 else float("inf")
        return self.error / self.tolerance

    def __str__(self) -> str:
        place = f"{self.fixture.id}: {self.output}" + (f" over {self.aliased}" if self.aliased else "")
        return f"{place}: {self.problem}" if self.problem else f"{place}: {self.share:.0%} of the tolerance"


def numpy_dtype(name: str) -> np.dtype:
    if name == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtypes.DTYPES[name].numpy_name)


class _Buffer:
    """Device memory of one parameter between guards, and the bytes that it was filled with."""

    def __init__(self, runner: Runner, content: np.ndarray, aligned: bool) -> None:
        self.runner = runner
        # nncuda_malloc aligns to 256 bytes: one element further on, the data is aligned to its element alone.
        self.start = GUARD + (0 if aligned else content.itemsize)
        self.dtype = content.dtype
        data = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        self.image = np.full(self.start + data.size + GUARD, GUARD_BYTE, np.uint8)
        self.image[self.start : self.start + data.size] = data
        self.base = runner.allocate(self.image.size)
        runner.copy(self.base, self.image, HOST_TO_DEVICE)

    @property
    def address(self) -> int:
        return self.base + self.start

    def read(self) -> np.ndarray:
        """All bytes as they are now."""
        now = np.empty_like(self.image)
        self.runner.copy(self.base, now, DEVICE_TO_HOST)
        return now

    def data(self, image: np.ndarray) -> np.ndarray:
        return image[self.start : -GUARD].view(self.dtype)

    def guards_hold(self, now: np.ndarray) -> bool:
        return bool(np.all(now[: self.start] == GUARD_BYTE) and np.all(now[-GUARD:] == GUARD_BYTE))


class Runner:
    """A context of the library for running fixtures on; close it, or use it with ``with``. `device` is "cpu" or "cuda".

    DeviceNotFoundError when the machine has no such device.
    """

    def __init__(self, device: str = "cpu", index: int = 0, isa: str | None = None, threads: int | None = None) -> None:
        self.library = library.load()
        self.ffi, self.lib = self.library.ffi, self.library.lib
        self.ctx = self.library.create_context(device, index)
        constants = self.library.header.constants
        try:
            if isa is not None:
                self._check(self.lib.nncuda_ctx_set(self.ctx, constants["NNCUDA_CTX_ISA"], ISAS.index(isa)))
            if threads is not None:
                self._check(self.lib.nncuda_ctx_set(self.ctx, constants["NNCUDA_CTX_THREADS"], threads))
        except Exception:
            self.close()
            raise

    @classmethod
    def measuring(cls, other: Runner) -> Runner:
        """A runner whose context measures for the machine, and with the threads, of another's."""
        made = cls.__new__(cls)
        made.library, made.ffi, made.lib = other.library, other.ffi, other.lib
        device = "cpu" if other.attribute("DEVICE") == library.DEVICES["cpu"] else "cuda"
        machine = (other.attribute(name) for name in ("ISA", "THREADS", "MULTIPROCESSORS"))
        made.ctx = other.library.create_measuring(device, *machine)
        return made

    def close(self) -> None:
        """Frees the context and its memory."""
        if self.ctx:
            self.library.check(self.lib.nncuda_ctx_destroy(self.ctx))
            self.ctx = self.ffi.NULL

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, status: int) -> None:
        self.library.check(status, self.ctx)

    def attribute(self, name: str) -> int:
        """An attribute of the context, NNCUDA_CTX_<name>."""
        value = self.ffi.new("int64_t *")
        self._check(self.lib.nncuda_ctx_get(self.ctx, self.library.header.constants[f"NNCUDA_CTX_{name}"], value))
        return int(value[0])

    def memory(self, fixture: Fixture) -> tuple[int, int]:
        """Bytes of scratch memory and the peak after the plain call, on a context that has made no other."""
        buffers, status = self._call(fixture, {}, aligned=True)
        try:
            self._check(status)
            return self.attribute("BYTES_ARENA"), self.attribute("BYTES_PEAK")
        finally:
            self._free(buffers)

    def allocate(self, nbytes: int) -> int:
        pointer = self.ffi.new("void **")
        self._check(self.lib.nncuda_malloc(self.ctx, nbytes, pointer))
        return int(self.ffi.cast("uintptr_t", pointer[0]))

    def copy(self, device: int, host: np.ndarray, kind: int) -> None:
        there = self.ffi.cast("void *", device)
        here = self.ffi.cast("void *", host.ctypes.data)
        destination, source = (there, here) if kind == HOST_TO_DEVICE else (here, there)
        self._check(self.lib.nncuda_memcpy(self.ctx, destination, source, host.nbytes, kind))

    def run(self, fixture: Fixture) -> list[Outcome]:
        """Every output of the plain call, and of each call in which an output may be an input and is."""
        outcomes = []
        for alias in self._aliases(fixture):
            for aligned in (False, True):
                outcomes += self._judged(fixture, alias, aligned)
        return outcomes

    def outputs(self, fixture: Fixture) -> dict[str, np.ndarray]:
        """The outputs of the plain call on aligned buffers, as they lie in memory; nothing is compared."""
        buffers, status = self._call(fixture, {}, aligned=True)
        try:
            self._check(status)
            return {name: buffers[name].data(buffers[name].read()).copy() for name in fixture.outputs}
        finally:
            self._free(buffers)

    def _function(self, fixture: Fixture) -> header.Function:
        return self.library.header.kernels[fixture.kernel]

    def _element(self, param: header.Param, fixture: Fixture) -> np.dtype:
        return numpy_dtype(param.dtype if param.dtype in header.FIXED_DTYPES else fixture.scalars[param.dtype])

    def _aliases(self, fixture: Fixture) -> Iterator[dict[str, str]]:
        yield {}
        for param in self._function(fixture).pointers:
            if param.name not in fixture.outputs:
                continue
            for other in param.alias:
                same_ld = param.ld == self._function(fixture).by_name[other].ld or (
                    fixture.scalars.get(param.ld) == fixture.scalars.get(self._function(fixture).by_name[other].ld)
                )
                if other in fixture.inputs and same_ld:
                    yield {param.name: other}

    def _call(self, fixture: Fixture, alias: dict[str, str], aligned: bool) -> tuple[dict[str, _Buffer], int]:
        function = self._function(fixture)
        buffers: dict[str, _Buffer] = {}
        arguments: list[Any] = []
        for param in function.params:
            if param.kind == "context":
                arguments.append(self.ctx)
            elif param.kind == "pointer":
                if param.name in alias:
                    arguments.append(None)  # the input's, which may come later
                elif param.name in fixture.inputs:
                    buffers[param.name] = _Buffer(self, fixture.inputs[param.name], aligned)
                elif param.name in fixture.outputs:
                    blank = np.empty(fixture.outputs[param.name].size, self._element(param, fixture))
                    blank.view(np.uint8).fill(0xFF if blank.dtype.kind not in "iu" else 0x5A)
                    buffers[param.name] = _Buffer(self, blank, aligned)
                if param.name not in alias:
                    address = buffers[param.name].address if param.name in buffers else 0
                    arguments.append(self.ffi.cast(param.ctype, address))
            elif param.kind == "dtype":
                arguments.append(dtypes.DTYPES[fixture.scalars[param.name]].code)
            else:
                arguments.append(fixture.scalars[param.name])
        names = [param.name for param in function.params]
        for output, source in alias.items():
            buffers[output] = buffers[source]
            arguments[names.index(output)] = self.ffi.cast(function.by_name[output].ctype, buffers[source].address)
        status = getattr(self.lib, function.name)(*arguments)
        return buffers, status or self.lib.nncuda_ctx_synchronize(self.ctx)

    def _free(self, buffers: dict[str, _Buffer]) -> None:
        for base in {buffer.base for buffer in buffers.values()}:
            self._check(self.lib.nncuda_free(self.ctx, self.ffi.cast("void *", base)))

    def _judged(self, fixture: Fixture, alias: dict[str, str], aligned: bool) -> Iterator[Outcome]:
        buffers, status = self._call(fixture, alias, aligned)
        function = self._function(fixture)
        failure = str(self.library.error(status, self.ctx)) if status else ""
        now = {name: buffer.read() for name, buffer in buffers.items()}
        touched = [
            name
            for name, buffer in buffers.items()
            if name not in alias.values()
            and not function.by_name[name].writes
            and not np.array_equal(now[name], buffer.image)
        ]
        broken = [name for name, buffer in buffers.items() if not buffer.guards_hold(now[name])]
        for name, expected in fixture.outputs.items():
            tolerance = fixture.tolerance.get(name, 0.0)
            got = buffers[name].data(now[name])
            error, problem = compare(got, expected.reshape(-1), tolerance, name in fixture.zeros)
            if failure:
                problem = failure
            elif broken:
                problem = f"bytes outside {', '.join(broken)} were written"
            elif touched:
                problem = f"the input {', '.join(touched)} was written"
            yield Outcome(fixture, name, alias.get(name, ""), error, tolerance, problem)
        self._free(buffers)


def compare(got: np.ndarray, expected: np.ndarray, tolerance: float, zeros: bool) -> tuple[float, str]:
    """The largest error over the finite elements, and what is wrong in words, if anything is.

    NaN and infinities must be where they are expected, and with `zeros` so must zeros.
    """
    if expected.dtype.kind in "iu":
        wrong = np.flatnonzero(got != expected)
        if len(wrong):
            at = wrong[0]
            return float("inf"), f"element {at} is {got[at]}, not {expected[at]} ({len(wrong)} of {len(got)} differ)"
        return 0.0, ""
    with np.errstate(all="ignore"):
        wide, wanted = got.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(wanted)
        odd = ~finite & ~((wide == wanted) | (np.isnan(wide) & np.isnan(wanted)))
        errors = np.where(finite, np.abs(wide - wanted), np.where(odd, np.inf, 0.0))
    errors[np.isnan(errors) | (zeros & (wanted == 0) & (wide != 0))] = np.inf
    error = float(np.max(errors, initial=0.0))
    if error <= tolerance:
        return error, ""
    at = int(np.argmax(errors))
    count = int(np.sum(errors > tolerance))
    return error, (
        f"element {at} is {wide[at]:.9g}, expected {wanted[at]:.9g}: off by {errors[at]:.3g}, "
        f"tolerance {tolerance:.3g} ({count} of {len(got)} are beyond it)"
    )


def available_isas() -> list[str]:
    """The instruction sets that this processor and this build have, from the plainest to the widest."""
    library.load()  # without it nothing is available, and that is another error
    found = []
    for isa in ISAS:
        try:
            Runner(isa=isa).close()
        except Error:
            continue
        found.append(isa)
    return found
