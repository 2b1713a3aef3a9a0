//! The token embedding.

use nn_ffi::{DType, Format, Tensor, kernels};

use super::{Weight, sizes};
use crate::error::Result;

/// Rows of a table `[vocab, hidden]`.
#[derive(Debug)]
pub struct Embedding {
    weight: Weight,
    /// Of a table that stays as it is stored: its format, and numbers of a row.
    stored: Option<(Format, usize)>,
}

impl Embedding {
    /// An embedding over a table `[vocab, hidden]`.
    pub fn new(weight: Weight) -> Self {
        Self { weight, stored: None }
    }

    /// An embedding over a table that stays as it is stored, u8 `[vocab, row_bytes]` in `format`, of `dim` numbers a row.
    pub fn stored(table: Tensor, format: Format, dim: usize) -> Self {
        Self { weight: Weight::new(table, None), stored: Some((format, dim)) }
    }

    /// ids i32 `[tokens]` to rows `[tokens, hidden]`.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        if let Some((format, dim)) = self.stored {
            let rows = ids.context().empty(&[ids.len(), dim], DType::F32)?;
            kernels::embedding_quant(&self.weight.value, ids, &rows, format)?;
            return Ok(rows);
        }
        let ([tokens], [_, hidden]) = (sizes("ids", ids)?, sizes("the table", &self.weight.value)?);
        let rows = ids.context().empty(&[tokens, hidden], self.weight.value.dtype())?;
        kernels::embedding(&self.weight.value, ids, &rows)?;
        Ok(rows)
    }

    /// Adds dy `[tokens, hidden]` to the rows of the gradient that were taken. Unless it shall `accumulate`, the gradient is set
    /// to zero first, and not before: until then its memory may be another's. A table that stays has no gradient.
    pub fn backward(&self, dy: &Tensor, ids: &Tensor, accumulate: bool) -> Result<()> {
        if self.stored.is_some() {
            return Ok(());
        }
        let grad = self.weight.grad()?;
        if !accumulate {
            kernels::zero_grad(&grad.view(&[grad.len()])?)?;
        }
        Ok(kernels::scatter_add(dy, ids, grad)?)
    }
}
