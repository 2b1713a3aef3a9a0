//! Layers whose weights are -1, 0 and 1 times a number, made anew from their master weights whenever they are used.
//!
//! Activations are rounded to 8 bits row by row. Both roundings count as the identity in the backward direction: the gradient
//! of a product goes to the master weights as if it had taken them, with the rows and the weights that it did take.
//! (Bengio, Léonard, Courville 2013, "Estimating or Propagating Gradients Through Stochastic Neurons", section 4; Ma et al.
//! 2024, "The Era of 1-bit LLMs", section 2; Ma et al. 2025, "BitNet b1.58 2B4T Technical Report", section 2)

use nn_ffi::{DType, Tensor, kernels};

use super::expert_products::halves;
use super::gated::{gated, gated_backward};
use super::norm::RMSNorm;
use super::{Weight, sizes};
use crate::error::Result;
use crate::format::ternary::tern2_shape;

/// y = x W^T with the bits of the engine, of master weights f32 `[out, in]` with their gradient.
///
/// The rows of several matrices may lie one below the other, with a scale each. With a norm rows are normed before they are
/// rounded.
#[derive(Debug)]
pub struct TernaryLinear {
    weight: Weight,
    heights: Vec<usize>,
    norm: Option<RMSNorm>,
}

impl TernaryLinear {
    /// A layer over matrices of so many rows each, and perhaps a norm before it.
    pub fn new(weight: Weight, heights: &[usize], norm: Option<RMSNorm>) -> Self {
        Self { weight, heights: heights.to_vec(), norm }
    }

    /// x `[rows, in]` to y `[rows, out]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let ([rows, _], [outputs, _]) = (sizes("x", x)?, sizes("the weight", &self.weight.value)?);
        let y = x.context().empty(&[rows, outputs], x.dtype())?;
        let (packed, scale) = self.rounded()?;
        let (gain, eps) = self.norm.as_ref().map_or((None, 0.0), |norm| (Some(norm.gain()), norm.eps()));
        kernels::bitlinear_norm(x, gain, &packed, &scale, None, &y, eps)?;
        Ok(y)
    }

    /// Overwrites dx `[rows, in]` by the gradient of x from dy `[rows, out]`. dx may not be x. What the product made of both
    /// factors is made again: that takes little beside the products, and less memory. The master weights' gradient is added
    /// to `beta` times what is there.
    pub fn backward(&self, dy: &Tensor, x: &Tensor, dx: &Tensor, beta: f32) -> Result<()> {
        let ctx = x.context();
        let normed = self.norm.as_ref().map(|norm| norm.forward_keeping(x)).transpose()?;
        let [rows, _] = sizes("x", x)?;
        let taken = {
            let codes = ctx.empty(x.shape(), DType::I8)?;
            let scale = ctx.empty(&[rows], DType::F32)?;
            let taken = ctx.empty(x.shape(), x.dtype())?;
            kernels::act_quant_i8(normed.as_ref().map_or(x, |(normed, _)| normed), &codes, &scale)?;
            kernels::act_dequant_i8(&codes, &scale, &taken)?;
            taken
        };
        let rstd = normed.map(|(_, rstd)| rstd);
        kernels::gemm_beta(dy, &taken, self.weight.grad()?, 1.0, beta, true, false)?;
        drop(taken);
        let (packed, scale) = self.rounded()?;
        kernels::bitlinear_backward(dy, &packed, &scale, dx, 0.0)?;
        match (&self.norm, rstd) {
            (Some(norm), Some(rstd)) => norm.backward(dx, x, &rstd, None),
            _ => Ok(()),
        }
    }

    /// The weights of this moment, packed, and the scale of each output.
    fn rounded(&self) -> Result<(Tensor, Tensor)> {
        let (masters, [rows, columns]) = (&self.weight.value, sizes("the weight", &self.weight.value)?);
        let ctx = masters.context();
        let codes = ctx.empty(&[rows, columns], DType::I8)?;
        let scales = ctx.empty(&[self.heights.len(), 1], DType::F32)?;
        let owner = ctx.empty(&[rows], DType::I32)?; // which matrix an output is of
        let mut first = 0;
        for (matrix, &height) in self.heights.iter().enumerate() {
            let part = codes.narrow(0, first, height)?;
            let scale = scales.narrow(0, matrix, 1)?.view(&[1])?;
            kernels::ternary_quantize(&masters.narrow(0, first, height)?, &part, &scale)?;
            kernels::fill(&owner.narrow(0, first, height)?, matrix as f32)?;
            first += height;
        }
        let packed = ctx.empty(&tern2_shape([rows, columns]), DType::U8)?;
        kernels::ternary_pack(&codes, &packed)?;
        let scale = ctx.empty(&[rows], DType::F32)?;
        kernels::embedding(&scales, &owner, &scale.view(&[rows, 1])?)?;
        Ok((packed, scale))
    }
}

/// The inside of out = residual + W2 norm(max(W1 x, 0)^2 * (W3 x)), or with silu(W1 x) in place of the squared ReLU.
#[derive(Debug)]
pub struct TernaryNetwork {
    /// The product with W1 and W3, one below the other, of rows that are normed.
    pub gate_up: TernaryLinear,
    /// That with W2, which has the norm.
    pub down: TernaryLinear,
    /// Whether the gate is a squared ReLU.
    pub squared_relu: bool,
}

/// Gate and up, and what `down` takes.
#[derive(Debug)]
pub(super) struct TernaryInside {
    gate_up: Tensor,
    active: Tensor,
}

impl TernaryNetwork {
    pub(super) fn inside(&self, x: &Tensor) -> Result<TernaryInside> {
        let gate_up = self.gate_up.forward(x)?;
        let [gate, up] = halves(&gate_up)?;
        let active = x.context().empty(gate.shape(), x.dtype())?;
        gated(self.squared_relu, &gate, &up, &active)?;
        Ok(TernaryInside { gate_up, active })
    }

    pub(super) fn outputs(&self, inside: &TernaryInside) -> Result<Tensor> {
        self.down.forward(&inside.active)
    }

    /// Gradient of x from dout, both `[tokens, hidden]`.
    pub(super) fn backward(&self, dout: &Tensor, x: &Tensor, inside: TernaryInside, beta: f32) -> Result<Tensor> {
        let (ctx, TernaryInside { gate_up, active }) = (x.context(), inside);
        let dactive = ctx.empty(active.shape(), x.dtype())?;
        self.down.backward(dout, &active, &dactive, beta)?;
        drop(active);
        let [gate, up] = halves(&gate_up)?;
        gated_backward(self.squared_relu, &dactive, &gate, &up)?;
        drop(dactive);
        let dx = ctx.empty(x.shape(), x.dtype())?;
        self.gate_up.backward(&gate_up, x, &dx, beta)?;
        Ok(dx)
    }
}
