"""Gradients through weights that stay as they are stored.

The chain rule for y = x W^T: dx = dy W, with the numbers that W's bytes stand for, rounded to the dtype of the product
as the header says. Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.
"""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, matmul
from nncuda.reference.gemm import grouped_gemm
from nncuda.reference.quant import dequantize
from nncuda.reference.rounding import rounded
from nncuda.reference.ternary import unpacked

__all__ = ["bitlinear_backward", "gemm_quant_backward"]

#: *, +; beta *, +.
ROUNDINGS = dict.fromkeys(__all__, 4)


def gemm_quant_backward(
    dy: Array, w: Array, dx: Array, groups: int, beta: float, format: int, dtype: str, offsets: Array | None = None
) -> Outputs:
    """dx = dy W + beta dx, each group of rows with its own W; other rows stay. Hu et al. 2021, section 4.1."""
    numbers = dequantize(w, format, dtype)["y"].astype(dy.dtype).reshape(max(groups, 1), -1, dx.shape[1])
    every = np.array([0, len(dy)]) if offsets is None else offsets
    return {"dx": grouped_gemm(dy, numbers, every, dx, beta, 0)["c"]}


def bitlinear_backward(dy: Array, w: Array, w_scale: Array, dx: Array, beta: float, dtype: str) -> Outputs:
    """dx = dy (w_scale W) + beta dx: rounding of x counts as the identity. Bengio, Léonard, Courville 2013, 4."""
    codes = unpacked(w)[: len(w_scale), : dx.shape[1]].astype(np.float32)
    numbers = rounded(codes * w_scale.astype(np.float32)[:, None], dtype).astype(dy.dtype)
    product = matmul(dy, numbers)
    return {"dx": product if beta == 0 else product + dy.dtype.type(beta) * dx}
