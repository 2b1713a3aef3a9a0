//! The products of a BitNet's layers: activations in 8 bits times weights -1, 0 and 1.
//!
//! Each row is normed and rounded to 8 bits by its largest magnitude before a product, whose integers are exact. (Ma et al.
//! 2025, "BitNet b1.58 2B4T Technical Report", section 2)

use nn_ffi::{Context, DType, Tensor, kernels};

use super::stored_layers::Heads;
use super::ternary_weights::{TernaryLayer, TernaryWeight};
use crate::error::Result;
use crate::model::{GateActivation, LlamaConfig};

/// Rows that the feed-forward network takes at a time: its inner width is several times that of the residual stream, and more
/// rows would only need more memory.
const FFN_ROWS: usize = 128;

/// As [`StoredLayers`](super::stored_layers::StoredLayers), of a model with ternary weights.
#[derive(Debug)]
pub(super) struct TernaryLayers {
    norm_eps: f32,
    /// Query heads, key and value heads, elements of a head.
    heads: [usize; 3],
    ffn_size: usize,
    activation: GateActivation,
    qkv: Tensor,
    gate_up: Tensor,
    inner: Tensor,
}

impl TernaryLayers {
    pub(super) fn new(ctx: &Context, config: &LlamaConfig, rows: usize) -> Result<Self> {
        let queries = config.num_heads * config.head_dim;
        let (ffn, ffn_rows) = (config.ffn_size, rows.min(FFN_ROWS));
        let floats = |shape: &[usize]| ctx.empty(shape, DType::F32);
        Ok(Self {
            norm_eps: config.norm_eps as f32,
            heads: [config.num_heads, config.num_kv_heads, config.head_dim],
            ffn_size: ffn,
            activation: config.activation,
            qkv: floats(&[rows, queries + 2 * config.num_kv_heads * config.head_dim])?,
            gate_up: floats(&[ffn_rows, 2 * ffn])?,
            inner: floats(&[ffn_rows, ffn])?,
        })
    }

    /// Queries, keys and values of the normed rows.
    pub(super) fn qkv(&self, layer: &TernaryLayer, x: &Tensor) -> Result<Heads> {
        let qkv = self.qkv.narrow(0, 0, x.shape()[0])?;
        self.product(x, Some(&layer.input_norm), &layer.qkv, None, &qkv)?;
        Heads::split(&qkv, self.heads)
    }

    /// x += the projection of what attention gave, f32 `[tokens, heads * head_dim]`, normed and rounded.
    pub(super) fn attended(&self, layer: &TernaryLayer, heads: &Tensor, x: &Tensor) -> Result<()> {
        self.product(heads, layer.attention_norm.as_ref(), &layer.o, Some(x), x)
    }

    /// x += the feed-forward network of the normed rows.
    pub(super) fn feed_forward(&self, layer: &TernaryLayer, x: &Tensor) -> Result<()> {
        let tokens = x.shape()[0];
        for first in (0..tokens).step_by(FFN_ROWS) {
            self.feed_forward_of(layer, &x.narrow(0, first, FFN_ROWS.min(tokens - first))?)?;
        }
        Ok(())
    }

    fn feed_forward_of(&self, layer: &TernaryLayer, x: &Tensor) -> Result<()> {
        let (tokens, width) = (x.shape()[0], self.ffn_size);
        let (both, inner) = (self.gate_up.narrow(0, 0, tokens)?, self.inner.narrow(0, 0, tokens)?);
        self.product(x, Some(&layer.post_norm), &layer.gate_up, None, &both)?;
        let (gate, up) = (both.narrow(1, 0, width)?, both.narrow(1, width, width)?);
        match self.activation {
            GateActivation::Silu => kernels::swiglu(&gate, &up, None, &inner)?,
            GateActivation::Relu2 => kernels::relu2_gate(&gate, &up, &inner)?,
            GateActivation::Gelu => kernels::geglu(&gate, &up, &inner)?,
        }
        self.product(&inner, layer.ffn_norm.as_ref(), &layer.down, Some(x), x)
    }

    /// y = the product of the rows, normed where there is a gain and rounded, + residual.
    fn product(
        &self,
        x: &Tensor,
        gain: Option<&Tensor>,
        weight: &TernaryWeight,
        residual: Option<&Tensor>,
        y: &Tensor,
    ) -> Result<()> {
        Ok(kernels::bitlinear_norm(x, gain, &weight.data, &weight.scale, residual, y, self.norm_eps)?)
    }
}
