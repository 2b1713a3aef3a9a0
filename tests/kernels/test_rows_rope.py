"""Rotary embedding against float64, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import Budget, compare, run, same_bits
from engine import DTYPES, FLOATS, THREADS, Engine, KernelError, isas

from nncuda.reference import rope as reference

HEAD_DIMS = (2, 4, 6, 8, 10, 16, 24, 32, 34, 40, 64, 80, 128, 250)
POSITIONS = 50


@pytest.fixture(scope="module", params=isas())
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def numbers(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def tables(head_dim: int) -> dict[str, np.ndarray]:
    exact = reference.rope_freqs(POSITIONS, head_dim, 0, 10000.0, 1.0)
    return {name: value.astype(np.float32) for name, value in exact.items()}


def call(tokens: int, heads: int, head_dim: int, dtype: str) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    positions = np.random.default_rng(tokens).integers(0, POSITIONS, tokens).astype(np.int32)
    inputs = {"x": numbers(1, (tokens, heads, head_dim), dtype), **tables(head_dim), "positions": positions}
    width = heads * head_dim
    sizes = {"tokens": tokens, "heads": heads, "head_dim": head_dim, "max_position": POSITIONS, "dtype": dtype}
    return inputs, {**sizes, "ld_x": width, "ld_y": width}


@pytest.mark.parametrize("layout", [reference.HALF, reference.INTERLEAVED])
@pytest.mark.parametrize("dtype", FLOATS)
def test_accuracy(engine: Engine, dtype: str, layout: int) -> None:
    forward, backward = Budget(), Budget()
    for head_dim in HEAD_DIMS:
        inputs, values = call(7, 3, head_dim, dtype)
        for gap in (0, 5):
            values |= {"ld_x": 3 * head_dim + gap, "ld_y": 3 * head_dim + 2 * gap, "layout": layout}
            outputs = run(engine, "rope_forward", {**inputs, **values})
            compare(forward, outputs, reference.rope_forward, inputs, {"layout": layout})
            gradient = {"dy": inputs["x"], **{name: value for name, value in inputs.items() if name != "x"}}
            outputs = run(engine, "rope_backward", {**gradient, **values})
            compare(backward, outputs, reference.rope_backward, gradient, {"layout": layout})
    forward.check()
    backward.check()


@pytest.mark.parametrize("layout", [reference.HALF, reference.INTERLEAVED])
def test_queries_and_keys(engine: Engine, layout: int) -> None:
    """rope_qk is rope_forward of both, here of a fused product in place, bit for bit."""
    inputs, values = call(9, 4, 24, "bf16")
    key = numbers(2, (9, 2, 24), "bf16")
    sizes = {
        **{name: values[name] for name in ("tokens", "heads", "head_dim", "max_position", "dtype")},
        "layout": layout,
    }
    tables_of = {name: inputs[name] for name in ("cosine", "sine", "positions")}
    both = run(
        engine, "rope_qk", {"q": inputs["x"], "k": key, **tables_of, **sizes, "kv_heads": 2, "ld_q": 99, "ld_k": 50}
    )
    q = run(engine, "rope_forward", {**inputs, **values, "layout": layout})["y"]
    k = run(engine, "rope_forward", {**tables_of, "x": key, **sizes, "heads": 2, "ld_x": 48, "ld_y": 48})["y"]
    same_bits(both, {"q": q, "k": k})
    fused = np.concatenate([inputs["x"].reshape(9, 96), key.reshape(9, 48)], axis=1)
    flat = fused.reshape(-1)
    engine.rope_qk(flat, flat[96:], *tables_of.values(), 9, 4, 2, 24, POSITIONS, 144, 144, layout, "bf16")
    assert fused[:, :96].tobytes() == q.tobytes()
    assert fused[:, 96:].tobytes() == k.tobytes()


def test_same_bits() -> None:
    for isa in isas():
        for dtype in FLOATS:
            for layout in (0, 1):
                inputs, values = call(700, 5, 40, dtype)
                values |= {**inputs, "layout": layout}
                first = run(Engine(threads=1, isa=isa), "rope_forward", values)
                for threads in THREADS[1:]:
                    same_bits(first, run(Engine(threads=threads, isa=isa), "rope_forward", values))
                engine = Engine(threads=2, isa=isa)
                same_bits(first, run(engine, "rope_forward", values, shift=3))
                same_bits(first, run(engine, "rope_forward", values, alias={"y": "x"}))


@pytest.mark.parametrize("layout", [0, 1])
def test_large_outputs(engine: Engine, layout: int) -> None:
    """Rows past the caches have the bits of the same rows alone."""
    inputs, values = call(17 << 10, 8, 64, "f32")
    whole = run(engine, "rope_forward", {**inputs, **values, "layout": layout})["y"]
    part = {**inputs, "x": inputs["x"][-100:], "positions": inputs["positions"][-100:]}
    same_bits({"y": whole[-100:]}, run(engine, "rope_forward", {**part, **values, "tokens": 100, "layout": layout}))


def test_freqs(engine: Engine) -> None:
    for head_dim, first, positions, base, alpha in (
        (2, 0, 9, 10000.0, 1.0),
        (4, 3, 5, 10000.0, 8.0),
        (64, 262100, 44, 10000.0, 8.0),
        (128, 0, 300, 500000.0, 1.0),
        (6, 2**40, 3, 10.0, 1.5),
    ):
        options = {"first": first, "base": base, "ntk_alpha": alpha}
        outputs = run(engine, "rope_freqs", {"positions": positions, "head_dim": head_dim, **options})
        exact = reference.rope_freqs(positions, head_dim, **options)
        for name, value in outputs.items():
            # Half an ulp of a number up to 1, and the rounding of the angle in f64.
            largest = first + positions
            assert np.max(np.abs(value - exact[name])) <= 2.0**-25 + 4 * largest * 2.0**-53


def test_refused(engine: Engine) -> None:
    inputs, values = call(3, 2, 8, "f32")
    values |= {**inputs, "layout": 0}
    for bad in (-1, POSITIONS):
        positions = np.int32([0, 1, bad])
        with pytest.raises(KernelError, match=rf"positions\[2\] is {bad}; it must be 0 to {POSITIONS - 1}") as caught:
            run(engine, "rope_forward", {**values, "positions": positions})
        assert caught.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
    for change, words in (({"layout": 2}, "layout is 2"), ({"ld_x": 15}, "ld_x is 15"), ({"ld_y": 15}, "ld_y is 15")):
        with pytest.raises(KernelError, match=words):
            engine.rope_forward(*[({**values, "y": np.empty(48, np.float32)} | change)[name] for name in ORDER])
    odd = {"head_dim": 7, "ld_x": 14, "ld_y": 14, "y": np.empty(48, np.float32)}
    with pytest.raises(KernelError, match="head_dim is 7; it must be even"):
        engine.rope_forward(*[({**values} | odd)[name] for name in ORDER])
    good = {"first": 0, "positions": 3, "head_dim": 8, "base": 1e4, "ntk_alpha": 1.0}
    for change in ({"head_dim": 7}, {"base": 0.0}, {"base": np.nan}, {"ntk_alpha": 0.5}, {"first": -1}):
        with pytest.raises(KernelError, match=next(iter(change))):
            run(engine, "rope_freqs", {**good, **change})
    with pytest.raises(KernelError, match="head_dim is 2"):
        run(engine, "rope_freqs", {**good, "head_dim": 2, "ntk_alpha": 2.0})


ORDER = ("x", "cosine", "sine", "positions", "y", "tokens", "heads", "head_dim", "max_position", "ld_x", "ld_y")
ORDER += ("layout", "dtype")


def test_nothing_to_do(engine: Engine) -> None:
    inputs, values = call(0, 2, 8, "f32")
    run(engine, "rope_forward", {**inputs, **values, "layout": 0})


def test_every_position_of_a_long_context(engine: Engine) -> None:
    """The tables of 262144 positions with NTK alpha 8 against float64.

    A cosine is rounded to f32 once, by at most 2^-25. Its angle is a product in f64 of a position below 2^18 and a
    frequency, at most 1, each correct to 2^-52 of it: at most 2^-33 away, here and in the reference alike. In f32 the
    angle would be off by up to 2^-7.
    """
    positions, head_dim = 262144, 64
    sizes = {"first": 0, "positions": positions, "head_dim": head_dim, "base": 10000.0, "ntk_alpha": 8.0}
    shape = positions, head_dim // 2
    tables = {"cosine": np.full(shape, np.nan, np.float32), "sine": np.full(shape, np.nan, np.float32)}
    engine.rope_freqs(tables["cosine"], tables["sine"], *sizes.values())
    exact = reference.rope_freqs(positions, head_dim, 0, 10000.0, 8.0)
    for name, table in tables.items():
        assert np.abs(table - exact[name]).max() <= 2.0**-25 + 2 * 2.0**-33, name
