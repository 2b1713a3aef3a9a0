//! The token embedding.

use nn_ffi::{GpuTensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// Rows of a table `[vocab, hidden]`.
#[derive(Debug)]
pub struct Embedding<'ctx> {
    weight: Weight<'ctx>,
}

impl<'ctx> Embedding<'ctx> {
    /// An embedding over a table `[vocab, hidden]`.
    pub fn new(weight: Weight<'ctx>) -> Self {
        Self { weight }
    }

    /// ids i32 `[tokens]` to rows `[tokens, hidden]`.
    pub fn forward(&self, ids: &GpuTensor<'ctx>) -> Result<GpuTensor<'ctx>> {
        let ([tokens], [_, hidden]) = (sizes("ids", ids)?, sizes("the table", &self.weight.value)?);
        let rows = ids.context().empty(&[tokens, hidden], self.weight.value.dtype())?;
        kernels::embedding(&self.weight.value, ids, &rows)?;
        Ok(rows)
    }

    /// Adds dy `[tokens, hidden]` to the rows of the gradient that were taken.
    pub fn backward(&self, dy: &GpuTensor<'ctx>, ids: &GpuTensor<'ctx>) -> Result<()> {
        Ok(kernels::scatter_add(dy, ids, self.weight.grad()?)?)
    }
}
