//! The linear layer.

use nn_ffi::{Activation, DType, Tensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// y = x W^T, or x W^T + b, for a weight `[out, in]` and a bias `[out]`.
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Weight>,
}

impl Linear {
    /// A layer over a weight `[out, in]`.
    pub fn new(weight: Weight) -> Self {
        Self { weight, bias: None }
    }

    /// The same with a bias `[out]`, where there is one.
    pub fn with_bias(weight: Weight, bias: Option<Weight>) -> Self {
        Self { weight, bias }
    }

    /// x `[rows, in]` to y `[rows, out]` of the same dtype.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_as(x, x.dtype())
    }

    /// As `forward`, but y is f32 in every precision. For a layer without a bias.
    pub fn forward_f32(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_as(x, DType::F32)
    }

    fn forward_as(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        let [rows, _] = sizes("x", x)?;
        let y = x.context().empty(&[rows, self.outputs()?], dtype)?;
        self.forward_into(x, &y)?;
        Ok(y)
    }

    /// As `forward`, into a y that is given, of x's dtype or, without a bias, f32.
    pub fn forward_into(&self, x: &Tensor, y: &Tensor) -> Result<()> {
        if let Some(bias) = &self.bias {
            let (weight, bias) = (&self.weight.value, Some(&bias.value));
            return Ok(kernels::gemm_epilogue(x, weight, bias, None, y, Activation::None)?);
        }
        Ok(kernels::gemm(x, &self.weight.value, y, false, true)?)
    }

    /// Overwrites dx `[rows, in]` by the gradient of x from dy `[rows, out]`. dx may be x itself, whose values are then
    /// spent. The weight's gradient is added to `beta` times what is there, the bias's always to what is there, as gains' are.
    pub fn backward(&self, dy: &Tensor, x: &Tensor, dx: &Tensor, beta: f32) -> Result<()> {
        kernels::gemm_beta(dy, x, self.weight.grad()?, 1.0, beta, true, false)?;
        if let Some(bias) = &self.bias {
            let [rows, outputs] = sizes("dy", dy)?;
            let ones = dy.context().empty(&[1, rows], dy.dtype())?; // a product with which adds columns up, in f32
            kernels::fill(&ones.view(&[rows])?, 1.0)?;
            kernels::gemm_beta(&ones, dy, &bias.grad()?.view(&[1, outputs])?, 1.0, 1.0, false, false)?;
        }
        Ok(kernels::gemm(dy, &self.weight.value, dx, false, false)?)
    }

    /// As `backward`, but the gradient of x is added to the dx that is there.
    pub fn backward_adding(&self, dy: &Tensor, x: &Tensor, dx: &Tensor, beta: f32) -> Result<()> {
        kernels::gemm_beta(dy, x, self.weight.grad()?, 1.0, beta, true, false)?;
        Ok(kernels::gemm_beta(dy, &self.weight.value, dx, 1.0, 1.0, false, false)?)
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
