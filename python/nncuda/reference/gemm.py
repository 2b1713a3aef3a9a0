"""Matrix products: plain, batched, and grouped by expert."""

from collections.abc import Callable

import numpy as np

from nncuda.reference import fp8
from nncuda.reference.arithmetic import Array, Outputs, matmul, transposed
from nncuda.reference.elementwise import silu, swiglu, swiglu_backward

__all__ = [
    "batched_gemm",
    "gemm",
    "gemm_beta",
    "gemm_epilogue",
    "grouped_gemm",
    "grouped_gemm_fp8",
    "grouped_gemm_swiglu",
    "grouped_gemm_swiglu_backward",
    "grouped_gemm_wgrad",
    "grouped_gemm_wgrad_fp8",
]

ROUNDINGS = {
    "gemm": 2,  # *, +
    "gemm_beta": 5,
    "gemm_epilogue": 9,
    "batched_gemm": 5,
    "grouped_gemm": 4,
    "grouped_gemm_wgrad": 4,
    "grouped_gemm_fp8": 2,
    "grouped_gemm_wgrad_fp8": 4,
    "grouped_gemm_swiglu": 10,  # two products, then those of swiglu
    "grouped_gemm_swiglu_backward": 14,  # a product, then those of swiglu_backward
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


def grouped_gemm_swiglu(a: Array, b: Array, offsets: Array, storage: Callable[[Array], Array] | None = None) -> Outputs:
    """Gates and ups of the rows of group g by B[g]^T, and silu(gate) up; NaN, for what is not written, in other rows.

    ``storage`` rounds them to the dtype they are kept in. Shazeer 2020, "GLU variants improve transformer", eq. 6;
    Gale et al. 2022, "MegaBlocks".
    """
    free = np.full((len(a), b.shape[1]), np.nan, a.dtype)
    gate_up = grouped_gemm(a, b, offsets, free, 0.0, 1)["c"]
    gate_up = gate_up if storage is None else storage(gate_up)
    gate, up = np.split(gate_up, 2, axis=1)
    return {"gate_up": gate_up, "y": swiglu(gate, up)["y"]}


def grouped_gemm_swiglu_backward(
    a: Array, b: Array, offsets: Array, gate_up: Array, storage: Callable[[Array], Array] | None = None
) -> Outputs:
    """The chain rule: the gradient of y is A[r] B[g], of gate and up swiglu_backward's; other rows stay.

    ``storage`` rounds the gradient of y to the dtype it is kept in.
    """
    gate, up = np.split(gate_up, 2, axis=1)
    dy = grouped_gemm(a, b, offsets, np.zeros_like(gate), 0.0, 0)["c"]
    d = swiglu_backward(dy if storage is None else storage(dy), gate, up)
    rows = np.arange(len(a))[:, None] < offsets[-1]
    return {"gate_up": np.where(rows, np.concatenate([d["dgate"], d["dup"]], axis=1), gate_up)}


def grouped_gemm_fp8(a: Array, b: Array, offsets: Array, trans_b: int, tensor_cores: bool = False) -> Outputs:
    """grouped_gemm with both factors in 8 bits. DeepSeek-AI 2024, "DeepSeek-V3", 3.3."""
    return {"c": fp8.grouped(a, b, offsets, trans_b, tensor_cores)}


def grouped_gemm_wgrad_fp8(
    a: Array, b: Array, offsets: Array, c: Array, beta: float, tensor_cores: bool = False
) -> Outputs:
    """grouped_gemm_wgrad with both factors in 8 bits."""
    made = fp8.of_weights(a, b, offsets, tensor_cores)
    return {"c": np.stack([_plus_beta_c(one, old, beta) for one, old in zip(made, c, strict=True)])}
