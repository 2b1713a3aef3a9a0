"""A call on much data gives the same bits as calls on its pieces, also where the output no longer fits into the caches
and is stored past them. What the pieces give is checked by the fixtures."""

import numpy as np
import pytest
from cases import loss, moe, rmsnorm, softmax
from cases.case import FLOATS, Case, case
from expected import build

from nncuda.binding import header
from nncuda.golden import Fixture, Runner
from nncuda.golden.runner import available_isas
from nncuda.reference import rope

OUTPUT_BYTES = 33 << 20
#: What counts rows, and so grows with the number of pieces.
ROW_SIZES = ("n", "rows", "tokens")
#: Outputs that are sums over all rows, which the pieces do not have.
SUMS = ("dweight",)


def rotation(d, name):
    table = rope.rope_freqs(50, 64, 0, 10000.0, 1.0)
    return {name: d.bell(200, 3, 64), **table, "positions": d.integers(200, high=50), "layout": 0}


def gates(d):
    return {"gate": d.bell(100, 300), "up": d.bell(100, 300), "ld": 300}


def routing(d, dim, of, **more):
    return of(d, lambda d: moe.choices(d, 100, 2, 8), 8, 20, dim, **more)


PIECES = {
    "silu": lambda d, t: {"x": d.bell(30001)},
    "silu_backward": lambda d, t: {"dy": d.bell(30001), "x": d.bell(30001)},
    "add": lambda d, t: {"a": d.bell(30001), "b": d.bell(30001)},
    "mul": lambda d, t: {"a": d.bell(30001), "b": d.bell(30001)},
    "scale": lambda d, t: {"x": d.bell(30001), "alpha": 0.3},
    "zero_grad": lambda d, t: {"n": 30001},
    "swiglu": lambda d, t: gates(d),
    "relu2_gate": lambda d, t: gates(d),
    **dict.fromkeys(("swiglu_backward", "relu2_gate_backward"), lambda d, t: {"dy": d.bell(100, 300), **gates(d)}),
    "softmax": lambda d, t: {"x": d.bell(40, 700)},
    "softmax_backward": lambda d, t: softmax.backward(d, 40, 700, t),
    "rmsnorm": lambda d, t: rmsnorm.forward(d, 100, 300),
    "rmsnorm_residual": lambda d, t: rmsnorm.added(d, 100, 300),
    "rmsnorm_backward": lambda d, t: rmsnorm.backward(d, 100, 300, t, 1),
    "cross_entropy_backward": lambda d, t: loss.backward(loss.forward(d, 40, 700, [3]), t),
    "rope_forward": lambda d, t: rotation(d, "x"),
    "rope_backward": lambda d, t: rotation(d, "dy"),
    "embedding": lambda d, t: {"table": d.bell(60, 300), "ids": d.integers(100, high=60)},
    "moe_gather": lambda d, t: routing(d, 130, moe.gather),
    "moe_gather_backward": lambda d, t: routing(d, 130, moe.gather_backward),
    "moe_combine": lambda d, t: routing(d, 130, moe.combine, with_residual=1),
    "moe_combine_backward": lambda d, t: routing(d, 130, moe.combine_backward),
}


def pieces():
    for kernel, recipe in PIECES.items():
        for dtype in FLOATS:
            yield case(kernel, "piece", lambda d, recipe=recipe, dtype=dtype: recipe(d, dtype), dtype)
    yield case("cast", "piece", lambda d: {"x": d.bell(30001)}, dtype_x="bf16", dtype_y="f32")


def repeated(name: str, array: np.ndarray, times: int, slots: int) -> np.ndarray:
    many = np.tile(array, (times,) + (1,) * (array.ndim - 1))
    if name in ("slot_row", "row_slot"):  # rows of the later pieces lie after those of the earlier ones
        piece = np.repeat(np.arange(times, dtype=np.int32), len(array)).reshape(-1, *(1,) * (array.ndim - 1))
        many = np.where(many >= 0, many + piece * slots, -1).astype(np.int32)
    return many


#: Those above differ in matrix products alone.
@pytest.fixture(scope="module", params=available_isas()[:3])
def runner(request):
    with Runner(isa=request.param) as found:
        yield found


def name(piece: Case) -> str:
    return f"{header.parse().kernels[piece.kernel].section}/{piece.kernel}/{piece.name}"


@pytest.mark.parametrize("piece", list(pieces()), ids=name)
def test_pieces(runner, piece: Case):
    made = build(piece, draws=1)
    function = header.parse().kernels[piece.kernel]
    grows = {param.name for param in function.pointers if param.dims and set(param.dims[0].names) & set(ROW_SIZES)}
    outputs = {name: array for name, array in made.outputs.items() if name not in SUMS}
    small = Fixture("", piece.kernel, "piece", made.scalars, {}, [], made.inputs, outputs)
    expected = runner.outputs(small)
    times = -(-OUTPUT_BYTES // min(array.nbytes for array in expected.values() if array.nbytes > 20_000))
    slots = made.scalars["tokens"] * made.scalars["k"] if "k" in made.scalars else 0
    large = Fixture(
        "",
        piece.kernel,
        "whole",
        {name: value * times if name in ROW_SIZES else value for name, value in made.scalars.items()},
        {},
        [],
        {n: repeated(n, x, times, slots) if n in grows else x for n, x in made.inputs.items()},
        {n: repeated(n, x, times, slots) if n in grows else x for n, x in made.outputs.items()},
    )
    found = runner.outputs(large)
    for name in outputs:
        parts = found[name].reshape(times, -1).view(np.uint8)
        wrong = np.flatnonzero(np.any(parts != expected[name].reshape(-1).view(np.uint8), axis=1))
        assert len(wrong) == 0, f"{name}: piece {wrong[0]} of {times} has other bits"
