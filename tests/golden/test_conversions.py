"""cuda_cast and cuda_round against ml_dtypes and NumPy: every 16-bit pattern, and every f32 around which a rounding
turns."""

import ml_dtypes
import numpy as np
import pytest

from nncuda.golden import Fixture, Runner
from nncuda.golden.runner import available_isas

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@pytest.fixture(scope="module", params=available_isas())
def runner(request):
    with Runner(isa=request.param) as found:
        yield found


def cast(runner, x, to):
    source = {np.dtype(dtype): name for name, dtype in TYPES.items()}[x.dtype]
    scalars = {"n": x.size, "dtype_x": source, "dtype_y": to}
    blank = {"y": np.empty(x.size, np.float32)}
    return runner.outputs(Fixture("elementwise", "cast", "all", scalars, {}, [], {"x": x}, blank))["y"]


def round_to(runner, x, dtype):
    blank = {"y": np.empty(x.size, np.float32)}
    return runner.outputs(
        Fixture("elementwise", "round", "all", {"n": x.size, "dtype": dtype}, {}, [], {"x": x}, blank)
    )["y"]


def same(got, expected):
    """Equal bits, or NaN in both: which NaN is the processor's business, that it is one is ours."""
    unsigned = {2: np.uint16, 4: np.uint32}[got.dtype.itemsize]
    with np.errstate(invalid="ignore"):
        nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    wrong = np.flatnonzero((got.view(unsigned) != expected.view(unsigned)) & ~nan)
    assert len(wrong) == 0, f"element {wrong[0]}: {got[wrong[0]]!r}, expected {expected[wrong[0]]!r}"


@pytest.mark.parametrize("to", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_every_pattern(runner, source, to):
    x = PATTERNS.view(TYPES[source])
    with np.errstate(over="ignore", invalid="ignore"):
        same(cast(runner, x, to), x.astype(np.float32).astype(TYPES[to]))


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_every_border_of_f32(runner, to):
    """Each 16-bit number, the middle to its neighbour, and the f32 on either side of both."""
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = PATTERNS.view(TYPES[to]).astype(np.float32)
        numbers = np.sort(numbers[np.isfinite(numbers)])
        middles = (numbers[:-1].astype(np.float64) + numbers[1:]) / 2
        largest = float(numbers[-1])
        overflow = largest + (largest - float(numbers[-2])) / 2
        ends = np.array([overflow, -overflow, np.inf, -np.inf, np.nan], np.float32)
        centres = np.concatenate([numbers, middles.astype(np.float32), ends])
        around = [centres, np.nextafter(centres, np.float32(np.inf)), np.nextafter(centres, np.float32(-np.inf))]
        x = np.concatenate(around)
        same(cast(runner, x, to), x.astype(TYPES[to]))
        same(round_to(runner, x, to), x.astype(TYPES[to]).astype(np.float32))
