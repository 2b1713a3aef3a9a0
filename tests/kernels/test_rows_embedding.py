"""Adding up rows, of a table and of a text: in the order of the tokens, however they are cut."""

from __future__ import annotations

import math

import numpy as np
import pytest
from calls import run
from engine import DTYPES, FLOATS, THREADS, Engine, isas

SHAPES = ((1, 1, 1), (5, 3, 7), (40, 9, 16), (33, 50, 17), (300, 11, 130), (3, 4, 20001), (900, 13, 333))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_in_the_order_of_tokens(isa: int, dtype: str) -> None:
    for tokens, vocab, dim in SHAPES:
        rng = np.random.default_rng(tokens)
        x = rng.standard_normal((tokens, dim)).astype(DTYPES[dtype])
        ids, table = rng.integers(0, vocab, tokens).astype(np.int32), rng.standard_normal((vocab, dim), np.float32)
        ids[:1], ids[-1:] = vocab - 1, 0
        expected = table.copy()
        for token, row in zip(ids, x.astype(np.float32), strict=True):
            expected[token] += row
        values = {"x": x, "ids": ids, "table": table, "tokens": tokens, "vocab": vocab, "dim": dim, "dtype": dtype}
        for threads, shift in zip(THREADS, (0, 3, 0, 3), strict=True):
            got = run(Engine(threads=threads, isa=isa), "scatter_add", values, shift=shift)["table"]
            assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("isa", isas())
def test_pooled_rows_have_the_same_bits_however_they_are_cut(isa: int) -> None:
    for rows, dim in ((1, 1), (7, 33), (100, 257), (513, 64)):
        rng = np.random.default_rng(rows)
        x = (rng.standard_normal((rows, dim)) * 10.0 ** rng.integers(-3, 4, (rows, 1))).astype(np.float32)
        whole = pooled(Engine(threads=1, isa=isa), x, rows)
        for threads, piece in zip(THREADS, (1, 3, 64, rows), strict=True):
            assert pooled(Engine(threads=threads, isa=isa), x, piece).tobytes() == whole.tobytes()


@pytest.mark.parametrize("isa", isas())
def test_pooling_loses_nothing_of_long_texts(isa: int) -> None:
    """A sum in f32 alone loses the ones beside 2^25, and a sum of 20000 rows some digits."""
    x = np.array([[2.0**25, 0.1], *[[1.0, 0.1]] * 20000, [-(2.0**25), 0.1]], np.float32)
    nearest, rest = pooled(Engine(threads=1, isa=isa), x, 4096).astype(np.float64)
    assert nearest.tolist() == [np.float32(math.fsum(column)) for column in x.T.tolist()]
    assert np.abs(nearest + rest - [math.fsum(column) for column in x.T.tolist()]).max() < 1e-9


def pooled(engine: Engine, x: np.ndarray, piece: int) -> np.ndarray:
    """The sum of rows that come a piece at a time."""
    found = np.zeros((2, x.shape[1]), np.float32)
    for start in range(0, len(x), piece):
        part = np.ascontiguousarray(x[start : start + piece])
        values = {"x": part, "sum": found, "rows": len(part), "dim": x.shape[1]}
        found = run(engine, "pool_rows", values, shift=start % 4)["sum"]
    return found
