"""Cases of the matrix products."""

import numpy as np

from .case import FLOATS, case, nan

#: (dtype, dtype_c): a product is kept in its own dtype, or in f32.
KINDS = (("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32"))
TRANSPOSES = ((0, 0), (0, 1), (1, 0), (1, 1))


def swapped(d, rows, cols, flag, *lead):
    """A factor [rows, cols], stored as [cols, rows] when flagged."""
    return d.bell(*lead, cols, rows) if flag else d.bell(*lead, rows, cols)


def cases():
    for dtype, dtype_c in KINDS:
        yield from plain(dtype, dtype_c)
        yield from scaled(dtype, dtype_c)
        yield from batched(dtype, dtype_c)
        yield from grouped(dtype, dtype_c)
    for dtype in FLOATS:
        yield from epilogues(dtype)


def plain(dtype, dtype_c):
    shapes = [(1, 1, 1), (1, 17, 33), (1, 65, 7), (5, 9, 3), (16, 16, 16), (15, 33, 31), (33, 15, 17), (17, 34, 49)]
    for m, n, k in shapes:
        for trans_a, trans_b in TRANSPOSES if dtype == dtype_c else TRANSPOSES[1:3]:
            yield case(
                "gemm",
                f"m{m}-n{n}-k{k}-ta{trans_a}-tb{trans_b}",
                lambda d, m=m, n=n, k=k, ta=trans_a, tb=trans_b: {
                    "a": swapped(d, m, k, ta),
                    "b": swapped(d, k, n, tb),
                    "trans_a": ta,
                    "trans_b": tb,
                },
                dtype,
                dtype_c=dtype_c,
            )
    if dtype == dtype_c:
        yield case(
            "gemm",
            "m2-n3-k1300-ta0-tb1",
            lambda d: {"a": d.bell(2, 1300), "b": d.bell(3, 1300), "trans_a": 0, "trans_b": 1},
            dtype,
            dtype_c=dtype_c,
        )


def with_c(d, c_shape, alpha, beta):
    return {"c": nan(*c_shape) if beta == 0 else d.bell(*c_shape), "alpha": alpha, "beta": beta}


def scaled(dtype, dtype_c):
    for m, n, k, extra, alpha, beta in (
        (1, 5, 9, 0, 1.0, 1.0),
        (7, 17, 5, 3, -0.5, 0.0),
        (6, 16, 33, 8, 2.0, -0.75),
        (17, 3, 16, 1, 1.0, 1.0),
    ):
        for trans_a, trans_b in TRANSPOSES if dtype == dtype_c else TRANSPOSES[1:3]:

            def recipe(d, m=m, n=n, k=k, extra=extra, alpha=alpha, beta=beta, ta=trans_a, tb=trans_b):
                a, b = swapped(d, m, k, ta), swapped(d, k, n, tb)
                lds = {"lda": a.shape[1] + extra, "ldb": b.shape[1] + 2 * extra, "ldc": n + extra}
                return {"a": a, "b": b, "trans_a": ta, "trans_b": tb, **lds, **with_c(d, (m, n), alpha, beta)}

            label = f"m{m}-n{n}-k{k}-beta{beta}-ta{trans_a}-tb{trans_b}"
            yield case("gemm_beta", label, recipe, dtype, dtype_c=dtype_c)
    yield case(
        "gemm_beta",
        "alpha0",
        lambda d: {"a": d.bell(3, 4), "b": d.bell(4, 5), "trans_a": 0, "trans_b": 0, **with_c(d, (3, 5), 0.0, 2.0)},
        dtype,
        dtype_c=dtype_c,
    )


def batched(dtype, dtype_c):
    for batch, m, n, k, beta in ((1, 3, 5, 7, 0.0), (3, 1, 17, 9, 1.0), (2, 9, 8, 16, 0.5)):
        for trans_a, trans_b in TRANSPOSES if dtype == dtype_c else TRANSPOSES[1:2]:

            def recipe(d, batch=batch, m=m, n=n, k=k, beta=beta, ta=trans_a, tb=trans_b):
                a, b = swapped(d, m, k, ta, batch), swapped(d, k, n, tb, batch)
                return {"a": a, "b": b, "trans_a": ta, "trans_b": tb, **with_c(d, (batch, m, n), 1.5, beta)}

            label = f"batch{batch}-m{m}-n{n}-k{k}-ta{trans_a}-tb{trans_b}"
            yield case("batched_gemm", label, recipe, dtype, dtype_c=dtype_c)


#: Rows of each expert, and the room for rows.
GROUPS = {
    "one": ([5], 5),
    "ragged": ([3, 0, 1, 7, 2], 13),
    "all-to-one": ([0, 0, 9, 0], 9),
    "room": ([2, 3, 0], 8),
    "empty": ([0, 0, 0], 4),
    "single-rows": ([1, 1, 1, 1, 1, 1], 6),
}


def offsets(counts):
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def unread(x, rows):
    """Rows that belong to no group hold what must not be read."""
    x[rows:] = np.nan
    return x


def grouped(dtype, dtype_c):
    for label, (counts, rows) in GROUPS.items():
        if dtype != dtype_c and label not in ("ragged", "room"):
            continue
        used = sum(counts)
        for n, k, beta, trans_b in ((7, 9, 0.0, 1), (17, 16, 1.0, 0), (16, 5, 0.0, 0), (9, 20, -0.5, 1)):

            def recipe(d, counts=counts, rows=rows, used=used, n=n, k=k, beta=beta, tb=trans_b):
                c = nan(rows, n) if beta == 0 else unread(d.bell(rows, n), used)
                b = swapped(d, k, n, tb, len(counts))
                a = unread(d.bell(rows, k), used)
                return {"a": a, "b": b, "offsets": offsets(counts), "c": c, "beta": beta, "trans_b": tb}

            yield case("grouped_gemm", f"{label}-n{n}-k{k}-beta{beta}-tb{trans_b}", recipe, dtype, dtype_c=dtype_c)
        for m, n, beta in ((5, 9, 0.0), (9, 17, 1.0)):

            def wgrad(d, counts=counts, rows=rows, used=used, m=m, n=n, beta=beta):
                shape = (len(counts), m, n)
                c = nan(*shape) if beta == 0 else d.bell(*shape)
                a, b = unread(d.bell(rows, m), used), unread(d.bell(rows, n), used)
                return {"a": a, "b": b, "offsets": offsets(counts), "c": c, "beta": beta}

            yield case("grouped_gemm_wgrad", f"{label}-m{m}-n{n}-beta{beta}", wgrad, dtype, dtype_c=dtype_c)


def epilogues(dtype):
    for m, n, k in ((1, 5, 9), (6, 17, 16), (17, 33, 5)):
        for bias in (0, 1):
            for residual in (0, 1):
                for activation in (0, 1):

                    def recipe(d, m=m, n=n, k=k, bias=bias, residual=residual, activation=activation):
                        return {
                            "a": d.bell(m, k),
                            "b": d.bell(n, k),
                            "bias": d.bell(n) if bias else None,
                            "residual": d.bell(m, n) if residual else None,
                            "activation": activation,
                        }

                    label = f"m{m}-n{n}-k{k}-bias{bias}-residual{residual}-activation{activation}"
                    yield case("gemm_epilogue", label, recipe, dtype)
