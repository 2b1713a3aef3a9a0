"""How far a kernel may be from the oracle: the plain formula in its own precision, and what its roundings justify.

The fixtures' tolerances and the shadow run against float64 are made of it.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from nncuda.binding import header

from . import FAMILIES, kernel
from .arithmetic import Array
from .rounding import SMALLEST, UNIT, rounded

Arguments = dict[str, Any]

#: Roundings of float32 on the way to one element of a kernel's output, sums left out (they are measured). An operation
#: counts one, exp, log, sine and cosine two (an error of one unit in the last place). Kernels that only move, convert
#: or round once have none: what they give is exact.
ROUNDINGS = {name: count for family in FAMILIES for name, count in family.ROUNDINGS.items()}


class CaseError(ValueError):
    """A recipe does not fit the header."""


def element_type(param: header.Param, scalars: Arguments) -> str:
    return param.dtype if param.dtype in header.FIXED_DTYPES else scalars[param.dtype]


def dimensions(param: header.Param, scalars: Arguments) -> list[header.Dim]:
    dims = list(param.dims)
    if param.swap_flag and scalars[param.swap_flag]:
        dims[-2:] = dims[-1], dims[-2]
    return dims


def solve(function: header.Function, given: Arguments) -> Arguments:
    """All scalars of the call: those given, sizes from the shapes of the arrays, dense leading dimensions."""
    pointers = [p for p in function.pointers if isinstance(given.get(p.name), np.ndarray)]
    scalars = {
        p.name: given[p.name] for p in function.params if p.kind not in ("context", "pointer") and p.name in given
    }
    for _ in function.params:
        for param in pointers:
            dims, shape = dimensions(param, scalars), given[param.name].shape
            if len(dims) != len(shape):
                raise CaseError(f"{function.name}: {param.name} is {shape}, the header says {param.shape_text}")
            for dim, extent in zip(dims, shape, strict=True):
                found = dim.solve(extent, scalars)
                if found:
                    scalars[found[0]] = found[1]
    for param in function.pointers:
        if param.ld and param.ld not in scalars:
            scalars[param.ld] = math.prod(dim.value(scalars) for dim in dimensions(param, scalars)[1:])
    for param in pointers:
        shape = tuple(dim.value(scalars) for dim in dimensions(param, scalars))
        if shape != given[param.name].shape:
            raise CaseError(f"{function.name}: {param.name} is {given[param.name].shape}, its sizes say {shape}")
    missing = [p.name for p in function.params if p.kind not in ("context", "pointer") and p.name not in scalars]
    if missing:
        raise CaseError(f"{function.name}: nothing says {', '.join(missing)}")
    return {p.name: scalars[p.name] for p in function.params if p.name in scalars}


def call(function: header.Function, given: Arguments, precision: type) -> dict[str, Array]:
    """The reference, in float64 (the oracle) or in float32 (the plain formula)."""
    oracle = kernel(function.kernel)
    accepted = inspect.signature(oracle).parameters
    args = {
        name: value.astype(precision) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value
        for name, value in given.items()
        if name in accepted
    }
    if "precision" in accepted:
        args["precision"] = precision
    if "storage" in accepted and precision is np.float32:
        args["storage"] = lambda x: rounded(x, given["dtype"])
    with np.errstate(all="ignore"):
        return oracle(**args)


def plain(function: header.Function, given: Arguments) -> list[dict[str, Array]]:
    """The plain formula in float32, in each order of factors that the tolerance must allow for.

    Products of two 16-bit numbers are exact in float32, and with bf16 most partial sums of 256 of them are, too. So a
    score scale * sum(q k) hardly shows the error of its sum, which is left to be measured (ROUNDINGS). A kernel that
    multiplies q by scale / ln 2 first, to use powers of two, has terms of 24 bits and rounds at each addition: for a
    log-sum-exp of 9 that makes 4.2e-6 where the exact terms show 0.5e-6, in the same order of additions. So the run is
    repeated on q * (scale / unit), with the scores in `unit`, the float32 number next to scale * ln 2: the same formula
    with one rounding more, that of q.

    Products in 8 bits are repeated as tensor cores sum them, which keep fewer bits of a sum than float32 has.
    """
    runs = [call(function, given, np.float32)]
    if function.kernel == "flash_attention" and given["dtype"] != "f32" and given["scale"] != 0:
        unit = float(np.float32(given["scale"] * math.log(2)))
        if unit != 0:
            runs.append(call(function, {**given, "q": given["q"] * (given["scale"] / unit), "scale": unit}, np.float32))
    if function.kernel.endswith("_fp8"):
        runs.append(call(function, {**given, "tensor_cores": True}, np.float32))
    return runs


def floor(function: header.Function, name: str, expected: Array, scalars: Arguments) -> float:
    """The least tolerance that the arithmetic itself justifies, at the largest expected value."""
    kind = element_type(function.by_name[name], scalars)
    roundings = ROUNDINGS[function.kernel]
    largest = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0))
    units = roundings * UNIT["f32"]
    if kind != "f32" and not (roundings == 0 and np.array_equal(rounded(expected, kind), expected, equal_nan=True)):
        return largest * (units + UNIT[kind]) + SMALLEST[kind] / 2
    return largest * units
