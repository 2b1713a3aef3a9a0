"""What NumPy leaves to the machine, pinned down: elementary functions, and sums and products in a known order.

In float64 these are NumPy's own. In float32 a sum adds its terms one after another and each step rounds, as the plain
loop does, and an elementary function is the float64 one rounded once, so that the result does not hang on the vector
library or the BLAS of the machine.
"""

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Outputs = dict[str, Array]


def _rounded_once(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def call(x: Array) -> Array:
        x = np.asarray(x)
        with np.errstate(all="ignore"):
            return function(x.astype(np.promote_types(x.dtype, np.float64))).astype(x.dtype)

    return call


exp = _rounded_once(np.exp)
log = _rounded_once(np.log)
cos = _rounded_once(np.cos)
sin = _rounded_once(np.sin)
sqrt = _rounded_once(np.sqrt)
tanh = _rounded_once(np.tanh)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)); exact limits 0 and 1 at -inf and inf."""
    with np.errstate(over="ignore"):
        return (1 / (1 + exp(-x))).astype(x.dtype)


def total(x: Array, axis: int = -1) -> Array:
    """Sum over one axis, which stays with length 1."""
    if x.dtype != np.float32 or x.shape[axis] == 0:
        return np.sum(x, axis=axis, keepdims=True)
    return np.take(np.cumsum(x, axis=axis, dtype=np.float32), [-1], axis=axis)


def mean(x: Array, axis: int = -1) -> Array:
    """Mean over one axis, which stays with length 1."""
    return total(x, axis) / x.dtype.type(x.shape[axis])


def matmul(a: Array, b: Array) -> Array:
    """a @ b over the last two dimensions; leading dimensions broadcast."""
    if a.dtype != np.float32:
        return a @ b
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    columns = np.ascontiguousarray(np.moveaxis(a, -1, 0))[..., None]
    rows = np.ascontiguousarray(np.moveaxis(b, -2, 0))[..., None, :]
    c, term = np.zeros(shape, np.float32), np.empty(shape, np.float32)
    for column, row in zip(columns, rows, strict=True):
        c += np.multiply(column, row, out=term)
    return c


def transposed(x: Array, flag: int = 1) -> Array:
    """x with its last two dimensions swapped when ``flag`` is set."""
    return np.swapaxes(x, -1, -2) if flag else x
