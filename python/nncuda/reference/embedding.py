"""Rows of a table: gathered forward, added up backward."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs

__all__ = ["embedding", "scatter_add"]

ROUNDINGS = {
    "embedding": 0,
    "scatter_add": 1,
}


def embedding(table: Array, ids: Array) -> Outputs:
    """y[t] = table[ids[t]]: the product of one-hot rows with the table. Bengio et al. 2003, section 2."""
    return {"y": table[ids]}


def scatter_add(x: Array, ids: Array, table: Array) -> Outputs:
    """table[ids[t]] += x[t], token after token: the transpose of the gather."""
    out = table.copy()
    np.add.at(out, ids, x)
    return {"table": out}
