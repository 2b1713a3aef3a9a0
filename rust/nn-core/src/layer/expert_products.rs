//! The experts' feed-forward networks: products of rows in the order of experts, in their dtype or in 8 bits.

use nn_ffi::{Tensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// y = W2 (silu(W1 x) * (W3 x)), rows sorted by expert, so that each product runs over all experts at once. (Shazeer
/// 2020, "GLU Variants", eq. 6; Gale et al. 2022, "MegaBlocks")
#[derive(Debug)]
pub struct SwiGLU {
    /// `[experts, 2*ffn, hidden]`, the rows of W1 before those of W3.
    pub w13: Weight,
    /// `[experts, hidden, ffn]`.
    pub w2: Weight,
    /// Whether products round their factors to 8 bits; all else, the gate between them too, is as it was. (DeepSeek-AI
    /// 2024, "DeepSeek-V3", 3.3)
    pub fp8: bool,
}

/// What the experts' products take in and give between: rows sorted by expert, gate and up, and what W2 takes in.
#[derive(Debug)]
pub(super) struct Inside {
    rows: Tensor,
    gate_up: Tensor,
    active: Tensor,
}

impl SwiGLU {
    /// What experts make of rows `[count, hidden]` before W2.
    pub(super) fn inside(&self, rows: Tensor, offsets: &Tensor) -> Result<Inside> {
        let (ctx, [count, _], [_, width, _]) = (rows.context(), sizes("rows", &rows)?, sizes("w13", &self.w13.value)?);
        let gate_up = ctx.empty(&[count, width], rows.dtype())?;
        let active = ctx.empty(&[count, width / 2], rows.dtype())?;
        if self.fp8 {
            kernels::grouped_gemm_fp8(&rows, &self.w13.value, offsets, &gate_up, true)?;
            let [gate, up] = halves(&gate_up)?;
            kernels::swiglu(&gate, &up, Some(&used(offsets)?), &active)?;
        } else {
            kernels::grouped_gemm_swiglu(&rows, &self.w13.value, offsets, &gate_up, &active)?;
        }
        Ok(Inside { rows, gate_up, active })
    }

    /// The experts' outputs in row order, `[count, hidden]`.
    pub(super) fn outputs(&self, inside: &Inside, offsets: &Tensor, y: &Tensor) -> Result<()> {
        if self.fp8 {
            return Ok(kernels::grouped_gemm_fp8(&inside.active, &self.w2.value, offsets, y, true)?);
        }
        Ok(kernels::grouped_gemm(&inside.active, &self.w2.value, offsets, y, 0.0, true)?)
    }

    /// In place of gate and up, their gradients, from that of the outputs: the part of `backward` that no sum waits for.
    pub(super) fn inner_backward(&self, dy: &Tensor, inside: &Inside, offsets: &Tensor) -> Result<()> {
        self.gate_gradient(dy, &inside.gate_up, offsets)
    }

    /// The rest of `backward`, behind `inner_backward`.
    pub(super) fn outer_backward(
        &self,
        dy: &Tensor,
        inside: Inside,
        offsets: &Tensor,
        [dw13, dw2]: [&Tensor; 2],
        beta: f32,
    ) -> Result<()> {
        let Inside { rows, gate_up, active } = inside;
        self.weight_gradient(dy, &active, offsets, dw2, beta)?;
        drop(active);
        self.weight_gradient(&gate_up, &rows, offsets, dw13, beta)?;
        self.rows_gradient(&gate_up, offsets, &rows)
    }

    /// The gradient of the rows, `[count, hidden]`, in their memory; those of w13 and w2 go to the tensors given.
    pub(super) fn backward(
        &self,
        dy: Tensor,
        inside: Inside,
        offsets: &Tensor,
        [dw13, dw2]: [&Tensor; 2],
        beta: f32,
    ) -> Result<Tensor> {
        let Inside { rows, gate_up, active } = inside;
        self.weight_gradient(&dy, &active, offsets, dw2, beta)?;
        drop(active);
        self.gate_gradient(&dy, &gate_up, offsets)?;
        drop(dy);
        self.weight_gradient(&gate_up, &rows, offsets, dw13, beta)?;
        self.rows_gradient(&gate_up, offsets, &rows)?;
        Ok(rows)
    }

    /// Puts into the place of gate and up their gradients, from that of the outputs.
    fn gate_gradient(&self, dy: &Tensor, gate_up: &Tensor, offsets: &Tensor) -> Result<()> {
        if !self.fp8 {
            return Ok(kernels::grouped_gemm_swiglu_backward(dy, &self.w2.value, offsets, gate_up)?);
        }
        let [gate, up] = halves(gate_up)?;
        let dactive = dy.context().empty(gate.shape(), dy.dtype())?;
        kernels::grouped_gemm_fp8(dy, &self.w2.value, offsets, &dactive, false)?;
        Ok(kernels::swiglu_backward(&dactive, &gate, &up, Some(&used(offsets)?), &gate, &up)?)
    }

    /// The gradient of the rows from that of gate and up.
    fn rows_gradient(&self, gate_up: &Tensor, offsets: &Tensor, rows: &Tensor) -> Result<()> {
        if self.fp8 {
            return Ok(kernels::grouped_gemm_fp8(gate_up, &self.w13.value, offsets, rows, false)?);
        }
        Ok(kernels::grouped_gemm(gate_up, &self.w13.value, offsets, rows, 0.0, false)?)
    }

    /// Adds to `beta` times `grad` the gradient of matrices that took rows x to what dy is the gradient of.
    fn weight_gradient(&self, dy: &Tensor, x: &Tensor, offsets: &Tensor, grad: &Tensor, beta: f32) -> Result<()> {
        if self.fp8 {
            return Ok(kernels::grouped_gemm_wgrad_fp8(dy, x, offsets, grad, beta)?);
        }
        Ok(kernels::grouped_gemm_wgrad(dy, x, offsets, grad, beta)?)
    }
}

/// How many rows experts have, where `offsets` say where each one's begin: the rest is only room.
fn used(offsets: &Tensor) -> Result<Tensor> {
    Ok(offsets.narrow(0, offsets.len() - 1, 1)?)
}

/// The gate and up halves of a fused product, as views.
pub(super) fn halves(gate_up: &Tensor) -> Result<[Tensor; 2]> {
    let [_, width] = sizes("the fused product", gate_up)?;
    let ffn = width / 2;
    Ok([gate_up.narrow(1, 0, ffn)?, gate_up.narrow(1, ffn, ffn)?])
}
