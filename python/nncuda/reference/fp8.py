"""Blocks of numbers in 8 bits that share a power of two, and their products: what grouped_gemm_fp8 multiplies.

DeepSeek-AI 2024, "DeepSeek-V3", 3.3, with scales that are powers of two; Micikevicius et al. 2022, "FP8 formats for
deep learning", for E4M3.
"""

import numpy as np

from nncuda.reference.arithmetic import Array, matmul, transposed

BLOCK = 128
#: The largest E4M3, the bounds of a block's exponent, and where numbers begin to be evenly spaced.
LARGEST, LEAST, MOST, EVEN = 448.0, -100, 100, -6
#: A tensor core adds 32 products to a sum at once, aligned to the largest of them, of which it keeps so many bits
#: behind the first, and as many of what they come to: DeepSeek-V3, 3.5.2, counts 14 in all on Hopper. Fasi et al. 2021,
#: "Numerical behavior of NVIDIA tensor cores", and Xie et al. 2025, "MMA-Sim", for how they are aligned and cut.
TERMS, KEPT = 32, 13


def e4m3(x: Array) -> Array:
    """The nearest E4M3 of each number, ties to even; NaN of what is beyond the largest and of what is not finite."""
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(x)  # |x| < 2^exponent
        step = np.exp2(np.maximum(exponent - 1, EVEN) - 3.0)
        return np.where(np.abs(x) <= LARGEST, np.rint(x / step) * step, np.nan)


def exponent(block: Array) -> int:
    """The least one with which no finite number of the block is beyond the largest E4M3."""
    largest = float(np.max(np.abs(block), initial=0, where=np.isfinite(block)))
    fraction, above = np.frexp(largest / LARGEST)
    return int(np.clip(above - (fraction == 0.5), LEAST, MOST)) if largest > 0 else LEAST


def rounded(x: Array, rows: int, cols: int) -> Array:
    """A matrix in blocks of ``rows`` by ``cols``, as it is in 8 bits."""
    x = np.asarray(x)
    out = np.empty_like(x)
    for r in range(0, x.shape[0], rows):
        for c in range(0, x.shape[1], cols):
            at = slice(r, r + rows), slice(c, c + cols)
            block = x[at].astype(np.float64)
            scale = 2.0 ** exponent(block)
            out[at] = (e4m3(block / scale) * scale).astype(x.dtype)
    return out


def cut(x: Array, largest: Array) -> Array:
    """Towards zero, to as many bits behind the first of ``largest`` as tensor cores keep."""
    _, above = np.frexp(np.abs(largest))
    unit = np.exp2(above - 1.0 - KEPT)
    kept: Array = np.trunc(x / unit) * unit
    return kept


def product(a: Array, b: Array, tensor_cores: bool) -> Array:
    """A B of rounded factors; as sums of tensor cores where asked for, each of 128 terms added to the others in f32."""
    if not tensor_cores:
        return matmul(a, b)
    total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for first in range(0, a.shape[1], BLOCK):
        part = np.zeros(total.shape, np.float64)
        for k in range(first, min(first + BLOCK, a.shape[1]), TERMS):
            end = min(k + TERMS, first + BLOCK)
            terms = a[:, k:end, None].astype(np.float64) * b[None, k:end].astype(np.float64)
            terms = np.concatenate([terms, part[:, None]], axis=1)
            with np.errstate(all="ignore"):
                part = np.sum(cut(terms, np.max(np.abs(terms), axis=1, keepdims=True)), axis=1)
                part = cut(part, part)
        total = total + part.astype(a.dtype)
    return total


def grouped(a: Array, b: Array, offsets: Array, trans_b: int, tensor_cores: bool) -> Array:
    """fp8(A)[r] op(fp8(B)[g]) of the rows of each group; NaN, for what is not written, in other rows."""
    out = np.full((len(a), b.shape[1] if trans_b else b.shape[2]), np.nan, a.dtype)
    for g in range(len(offsets) - 1):
        rows = slice(offsets[g], offsets[g + 1])
        matrix = transposed(rounded(b[g], BLOCK, BLOCK), trans_b)
        out[rows] = product(rounded(a[rows], 1, BLOCK), matrix, tensor_cores)
    return out


def of_weights(a: Array, b: Array, offsets: Array, tensor_cores: bool) -> list[Array]:
    """fp8(A)_g^T fp8(B)_g over the rows of each group, in whose blocks a column has a scale for 128 rows."""
    made = []
    for g in range(len(offsets) - 1):
        rows = slice(offsets[g], offsets[g + 1])
        left, right = (rounded(x[rows], BLOCK, 1) for x in (a, b))
        made.append(product(transposed(left), right, tensor_cores))
    return made
