"""From a case to what its fixture holds: arguments, inputs as they lie in memory, expected outputs, tolerances.

The tolerance of an output is twice the error of the plain formula in the case's precision: the reference run in float32
with its result rounded to the output's dtype, against the reference in float64. An error measured on few numbers may be
small by luck, so it is the largest over DRAWS draws of the recipe, and never below a floor that follows from the
arithmetic: ROUNDINGS units of float32 and, for a 16-bit output, one of its own, at the largest expected value.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases.case import Arguments, Case, Draw

from nncuda import reference
from nncuda.binding import header
from nncuda.golden import Fixture
from nncuda.reference.arithmetic import Array
from nncuda.reference.judge import ROUNDINGS, CaseError, call, element_type, floor, plain, solve
from nncuda.reference.rounding import rounded, to_bits

DRAWS = 8
GRID_BITS = 26
LARGEST = {"f32": 3.4028234663852886e38, "f16": 65504.0, "bf16": 3.3895313892515355e38}

#: Outputs that are rounded to few bits by chance: what a fixture expects of them is exact, since no
#: input lies where rounding in float32 on the way decides (see settled). With none, such numbers are made on the way.
BY_CHANCE: dict[str, tuple[str, ...]] = {
    "adamw_step_bf16": ("m", "v"),
    "adamw_step_f8": ("m", "r"),
    "rmsnorm_quant_i8": ("codes",),
    "bitlinear_norm": (),
}
#: The gains of kernels that round a norm to codes.
GAINS = {"rmsnorm_quant_i8": "weight", "bitlinear_norm": "norm"}
#: What settled moves the inputs of a step by, as a share of each: twice what eight roundings of float32 come to, and no
#: kernel makes more between an input and what is rounded by chance.
SHAKE = 2.0**-20
#: What it moves a norm by: 64 roundings. Six are those of the formula; a sum of squares in four lanes of 200 / 4 each
#: makes 54, and counts half behind the root.
SHAKE_NORM = 2.0**-18


@dataclass
class Built:
    """What a fixture holds of a case."""

    scalars: dict[str, Any]
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    tolerance: dict[str, float]
    zeros: list[str]


def quantised(function: header.Function, given: Arguments, scalars: Arguments) -> Arguments:
    """The arrays as float64 values of their dtype, and float scalars as the C type holds them."""
    found: Arguments = {}
    for param in function.params:
        value = given.get(param.name, scalars.get(param.name))
        if isinstance(value, np.ndarray):
            kind = element_type(param, scalars)
            whole = {"i32": np.int32, "i64": np.int64, "i8": np.int8, "u8": np.uint8}.get(kind)
            found[param.name] = value.astype(whole) if whole else rounded(value.astype(np.float64), kind)
        elif param.ctype == "float":
            found[param.name] = scalars[param.name] = float(np.float32(value))
        elif value is not None:
            found[param.name] = value
    return found


def on_grid(value: Array) -> Array:
    """The values as multiples of a 2^26th of the largest: what float64 leaves after cancellation is noise that another
    machine's sums would not repeat. An eighth of float32's unit, which the tolerance takes in."""
    finite = np.where(np.isfinite(value), value, 0)
    largest = float(np.max(np.abs(finite), initial=0))
    if largest == 0:
        return value
    step = 2.0 ** (math.frexp(largest)[1] - 1 - GRID_BITS)
    return np.where(np.isfinite(value), np.round(finite / step) * step + 0.0, value)  # + 0.0: no zero is negative


def expected_and_errors(
    function: header.Function, given: Arguments, scalars: Arguments
) -> tuple[dict[str, Array], dict[str, float]]:
    """What the fixture expects (float32, or whole numbers), and the plain formula's largest error against it."""
    exact, runs = call(function, given, np.float64), plain(function, given)
    expected, errors = {}, {}
    for name, value in exact.items():
        kind = element_type(function.by_name[name], scalars)
        if value.dtype.kind in "iu":
            expected[name] = value
            continue
        if name in BY_CHANCE.get(function.kernel, ()):
            expected[name] = value.astype(np.float32)
            continue
        with np.errstate(all="ignore"):
            near = (on_grid(value) if ROUNDINGS[function.kernel] else value).astype(np.float32)
            overflows = np.isinf(rounded(value, kind))
        expected[name] = np.where(overflows, np.copysign(np.float32(np.inf), near), near)
        wanted = expected[name].astype(np.float64)
        finite = np.isfinite(wanted)
        for run in runs:
            got = rounded(run[name], kind).astype(np.float64)
            if not np.all(np.isfinite(got[finite])):
                raise CaseError(f"{function.name}: the plain formula overflows in {name}; the case is too wild")
            error = float(np.max(np.abs(got[finite] - wanted[finite]), initial=0))
            errors[name] = max(error, errors.get(name, 0.0))
    return expected, errors


def undecided_codes(given: Arguments, gains: Array) -> Array:
    """Where the codes of a norm are others when it moves a SHAKE_NORM, against the largest of its row and with it; and
    where the largest of a row is itself rounded to another number of 16 bits, since that moves all codes of the row."""
    with np.errstate(invalid="ignore"):
        norm, dtype = reference.rmsnorm.rmsnorm(given["x"], gains, given["eps"])["y"], given["dtype"]
    largest = np.abs(norm) == np.max(np.abs(norm), axis=1, keepdims=True)
    moved = {}
    for others in (-SHAKE_NORM, SHAKE_NORM):
        for most in (-SHAKE_NORM, SHAKE_NORM):
            moved[others, most] = rounded(norm * (1 + np.where(largest, most, others)), dtype)
    if dtype != "f32":
        up, down = moved[SHAKE_NORM, SHAKE_NORM], moved[-SHAKE_NORM, -SHAKE_NORM]
        unsure = largest & (up != down) & np.isfinite(norm)
        if unsure.any():
            return np.flatnonzero(unsure)
    wanted = reference.ternary.act_quant_i8(rounded(norm, dtype))["codes"]
    codes = [reference.ternary.act_quant_i8(numbers)["codes"] for numbers in moved.values()]
    return np.flatnonzero(np.any([other != wanted for other in codes], axis=0))


def undecided(function: header.Function, given: Arguments) -> Array:
    """The elements of outputs that are rounded by chance which lie so near to where they are rounded otherwise that
    float32 may get there: those that are others with the gradients and the moments a SHAKE larger or smaller. All four
    ways, since the new moments are sums of those two and move most when both parts do so one way."""
    if function.kernel in GAINS:
        gains = given.get(GAINS[function.kernel])
        return np.array([], np.int64) if gains is None else undecided_codes(given, gains)
    wanted = call(function, given, np.float64)
    found: set[int] = set()
    for gradients in (-SHAKE, SHAKE):
        for moments in (-SHAKE, SHAKE):
            by = {"grad": gradients, **dict.fromkeys(("m", "v", "m_scale", "r_scale"), moments)}
            shaken = {
                name: value * (1 + by[name]) if name in by and value.dtype.kind == "f" else value
                for name, value in given.items()
            }
            got = call(function, shaken, np.float64)
            for name in BY_CHANCE[function.kernel]:
                same = (got[name] == wanted[name]) | ((got[name] != got[name]) & (wanted[name] != wanted[name]))
                found.update(np.flatnonzero(~same).tolist())
    return np.array(sorted(found), np.int64)


def smaller(function: header.Function, name: str, values: Array, given: Arguments) -> Array:
    """The values of an input times 13/16, as its dtype has them."""
    return rounded(values * 0.8125, element_type(function.by_name[name], given))


def settled(function: header.Function, given: Arguments) -> Arguments:
    """The arguments with other gradients (or numbers of a norm) where float32 would decide an output that is rounded by
    chance; with other moments where gradients are too small to move it. CaseError when that does not help."""
    if function.kernel not in BY_CHANCE or ("skip" in given and given["skip"][0]):  # a skipped step rounds nothing
        return given
    for attempt in range(40):
        at = undecided(function, given)
        if len(at) == 0:
            return given
        for name in ("grad", "x") if attempt < 20 else ("m", "v", "r", "x"):
            if name in given:
                values = given[name].copy()
                flat = values.reshape(-1)
                whole = values.dtype.kind == "u"  # the codes of magnitudes, which ascend with them
                flat[at] = flat[at] - (flat[at] & 0x7F > 1) if whole else smaller(function, name, flat[at], given)
                given = {**given, name: values}
    raise CaseError(f"{function.name}: element {at[0]} stays where the rounding of float32 decides")


def exact_zeros(function: header.Function, given: Arguments, expected: dict[str, Array]) -> list[str]:
    """The outputs all of whose zeros are exact: masked, dropped or ignored, not a difference of equal numbers.

    Those are the zeros that stay when every input changes a little.
    """
    draw = Draw(function.name, 0)
    shaken = {
        name: value * (1 + 2.0**-20 * draw.uniform(*value.shape))
        if isinstance(value, np.ndarray) and value.dtype == np.float64
        else value
        for name, value in given.items()
    }
    again = call(function, shaken, np.float64)
    return [
        name
        for name, value in expected.items()
        if value.dtype.kind == "f" and np.any(value == 0) and np.all(again[name][value == 0] == 0)
    ]


def rounded_up(x: float) -> float:
    """Two significant digits, upwards, so that a tolerance reads well and does not hang on its last bit."""
    if x == 0:
        return 0.0
    scale = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / scale - 1e-9) * scale:.1e}")


def in_memory(param: header.Param, value: Array, scalars: Arguments, gap: float = np.nan) -> Array:
    """The array as it lies in memory: flat, with NaN between rows that are further apart than they are long."""
    width = math.prod(value.shape[1:])
    if not param.ld or scalars[param.ld] == width or len(value) == 0:
        return value
    ld = scalars[param.ld]
    laid = np.full((len(value), ld), gap, value.dtype)
    laid[:, :width] = value.reshape(len(value), width)
    return laid.ravel()[: (len(value) - 1) * ld + width]


def encoded(value: Array, kind: str) -> Array:
    """An input as its dtype's own elements (f16 and bf16 as ml_dtypes and NumPy have them)."""
    import ml_dtypes

    if kind in ("f16", "bf16"):
        return to_bits(value, kind).view(np.float16 if kind == "f16" else ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        return value.astype({"f32": np.float32, "i32": np.int32, "i64": np.int64, "i8": np.int8, "u8": np.uint8}[kind])


def build(case: Case, draws: int = DRAWS) -> Built:
    """The fixture of a case; fewer ``draws`` will do for outputs of many elements."""
    function = header.parse().kernels[case.kernel]
    worst: dict[str, float] = {}
    for number in reversed(range(draws)):
        raw = case.arguments(number)
        unknown = set(raw) - set(function.by_name)
        if unknown:
            raise CaseError(f"{function.name} has no {', '.join(sorted(unknown))}")
        scalars = solve(function, raw)
        given = settled(function, quantised(function, raw, scalars))
        expected, errors = expected_and_errors(function, given, scalars)
        worst = {name: max(error, worst.get(name, 0.0)) for name, error in errors.items()}
    inputs, outputs, tolerance = {}, {}, {}
    for param in function.pointers:
        if param.reads and param.name in given:
            kind = element_type(param, scalars)
            inputs[param.name] = encoded(in_memory(param, given[param.name], scalars), kind)
        if not param.writes or (param.name in raw and raw[param.name] is None):
            continue
        if param.nullable and param.reads and param.name not in given:
            continue
        shape = tuple(dim.value(scalars) for dim in param.dims)
        value = expected.get(param.name, np.full(shape, np.nan, np.float32))  # left out: nothing may be written
        if value.shape != shape:
            raise CaseError(f"{function.name}: the reference gives {param.name} as {value.shape}, not {shape}")
        outputs[param.name] = in_memory(param, value, scalars)
        if param.name in BY_CHANCE.get(case.kernel, ()) and value.dtype.kind == "f":
            tolerance[param.name] = 0.0
        elif value.dtype.kind == "f":
            least = floor(function, param.name, value, scalars)
            exact = ROUNDINGS[case.kernel] == 0 and least == 0 and worst.get(param.name, 0.0) == 0
            tolerance[param.name] = 0.0 if exact else rounded_up(max(2 * worst.get(param.name, 0.0), least))
    zeros = [name for name in exact_zeros(function, given, expected) if name in outputs]
    return Built(scalars, inputs, outputs, tolerance, zeros)


def fixture(case: Case, draws: int = DRAWS) -> Fixture:
    """The case as a reader of its file has it, for calls that are not stored."""
    made = build(case, draws if ROUNDINGS[case.kernel] else 1)  # what is exact needs no measure of an error
    family = header.parse().kernels[case.kernel].section
    return Fixture(family, case.kernel, case.name, made.scalars, made.tolerance, made.zeros, made.inputs, made.outputs)
