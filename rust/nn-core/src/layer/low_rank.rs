//! What is trained beside weights that stay as they are stored.

use nn_ffi::{DType, Tensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// Factors beside a weight `[out, in]`: A f32 `[rank, in]` and B f32 `[out, rank]`, whose product, times a scale, is added to it.
/// (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)
#[derive(Debug)]
pub struct LowRank {
    /// The first factor.
    pub a: Weight,
    /// The second factor.
    pub b: Weight,
    /// What their product counts.
    pub scale: f32,
}

impl LowRank {
    /// x A^T.
    fn inner(&self, x: &Tensor) -> Result<Tensor> {
        let ([rows, _], [rank, _]) = (sizes("x", x)?, sizes("A", &self.a.value)?);
        let inner = x.context().empty(&[rows, rank], DType::F32)?;
        kernels::gemm(x, &self.a.value, &inner, false, true)?;
        Ok(inner)
    }

    /// y += scale (x A^T) B^T.
    pub(super) fn add(&self, x: &Tensor, y: &Tensor) -> Result<()> {
        Ok(kernels::gemm_beta(&self.inner(x)?, &self.b.value, y, self.scale, 1.0, false, true)?)
    }

    /// To the gradients of both, times `beta`, those of this call; gives scale (dy B) `[rows, rank]`, whose product with A is the
    /// gradient of x. What A makes of x is found again: little work for much memory.
    pub(super) fn backward(&self, dy: &Tensor, x: &Tensor, beta: f32) -> Result<Tensor> {
        let inner = self.inner(x)?;
        kernels::gemm_beta(dy, &inner, self.b.grad()?, self.scale, beta, true, false)?;
        let dinner = inner; // whose values are spent
        kernels::gemm_beta(dy, &self.b.value, &dinner, self.scale, 0.0, false, false)?;
        kernels::gemm_beta(&dinner, x, self.a.grad()?, 1.0, beta, true, false)?;
        Ok(dinner)
    }
}
