//! One block: h = x + attention(norm(x)); out = h + moe(norm(h)), or a dense network in place of the mixture.

use nn_ffi::Tensor;

use super::attention::{MQAttention, MQAttentionKept};
use super::cache::KVCache;
use super::dense::{FeedForward, FeedForwardKept};
use super::expert_parallel::Served;
use super::moe::ExpertUse;
use super::norm::RMSNorm;
use super::rope::Rotation;
use crate::error::Result;

/// Pre-norm attention and mixture of experts, or dense network, around the residual stream.
#[derive(Debug)]
pub struct TransformerBlock {
    /// What the names of its parameters begin with, such as `model.layers.3`, for traces.
    pub name: String,
    /// The norm before attention.
    pub input_norm: RMSNorm,
    /// Attention.
    pub attention: MQAttention,
    /// The norm before the second half.
    pub post_norm: RMSNorm,
    /// The second half.
    pub feed_forward: FeedForward,
    /// Whether `backward` finds again, by the same calls, all but the block's input.
    /// (Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4)
    pub recompute: bool,
}

/// What the backward of a block needs of its forward: the block's input (which is the output of the block before), and
/// the rest unless that is found again.
#[derive(Debug)]
pub struct BlockKept {
    x: Tensor,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    Kept(Box<(Attended, FeedForwardKept)>),
    /// For a batch of that many sequences, with that many slots an expert.
    Again {
        batch: usize,
        capacity: i64,
    },
}

/// The stream between the two halves, the norms' outputs and deviations, and what attention keeps.
#[derive(Debug)]
struct Attended {
    normed: Tensor,
    rstd: Tensor,
    attention: MQAttentionKept,
    middle: Tensor,
    post_normed: Tensor,
    post_rstd: Tensor,
}

impl TransformerBlock {
    /// x `[batch*length, hidden]` to the same shape. No expert drops a token.
    pub fn forward(&self, x: &Tensor, batch: usize, rotation: &Rotation) -> Result<Tensor> {
        self.label(x, "self_attn")?;
        let middle = self.attention.forward(&self.input_norm.forward(x)?, batch, rotation)?;
        self.mix(x, &middle)
    }

    /// The second half of the block, from its input and what attention gives.
    fn mix(&self, x: &Tensor, middle: &Tensor) -> Result<Tensor> {
        self.label(x, self.feed_forward.name())?;
        let normed = self.post_norm.forward_residual(middle, x)?;
        self.feed_forward.forward(&normed, middle)
    }

    /// Labels the calls from here on as those of a half of the block.
    fn label(&self, x: &Tensor, half: &str) -> Result<()> {
        Ok(x.context().label(|| format!("{}.{half}", self.name))?)
    }

    fn label_backward(&self, x: &Tensor, half: &str) -> Result<()> {
        Ok(x.context().label(|| format!("backward of {}.{half}", self.name))?)
    }

    /// As `forward`, with an expert's capacity and what `backward` needs; adds the balancing loss to `aux`. Also gives how
    /// the experts were used.
    pub fn forward_keeping(
        &self,
        x: Tensor,
        batch: usize,
        rotation: &Rotation,
        capacity: i64,
        aux: &Tensor,
    ) -> Result<(Tensor, Option<ExpertUse>, BlockKept)> {
        let attended = self.attend(&x, batch, rotation)?;
        let (out, kept) = self.feed_forward.forward_keeping(&attended.post_normed, &attended.middle, capacity, aux)?;
        let experts = kept.expert_use();
        let rest =
            if self.recompute { Rest::Again { batch, capacity } } else { Rest::Kept(Box::new((attended, kept))) };
        Ok((out, experts, BlockKept { x, rest }))
    }

    fn attend(&self, x: &Tensor, batch: usize, rotation: &Rotation) -> Result<Attended> {
        self.label(x, "self_attn")?;
        let (normed, rstd) = self.input_norm.forward_keeping(x)?;
        let (middle, attention) = self.attention.forward_keeping(&normed, batch, rotation)?;
        self.label(x, self.feed_forward.name())?;
        let (post_normed, post_rstd) = self.post_norm.forward_residual_keeping(&middle, x)?;
        Ok(Attended { normed, rstd, attention, middle, post_normed, post_rstd })
    }

    /// Gradient of the block's input from dout, both `[batch*length, hidden]`.
    pub fn backward(
        &self,
        dout: Tensor,
        kept: BlockKept,
        rotation: &Rotation,
        aux_factor: &Tensor,
        beta: f32,
    ) -> Result<Tensor> {
        let BlockKept { x, rest } = kept;
        let (attended, kept) = match rest {
            Rest::Kept(kept) => *kept,
            Rest::Again { batch, capacity } => {
                let attended = self.attend(&x, batch, rotation)?;
                let kept = self.feed_forward.forward_again(&attended.post_normed, capacity)?;
                (attended, kept)
            }
        };
        let Attended { normed, rstd, attention, middle, post_normed, post_rstd } = attended;
        self.label_backward(&x, self.feed_forward.name())?;
        let dmiddle = self.feed_forward.backward(&dout, &post_normed, kept, aux_factor, beta)?;
        drop(post_normed);
        self.post_norm.backward(&dmiddle, &middle, &post_rstd, Some(&dout))?;
        drop((middle, dout));
        self.label_backward(&x, "self_attn")?;
        let dx = self.attention.backward(&dmiddle, &normed, attention, rotation, beta)?;
        self.input_norm.backward(&dx, &x, &rstd, Some(&dmiddle))?;
        Ok(dx)
    }

    /// The part of a guest in the other ranks' forward, and what `serve_backward` needs of it.
    pub fn serve_forward(&self) -> Result<Option<Served>> {
        self.feed_forward.serve_forward(!self.recompute)
    }

    /// The part of a guest in the other ranks' `backward`.
    pub fn serve_backward(&self, kept: Option<Served>) -> Result<()> {
        self.feed_forward.serve_backward(kept, self.recompute)
    }

    /// The next tokens of one sequence into row `row` of the cache, x `[length, hidden]`.
    pub fn prefill(&self, x: &Tensor, cache: &KVCache, layer: usize, row: usize) -> Result<Tensor> {
        self.label(x, "self_attn")?;
        let middle = self.attention.prefill(&self.input_norm.forward(x)?, cache, layer, row)?;
        self.mix(x, &middle)
    }

    /// One new token a sequence, x `[batch, hidden]`.
    pub fn decode(&self, x: &Tensor, cache: &KVCache, layer: usize) -> Result<Tensor> {
        self.label(x, "self_attn")?;
        let middle = self.attention.decode(&self.input_norm.forward(x)?, cache, layer)?;
        self.mix(x, &middle)
    }
}
