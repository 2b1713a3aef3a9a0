"""Cases of the embedding table."""

import numpy as np

from .case import FLOATS, case


def cases():
    for dtype in FLOATS:
        for sizes in ((1, 1, 1), (5, 7, 3), (9, 4, 17), (3, 11, 33), (2, 3, 130)):
            label = "tokens{}-vocab{}-dim{}".format(*sizes)
            yield case("embedding", label, table, dtype, *sizes)
            yield case("scatter_add", label, scattered, dtype, *sizes)
        yield case("scatter_add", "one-row", scattered, dtype, 70, 4, 5, np.full(70, 2, np.int32))
        yield case("embedding", "ends", table, dtype, 5, 9, 6, np.array([8, 0, 8, 0, 0], np.int32))


def table(d, tokens, vocab, dim, ids=None):
    return {"table": d.bell(vocab, dim), "ids": d.integers(tokens, high=vocab) if ids is None else ids}


def scattered(d, tokens, vocab, dim, ids=None):
    x = d.bell(tokens, dim)
    ids = d.integers(tokens, high=vocab) if ids is None else ids
    return {"x": x, "ids": ids, "table": d.bell(vocab, dim)}
