"""Cases of the embedding table."""

import numpy as np

from .case import FLOATS, case


def cases():
    for dtype in FLOATS:
        for tokens, vocab, dim in ((1, 1, 1), (5, 7, 3), (9, 4, 17), (3, 11, 33), (2, 3, 130)):

            def ids(d, tokens=tokens, vocab=vocab):
                return d.integers(tokens, high=vocab)

            label = f"tokens{tokens}-vocab{vocab}-dim{dim}"
            yield case(
                "embedding", label, lambda d, ids=ids, v=vocab, n=dim: {"table": d.bell(v, n), "ids": ids(d)}, dtype
            )
            yield case(
                "scatter_add",
                label,
                lambda d, ids=ids, t=tokens, v=vocab, n=dim: {"x": d.bell(t, n), "ids": ids(d), "table": d.bell(v, n)},
                dtype,
            )
        yield case(
            "scatter_add",
            "one-row",
            lambda d: {"x": d.bell(70, 5), "ids": np.full(70, 2, np.int32), "table": d.bell(4, 5)},
            dtype,
        )
        yield case(
            "embedding",
            "ends",
            lambda d: {"table": d.bell(9, 6), "ids": np.array([8, 0, 8, 0, 0], np.int32)},
            dtype,
        )
