"""A shadow run whose reference is the oracle instead of an engine: every kernel call again in float64.

A bound here is the fixtures' tolerance (`nncuda.reference.judge`): twice the error that the plain formula makes on
these inputs in the kernel's own precision, and not below what its roundings justify.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import dtypes, kernels
from ..binding import header
from ..binding.generate import intercepted
from ..device import Context, ShadowRun
from ..reference.arithmetic import Array
from ..reference.judge import call, dimensions, element_type, floor, plain
from ..reference.rounding import from_bits, rounded

_WHOLE = {"i32": np.int32, "i64": np.int64, "i8": np.int8, "u8": np.uint8}
_BITS = {"f32": np.float32, "f16": np.uint16, "bf16": np.uint16, **_WHOLE}
_NAMES = {dtype.code: name for name, dtype in dtypes.DTYPES.items()}


@contextlib.contextmanager
def oracle_shadow(ctx: Context) -> Iterator[ShadowRun]:
    """``with oracle_shadow(ctx) as run:`` is `Context.shadow` with the oracle as reference. It sees the calls that are
    made from Python on this context, not those of a launched graph."""
    run, oracle = ShadowRun(), _Oracle(ctx)
    traced, ctx._traced, ctx._label = ctx._traced, True, ""
    try:
        with contextlib.ExitStack() as stack:
            for name, function in header.parse().kernels.items():
                stack.enter_context(intercepted(getattr(kernels, name), functools.partial(oracle.run, function)))
            yield run
    finally:
        ctx._traced = traced
        run._read(json.dumps(oracle.found()))


class _Oracle:
    """Judges calls one after the other."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._calls = self._over = 0
        self._first: dict[str, Any] | None = None
        self._kernels: dict[str, dict[str, Any]] = {}

    def run(self, function: header.Function, launch: Callable[..., int], *arguments: Any) -> int:
        """Makes the call, and judges it."""
        if arguments[0] != self._ctx._handle or self._ctx._capture is not None:
            return launch(*arguments)
        empty = {"kernel": function.name, "calls": 0, "compared": 0, "over": 0, "why": None, "largest": None}
        kernel = self._kernels.setdefault(function.kernel, empty)
        number, self._calls = self._calls, self._calls + 1
        kernel["calls"] += 1
        call_ = _Call(self._ctx, function, arguments)
        given = {param.name: call_.read(param) for param in function.pointers if param.reads or param.writes}
        status = launch(*arguments)
        try:
            if status:
                raise ValueError(f"it failed: {self._ctx._library.status_name(status)}")
            found = call_.differences({name: value for name, value in given.items() if value is not None})
        except (ValueError, KeyError, TypeError, NotImplementedError) as error:
            kernel["why"] = kernel["why"] or str(error)
            return status
        kernel["compared"] += 1
        if found:
            self._note(kernel, {"call": number, "label": self._ctx._label or None, "kernel": function.name, **found})
        return status

    def _note(self, kernel: dict[str, Any], found: dict[str, Any]) -> None:
        if kernel["largest"] is None or _share(found) > _share(kernel["largest"]):
            kernel["largest"] = found
        if _share(found) > 1:
            kernel["over"] += 1
            self._over += 1
            self._first = self._first or found

    def found(self) -> dict[str, Any]:
        """As the library gives it."""
        kernels_ = [self._kernels[name] for name in header.parse().kernels if name in self._kernels]
        largest = [kernel["largest"] for kernel in kernels_ if kernel["largest"]]
        return {
            "calls": self._calls,
            "compared": sum(kernel["compared"] for kernel in kernels_),
            "moves": 0,
            "over": self._over,
            "first": self._first,
            "largest": max(largest, key=_share, default=None),
            "kernels": kernels_,
        }


def _share(found: dict[str, Any]) -> float:
    return math.inf if found["share"] is None else found["share"]


class _Call:
    """One call: its scalars, and its tensors in memory."""

    def __init__(self, ctx: Context, function: header.Function, arguments: tuple[Any, ...]) -> None:
        self._ctx, self._function = ctx, function
        named = dict(zip((param.name for param in function.params), arguments, strict=True))
        self._scalars = {
            param.name: _NAMES[named[param.name]] if param.kind == "dtype" else named[param.name]
            for param in function.params
            if param.kind in ("size", "option", "flag", "dtype")
        }
        self._pointers = {param.name: named[param.name] for param in function.pointers}

    def read(self, param: header.Param) -> Array | None:
        """What is in memory now, floats as float64; None for a null pointer."""
        pointer, ctx, scalars = self._pointers[param.name], self._ctx, self._scalars
        if not pointer:
            return None
        kind = element_type(param, scalars)
        shape = [dim.value(scalars) for dim in dimensions(param, scalars)]
        width = math.prod(shape[1:])
        ld = scalars[param.ld] if param.ld else width
        count = (shape[0] - 1) * ld + width
        memory = np.empty(max(count, 0), _BITS[kind])
        ctx._copy(ctx._ffi.from_buffer(memory), pointer, memory.nbytes, "device_to_host")
        memory = np.concatenate([memory, np.zeros(shape[0] * ld - len(memory), memory.dtype)])
        content = memory.reshape(shape[0], ld)[:, :width].reshape(shape)
        if kind in _WHOLE:
            return content
        with np.errstate(invalid="ignore"):  # what a kernel only writes may be anything before
            return (from_bits(content, kind) if kind != "f32" else content).astype(np.float64)

    def differences(self, given: dict[str, Array]) -> dict[str, Any] | None:
        """The element with the largest share of its bound, as the library describes it, or None for none."""
        function = self._function
        scalars = {**self._scalars, **{p.name: float(np.float32(self._scalars[p.name])) for p in _floats(function)}}
        arguments = {**scalars, **given}
        exact, runs = call(function, arguments, np.float64), plain(function, arguments)
        worst: dict[str, Any] | None = None
        for name, wanted in exact.items():
            param = function.by_name[name]
            after = self.read(param)
            if after is None:
                continue
            formula = [np.asarray(run[name]) for run in runs]
            found = _largest(after, np.asarray(wanted), *self._bound(param, np.asarray(wanted), formula, scalars))
            if found is not None and (worst is None or _share(found) > _share(worst)):
                kind = element_type(param, scalars)
                worst = {"argument": name, "dtype": kind, "shape": list(after.shape), **found}
        return worst

    def _bound(
        self, param: header.Param, exact: Array, runs: list[Array], scalars: dict[str, Any]
    ) -> tuple[float, Array]:
        """The bound of an output, and what it is to be in its dtype."""
        kind = element_type(param, scalars)
        if kind in _WHOLE:
            return 0.0, exact
        with np.errstate(all="ignore"):
            error = 0.0
            for run in runs:
                got = rounded(run, kind).astype(np.float64)
                finite = np.isfinite(exact) & np.isfinite(got)
                error = max(error, float(np.max(np.abs(got[finite] - exact[finite]), initial=0)))
            largest = np.where(np.isfinite(exact), exact, 0).astype(np.float32)
            return max(2 * error, floor(self._function, param.name, largest, scalars)), rounded(exact, kind)


def _floats(function: header.Function) -> list[header.Param]:
    return [param for param in function.params if param.ctype == "float"]


def _largest(after: Array, exact: Array, bound: float, stored: Array) -> dict[str, Any] | None:
    """The element that is furthest from what it should be. Elements without a number in the oracle are not judged."""
    if after.shape != exact.shape:
        raise ValueError(f"the oracle's shape is {list(exact.shape)}, the kernel's {list(after.shape)}")
    with np.errstate(all="ignore"):
        distance = np.abs(after.astype(np.float64) - exact.astype(np.float64))
        distance[(after == stored) | (after == exact) | np.isnan(exact)] = 0
    distance[np.isnan(distance)] = np.inf
    if not distance.any():
        return None
    at = np.unravel_index(int(distance.argmax()), distance.shape)
    share = float(distance[at]) / bound if bound else math.inf
    return {
        "index": [int(i) for i in at],
        "value": f"{after[at]:.9g}",
        "reference": f"{exact[at]:.9g}",
        "bound": bound,
        "share": share if math.isfinite(share) else None,
    }
