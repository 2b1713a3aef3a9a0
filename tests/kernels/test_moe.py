"""The mixture-of-experts kernels on every instruction set, against their definitions in NumPy.

The bounds on sums are those of any order of summation (Higham 2002, "Accuracy and Stability of Numerical Algorithms",
3.1): n products and additions in f32 are wrong by at most n roundings of the sum of the absolute terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from engine import DTYPES, FLOATS, ROUNDING, THREADS, Engine, KernelError, empty, isas

F32 = 2.0**-24
TINIEST = {"f32": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134}


@pytest.fixture(scope="module", params=isas(), ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


@dataclass
class Plan:
    counts: np.ndarray
    offsets: np.ndarray
    slot_row: np.ndarray
    row_slot: np.ndarray


def plan(cpu: Engine, indices: np.ndarray, experts: int, capacity: int = 0) -> Plan:
    tokens, k = indices.shape
    p = Plan(empty(experts, "i32"), empty(experts + 1, "i32"), empty((tokens, k), "i32"), empty(tokens * k, "i32"))
    cpu.moe_plan(indices, p.counts, p.offsets, p.slot_row, p.row_slot, tokens, k, experts, capacity)
    return p


def plan_by_definition(indices: np.ndarray, experts: int, capacity: int) -> Plan:
    flat = indices.ravel().tolist()
    rows = [[slot for slot, e in enumerate(flat) if e == expert] for expert in range(experts)]
    counts = [len(row) for row in rows]
    kept = [row[:capacity] if capacity else row for row in rows]
    row_slot = [slot for row in kept for slot in row]
    slot_row = [-1] * len(flat)
    for row, slot in enumerate(row_slot):
        slot_row[slot] = row
    return Plan(
        np.array(counts, np.int32),
        np.cumsum([0, *map(len, kept)]).astype(np.int32),
        np.array(slot_row, np.int32).reshape(indices.shape),
        np.array(row_slot + [-1] * (len(flat) - len(row_slot)), np.int32),
    )


def choices(rng: np.random.Generator, tokens: int, k: int, experts: int) -> np.ndarray:
    """k different experts a token."""
    return np.argsort(rng.random((tokens, experts)), axis=1)[:, :k].astype(np.int32)


#: tokens, k, experts, capacity: among them one token, k = experts, pieces of uneven length, many experts
PLANS = [
    (1, 1, 1, 0), (1, 4, 4, 0), (1, 4, 16, 1), (2, 1, 3, 0), (7, 3, 5, 2), (64, 8, 8, 0), (100, 2, 64, 3),
    (512, 4, 16, 0), (513, 4, 16, 128), (1000, 3, 7, 1), (2048, 4, 16, 640), (3000, 2, 1500, 0), (4099, 3, 16, 10**12),
]  # fmt: skip


@pytest.mark.parametrize("tokens,k,experts,capacity", PLANS)
def test_plan(cpu: Engine, tokens: int, k: int, experts: int, capacity: int) -> None:
    indices = choices(np.random.default_rng(tokens), tokens, k, experts)
    got, expected = plan(cpu, indices, experts, capacity), plan_by_definition(indices, experts, capacity)
    for name in ("counts", "offsets", "slot_row", "row_slot"):
        assert (getattr(got, name) == getattr(expected, name)).all(), name


@pytest.mark.parametrize("capacity", [0, 1, 1000])
def test_plan_when_all_choose_one_expert(cpu: Engine, capacity: int) -> None:
    indices = np.full((5000, 1), 3, np.int32)
    got, expected = plan(cpu, indices, 5, capacity), plan_by_definition(indices, 5, capacity)
    assert got.counts.tolist() == [0, 0, 0, 5000, 0]
    assert got.offsets[-1] == (capacity or 5000)
    assert (got.slot_row == expected.slot_row).all() and (got.row_slot == expected.row_slot).all()


def test_plan_refuses_an_expert_that_is_none(cpu: Engine) -> None:
    for bad in (-1, 16, 2**31 - 1, -(2**31)):
        indices = choices(np.random.default_rng(0), 3000, 4, 16)
        indices[2500, 3] = bad
        indices[2501, 0] = 99
        p = Plan(empty(16, "i32"), empty(17, "i32"), empty((3000, 4), "i32"), empty(12000, "i32"))
        with pytest.raises(KernelError, match=rf"indices\[2500, 3\] is {bad}; it must be 0 to 15") as raised:
            cpu.moe_plan(indices, p.counts, p.offsets, p.slot_row, p.row_slot, 3000, 4, 16, 0)
        assert raised.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
        for array in (p.counts, p.offsets, p.slot_row, p.row_slot):
            assert (array == -(2**31)).all()


#: tokens, k, experts, capacity, dim: dim around the vector widths
MOVES = [
    (1, 1, 1, 0, 1), (1, 4, 4, 0, 64), (5, 2, 3, 0, 7), (33, 4, 8, 10, 31), (64, 3, 3, 0, 33), (50, 2, 5, 15, 768),
    (200, 4, 16, 20, 17), (600, 4, 16, 140, 130),
]  # fmt: skip


def case(cpu: Engine, tokens: int, k: int, experts: int, capacity: int) -> tuple[np.random.Generator, Plan]:
    rng = np.random.default_rng(tokens * 7 + k)
    return rng, plan(cpu, choices(rng, tokens, k, experts), experts, capacity)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


def taken(p: Plan, rows: np.ndarray) -> np.ndarray:
    """Each slot's row in float64, zero for dropped slots: [tokens, k, dim]."""
    return np.where(p.slot_row[..., None] >= 0, rows.astype(np.float64)[p.slot_row], 0)


def check(got: np.ndarray, exact: np.ndarray, size: np.ndarray, steps: int, dtype: str) -> None:
    bound = steps * F32 * size
    bound = bound + ROUNDING[dtype] * (np.abs(exact) + bound) + TINIEST[dtype]
    error = np.abs(got.astype(np.float64) - exact)
    assert np.all(error <= bound), f"{np.max(error / bound):.3g} times the bound"  # NaN fails, too


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tokens,k,experts,capacity,dim", MOVES)
def test_gather(cpu: Engine, tokens: int, k: int, experts: int, capacity: int, dim: int, dtype: str) -> None:
    rng, p = case(cpu, tokens, k, experts, capacity)
    x, y = random(rng, (tokens, dim), dtype), empty((tokens * k, dim), dtype)
    cpu.moe_gather(x, p.row_slot, y, tokens, k, dim, dtype)
    kept = p.offsets[-1]
    assert y[:kept].tobytes() == x[p.row_slot[:kept] // k].tobytes()
    assert y[kept:].tobytes() == bytes(y[kept:].nbytes)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gather_of_any_rows(cpu: Engine, dtype: str) -> None:
    """A slot may be in several rows, and a row without a slot in the middle."""
    rng = np.random.default_rng(3)
    x, y = random(rng, (10, 21), dtype), empty((20, 21), dtype)
    row_slot = rng.integers(-1, 20, 20).astype(np.int32)
    cpu.moe_gather(x, row_slot, y, 10, 2, 21, dtype)
    assert (y == np.where(row_slot[:, None] >= 0, x[row_slot // 2], DTYPES[dtype](0))).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tokens,k,experts,capacity,dim", MOVES)
def test_gather_backward(cpu: Engine, tokens: int, k: int, experts: int, capacity: int, dim: int, dtype: str) -> None:
    rng, p = case(cpu, tokens, k, experts, capacity)
    dy, dx = random(rng, (tokens * k, dim), dtype), empty((tokens, dim), dtype)
    cpu.moe_gather_backward(dy, p.slot_row, dx, tokens, k, dim, dtype)
    terms = taken(p, dy)
    check(dx, terms.sum(axis=1), np.abs(terms).sum(axis=1), k, dtype)


@pytest.mark.parametrize("residual", ["none", "given", "in place"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tokens,k,experts,capacity,dim", MOVES)
def test_combine(
    cpu: Engine, tokens: int, k: int, experts: int, capacity: int, dim: int, dtype: str, residual: str
) -> None:
    rng, p = case(cpu, tokens, k, experts, capacity)
    y, weights = random(rng, (tokens * k, dim), dtype), rng.random((tokens, k), np.float32)
    weights[p.slot_row < 0] = np.nan  # a dropped slot's weight is not read
    before = random(rng, (tokens, dim), dtype)
    out = before.copy() if residual == "in place" else empty((tokens, dim), dtype)
    given = {"none": None, "given": before, "in place": out}[residual]
    cpu.moe_combine(y, weights, p.slot_row, given, out, tokens, k, dim, dtype)
    terms = np.nan_to_num(weights)[..., None].astype(np.float64) * taken(p, y)
    added = 0 if residual == "none" else before.astype(np.float64)
    check(out, added + terms.sum(axis=1), np.abs(added) + np.abs(terms).sum(axis=1), k + 2, dtype)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tokens,k,experts,capacity,dim", MOVES)
def test_combine_backward(
    cpu: Engine, tokens: int, k: int, experts: int, capacity: int, dim: int, dtype: str, in_place: bool
) -> None:
    rng, p = case(cpu, tokens, k, experts, capacity)
    y, weights = random(rng, (tokens * k, dim), dtype), rng.random((tokens, k), np.float32)
    dout, dweights = random(rng, (tokens, dim), dtype), empty((tokens, k), "f32")
    dy = y.copy() if in_place else empty((tokens * k, dim), dtype)
    cpu.moe_combine_backward(
        dout, dy if in_place else y, weights, p.slot_row, p.row_slot, dy, dweights, tokens, k, dim, dtype
    )
    kept = p.offsets[-1]
    slots = p.row_slot[:kept]
    exact = weights.ravel()[slots, None].astype(np.float64) * dout.astype(np.float64)[slots // k]
    check(dy[:kept], exact, np.abs(exact), 1, dtype)
    assert (dy[kept:] == 0).all()
    terms = dout.astype(np.float64)[:, None] * taken(p, y)
    check(dweights, terms.sum(axis=-1), np.abs(terms).sum(axis=-1), dim + 8, "f32")
    assert (dweights[p.slot_row < 0] == 0).all()


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("dtype", FLOATS)
def test_outputs_that_go_past_the_caches(cpu: Engine, dtype: str, k: int) -> None:
    """Large outputs are stored in another way, those in place are not: the same bits. Rows begin at odd places."""
    dim, experts = 801, 16
    rows = (34 << 20) // DTYPES[dtype](0).nbytes // dim
    tokens = rows // k
    rng = np.random.default_rng(k)
    p = plan(cpu, choices(rng, tokens, k, experts), experts, tokens * k // experts)
    x = np.resize(random(rng, (100_003,), dtype), (tokens, dim))
    y, weights = empty((tokens * k, dim), dtype), rng.random((tokens, k), np.float32)
    cpu.moe_gather(x, p.row_slot, y, tokens, k, dim, dtype)
    kept = p.offsets[-1]
    assert 0 < kept < tokens * k
    assert (y[:kept].view(np.int8) == x[p.row_slot[:kept] // k].view(np.int8)).all() and not y[kept:].any()
    dy, dweights, same = empty(y.shape, dtype), empty((tokens, k), "f32"), empty((tokens, k), "f32")
    cpu.moe_combine_backward(x, y, weights, p.slot_row, p.row_slot, dy, dweights, tokens, k, dim, dtype)
    if k == 1:  # the other two have one row a token
        summed, out, in_place = empty(x.shape, dtype), empty(x.shape, dtype), x.copy()
        cpu.moe_gather_backward(y, p.slot_row, summed, tokens, k, dim, dtype)
        assert (summed == np.where(p.slot_row >= 0, x, DTYPES[dtype](0))).all()
        cpu.moe_combine(y, weights, p.slot_row, x, out, tokens, k, dim, dtype)
        cpu.moe_combine(y, weights, p.slot_row, in_place, in_place, tokens, k, dim, dtype)
        assert (out.view(np.int8) == in_place.view(np.int8)).all()
    cpu.moe_combine_backward(x, y, weights, p.slot_row, p.row_slot, y, same, tokens, k, dim, dtype)
    assert (dy.view(np.int8) == y.view(np.int8)).all() and (dweights == same).all()


def test_maps_out_of_range(cpu: Engine) -> None:
    tokens, k, dim = 300, 2, 5
    rng, p = case(cpu, tokens, k, 4, 0)
    x, rows, weights = (
        random(rng, (tokens, dim), "f32"),
        random(rng, (600, dim), "f32"),
        np.ones((tokens, k), np.float32),
    )
    y, out, dweights = empty((600, dim), "f32"), empty((tokens, dim), "f32"), empty((tokens, k), "f32")
    for bad in (-2, 600, -(2**31)):
        slot_row, row_slot = p.slot_row.copy(), p.row_slot.copy()
        slot_row[70, 1] = row_slot[141] = bad
        calls = (
            lambda r=row_slot: cpu.moe_gather(x, r, y, tokens, k, dim, "f32"),
            lambda s=slot_row: cpu.moe_gather_backward(rows, s, out, tokens, k, dim, "f32"),
            lambda s=slot_row: cpu.moe_combine(rows, weights, s, None, out, tokens, k, dim, "f32"),
            lambda s=slot_row: cpu.moe_combine_backward(
                x, rows, weights, s, p.row_slot, y, dweights, tokens, k, dim, "f32"
            ),
            lambda r=row_slot: cpu.moe_combine_backward(
                x, rows, weights, p.slot_row, r, y, dweights, tokens, k, dim, "f32"
            ),
        )
        for call in calls:
            with pytest.raises(KernelError, match=rf"\[141\] is {bad}; it must be -1 to 599") as raised:
                call()
            assert raised.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
    for array in (y, out, dweights):
        assert np.isnan(array).all()


def test_combine_backward_wants_inverse_maps(cpu: Engine) -> None:
    """Two slots with one row would both write it."""
    rng, p = case(cpu, 10, 2, 4, 0)
    x, rows, weights = random(rng, (10, 3), "f32"), random(rng, (20, 3), "f32"), np.ones((10, 2), np.float32)
    y, dweights = empty((20, 3), "f32"), empty((10, 2), "f32")
    twice, lost = p.slot_row.copy(), p.slot_row.copy()
    twice[4, 1] = twice[0, 0]
    lost[4, 1] = -1
    for slot_row in (twice, lost):
        with pytest.raises(KernelError, match="slot_row") as raised:
            cpu.moe_combine_backward(x, rows, weights, slot_row, p.row_slot, y, dweights, 10, 2, 3, "f32")
        assert raised.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
    assert np.isnan(y).all() and np.isnan(dweights).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_same_bits_for_any_number_of_threads(cpu: Engine, dtype: str) -> None:
    tokens, k, experts, dim = 1500, 4, 16, 65
    rng = np.random.default_rng(5)
    indices = choices(rng, tokens, k, experts)
    x, rows = random(rng, (tokens, dim), dtype), random(rng, (tokens * k, dim), dtype)
    weights = rng.random((tokens, k), np.float32)
    results = set()
    for threads in THREADS:
        engine = Engine(threads, cpu.isa)
        p = plan(engine, indices, experts, 300)
        y, out, dx = empty((tokens * k, dim), dtype), empty((tokens, dim), dtype), empty((tokens, dim), dtype)
        dy, dweights = empty((tokens * k, dim), dtype), empty((tokens, k), "f32")
        engine.moe_gather(x, p.row_slot, y, tokens, k, dim, dtype)
        engine.moe_gather_backward(rows, p.slot_row, dx, tokens, k, dim, dtype)
        engine.moe_combine(rows, weights, p.slot_row, x, out, tokens, k, dim, dtype)
        engine.moe_combine_backward(x, rows, weights, p.slot_row, p.row_slot, dy, dweights, tokens, k, dim, dtype)
        arrays = (p.counts, p.offsets, p.slot_row, p.row_slot, y, out, dx, dy, dweights)
        results.add(b"".join(array.tobytes() for array in arrays))
    assert len(results) == 1
