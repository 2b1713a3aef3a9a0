//! The linear layer without a bias.

use nn_ffi::{DType, Tensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// y = x W^T for a weight `[out, in]`.
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
}

impl Linear {
    /// A layer over a weight `[out, in]`.
    pub fn new(weight: Weight) -> Self {
        Self { weight }
    }

    /// x `[rows, in]` to y `[rows, out]` of the same dtype.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_as(x, x.dtype())
    }

    /// As `forward`, but y is f32 in every precision.
    pub fn forward_f32(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_as(x, DType::F32)
    }

    fn forward_as(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        let [rows, _] = sizes("x", x)?;
        let y = x.context().empty(&[rows, self.outputs()?], dtype)?;
        self.forward_into(x, &y)?;
        Ok(y)
    }

    /// As `forward`, into a y that is given, of x's dtype or f32.
    pub fn forward_into(&self, x: &Tensor, y: &Tensor) -> Result<()> {
        Ok(kernels::gemm(x, &self.weight.value, y, false, true)?)
    }

    /// Overwrites dx `[rows, in]` by the gradient of x from dy `[rows, out]`. dx may be x itself, whose values are then
    /// spent.
    pub fn backward(&self, dy: &Tensor, x: &Tensor, dx: &Tensor, beta: f32) -> Result<()> {
        kernels::gemm_beta(dy, x, self.weight.grad()?, 1.0, beta, true, false)?;
        Ok(kernels::gemm(dy, &self.weight.value, dx, false, false)?)
    }

    /// The weight, for who multiplies by it in a call of their own.
    pub(super) fn weight(&self) -> &Weight {
        &self.weight
    }

    /// Outputs.
    pub fn outputs(&self) -> Result<usize> {
        let [outputs, _] = sizes("the weight", &self.weight.value)?;
        Ok(outputs)
    }
}
