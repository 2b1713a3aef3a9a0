//! RMSNorm, alone or with the residual sum before it.

use nn_ffi::{DType, Tensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// y = x / sqrt(mean(x^2) + eps) * weight, row by row. (Zhang, Sennrich 2019, eq. 4)
#[derive(Debug)]
pub struct RMSNorm {
    weight: Weight,
    eps: f32,
}

impl RMSNorm {
    /// A norm with a gain `[cols]`.
    pub fn new(weight: Weight, eps: f64) -> Self {
        Self { weight, eps: eps as f32 }
    }

    /// The gain, for who norms in a call of their own.
    pub(super) fn gain(&self) -> &Tensor {
        &self.weight.value
    }

    /// What is added to the mean square.
    pub(super) fn eps(&self) -> f32 {
        self.eps
    }

    /// x `[rows, cols]` to y.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.context().empty(x.shape(), x.dtype())?;
        kernels::rmsnorm(x, &self.weight.value, &y, None, self.eps)?;
        Ok(y)
    }

    /// As `forward`, with the reciprocal deviations f32 `[rows]` that `backward` needs.
    pub fn forward_keeping(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let [rows, _] = sizes("x", x)?;
        let y = x.context().empty(x.shape(), x.dtype())?;
        let rstd = x.context().empty(&[rows], DType::F32)?;
        kernels::rmsnorm(x, &self.weight.value, &y, Some(&rstd), self.eps)?;
        Ok((y, rstd))
    }

    /// The norm of the sum x + residual, which takes the place of x.
    pub fn forward_residual(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        let y = x.context().empty(x.shape(), x.dtype())?;
        kernels::rmsnorm_residual(x, residual, &self.weight.value, x, &y, None, self.eps)?;
        Ok(y)
    }

    /// As `forward_residual`, with the reciprocal deviations f32 `[rows]` that `backward` needs.
    pub fn forward_residual_keeping(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        let [rows, _] = sizes("x", x)?;
        let y = x.context().empty(x.shape(), x.dtype())?;
        let rstd = x.context().empty(&[rows], DType::F32)?;
        kernels::rmsnorm_residual(x, residual, &self.weight.value, x, &y, Some(&rstd), self.eps)?;
        Ok((y, rstd))
    }

    /// The gradient of x, plus `dresidual` if given, takes the place of dy.
    pub fn backward(&self, dy: &Tensor, x: &Tensor, rstd: &Tensor, dresidual: Option<&Tensor>) -> Result<()> {
        Ok(kernels::rmsnorm_backward(dy, x, &self.weight.value, rstd, dresidual, dy, self.weight.grad()?)?)
    }
}
