//! Causal self-attention with rotary embedding and shared key heads, in training and over a cache.

use nn_ffi::{DType, RopeLayout, Tensor, kernels};

use super::cache::KVCache;
use super::projection::{Product, Projected, Projection};
use super::rope::Rotation;
use super::sizes;
use crate::error::{Error, Result};

/// out = softmax(q k^T / sqrt(head_dim)) v, through W_o; q, k, v come from one product with W_qkv.
///
/// Weights: qkv `[(heads + 2 kv_heads) * head_dim, hidden]`, which may have a bias, output `[hidden, heads * head_dim]`. With one key head it
/// is multi-query attention, with as many as query heads multi-head.
/// (Vaswani et al. 2017, eq. 1; Shazeer 2019, multi-query; Su et al. 2021, rotary)
#[derive(Debug)]
pub struct MQAttention {
    /// The projection of queries, keys and values.
    pub qkv: Projection,
    /// The projection of the heads' outputs.
    pub output: Product,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements a head.
    pub head_dim: usize,
}

/// What the backward of attention needs of its forward.
#[derive(Debug)]
pub struct MQAttentionKept {
    projected: Projected,
    heads: Tensor,
    lse: Tensor,
}

impl MQAttention {
    /// x `[batch*length, hidden]`, sequences one after the other, to the same shape.
    pub fn forward(&self, x: &Tensor, batch: usize, rotation: &Rotation) -> Result<Tensor> {
        let (out, _) = self.forward_keeping(x, batch, rotation)?;
        Ok(out)
    }

    /// As `forward`, with what `backward` needs.
    pub fn forward_keeping(&self, x: &Tensor, batch: usize, rotation: &Rotation) -> Result<(Tensor, MQAttentionKept)> {
        let (ctx, [rows, _]) = (x.context(), sizes("x", x)?);
        let length = rows
            .checked_div(batch)
            .filter(|length| length * batch == rows)
            .ok_or_else(|| Error::value(format!("{rows} tokens are not those of {batch} sequences of one length")))?;
        let projected = self.qkv.forward(x, self.sizes())?;
        let [q, k, v] = &projected.parts;
        self.rotate(q, k, rotation)?;
        let heads = ctx.empty(&[rows, self.heads, self.head_dim], x.dtype())?;
        let lse = ctx.empty(&[batch, self.heads, length], DType::F32)?;
        kernels::flash_attention(q, k, v, rotation.starts.as_ref(), &heads, Some(&lse), batch, self.scale(), true)?;
        let heads = heads.view(&[rows, self.heads * self.head_dim])?;
        let out = self.output.forward(&heads)?;
        Ok((out, MQAttentionKept { projected, heads, lse }))
    }

    /// Gradient of x from dy, both `[batch*length, hidden]`.
    pub fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        kept: MQAttentionKept,
        rotation: &Rotation,
        beta: f32,
    ) -> Result<Tensor> {
        let ctx = x.context();
        let dheads = ctx.empty(kept.heads.shape(), x.dtype())?;
        self.output.backward(dy, &kept.heads, &dheads, beta)?;
        let (dqkv, [dq, dk, dv]) = self.qkv.gradients(x, self.sizes())?;
        let [q, k, v] = &kept.projected.parts;
        let [rows, _] = sizes("x", x)?;
        let shape = [rows, self.heads, self.head_dim];
        let (dheads, heads) = (dheads.view(&shape)?, kept.heads.view(&shape)?);
        let Rotation { cosine, sine, positions, starts } = rotation;
        let (lse, starts) = (&kept.lse, starts.as_ref());
        kernels::flash_attention_backward(&dheads, q, k, v, &heads, lse, starts, &dq, &dk, &dv, self.scale(), true)?;
        for part in [&dq, &dk] {
            kernels::rope_backward(part, cosine, sine, positions, part, RopeLayout::Half)?;
        }
        let dx = ctx.empty(x.shape(), x.dtype())?;
        self.qkv.backward(&dqkv, x, &kept.projected, &dx, beta)?;
        Ok(dx)
    }

    /// As `forward` for the next tokens of one sequence, x `[length, hidden]`, which follow those in row `row`.
    pub fn prefill(&self, x: &Tensor, cache: &KVCache, layer: usize, row: usize) -> Result<Tensor> {
        let [length, _] = sizes("x", x)?;
        let before = cache.used(row)?;
        let [q, mut k, mut v] = self.qkv.forward(x, self.sizes())?.parts;
        self.rotate(&q, &k, &cache.prompt_rotation(before, length)?)?;
        let (keys, values) = cache.layer(layer)?;
        let (keys, values) = (keys.narrow(0, row, 1)?, values.narrow(0, row, 1)?);
        kernels::kv_append(&k, &v, &cache.starts.narrow(0, row, 1)?, &keys, &values)?;
        if before > 0 {
            let all = |cached: &Tensor| cached.view(&cached.shape()[1..])?.narrow(0, 0, before + length);
            (k, v) = (all(&keys)?, all(&values)?);
        }
        let heads = x.context().empty(&[length, self.heads, self.head_dim], x.dtype())?;
        kernels::flash_attention(&q, &k, &v, None, &heads, None, 1, self.scale(), true)?;
        self.output.forward(&heads.view(&[length, self.heads * self.head_dim])?)
    }

    /// One new token a sequence, x `[batch, hidden]`.
    pub fn decode(&self, x: &Tensor, cache: &KVCache, layer: usize) -> Result<Tensor> {
        let [batch, _] = sizes("x", x)?;
        let [q, k, v] = self.qkv.forward(x, self.sizes())?.parts;
        self.rotate(&q, &k, &cache.next_rotation())?;
        let (keys, values) = cache.layer(layer)?;
        kernels::kv_append(&k, &v, &cache.starts, keys, values)?;
        let heads = x.context().empty(&[batch, self.heads, self.head_dim], x.dtype())?;
        kernels::attention_decode(&q, keys, values, &cache.lengths, &heads, self.scale())?;
        self.output.forward(&heads.view(&[batch, self.heads * self.head_dim])?)
    }

    fn rotate(&self, q: &Tensor, k: &Tensor, rotation: &Rotation) -> Result<()> {
        let Rotation { cosine, sine, positions, .. } = rotation;
        Ok(kernels::rope_qk(q, k, cosine, sine, positions, RopeLayout::Half)?)
    }

    /// Factor of the products of queries and keys.
    fn scale(&self) -> f32 {
        (1.0 / (self.head_dim as f64).sqrt()) as f32
    }

    /// Query heads, key heads, and elements a head.
    fn sizes(&self) -> [usize; 3] {
        [self.heads, self.kv_heads, self.head_dim]
    }
}
