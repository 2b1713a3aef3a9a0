"""Root-mean-square normalisation. Zhang, Sennrich 2019, "Root mean square layer normalization"."""

from collections.abc import Callable

from nncuda.reference.arithmetic import Array, Outputs, mean, sqrt, total

__all__ = ["rmsnorm", "rmsnorm_backward", "rmsnorm_residual"]

ROUNDINGS = {
    "rmsnorm": 6,  # square, mean, + eps, sqrt, 1 /, *, *
    "rmsnorm_residual": 7,
    "rmsnorm_backward": 8,
}


def rmsnorm(x: Array, weight: Array, eps: float) -> Outputs:
    """y = x rstd weight with rstd = 1 / sqrt(mean(x^2) + eps). Zhang, Sennrich 2019, eq. 4."""
    rstd = 1 / sqrt(mean(x * x) + x.dtype.type(eps))
    return {"y": x * rstd * weight, "rstd": rstd[:, 0]}


def rmsnorm_residual(
    x: Array, residual: Array, weight: Array, eps: float, storage: Callable[[Array], Array] | None = None
) -> Outputs:
    """sum = x + residual, and its rmsnorm. ``storage`` rounds the sum to the dtype it is kept in, before the norm."""
    s = x + residual
    if storage is not None:
        s = storage(s)
    return {"sum": s, **rmsnorm(s, weight, eps)}


def rmsnorm_backward(
    dy: Array, x: Array, weight: Array, rstd: Array, dweight: Array, dresidual: Array | None = None
) -> Outputs:
    """With xhat = x rstd and g = dy weight: dx = dresidual + rstd (g - xhat mean(g xhat)), dweight += sum dy xhat.

    Differentiated from Zhang, Sennrich 2019, eq. 4.
    """
    xhat = x * rstd[:, None]
    g = dy * weight
    dx = rstd[:, None] * (g - xhat * mean(g * xhat))
    if dresidual is not None:
        dx = dresidual + dx
    return {"dx": dx, "dweight": dweight + total(dy * xhat, axis=0)[0]}
