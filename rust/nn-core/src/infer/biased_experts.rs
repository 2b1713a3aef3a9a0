//! A mixture whose router and experts have biases and clipped gates, as gpt-oss has it.
//!
//! Its steps are calls of their own: the fused ones have neither biases nor bounds.

use nn_ffi::{Context, DType, Tensor, kernels};

use super::stored_layers::{Routing, product};
use super::weight_reader::Weight;
use super::weights::{ExpertBiases, Mixture};
use crate::error::Result;
use crate::model::LlamaConfig;

/// What bounds the gates. (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.3)
const ALPHA: f32 = 1.702;
const LIMIT: f32 = 7.0;

/// Rows of such a mixture beside those of its routing.
#[derive(Debug)]
pub(super) struct BiasedRows {
    /// f32 `[slots, hidden]`.
    rows: Tensor,
    /// f32 `[slots, ffn]`, all three.
    gate: Tensor,
    up: Tensor,
    inner: Tensor,
}

impl BiasedRows {
    pub(super) fn new(ctx: &Context, config: &LlamaConfig, slots: usize) -> Result<Self> {
        let floats = |width: usize| ctx.empty(&[slots, width], DType::F32);
        let (hidden, ffn) = (config.hidden_size, config.ffn_size);
        Ok(Self { rows: floats(hidden)?, gate: floats(ffn)?, up: floats(ffn)?, inner: floats(ffn)? })
    }

    /// x += the sum over each token's experts of weight * (W2 (g sigmoid(1.702 g) (u + 1)) + b2), where g and u are W1 h + b1
    /// and W3 h + b3, bounded by 7, and h f32 `[tokens, hidden]` the normed rows. A token's weights are the softmax of the
    /// router's largest logits. (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.3)
    pub(super) fn add(
        &self,
        ffn: &Mixture,
        biases: &ExpertBiases,
        routing: &Routing,
        normed: &Tensor,
        x: &Tensor,
    ) -> Result<()> {
        let tokens = x.shape()[0];
        let first = |buffer: &Tensor| buffer.narrow(0, 0, tokens);
        let (router, probs, weights) = (first(&routing.router)?, first(&routing.probs)?, first(&routing.weights)?);
        let (indices, slot_row) = (first(&routing.indices)?, first(&routing.slot_row)?);
        let slots = |buffer: &Tensor| buffer.narrow(0, 0, tokens * routing.k);
        let (row_slot, offsets, rows) = (slots(&routing.row_slot)?, &routing.offsets, slots(&self.rows)?);
        let (gate, up, inner) = (slots(&self.gate)?, slots(&self.up)?, slots(&self.inner)?);
        product(normed, &ffn.router, None, Some(&biases.router), None, &router)?;
        // The softmax of all logits, divided by the sum of the largest: that of these alone.
        kernels::moe_route(
            &router,
            normed,
            &weights,
            &indices,
            &probs,
            &routing.counts,
            offsets,
            &slot_row,
            &row_slot,
            &rows,
            None,
            routing.norm_topk_prob,
            0,
            0.0,
        )?;
        let biased = |rows: &Tensor, weight: &Weight, bias: &Tensor, y: &Tensor| {
            product(rows, weight, Some(offsets), None, None, y)?;
            Ok::<_, crate::error::Error>(kernels::grouped_bias(y, bias, offsets, y)?)
        };
        biased(&rows, &ffn.experts.w1, &biases.w1, &gate)?;
        biased(&rows, &ffn.experts.w3, &biases.w3, &up)?;
        kernels::swiglu_clipped(&gate, &up, &inner, ALPHA, LIMIT)?;
        biased(&inner, &ffn.experts.w2, &biases.w2, &rows)?;
        Ok(kernels::moe_combine(&rows, &weights, &slot_row, Some(x), x)?)
    }
}
