"""Matrix products: plain, batched, and grouped by expert."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, matmul, transposed
from nncuda.reference.elementwise import silu

__all__ = ["batched_gemm", "gemm", "gemm_beta", "gemm_epilogue", "grouped_gemm", "grouped_gemm_wgrad"]

ROUNDINGS = {
    "gemm": 2,  # *, +
    "gemm_beta": 5,
    "gemm_epilogue": 9,
    "batched_gemm": 5,
    "grouped_gemm": 4,
    "grouped_gemm_wgrad": 4,
}

ACTIVATION_SILU = 1


def _plus_beta_c(product: Array, c: Array, beta: float) -> Array:
    """product + beta c; with beta = 0, c is not read and may hold anything."""
    return product if beta == 0 else product + product.dtype.type(beta) * c


def gemm(a: Array, b: Array, trans_a: int, trans_b: int) -> Outputs:
    """C = op(A) op(B): c[i, j] = sum over p of a[i, p] b[p, j]. Golub, Van Loan 2013, "Matrix computations", 1.1."""
    return {"c": matmul(transposed(a, trans_a), transposed(b, trans_b))}


def gemm_beta(a: Array, b: Array, c: Array, alpha: float, beta: float, trans_a: int, trans_b: int) -> Outputs:
    """C = alpha op(A) op(B) + beta C. Dongarra et al. 1990, "A set of level 3 BLAS", section 3."""
    return {"c": _plus_beta_c(a.dtype.type(alpha) * gemm(a, b, trans_a, trans_b)["c"], c, beta)}


def gemm_epilogue(
    a: Array, b: Array, activation: int, bias: Array | None = None, residual: Array | None = None
) -> Outputs:
    """C = activation(A W^T + bias) + residual, with W = b."""
    c = matmul(a, transposed(b))
    if bias is not None:
        c = c + bias
    if activation == ACTIVATION_SILU:
        c = silu(c)["y"]
    return {"c": c if residual is None else c + residual}


def batched_gemm(a: Array, b: Array, c: Array, alpha: float, beta: float, trans_a: int, trans_b: int) -> Outputs:
    """C[i] = alpha op(A[i]) op(B[i]) + beta C[i]."""
    return gemm_beta(a, b, c, alpha, beta, trans_a, trans_b)


def grouped_gemm(a: Array, b: Array, offsets: Array, c: Array, beta: float, trans_b: int) -> Outputs:
    """C[r] = A[r] op(B[g]) + beta C[r] for the rows r of group g; other rows stay. Gale et al. 2022, "MegaBlocks"."""
    out = c.copy()
    for g in range(len(offsets) - 1):
        rows = slice(offsets[g], offsets[g + 1])
        out[rows] = _plus_beta_c(matmul(a[rows], transposed(b[g], trans_b)), c[rows], beta)
    return {"c": out}


def grouped_gemm_wgrad(a: Array, b: Array, offsets: Array, c: Array, beta: float) -> Outputs:
    """C[g] = A_g^T B_g + beta C[g] over the rows of group g: the gradient of grouped_gemm's matrices."""
    out = np.zeros_like(c)
    for g in range(len(offsets) - 1):
        rows = slice(offsets[g], offsets[g + 1])
        out[g] = _plus_beta_c(matmul(transposed(a[rows]), b[rows]), c[g], beta)
    return {"c": out}
