"""Rows of a table: gathered forward, added up backward. Rows of a text: pooled into one vector."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, sqrt, total

__all__ = ["embedding", "pool_rows", "pool_unit", "scatter_add"]

ROUNDINGS = {
    "embedding": 0,
    "scatter_add": 1,
    "pool_rows": 2,  # the nearest f32; what is left of it
    "pool_unit": 4,  # +, square, sqrt, /
}


def embedding(table: Array, ids: Array) -> Outputs:
    """y[t] = table[ids[t]]: the product of one-hot rows with the table. Bengio et al. 2003, section 2."""
    return {"y": table[ids]}


def scatter_add(x: Array, ids: Array, table: Array) -> Outputs:
    """table[ids[t]] += x[t], token after token: the transpose of the gather."""
    out = table.copy()
    np.add.at(out, ids, x)
    return {"table": out}


def pool_rows(x: Array, sum: Array) -> Outputs:
    """sum[0] + sum[1] += the rows of x: the nearest f32 and what is left of it, NaN where that is not finite."""
    whole = sum[0] + sum[1] + total(x, axis=0)[0]
    with np.errstate(all="ignore"):
        nearest = whole.astype(np.float32).astype(whole.dtype)
        nearest = np.where(np.isfinite(nearest), nearest, np.nan)
        return {"sum": np.stack([nearest, whole - nearest])}


def pool_unit(sum: Array) -> Outputs:
    """y = s / |s|, s = sum[0] + sum[1]; zeros for zeros."""
    s = sum[0] + sum[1]
    length = sqrt(total(s * s))
    return {"y": s / np.where(length == 0, 1, length).astype(s.dtype)}
