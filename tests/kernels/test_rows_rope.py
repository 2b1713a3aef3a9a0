"""Rotary embedding against float64, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import run, same_bits
from engine import DTYPES, Engine

from nncuda.reference import rope as reference

POSITIONS = 50


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
def test_queries_and_keys(cpu: Engine, layout: int) -> None:
    """rope_qk is rope_forward of both, here of a fused product in place, bit for bit."""
    inputs, values = call(9, 4, 24, "bf16")
    key = numbers(2, (9, 2, 24), "bf16")
    sizes = {
        **{name: values[name] for name in ("tokens", "heads", "head_dim", "max_position", "dtype")},
        "layout": layout,
    }
    tables_of = {name: inputs[name] for name in ("cosine", "sine", "positions")}
    both = run(
        cpu, "rope_qk", {"q": inputs["x"], "k": key, **tables_of, **sizes, "kv_heads": 2, "ld_q": 99, "ld_k": 50}
    )
    q = run(cpu, "rope_forward", {**inputs, **values, "layout": layout})["y"]
    k = run(cpu, "rope_forward", {**tables_of, "x": key, **sizes, "heads": 2, "ld_x": 48, "ld_y": 48})["y"]
    same_bits(both, {"q": q, "k": k})
    fused = np.concatenate([inputs["x"].reshape(9, 96), key.reshape(9, 48)], axis=1)
    flat = fused.reshape(-1)
    cpu.rope_qk(flat, flat[96:], *tables_of.values(), 9, 4, 2, 24, POSITIONS, 144, 144, layout, "bf16")
    assert fused[:, :96].tobytes() == q.tobytes()
    assert fused[:, 96:].tobytes() == k.tobytes()


def test_every_position_of_a_long_context(cpu: Engine) -> None:
    """The tables of 262144 positions with NTK alpha 8 against float64.

    A cosine is rounded to f32 once, by at most 2^-25. Its angle is a product in f64 of a position below 2^18 and a
    frequency, at most 1, each correct to 2^-52 of it: at most 2^-33 away, here and in the reference alike. In f32 the
    angle would be off by up to 2^-7.
    """
    positions, head_dim = 262144, 64
    sizes = {"first": 0, "positions": positions, "head_dim": head_dim, "base": 10000.0, "ntk_alpha": 8.0}
    shape = positions, head_dim // 2
    tables = {"cosine": np.full(shape, np.nan, np.float32), "sine": np.full(shape, np.nan, np.float32)}
    cpu.rope_freqs(tables["cosine"], tables["sine"], *sizes.values())
    exact = reference.rope_freqs(positions, head_dim, 0, 10000.0, 8.0)
    for name, table in tables.items():
        assert np.abs(table - exact[name]).max() <= 2.0**-25 + 2 * 2.0**-33, name
