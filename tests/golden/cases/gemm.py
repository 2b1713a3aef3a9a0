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
        if dtype != "f16":
            yield from in_8_bits(dtype, dtype_c)
    for dtype in FLOATS:
        yield from epilogues(dtype)
        for label, (counts, rows) in GROUPS.items():
            for n, k in ((7, 9), (24, 16)) if label == "ragged" else ((5, 8),):
                for kernel, recipe in (("grouped_gemm_swiglu", gated), ("grouped_gemm_swiglu_backward", slopes)):
                    yield case(kernel, f"{label}-n{n}-k{k}", recipe, dtype, counts, rows, n, k)


def product(d, m, n, k, ta, tb, *batch):
    return {"a": swapped(d, m, k, ta, *batch), "b": swapped(d, k, n, tb, *batch), "trans_a": ta, "trans_b": tb}


def plain(dtype, dtype_c):
    shapes = [(1, 1, 1), (1, 17, 33), (1, 65, 7), (5, 9, 3), (16, 16, 16), (15, 33, 31), (33, 15, 17), (17, 34, 49)]
    calls = [(*shape, *both) for shape in shapes for both in (TRANSPOSES if dtype == dtype_c else TRANSPOSES[1:3])]
    for sizes in (*calls, *[(2, 3, 1300, 0, 1)] * (dtype == dtype_c)):
        yield case("gemm", "m{}-n{}-k{}-ta{}-tb{}".format(*sizes), product, dtype, *sizes, dtype_c=dtype_c)


def with_c(d, c_shape, alpha, beta):
    return {"c": nan(*c_shape) if beta == 0 else d.bell(*c_shape), "alpha": alpha, "beta": beta}


def apart(d, m, n, k, ta, tb, gap_a, gap_b, gap_c, alpha, beta):
    """Gaps between rows."""
    args = product(d, m, n, k, ta, tb)
    lds = {"lda": args["a"].shape[1] + gap_a, "ldb": args["b"].shape[1] + gap_b, "ldc": n + gap_c}
    return {**args, **lds, **with_c(d, (m, n), alpha, beta)}


def scaled(dtype, dtype_c):
    for m, n, k, extra, alpha, beta in (
        (1, 5, 9, 0, 1.0, 1.0),
        (7, 17, 5, 3, -0.5, 0.0),
        (6, 16, 33, 8, 2.0, -0.75),
        (17, 3, 16, 1, 1.0, 1.0),
    ):
        for both in TRANSPOSES if dtype == dtype_c else TRANSPOSES[1:3]:
            label = "m{}-n{}-k{}-beta{}-ta{}-tb{}".format(m, n, k, beta, *both)
            sizes = m, n, k, *both, extra, 2 * extra, extra, alpha, beta
            yield case("gemm_beta", label, apart, dtype, *sizes, dtype_c=dtype_c)
    yield case("gemm_beta", "alpha0", apart, dtype, 3, 5, 4, 0, 0, 0, 0, 0, 0.0, 2.0, dtype_c=dtype_c)


def many(d, batch, m, n, k, ta, tb, alpha, beta):
    return {**product(d, m, n, k, ta, tb, batch), **with_c(d, (batch, m, n), alpha, beta)}


def batched(dtype, dtype_c):
    for *shape, beta in ((1, 3, 5, 7, 0.0), (3, 1, 17, 9, 1.0), (2, 9, 8, 16, 0.5)):
        for both in TRANSPOSES if dtype == dtype_c else TRANSPOSES[1:2]:
            label = "batch{}-m{}-n{}-k{}-ta{}-tb{}".format(*shape, *both)
            yield case("batched_gemm", label, many, dtype, *shape, *both, 1.5, beta, dtype_c=dtype_c)


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


def of_rows(d, counts, rows, n, k, beta, tb):
    used = sum(counts)
    c = nan(rows, n) if beta == 0 else unread(d.bell(rows, n), used)
    b = swapped(d, k, n, tb, len(counts))
    a = unread(d.bell(rows, k), used)
    return {"a": a, "b": b, "offsets": offsets(counts), "c": c, "beta": beta, "trans_b": tb}


def of_terms(d, counts, rows, m, n, beta):
    shape = (len(counts), m, n)
    c = nan(*shape) if beta == 0 else d.bell(*shape)
    a, b = (unread(d.bell(rows, side), sum(counts)) for side in (m, n))
    return {"a": a, "b": b, "offsets": offsets(counts), "c": c, "beta": beta}


def grouped(dtype, dtype_c):
    for label, (counts, rows) in GROUPS.items():
        if dtype != dtype_c and label not in ("ragged", "room"):
            continue
        for sizes in ((7, 9, 0.0, 1), (17, 16, 1.0, 0), (16, 5, 0.0, 0), (9, 20, -0.5, 1)):
            full = f"{label}-" + "n{}-k{}-beta{}-tb{}".format(*sizes)
            yield case("grouped_gemm", full, of_rows, dtype, counts, rows, *sizes, dtype_c=dtype_c)
        for sizes in ((5, 9, 0.0), (9, 17, 1.0)):
            full = f"{label}-" + "m{}-n{}-beta{}".format(*sizes)
            yield case("grouped_gemm_wgrad", full, of_terms, dtype, counts, rows, *sizes, dtype_c=dtype_c)


def uneven(x, d):
    """Numbers whose blocks have scales far apart, and some with numbers that 8 bits lose beside the largest."""
    return x * 2.0 ** d.integers(*x.shape[:-1], 1, low=-12, high=12) * 2.0 ** d.integers(1, x.shape[-1], low=-5, high=6)


def rows_in_8_bits(d, counts, rows, n, k, tb):
    made = of_rows(d, counts, rows, n, k, 0.0, tb)
    return {
        name: uneven(made[name], d) if name in ("a", "b") else made[name] for name in ("a", "b", "offsets", "trans_b")
    }


def terms_in_8_bits(d, counts, rows, m, n, beta):
    made = of_terms(d, counts, rows, m, n, beta)
    return {**made, "a": uneven(made["a"], d), "b": uneven(made["b"], d)}


def in_8_bits(dtype, dtype_c):
    """Groups as above, then factors of more than a block: its last row, column or term alone in one."""
    for label, (counts, rows) in GROUPS.items():
        if label in ("one", "all-to-one") or (dtype != dtype_c and label != "ragged"):
            continue
        for sizes in ((7, 9, 1), (17, 5, 0)):
            full = f"{label}-" + "n{}-k{}-tb{}".format(*sizes)
            yield case("grouped_gemm_fp8", full, rows_in_8_bits, dtype, counts, rows, *sizes, dtype_c=dtype_c)
        full = f"{label}-m5-n9-beta0.5"
        yield case("grouped_gemm_wgrad_fp8", full, terms_in_8_bits, dtype, counts, rows, 5, 9, 0.5, dtype_c=dtype_c)
    for sizes in ((3, 129, 1), (3, 129, 0), (129, 3, 1)):
        full = "blocks-n{}-k{}-tb{}".format(*sizes)
        yield case("grouped_gemm_fp8", full, rows_in_8_bits, dtype, [2, 1], 3, *sizes, dtype_c=dtype_c)
    yield case("grouped_gemm_wgrad_fp8", "blocks-m3-n2-beta0.0", terms_in_8_bits, dtype, [3, 129], 132, 3, 2, 0.0,
               dtype_c=dtype_c)  # fmt: skip


def gated(d, counts, rows, n, k):
    a = unread(d.bell(rows, k), sum(counts))
    return {"a": a, "b": d.bell(len(counts), 2 * n, k, scale=0.5), "offsets": offsets(counts)}


def slopes(d, counts, rows, n, k):
    a, gate_up = (unread(d.bell(rows, size), sum(counts)) for size in (k, 2 * n))
    return {"a": a, "b": d.bell(len(counts), k, n, scale=0.5), "offsets": offsets(counts), "gate_up": gate_up}


def followed(d, m, n, k, bias, residual, activation, scale=1.0):
    return {
        "a": d.bell(m, k),
        "b": d.bell(n, k, scale=scale),
        "bias": d.bell(n) if bias else None,
        "residual": d.bell(m, n) if residual else None,
        "activation": activation,
    }


def epilogues(dtype):
    for shape in ((1, 5, 9), (6, 17, 16), (17, 33, 5)):
        for ends in np.ndindex(2, 2, 2):
            label = "m{}-n{}-k{}-bias{}-residual{}-activation{}".format(*shape, *ends)
            yield case("gemm_epilogue", label, followed, dtype, *shape, *ends)
