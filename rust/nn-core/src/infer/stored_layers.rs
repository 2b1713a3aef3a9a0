//! The products of a Llama's layers, dense or with experts: weights multiplied as their file has them.

use nn_ffi::{Activation, Context, DType, Tensor, kernels};

use super::weight_reader::Weight;
use super::weights::{FeedForward, Gated, Layer, Mixture};
use crate::error::Result;
use crate::model::LlamaConfig;

/// Runs what of a layer lies around its attention. Results lie in buffers made for so many tokens, so that no call allocates;
/// x f32 `[tokens, hidden]` is the residual stream.
#[derive(Debug)]
pub(super) struct StoredLayers {
    norm_eps: f32,
    normed: Tensor,
    qkv: Tensor,
    inner: Option<Tensor>,
    routing: Option<Routing>,
}

/// What a mixture of experts needs in place of `inner`.
#[derive(Debug)]
struct Routing {
    k: usize,
    norm_topk_prob: bool,
    router: Tensor,
    probs: Tensor,
    weights: Tensor,
    indices: Tensor,
    slot_row: Tensor,
    row_slot: Tensor,
    counts: Tensor,
    offsets: Tensor,
}

impl StoredLayers {
    pub(super) fn new(ctx: &Context, config: &LlamaConfig, rows: usize) -> Result<Self> {
        let (experts, k) = (config.num_experts, config.experts_per_token);
        let floats = |shape: &[usize]| ctx.empty(shape, DType::F32);
        let wholes = |shape: &[usize]| ctx.empty(shape, DType::I32);
        let width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim;
        let routing = || {
            Ok::<_, nn_ffi::Error>(Routing {
                k,
                norm_topk_prob: config.norm_topk_prob,
                router: floats(&[rows, experts])?,
                probs: floats(&[rows, experts])?,
                weights: floats(&[rows, k])?,
                indices: wholes(&[rows, k])?,
                slot_row: wholes(&[rows, k])?,
                row_slot: wholes(&[rows * k])?,
                counts: wholes(&[experts])?,
                offsets: wholes(&[experts + 1])?,
            })
        };
        Ok(Self {
            norm_eps: config.norm_eps as f32,
            normed: floats(&[rows, config.hidden_size])?,
            qkv: floats(&[rows, width])?,
            inner: (experts == 0).then(|| floats(&[rows, config.ffn_size])).transpose()?,
            routing: (experts > 0).then(routing).transpose()?,
        })
    }

    /// Queries, keys and values of the normed rows, side by side: f32 `[tokens, (heads + 2 kv_heads) * head_dim]`.
    pub(super) fn qkv(&self, layer: &Layer, x: &Tensor) -> Result<Tensor> {
        let qkv = self.qkv.narrow(0, 0, x.shape()[0])?;
        let (q, k, v, bias) = (&layer.q, &layer.k, &layer.v, layer.qkv_bias.as_ref());
        let (norm, eps) = (Some(&layer.input_norm), self.norm_eps);
        kernels::gemm_quant_qkv(x, &q.data, &k.data, &v.data, bias, norm, &qkv, eps, q.format, k.format, v.format)?;
        Ok(qkv)
    }

    /// x += the projection of what attention gave, f32 `[tokens, heads * head_dim]`.
    pub(super) fn attended(&self, layer: &Layer, heads: &Tensor, x: &Tensor) -> Result<()> {
        add_product(heads, &layer.o, layer.o_bias.as_ref(), x)
    }

    /// x += the feed-forward network, or the mixture of experts, of the normed rows.
    pub(super) fn feed_forward(&self, layer: &Layer, x: &Tensor) -> Result<()> {
        match (&layer.ffn, &self.routing, &self.inner) {
            (FeedForward::Mixture(ffn), Some(routing), _) => self.mixture(ffn, routing, &layer.post_norm, x),
            (FeedForward::Gated(ffn), _, Some(inner)) => self.gated(ffn, inner, &layer.post_norm, x),
            _ => unreachable!("a model has experts in all layers or in none"),
        }
    }

    fn gated(&self, ffn: &Gated, inner: &Tensor, gain: &Tensor, x: &Tensor) -> Result<()> {
        let inner = inner.narrow(0, 0, x.shape()[0])?;
        let (gate, up) = (&ffn.gate, &ffn.up);
        let (norm, eps) = (Some(gain), self.norm_eps);
        kernels::gemm_quant_swiglu(x, &gate.data, &up.data, None, norm, &inner, eps, gate.format, up.format)?;
        add_product(&inner, &ffn.down, None, x)
    }

    /// x += sum over each token's experts of weight * W2 (silu(W1 h) * (W3 h)), h the normed rows.
    fn mixture(&self, ffn: &Mixture, routing: &Routing, gain: &Tensor, x: &Tensor) -> Result<()> {
        let tokens = x.shape()[0];
        let first = |buffer: &Tensor| buffer.narrow(0, 0, tokens);
        let (normed, router) = (first(&self.normed)?, first(&routing.router)?);
        let (probs, weights) = (first(&routing.probs)?, first(&routing.weights)?);
        let (indices, slot_row) = (first(&routing.indices)?, first(&routing.slot_row)?);
        let (row_slot, offsets) = (routing.row_slot.narrow(0, 0, tokens * routing.k)?, &routing.offsets);
        kernels::gemm_quant_route(
            x,
            gain,
            &ffn.router.data,
            &normed,
            &router,
            &weights,
            &indices,
            &probs,
            &routing.counts,
            offsets,
            &slot_row,
            &row_slot,
            self.norm_eps,
            routing.norm_topk_prob,
            ffn.router.format,
        )?;
        let (w1, w3, w2) = (&ffn.experts.w1, &ffn.experts.w3, &ffn.experts.w2);
        Ok(kernels::gemm_quant_experts(
            &normed,
            &w1.data,
            &w3.data,
            &w2.data,
            &weights,
            offsets,
            &slot_row,
            &row_slot,
            Some(x),
            x,
            w1.format,
            w3.format,
            w2.format,
        )?)
    }
}

/// y = rows * W^T + bias + residual.
pub(super) fn product(
    rows: &Tensor,
    weight: &Weight,
    offsets: Option<&Tensor>,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    y: &Tensor,
) -> Result<()> {
    Ok(kernels::gemm_quant(rows, &weight.data, offsets, bias, residual, y, Activation::None, weight.format)?)
}

/// x += rows * W^T + bias.
fn add_product(rows: &Tensor, weight: &Weight, bias: Option<&Tensor>, x: &Tensor) -> Result<()> {
    product(rows, weight, None, bias, Some(x), x)
}
