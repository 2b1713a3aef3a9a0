"""The products of experts, of rows in the order of experts, in the precision of their factors or in 8 bits."""

from __future__ import annotations

from .. import kernels
from ..device import Tensor


class ExpertProducts:
    """Products in the dtype of the rows. (Gale et al. 2022)"""

    def gated(self, rows: Tensor, w13: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """What rows [count, hidden] become before W2: gate and up [count, 2*ffn], and silu(gate) * up [count, ffn]."""
        return kernels.grouped_gemm_swiglu(rows, w13, offsets)

    def outputs(self, active: Tensor, w2: Tensor, offsets: Tensor, y: Tensor | None = None) -> Tensor:
        """The experts' outputs [count, hidden]."""
        return kernels.grouped_gemm(active, w2, offsets, y, trans_b=True)

    def inner_gradient(self, dy: Tensor, w2: Tensor, offsets: Tensor, gate_up: Tensor) -> None:
        """In place of gate and up, their gradients, from that of the outputs."""
        kernels.grouped_gemm_swiglu_backward(dy, w2, offsets, gate_up)

    def rows_gradient(self, dgate_up: Tensor, w13: Tensor, offsets: Tensor, drows: Tensor) -> Tensor:
        """The gradient of the rows, into `drows`."""
        return kernels.grouped_gemm(dgate_up, w13, offsets, c=drows)

    def weight_gradient(self, dy: Tensor, x: Tensor, offsets: Tensor, grad: Tensor | None, beta: float) -> None:
        """To `grad`, times `beta`, the gradient of matrices that took rows x to what dy is the gradient of."""
        kernels.grouped_gemm_wgrad(dy, x, offsets, grad, beta=beta)


class Fp8Products(ExpertProducts):
    """The same products of factors that are rounded to 8 bits as they are multiplied; all else is as it was: rows,
    gradients of rows, and the gate between products have their dtype, gradients of weights f32. (DeepSeek-AI 2024,
    "DeepSeek-V3", 3.3)
    """

    def gated(self, rows: Tensor, w13: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        gate_up = kernels.grouped_gemm_fp8(rows, w13, offsets, trans_b=True)
        return gate_up, kernels.swiglu(*halves(gate_up), _used(offsets))

    def outputs(self, active: Tensor, w2: Tensor, offsets: Tensor, y: Tensor | None = None) -> Tensor:
        return kernels.grouped_gemm_fp8(active, w2, offsets, c=y, trans_b=True)

    def inner_gradient(self, dy: Tensor, w2: Tensor, offsets: Tensor, gate_up: Tensor) -> None:
        gate, up = halves(gate_up)
        dactive = kernels.grouped_gemm_fp8(dy, w2, offsets)
        kernels.swiglu_backward(dactive, gate, up, _used(offsets), dgate=gate, dup=up)

    def rows_gradient(self, dgate_up: Tensor, w13: Tensor, offsets: Tensor, drows: Tensor) -> Tensor:
        return kernels.grouped_gemm_fp8(dgate_up, w13, offsets, c=drows)

    def weight_gradient(self, dy: Tensor, x: Tensor, offsets: Tensor, grad: Tensor | None, beta: float) -> None:
        kernels.grouped_gemm_wgrad_fp8(dy, x, offsets, grad, beta=beta)


def halves(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    """Gate and up, views of their common product [rows, 2*ffn]."""
    ffn = gate_up.shape[1] // 2
    return gate_up.narrow(1, 0, ffn), gate_up.narrow(1, ffn, ffn)


def _used(offsets: Tensor) -> Tensor:
    """How many rows there are, [1]."""
    return offsets.narrow(0, offsets.shape[0] - 1, 1)
