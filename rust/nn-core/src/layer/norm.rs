//! RMSNorm, alone or with the residual sum before it.

use nn_ffi::{DType, GpuTensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// y = x / sqrt(mean(x^2) + eps) * weight, row by row. (Zhang, Sennrich 2019, eq. 4)
#[derive(Debug)]
pub struct RMSNorm<'ctx> {
    weight: Weight<'ctx>,
    eps: f32,
}

impl<'ctx> RMSNorm<'ctx> {
    /// A norm with a gain `[cols]`.
    pub fn new(weight: Weight<'ctx>, eps: f64) -> Self {
        Self { weight, eps: eps as f32 }
    }

    /// x `[rows, cols]` to y.
    pub fn forward(&self, x: &GpuTensor<'ctx>) -> Result<GpuTensor<'ctx>> {
        let y = x.context().empty(x.shape(), x.dtype())?;
        kernels::rmsnorm(x, &self.weight.value, &y, None, self.eps)?;
        Ok(y)
    }

    /// As `forward`, with the reciprocal deviations f32 `[rows]` that `backward` needs.
    pub fn forward_keeping(&self, x: &GpuTensor<'ctx>) -> Result<(GpuTensor<'ctx>, GpuTensor<'ctx>)> {
        let [rows, _] = sizes("x", x)?;
        let y = x.context().empty(x.shape(), x.dtype())?;
        let rstd = x.context().empty(&[rows], DType::F32)?;
        kernels::rmsnorm(x, &self.weight.value, &y, Some(&rstd), self.eps)?;
        Ok((y, rstd))
    }

    /// The norm of the sum x + residual, which takes the place of x.
    pub fn forward_residual(&self, x: &GpuTensor<'ctx>, residual: &GpuTensor<'ctx>) -> Result<GpuTensor<'ctx>> {
        let y = x.context().empty(x.shape(), x.dtype())?;
        kernels::rmsnorm_residual(x, residual, &self.weight.value, x, &y, None, self.eps)?;
        Ok(y)
    }

    /// As `forward_residual`, with the reciprocal deviations f32 `[rows]` that `backward` needs.
    pub fn forward_residual_keeping(
        &self,
        x: &GpuTensor<'ctx>,
        residual: &GpuTensor<'ctx>,
    ) -> Result<(GpuTensor<'ctx>, GpuTensor<'ctx>)> {
        let [rows, _] = sizes("x", x)?;
        let y = x.context().empty(x.shape(), x.dtype())?;
        let rstd = x.context().empty(&[rows], DType::F32)?;
        kernels::rmsnorm_residual(x, residual, &self.weight.value, x, &y, Some(&rstd), self.eps)?;
        Ok((y, rstd))
    }

    /// The gradient of x, plus `dresidual` if given, takes the place of dy.
    pub fn backward(
        &self,
        dy: &GpuTensor<'ctx>,
        x: &GpuTensor<'ctx>,
        rstd: &GpuTensor<'ctx>,
        dresidual: Option<&GpuTensor<'ctx>>,
    ) -> Result<()> {
        Ok(kernels::rmsnorm_backward(dy, x, &self.weight.value, rstd, dresidual, dy, self.weight.grad()?)?)
    }
}
