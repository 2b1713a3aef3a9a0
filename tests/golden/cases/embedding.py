"""Cases of the embedding table, and of the vector of a text."""

import numpy as np

from .case import FLOATS, case, stored


def cases():
    for dtype in FLOATS:
        for sizes in ((1, 1, 1), (5, 7, 3), (9, 4, 17), (3, 11, 33), (2, 3, 130)):
            label = "tokens{}-vocab{}-dim{}".format(*sizes)
            yield case("embedding", label, table, dtype, *sizes)
            yield case("scatter_add", label, scattered, dtype, *sizes)
        yield case("scatter_add", "one-row", scattered, dtype, 70, 4, 5, np.full(70, 2, np.int32))
        yield case("embedding", "ends", table, dtype, 5, 9, 6, np.array([8, 0, 8, 0, 0], np.int32))
    for rows, dim in ((1, 1), (2, 3), (7, 17), (33, 33), (3, 130)):
        yield case("pool_rows", f"rows{rows}-dim{dim}", pooled, "", rows, dim)
        yield case("pool_rows", f"rows{rows}-dim{dim}-more", pooled, "", rows, dim, True)
        yield case("pool_unit", f"dim{dim}", unit, "", dim, 2.0 ** (rows - 17))
    yield case("pool_rows", "special", lambda d: {"x": SPECIAL, "sum": np.zeros((2, 4))})
    yield case("pool_unit", "zeros", lambda d: {"sum": np.zeros((2, 5))})
    yield case("pool_unit", "large", unit, "", 9, 1e37)
    yield case("pool_unit", "nan", lambda d: {"sum": np.array([[1.0, np.nan], [0.0, 0.0]])})


#: A column that is finite; NaN; infinities of one sign, and of both.
SPECIAL = np.array([[1.0, 0.5, np.inf, np.inf], [2.0, np.nan, 1.0, 1.0], [-4.0, 2.0, 3.0, -np.inf]])


def table(d, tokens, vocab, dim, ids=None):
    return {"table": d.bell(vocab, dim), "ids": d.integers(tokens, high=vocab) if ids is None else ids}


def scattered(d, tokens, vocab, dim, ids=None):
    x = d.bell(tokens, dim)
    ids = d.integers(tokens, high=vocab) if ids is None else ids
    return {"x": x, "ids": ids, "table": d.bell(vocab, dim)}


def pooled(d, rows, dim, more=False):
    nearest = stored(d.bell(dim, scale=5.0)) if more else np.zeros(dim)
    rest = d.uniform(dim) * np.spacing(nearest.astype(np.float32)) / 2 if more else np.zeros(dim)
    return {"x": d.bell(rows, dim), "sum": np.stack([nearest, rest])}


def unit(d, dim, scale):
    nearest = stored(d.bell(dim, scale=scale))
    return {"sum": np.stack([nearest, d.uniform(dim) * np.spacing(nearest.astype(np.float32)) / 2])}
