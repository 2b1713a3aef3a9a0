"""Gathering and adding up rows of a table, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from calls import run, same_bits
from engine import DTYPES, FLOATS, THREADS, Engine, KernelError, isas

SHAPES = ((1, 1, 1), (5, 3, 7), (40, 9, 16), (33, 50, 17), (300, 11, 130), (3, 4, 20001), (1000, 70, 65))


@pytest.fixture(scope="module", params=isas())
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def numbers(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def ids_of(tokens: int, vocab: int) -> np.ndarray:
    ids = np.random.default_rng(tokens).integers(0, vocab, tokens).astype(np.int32)
    ids[:1], ids[-1:] = vocab - 1, 0
    return ids


@pytest.mark.parametrize("dtype", FLOATS)
def test_embedding(engine: Engine, dtype: str) -> None:
    for tokens, vocab, dim in SHAPES:
        table, ids = numbers(1, (vocab, dim), dtype), ids_of(tokens, vocab)
        values = {"table": table, "ids": ids, "tokens": tokens, "vocab": vocab, "dim": dim, "dtype": dtype}
        for shift in (0, 3):
            y = run(engine, "embedding", values, shift=shift)["y"]
            assert y.tobytes() == table[ids].tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_scatter_add(engine: Engine, dtype: str) -> None:
    """Bit for bit the additions in f32, in the order of the tokens."""
    for tokens, vocab, dim in SHAPES:
        x, ids, table = numbers(1, (tokens, dim), dtype), ids_of(tokens, vocab), numbers(2, (vocab, dim), "f32")
        expected = table.copy()
        for token, row in zip(ids, x.astype(np.float32), strict=True):
            expected[token] += row
        values = {"x": x, "ids": ids, "table": table, "tokens": tokens, "vocab": vocab, "dim": dim, "dtype": dtype}
        for shift in (0, 3):
            assert run(engine, "scatter_add", values, shift=shift)["table"].tobytes() == expected.tobytes()


def test_same_bits() -> None:
    x, ids, table = numbers(1, (900, 333), "bf16"), ids_of(900, 13), numbers(2, (13, 333), "f32")
    values = {"x": x, "ids": ids, "table": table, "tokens": 900, "vocab": 13, "dim": 333, "dtype": "bf16"}
    first = run(Engine(threads=1, isa=0), "scatter_add", values)
    for isa in isas():
        for threads in THREADS:
            same_bits(first, run(Engine(threads=threads, isa=isa), "scatter_add", values))


def test_ids_out_of_range(engine: Engine) -> None:
    for bad in (-1, 4, 2**31 - 1, -(2**31)):
        ids = np.int32([0, 3, bad, 1])
        y, table = np.full((4, 3), 7, np.float32), np.full((4, 3), 8, np.float32)
        for kernel, args in (("embedding", (table, ids, y)), ("scatter_add", (y, ids, table))):
            with pytest.raises(KernelError, match=rf"ids\[2\] is {bad}; it must be 0 to 3") as caught:
                getattr(engine, kernel)(*args, 4, 4, 3, "f32")
            assert caught.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
        assert np.all(y == 7) and np.all(table == 8)


def test_nothing_to_do(engine: Engine) -> None:
    for tokens, dim in ((0, 3), (2, 0)):
        table = numbers(1, (4, dim), "f32")
        values = {"ids": np.zeros(tokens, np.int32), "tokens": tokens, "vocab": 4, "dim": dim, "dtype": "f32"}
        run(engine, "embedding", {"table": table, **values})
        outputs = run(engine, "scatter_add", {"x": np.zeros((tokens, dim), np.float32), "table": table, **values})
        assert np.array_equal(outputs["table"], table)
