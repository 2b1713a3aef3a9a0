//! Means of losses, which the library computes, so that every language reports the same number.

use nn_ffi::{DType, Tensor, kernels};

use crate::error::Result;

/// The mean of what `parts` f32 are sums of, `divisor` terms in all, each part counted as often as `weights` say.
pub(crate) fn mean(parts: &Tensor, weights: Option<&Tensor>, divisor: u64) -> Result<f64> {
    let mean = parts.context().empty(&[1], DType::F32)?;
    kernels::weighted_mean(parts, weights, &mean, i64::try_from(divisor).unwrap_or(i64::MAX))?;
    Ok(f64::from(mean.item::<f32>()?))
}
