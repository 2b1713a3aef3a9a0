//! The token embedding.

use nn_ffi::{Tensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// Rows of a table `[vocab, hidden]`.
#[derive(Debug)]
pub struct Embedding {
    weight: Weight,
}

impl Embedding {
    /// An embedding over a table `[vocab, hidden]`.
    pub fn new(weight: Weight) -> Self {
        Self { weight }
    }

    /// ids i32 `[tokens]` to rows `[tokens, hidden]`.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let ([tokens], [_, hidden]) = (sizes("ids", ids)?, sizes("the table", &self.weight.value)?);
        let rows = ids.context().empty(&[tokens, hidden], self.weight.value.dtype())?;
        kernels::embedding(&self.weight.value, ids, &rows)?;
        Ok(rows)
    }

    /// Adds dy `[tokens, hidden]` to the rows of the gradient that were taken. Unless it shall `accumulate`, the gradient is set
    /// to zero first, and not before: until then its memory may be another's.
    pub fn backward(&self, dy: &Tensor, ids: &Tensor, accumulate: bool) -> Result<()> {
        let grad = self.weight.grad()?;
        if !accumulate {
            kernels::zero_grad(&grad.view(&[grad.len()])?)?;
        }
        Ok(kernels::scatter_add(dy, ids, grad)?)
    }
}
