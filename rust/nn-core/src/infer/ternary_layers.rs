//! The products of a BitNet's layers: activations in 8 bits times weights -1, 0 and 1.
//!
//! Each row is normed and rounded to 8 bits by its largest magnitude before a product, whose integers are exact. (Ma et al.
//! 2025, "BitNet b1.58 2B4T Technical Report", section 2) What adapters add takes the normed rows before they are rounded.

use nn_ffi::{Context, DType, Tensor, kernels};

use super::low_rank::{Run, adapted_rows, add_to};
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
    beside: Option<Beside>,
    /// As of [`StoredLayers`](super::stored_layers::StoredLayers).
    pub(super) runs: Vec<Run>,
}

/// What adapters need: f32 `[rows * rank]`, room for rows that are normed, and the products of matrices that are not packed as
/// one.
#[derive(Debug)]
struct Beside {
    inner: Tensor,
    normed: Tensor,
    heads: [Tensor; 3],
    gate_up: [Tensor; 2],
}

impl Beside {
    /// The normed rows, until the next are; as a product has them that norms its rows itself.
    fn normed(&self, x: &Tensor, gain: &Tensor, eps: f32) -> Result<Tensor> {
        let rows = self.normed.narrow(0, 0, x.len())?.view(x.shape())?;
        kernels::rmsnorm(x, gain, &rows, None, eps)?;
        Ok(rows)
    }
}

impl TernaryLayers {
    /// `rank` is the largest of the adapters that weights may have, 0 without any.
    pub(super) fn new(ctx: &Context, config: &LlamaConfig, rows: usize, rank: usize) -> Result<Self> {
        let (queries, keys) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
        let (hidden, ffn, ffn_rows) = (config.hidden_size, config.ffn_size, rows.min(FFN_ROWS));
        let floats = |shape: &[usize]| ctx.empty(shape, DType::F32);
        let beside = || {
            Ok::<_, nn_ffi::Error>(Beside {
                inner: floats(&[rows * rank])?,
                normed: floats(&[(rows * hidden.max(queries)).max(ffn_rows * ffn)])?,
                heads: [floats(&[rows, queries])?, floats(&[rows, keys])?, floats(&[rows, keys])?],
                gate_up: [floats(&[ffn_rows, ffn])?, floats(&[ffn_rows, ffn])?],
            })
        };
        Ok(Self {
            norm_eps: config.norm_eps as f32,
            heads: [config.num_heads, config.num_kv_heads, config.head_dim],
            ffn_size: ffn,
            activation: config.activation,
            qkv: floats(&[rows, queries + 2 * keys])?,
            gate_up: floats(&[ffn_rows, 2 * ffn])?,
            inner: floats(&[ffn_rows, ffn])?,
            beside: (rank > 0).then(beside).transpose()?,
            runs: Vec::new(),
        })
    }

    /// Queries, keys and values of the normed rows.
    pub(super) fn qkv(&self, layer: &TernaryLayer, x: &Tensor) -> Result<Heads> {
        let tokens = x.shape()[0];
        if let (Some(beside), [_, _, _]) = (&self.beside, &layer.qkv[..]) {
            let [q, k, v] = self.apart(beside, x, &layer.input_norm, &layer.qkv, &beside.heads, 0)?;
            let [heads, kv_heads, dim] = self.heads;
            let view = |part: Tensor, heads: usize| part.view(&[tokens, heads, dim]);
            return Ok(Heads { q: view(q, heads)?, k: view(k, kv_heads)?, v: view(v, kv_heads)? });
        }
        let qkv = self.qkv.narrow(0, 0, tokens)?;
        self.product(x, Some(&layer.input_norm), &layer.qkv[0], None, &qkv, 0)?;
        Heads::split(&qkv, self.heads)
    }

    /// x += the projection of what attention gave, f32 `[tokens, heads * head_dim]`, normed and rounded.
    pub(super) fn attended(&self, layer: &TernaryLayer, heads: &Tensor, x: &Tensor) -> Result<()> {
        self.product(heads, layer.attention_norm.as_ref(), &layer.o, Some(x), x, 0)
    }

    /// x += the feed-forward network of the normed rows.
    pub(super) fn feed_forward(&self, layer: &TernaryLayer, x: &Tensor) -> Result<()> {
        let tokens = x.shape()[0];
        for first in (0..tokens).step_by(FFN_ROWS) {
            self.feed_forward_of(layer, &x.narrow(0, first, FFN_ROWS.min(tokens - first))?, first)?;
        }
        Ok(())
    }

    fn feed_forward_of(&self, layer: &TernaryLayer, x: &Tensor, first: usize) -> Result<()> {
        let (tokens, width) = (x.shape()[0], self.ffn_size);
        let inner = self.inner.narrow(0, 0, tokens)?;
        let [gate, up] = if let (Some(beside), [_, _]) = (&self.beside, &layer.gate_up[..]) {
            self.apart(beside, x, &layer.post_norm, &layer.gate_up, &beside.gate_up, first)?
        } else {
            let both = self.gate_up.narrow(0, 0, tokens)?;
            self.product(x, Some(&layer.post_norm), &layer.gate_up[0], None, &both, first)?;
            [both.narrow(1, 0, width)?, both.narrow(1, width, width)?]
        };
        match self.activation {
            GateActivation::Silu => kernels::swiglu(&gate, &up, None, &inner)?,
            GateActivation::Relu2 => kernels::relu2_gate(&gate, &up, &inner)?,
            GateActivation::Gelu => kernels::geglu(&gate, &up, &inner)?,
        }
        self.product(&inner, layer.ffn_norm.as_ref(), &layer.down, Some(x), x, first)
    }

    /// The products of the normed rows with matrices that are not packed as one, each in its buffer.
    fn apart<const N: usize>(
        &self,
        beside: &Beside,
        x: &Tensor,
        gain: &Tensor,
        weights: &[TernaryWeight],
        buffers: &[Tensor; N],
        first: usize,
    ) -> Result<[Tensor; N]> {
        let (normed, mut made) = (beside.normed(x, gain, self.norm_eps)?, buffers.clone());
        for (y, weight) in made.iter_mut().zip(weights) {
            *y = y.narrow(0, 0, x.shape()[0])?;
            self.product(&normed, None, weight, None, y, first)?;
        }
        Ok(made)
    }

    /// y = the product of the rows, normed where there is a gain and rounded, + residual, and what the adapters of the rows add, of
    /// which x begins with row `first` of the call.
    fn product(
        &self,
        x: &Tensor,
        gain: Option<&Tensor>,
        weight: &TernaryWeight,
        residual: Option<&Tensor>,
        y: &Tensor,
        first: usize,
    ) -> Result<()> {
        let TernaryWeight { data, scale, .. } = weight;
        let adapted: Vec<_> = adapted_rows(&self.runs, &weight.low_rank, first, x.shape()[0]).collect();
        let (Some(beside), false) = (&self.beside, adapted.is_empty()) else {
            return Ok(kernels::bitlinear_norm(x, gain, data, scale, residual, y, self.norm_eps)?);
        };
        let normed = gain.map(|gain| beside.normed(x, gain, self.norm_eps)).transpose()?;
        let rows = normed.as_ref().unwrap_or(x);
        kernels::bitlinear_norm(rows, None, data, scale, residual, y, self.norm_eps)?;
        add_to(adapted, rows, &beside.inner, y)
    }
}
