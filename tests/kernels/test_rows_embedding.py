"""Adding up rows of a table: bit for bit the additions in f32, in the order of the tokens, however they are cut."""

from __future__ import annotations

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
