//! The passes of the transformer that train it: forward, what is kept of that, and backward.

use std::ops::Range;

use nn_ffi::{DType, Tensor, kernels};

use super::precision::Precision;
use super::transformer::{IGNORE_INDEX, MoETransformer, flat};
use crate::error::Result;
use crate::layer::{BlockKept, ExpertUse, Rotation};

/// What a call of `forward_backward` reads, and where its results go.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// i32 `[batch, length]`.
    pub ids: &'a Tensor,
    /// i32 `[batch, length]`; `IGNORE_INDEX` counts for nothing.
    pub targets: &'a Tensor,
    /// i32 `[batch, length]`, where the sequences are packed documents that do not see one another and each begin at
    /// position 0: 1 at the last token of each, 0 elsewhere.
    pub document_ends: Option<&'a Tensor>,
    /// f32 `[1]`, factor of the sum of the cross-entropies.
    pub loss_factor: &'a Tensor,
    /// f32 `[1]`, factor of the load-balancing loss.
    pub aux_factor: &'a Tensor,
    /// f32 `[loss_pieces(tokens)]`, takes the sums of the cross-entropies, without their factor.
    pub losses: &'a Tensor,
    /// f32 `[1]`, to which the load-balancing loss, without its factor, is added.
    pub aux: &'a Tensor,
    /// Whether the gradients are added to those that are there.
    pub accumulate: bool,
}

impl MoETransformer {
    /// Gradients of loss_factor * (sum of cross-entropies) + aux_factor * (load-balancing loss), into `gradients`. Gives
    /// how each layer used its experts.
    pub fn forward_backward(&self, call: &Gradients<'_>) -> Result<Vec<ExpertUse>> {
        self.forward_backward_with(call, |_| Ok(()))
    }

    /// The same, which calls `completed` with the number of each of
    /// [`ParameterLayout::backward_pieces`](super::ParameterLayout::backward_pieces) when its gradients are complete.
    pub fn forward_backward_with(
        &self,
        call: &Gradients<'_>,
        mut completed: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<ExpertUse>> {
        let (ids, batch, _) = flat(call.ids)?;
        let (targets, _, _) = flat(call.targets)?;
        let beta = if call.accumulate { 1.0 } else { 0.0 };
        if !call.accumulate {
            self.clear_gains()?;
        }
        let rotation = self.rotation(&ids, batch, call.document_ends)?;
        let Kept { x, blocks: kept, uses } = self.forward_keeping(&ids, batch, &rotation, call.aux)?;
        self.label("model.norm")?;
        let (normed, rstd) = self.norm.forward_keeping(&x)?;
        self.loss(&normed, &targets, call, beta)?;
        let tied = self.config.tie_embeddings;
        let first = usize::from(!tied); // piece of the blocks
        if !tied {
            completed(0)?;
        }
        self.label("backward of model.norm")?;
        self.norm.backward(&normed, &x, &rstd, None)?;
        drop(x);
        let mut dx = normed;
        for (number, (block, of_block)) in (first..).zip(self.blocks.iter().zip(kept).rev()) {
            dx = block.backward(dx, of_block, &rotation, call.aux_factor, beta)?;
            completed(number)?;
        }
        self.label("backward of model.embed_tokens")?;
        self.embedding.backward(&dx, &ids, call.accumulate || tied)?;
        completed(first + self.blocks.len())?;
        completed(first + self.blocks.len() + 1)?; // the vectors' are
        self.label("")?;
        Ok(uses)
    }

    /// The stream of `batch` sequences, ids i32 `[tokens]`, and what their backward needs.
    fn forward_keeping(&self, ids: &Tensor, batch: usize, rotation: &Rotation, aux: &Tensor) -> Result<Kept> {
        let capacity = self.config.capacity(ids.len());
        let mut x = self.embed(ids)?;
        let (mut blocks, mut uses) = (Vec::with_capacity(self.blocks.len()), Vec::with_capacity(self.blocks.len()));
        for block in &self.blocks {
            let (out, experts, of_block) = block.forward_keeping(x, batch, rotation, capacity, aux)?;
            x = out;
            uses.extend(experts);
            blocks.push(of_block);
        }
        Ok(Kept { x, blocks, uses })
    }

    /// Bytes that a forward pass of ids i32 `[batch, length]` keeps for its backward.
    pub(crate) fn bytes_kept(&self, ids: &Tensor) -> Result<usize> {
        let (ids, batch, _) = flat(ids)?;
        let (rotation, aux) = (self.rotation(&ids, batch, None)?, self.ctx.zeros(&[1], DType::F32)?);
        let before = self.ctx.bytes_used()?;
        let _kept = self.forward_keeping(&ids, batch, &rotation, &aux)?;
        Ok(self.ctx.bytes_used()? - before)
    }

    /// Chooses what `forward_backward` does not keep but computes twice, with the same bits.
    ///
    /// Of every `every`-th block (0: of none) all but its input; with `experts`, of the other blocks what the experts'
    /// products take in and give between, but not of the last `keep` of all, which the gradients come to first.
    pub fn recompute(&mut self, every: usize, experts: bool, keep: usize) {
        let again = self.blocks.len().saturating_sub(keep);
        for (number, block) in (1..).zip(&mut self.blocks) {
            block.recompute = every > 0 && usize::is_multiple_of(number, every);
            block.feed_forward.recompute(experts && number <= again);
        }
    }

    /// Cross-entropy and its gradient, chunk by chunk; the gradient of `normed` takes its place.
    ///
    /// The logits and their gradient are f32; only where it enters the products is the gradient rounded to 16 bits.
    fn loss(&self, normed: &Tensor, targets: &Tensor, call: &Gradients<'_>, beta: f32) -> Result<()> {
        for (piece, Range { start, end }) in self.chunks(normed.len() / self.config.hidden_size).enumerate() {
            let x = normed.narrow(0, start, end - start)?;
            let wanted = targets.narrow(0, start, end - start)?;
            self.label("lm_head")?;
            let logits = self.head.forward_f32(&x)?;
            let lse = self.ctx.empty(&[end - start], DType::F32)?;
            let valid = self.ctx.empty(&[1], DType::I32)?;
            let sum = call.losses.narrow(0, piece, 1)?;
            kernels::cross_entropy_forward(&logits, &wanted, None, &lse, &sum, &valid, IGNORE_INDEX)?;
            self.label("backward of lm_head")?;
            kernels::cross_entropy_backward(&logits, &wanted, &lse, call.loss_factor, &logits, IGNORE_INDEX)?;
            let dlogits = if self.precision == Precision::F32 {
                logits
            } else {
                let rounded = self.ctx.empty(logits.shape(), self.precision.dtype())?;
                kernels::cast(&logits, &rounded)?;
                rounded
            };
            self.head.backward(&dlogits, &x, &x, if piece == 0 { beta } else { 1.0 })?;
        }
        Ok(())
    }

    /// Sets to zero the gradients to which layers add from the beginning.
    fn clear_gains(&self) -> Result<()> {
        if let Some(beside) = &self.beside {
            return Ok(kernels::zero_grad(&beside.unwanted)?); // or they would add up until they are not finite
        }
        let gains = self.layout.num_decayed();
        let rest = self.layout.size() - gains;
        Ok(kernels::zero_grad(&self.gradients()?.data().narrow(0, gains, rest)?)?)
    }
}

/// What a forward pass leaves for its backward.
struct Kept {
    /// The stream after the last block.
    x: Tensor,
    blocks: Vec<BlockKept>,
    uses: Vec<ExpertUse>,
}
