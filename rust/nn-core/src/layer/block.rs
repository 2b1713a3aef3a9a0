//! One block: h = x + attention(norm(x)); out = h + moe(norm(h)).

use nn_ffi::GpuTensor;

use super::attention::{MQAttention, MQAttentionKept};
use super::cache::KVCache;
use super::moe::{ExpertUse, MoEKept, MoELayer};
use super::norm::RMSNorm;
use super::rope::Rotation;
use crate::error::Result;

/// Pre-norm attention and mixture of experts around the residual stream.
#[derive(Debug)]
pub struct TransformerBlock<'ctx> {
    /// The norm before attention.
    pub input_norm: RMSNorm<'ctx>,
    /// Attention.
    pub attention: MQAttention<'ctx>,
    /// The norm before the mixture.
    pub post_norm: RMSNorm<'ctx>,
    /// The mixture of experts.
    pub moe: MoELayer<'ctx>,
    /// Whether `backward` finds again, by the same calls, all but the block's input.
    /// (Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4)
    pub recompute: bool,
}

/// What the backward of a block needs of its forward: the block's input (which is the output of the block before), and
/// the rest unless that is found again.
#[derive(Debug)]
pub struct BlockKept<'ctx> {
    x: GpuTensor<'ctx>,
    rest: Rest<'ctx>,
}

#[derive(Debug)]
enum Rest<'ctx> {
    Kept(Box<(Attended<'ctx>, MoEKept<'ctx>)>),
    /// For a batch of so many sequences, with so many slots an expert.
    Again {
        batch: usize,
        capacity: i64,
    },
}

/// The stream between the two halves, the norms' outputs and deviations, and what attention keeps.
#[derive(Debug)]
struct Attended<'ctx> {
    normed: GpuTensor<'ctx>,
    rstd: GpuTensor<'ctx>,
    attention: MQAttentionKept<'ctx>,
    middle: GpuTensor<'ctx>,
    post_normed: GpuTensor<'ctx>,
    post_rstd: GpuTensor<'ctx>,
}

impl<'ctx> TransformerBlock<'ctx> {
    /// x `[batch*length, hidden]` to the same shape. No expert drops a token.
    pub fn forward(&self, x: &GpuTensor<'ctx>, batch: usize, rotation: &Rotation<'ctx>) -> Result<GpuTensor<'ctx>> {
        let middle = self.attention.forward(&self.input_norm.forward(x)?, batch, rotation)?;
        let normed = self.post_norm.forward_residual(&middle, x)?;
        self.moe.forward(&normed, &middle)
    }

    /// As `forward`, with an expert's capacity and what `backward` needs; adds the balancing loss to `aux`. Also gives how
    /// the experts were used.
    pub fn forward_keeping(
        &self,
        x: GpuTensor<'ctx>,
        batch: usize,
        rotation: &Rotation<'ctx>,
        capacity: i64,
        aux: &GpuTensor<'ctx>,
    ) -> Result<(GpuTensor<'ctx>, ExpertUse<'ctx>, BlockKept<'ctx>)> {
        let attended = self.attend(&x, batch, rotation)?;
        let (out, moe) = self.moe.forward_keeping(&attended.post_normed, &attended.middle, capacity, Some(aux))?;
        let experts = moe.expert_use();
        let rest = if self.recompute { Rest::Again { batch, capacity } } else { Rest::Kept(Box::new((attended, moe))) };
        Ok((out, experts, BlockKept { x, rest }))
    }

    fn attend(&self, x: &GpuTensor<'ctx>, batch: usize, rotation: &Rotation<'ctx>) -> Result<Attended<'ctx>> {
        let (normed, rstd) = self.input_norm.forward_keeping(x)?;
        let (middle, attention) = self.attention.forward_keeping(&normed, batch, rotation)?;
        let (post_normed, post_rstd) = self.post_norm.forward_residual_keeping(&middle, x)?;
        Ok(Attended { normed, rstd, attention, middle, post_normed, post_rstd })
    }

    /// Gradient of the block's input from dout, both `[batch*length, hidden]`.
    pub fn backward(
        &self,
        dout: GpuTensor<'ctx>,
        kept: BlockKept<'ctx>,
        rotation: &Rotation<'ctx>,
        aux_factor: &GpuTensor<'ctx>,
        beta: f32,
    ) -> Result<GpuTensor<'ctx>> {
        let BlockKept { x, rest } = kept;
        let (attended, moe) = match rest {
            Rest::Kept(kept) => *kept,
            Rest::Again { batch, capacity } => {
                let attended = self.attend(&x, batch, rotation)?;
                let moe = self.moe.forward_again(&attended.post_normed, capacity)?;
                (attended, moe)
            }
        };
        let Attended { normed, rstd, attention, middle, post_normed, post_rstd } = attended;
        let dmiddle = self.moe.backward(&dout, &post_normed, moe, aux_factor, beta)?;
        drop(post_normed);
        self.post_norm.backward(&dmiddle, &middle, &post_rstd, Some(&dout))?;
        drop((middle, dout));
        let dx = self.attention.backward(&dmiddle, &normed, attention, rotation, beta)?;
        self.input_norm.backward(&dx, &x, &rstd, Some(&dmiddle))?;
        Ok(dx)
    }

    /// The next tokens of one sequence into row `row` of the cache, x `[length, hidden]`.
    pub fn prefill(
        &self,
        x: &GpuTensor<'ctx>,
        cache: &KVCache<'ctx>,
        layer: usize,
        row: usize,
    ) -> Result<GpuTensor<'ctx>> {
        let middle = self.attention.prefill(&self.input_norm.forward(x)?, cache, layer, row)?;
        let normed = self.post_norm.forward_residual(&middle, x)?;
        self.moe.forward(&normed, &middle)
    }

    /// One new token a sequence, x `[batch, hidden]`.
    pub fn decode(&self, x: &GpuTensor<'ctx>, cache: &KVCache<'ctx>, layer: usize) -> Result<GpuTensor<'ctx>> {
        let middle = self.attention.decode(&self.input_norm.forward(x)?, cache, layer)?;
        let normed = self.post_norm.forward_residual(&middle, x)?;
        self.moe.forward(&normed, &middle)
    }
}
