//! The vector of a text: the mean of its tokens' hidden states, brought to length 1.

use nn_ffi::{Context, DType, Tensor, kernels};

use crate::error::Result;

/// Takes hidden states in the order of the tokens; the pieces that they come in change no bit.
#[derive(Debug)]
pub(super) struct Pool {
    /// `[2, hidden]`.
    sum: Tensor,
    /// `[hidden]`.
    vector: Tensor,
}

impl Pool {
    pub(super) fn new(ctx: &Context, hidden: usize) -> Result<Self> {
        Ok(Self { sum: ctx.zeros(&[2, hidden], DType::F32)?, vector: ctx.empty(&[hidden], DType::F32)? })
    }

    /// Hidden states after the final norm, f32 `[tokens, hidden]`.
    pub(super) fn add(&self, states: &Tensor) -> Result<()> {
        Ok(kernels::pool_rows(states, &self.sum)?)
    }

    /// The vector of those that were added. The length of a mean is not its sum's, but the direction is.
    pub(super) fn vector(&self) -> Result<Vec<f32>> {
        kernels::pool_unit(&self.sum, &self.vector)?;
        Ok(self.vector.to_vec()?)
    }
}
