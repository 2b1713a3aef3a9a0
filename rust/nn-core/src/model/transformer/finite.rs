//! A search for the first output of a forward pass that is not finite.

use nn_ffi::Tensor;

use super::{MoETransformer, flat};
use crate::error::Result;
use crate::model::arena::host_values;

/// The first element of an output that is not finite.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BadOutput {
    /// The layer that the output is of, as parameters name it; `None` for the logits.
    pub(crate) layer: Option<String>,
    /// Its row, a token of the micro-batch.
    pub(crate) token: usize,
    /// Its column.
    pub(crate) channel: usize,
    /// What it is.
    pub(crate) value: f32,
}

impl BadOutput {
    /// The first of an output `[rows, columns]` whose first row is that of token `first`, if there is one.
    fn find(layer: Option<String>, output: &Tensor, first: usize) -> Result<Option<Self>> {
        let columns = output.shape().last().copied().unwrap_or(1);
        let values = host_values(output)?;
        let bad = values.iter().position(|value| !value.is_finite());
        Ok(bad.map(|at| Self { layer, token: first + at / columns, channel: at % columns, value: values[at] }))
    }
}

impl MoETransformer {
    /// Runs the forward pass of training on ids i32 `[batch, length]`, each output copied to the host and looked at before
    /// the next is made, and gives the first element that is not finite.
    ///
    /// What attention gives is looked at before the stream is added to it; of the mixture of experts, whose last call
    /// adds it, the stream after the block.
    pub(crate) fn find_bad_output(&self, ids: &Tensor) -> Result<Option<BadOutput>> {
        let (ids, batch, length) = flat(ids)?;
        let capacity = self.config.capacity(batch * length);
        let rotation = self.rope.rotation(batch, length)?;
        let look = |layer: String, output: &Tensor| BadOutput::find(Some(layer), output, 0);
        let mut x = self.embedding.forward(&ids)?;
        if let Some(bad) = look("model.embed_tokens".into(), &x)? {
            return Ok(Some(bad));
        }
        for (number, block) in self.blocks.iter().enumerate() {
            let attended = block.attention.forward(&block.input_norm.forward(&x)?, batch, &rotation)?;
            if let Some(bad) = look(format!("model.layers.{number}.self_attn"), &attended)? {
                return Ok(Some(bad));
            }
            let normed = block.post_norm.forward_residual(&attended, &x)?;
            (x, _) = block.moe.forward_keeping(&normed, &attended, capacity, None)?;
            if let Some(bad) = look(format!("model.layers.{number}.block_sparse_moe"), &x)? {
                return Ok(Some(bad));
            }
        }
        let normed = self.norm.forward(&x)?;
        if let Some(bad) = look("model.norm".into(), &normed)? {
            return Ok(Some(bad));
        }
        for chunk in self.chunks(batch * length) {
            let logits = self.head.forward_f32(&normed.narrow(0, chunk.start, chunk.len())?)?;
            if let Some(bad) = BadOutput::find(None, &logits, chunk.start)? {
                return Ok(Some(bad));
            }
        }
        Ok(None)
    }
}
