//! The products of a Llama's layers, dense or with experts: weights multiplied as their file has them.

use nn_ffi::{Activation, Context, DType, Tensor, kernels};

use super::biased_experts::BiasedRows;
use super::low_rank::{Run, adapted_rows, add_to};
use super::weight_reader::Weight;
use super::weights::{FeedForward, Gated, Layer, Mixture, SharedExpert};
use crate::error::Result;
use crate::model::{GateActivation, LlamaConfig, QkNorm};

/// Queries, keys and values: f32 `[tokens, heads, head_dim]`, and twice `[tokens, kv_heads, head_dim]`.
#[derive(Debug)]
pub(super) struct Heads {
    pub(super) q: Tensor,
    pub(super) k: Tensor,
    pub(super) v: Tensor,
}

impl Heads {
    /// What lies side by side in rows of `(heads + 2 kv_heads) * head_dim`.
    pub(super) fn split(qkv: &Tensor, [heads, kv_heads, dim]: [usize; 3]) -> Result<Self> {
        let tokens = qkv.shape()[0];
        let part = |first: usize, count: usize| qkv.narrow(1, first * dim, count * dim)?.view(&[tokens, count, dim]);
        Ok(Self { q: part(0, heads)?, k: part(heads, kv_heads)?, v: part(heads + kv_heads, kv_heads)? })
    }
}

/// Runs what of a layer lies around its attention. Results lie in buffers made for so many tokens, so that no call allocates;
/// x f32 `[tokens, hidden]` is the residual stream.
#[derive(Debug)]
pub(super) struct StoredLayers {
    norm_eps: f32,
    /// Query heads, key and value heads, elements of a head.
    heads: [usize; 3],
    residual_scale: f64,
    normed: Tensor,
    qkv: Tensor,
    inner: Option<Tensor>,
    routing: Option<Routing>,
    /// Of a model whose experts have biases.
    biased: Option<BiasedRows>,
    apart: Option<Apart>,
    shared: Option<Shared>,
    /// Gates and other factors, f32 `[rows, ffn]`, of a gate that is not SiLU's, or an adapter.
    factors: Option<[Tensor; 2]>,
    activation: GateActivation,
    /// Which rows of the calls that follow have which adapter; rows that are in none have none.
    pub(super) runs: Vec<Run>,
    /// f32 `[rows * rank]`, of adapters.
    low_rank: Option<Tensor>,
    /// f32 `[rows, hidden]`, of a model with norms behind its parts.
    added: Option<Tensor>,
}

/// What norms of queries and keys, and adapters, need: the products, f32 `[rows, heads or kv_heads * head_dim]`, and two of them normed.
#[derive(Debug)]
struct Apart {
    products: [Tensor; 3],
    normed: [Tensor; 2],
}

/// What the expert that every token goes to needs. A sigmoid is the softmax of a number beside 0: the expert's weight, and a
/// slot that is dropped.
#[derive(Debug)]
struct Shared {
    inner: Tensor,
    /// f32 `[2 * rows, hidden]`.
    out: Tensor,
    /// f32 `[rows, 2]`, both.
    logits: Tensor,
    weights: Tensor,
    /// i32 `[rows, 2]`.
    slot_row: Tensor,
}

/// What a mixture of experts needs in place of `inner`.
#[derive(Debug)]
pub(super) struct Routing {
    pub(super) k: usize,
    pub(super) norm_topk_prob: bool,
    pub(super) router: Tensor,
    pub(super) probs: Tensor,
    pub(super) weights: Tensor,
    pub(super) indices: Tensor,
    pub(super) slot_row: Tensor,
    pub(super) row_slot: Tensor,
    pub(super) counts: Tensor,
    pub(super) offsets: Tensor,
}

impl StoredLayers {
    /// `rank` is the largest of the adapters that weights may have, 0 without any.
    pub(super) fn new(ctx: &Context, config: &LlamaConfig, rows: usize, rank: usize) -> Result<Self> {
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
        let (queries, keys) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
        let apart = || {
            Ok::<_, nn_ffi::Error>(Apart {
                products: [floats(&[rows, queries])?, floats(&[rows, keys])?, floats(&[rows, keys])?],
                normed: [floats(&[rows, queries])?, floats(&[rows, keys])?],
            })
        };
        let shared = || {
            let slot_row: Vec<i32> = (0..rows as i32).flat_map(|row| [row, -1]).collect();
            Ok::<_, nn_ffi::Error>(Shared {
                inner: floats(&[rows, config.shared_ffn_size])?,
                out: floats(&[2 * rows, config.hidden_size])?,
                logits: floats(&[rows, 2])?,
                weights: floats(&[rows, 2])?,
                slot_row: ctx.tensor(&slot_row, &[rows, 2])?,
            })
        };
        let factors = || {
            let one = || floats(&[rows, config.ffn_size]);
            Ok::<_, nn_ffi::Error>([one()?, one()?])
        };
        Ok(Self {
            factors: (config.activation != GateActivation::Silu || (rank > 0 && experts == 0))
                .then(factors)
                .transpose()?,
            activation: config.activation,
            runs: Vec::new(),
            low_rank: (rank > 0).then(|| floats(&[rows * rank])).transpose()?,
            added: config.post_norms.then(|| floats(&[rows, config.hidden_size])).transpose()?,
            apart: (config.qk_norm != QkNorm::None || rank > 0).then(apart).transpose()?,
            shared: (config.shared_ffn_size > 0).then(shared).transpose()?,
            heads: [config.num_heads, config.num_kv_heads, config.head_dim],
            residual_scale: config.residual_scale,
            norm_eps: config.norm_eps as f32,
            normed: floats(&[rows, config.hidden_size])?,
            qkv: floats(&[rows, width])?,
            inner: (experts == 0).then(|| floats(&[rows, config.ffn_size])).transpose()?,
            routing: (experts > 0).then(routing).transpose()?,
            biased: config.biased_experts.then(|| BiasedRows::new(ctx, config, rows * k)).transpose()?,
        })
    }

    /// Queries, keys and values of the normed rows, the first two with norms of their own where the model has them.
    pub(super) fn qkv(&self, layer: &Layer, x: &Tensor) -> Result<Heads> {
        if let Some(apart) = &self.apart {
            let adapted =
                [&layer.q, &layer.k, &layer.v].into_iter().any(|weight| self.is_adapted(x.shape()[0], weight));
            match &layer.qk_norms {
                Some(gains) => return self.normed_heads(apart, gains, layer, x),
                None if adapted => return self.heads_apart(apart, layer, x),
                None => {}
            }
        }
        let qkv = self.qkv.narrow(0, 0, x.shape()[0])?;
        let (q, k, v, bias) = (&layer.q, &layer.k, &layer.v, layer.qkv_bias.as_ref());
        let (norm, eps) = (Some(&layer.input_norm), self.norm_eps);
        kernels::gemm_quant_qkv(x, &q.data, &k.data, &v.data, bias, norm, &qkv, eps, q.format, k.format, v.format)?;
        Heads::split(&qkv, self.heads)
    }

    /// Queries, keys and values by a call for each.
    fn heads_apart(&self, apart: &Apart, layer: &Layer, x: &Tensor) -> Result<Heads> {
        let tokens = x.shape()[0];
        let first = |buffer: &Tensor| buffer.narrow(0, 0, tokens);
        let rows = first(&self.normed)?;
        kernels::rmsnorm(x, &layer.input_norm, &rows, None, self.norm_eps)?;
        let mut column = 0;
        for (weight, y) in [&layer.q, &layer.k, &layer.v].into_iter().zip(&apart.products) {
            let (y, width) = (first(y)?, y.shape()[1]);
            let bias = layer.qkv_bias.as_ref().map(|bias| bias.narrow(0, column, width)).transpose()?;
            self.multiply(&rows, weight, bias.as_ref(), None, &y)?;
            column += width;
        }
        let [heads, kv_heads, dim] = self.heads;
        let view = |buffer: &Tensor, heads: usize| first(buffer)?.view(&[tokens, heads, dim]);
        let [q, k, v] = &apart.products;
        Ok(Heads { q: view(q, heads)?, k: view(k, kv_heads)?, v: view(v, kv_heads)? })
    }

    /// Norms of each head by itself, or of all together: of as many elements as there are gains.
    fn normed_heads(&self, apart: &Apart, gains: &[Tensor; 2], layer: &Layer, x: &Tensor) -> Result<Heads> {
        let tokens = x.shape()[0];
        let first = |buffer: &Tensor| buffer.narrow(0, 0, tokens);
        let Heads { v, .. } = self.heads_apart(apart, layer, x)?;
        for ((x, y), gain) in apart.products.iter().zip(&apart.normed).zip(gains) {
            let by_gain = |buffer: &Tensor| first(buffer)?.view(&[buffer.shape()[1] * tokens / gain.len(), gain.len()]);
            kernels::rmsnorm(&by_gain(x)?, gain, &by_gain(y)?, None, self.norm_eps)?;
        }
        let [heads, kv_heads, dim] = self.heads;
        let view = |buffer: &Tensor, heads: usize| first(buffer)?.view(&[tokens, heads, dim]);
        let [q, k] = &apart.normed;
        Ok(Heads { q: view(q, heads)?, k: view(k, kv_heads)?, v })
    }

    /// x += the projection of what attention gave, f32 `[tokens, heads * head_dim]`.
    pub(super) fn attended(&self, layer: &Layer, heads: &Tensor, x: &Tensor) -> Result<()> {
        scale(heads, self.residual_scale)?;
        self.add_normed(heads, &layer.o, layer.o_bias.as_ref(), layer.added_norms.as_ref().map(|norms| &norms[0]), x)
    }

    /// x += the feed-forward network, or the mixture of experts, of the normed rows.
    pub(super) fn feed_forward(&self, layer: &Layer, x: &Tensor) -> Result<()> {
        match (&layer.ffn, &self.routing, &self.inner) {
            (FeedForward::Mixture(ffn), Some(routing), _) => self.mixture(ffn, routing, &layer.post_norm, x),
            (FeedForward::Gated(ffn), _, Some(inner)) => self.gated(ffn, inner, layer, x),
            _ => unreachable!("a model has experts in all layers or in none"),
        }
    }

    fn gated(&self, ffn: &Gated, inner: &Tensor, layer: &Layer, x: &Tensor) -> Result<()> {
        let inner = inner.narrow(0, 0, x.shape()[0])?;
        let (gate, up) = (&ffn.gate, &ffn.up);
        let (norm, eps) = (Some(&layer.post_norm), self.norm_eps);
        let adapted = [gate, up].into_iter().any(|weight| self.is_adapted(x.shape()[0], weight));
        let fused = self.activation == GateActivation::Silu && !adapted;
        match &self.factors {
            Some(factors) if !fused => self.gated_apart(ffn, factors, &layer.post_norm, x, &inner)?,
            _ => {
                kernels::gemm_quant_swiglu(x, &gate.data, &up.data, None, norm, &inner, eps, gate.format, up.format)?;
            }
        }
        scale(&inner, self.residual_scale)?;
        self.add_normed(&inner, &ffn.down, None, layer.added_norms.as_ref().map(|norms| &norms[1]), x)
    }

    /// The inner part of a feed-forward network by a call for each product.
    fn gated_apart(&self, ffn: &Gated, factors: &[Tensor; 2], gain: &Tensor, x: &Tensor, inner: &Tensor) -> Result<()> {
        let first = |buffer: &Tensor| buffer.narrow(0, 0, x.shape()[0]);
        let (normed, gate, up) = (first(&self.normed)?, first(&factors[0])?, first(&factors[1])?);
        kernels::rmsnorm(x, gain, &normed, None, self.norm_eps)?;
        self.multiply(&normed, &ffn.gate, None, None, &gate)?;
        self.multiply(&normed, &ffn.up, None, None, &up)?;
        match self.activation {
            GateActivation::Silu => Ok(kernels::swiglu(&gate, &up, None, inner)?),
            _ => Ok(kernels::geglu(&gate, &up, inner)?),
        }
    }

    /// x += rows * W^T + bias, or a norm of that.
    fn add_normed(
        &self,
        rows: &Tensor,
        weight: &Weight,
        bias: Option<&Tensor>,
        norm: Option<&Tensor>,
        x: &Tensor,
    ) -> Result<()> {
        let (Some(norm), Some(added)) = (norm, &self.added) else {
            return self.multiply(rows, weight, bias, Some(x), x);
        };
        let added = added.narrow(0, 0, x.shape()[0])?;
        self.multiply(rows, weight, bias, None, &added)?;
        kernels::rmsnorm(&added, norm, &added, None, self.norm_eps)?;
        Ok(kernels::add(x, &added, x)?)
    }

    /// x += sum over each token's experts of weight * W2 (silu(W1 h) * (W3 h)), h the normed rows.
    fn mixture(&self, ffn: &Mixture, routing: &Routing, gain: &Tensor, x: &Tensor) -> Result<()> {
        let tokens = x.shape()[0];
        let first = |buffer: &Tensor| buffer.narrow(0, 0, tokens);
        let normed = first(&self.normed)?;
        if let (Some(biases), Some(rows)) = (&ffn.biases, &self.biased) {
            kernels::rmsnorm(x, gain, &normed, None, self.norm_eps)?;
            return rows.add(ffn, biases, routing, &normed, x);
        }
        let router = first(&routing.router)?;
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
        scale(&weights, self.residual_scale)?;
        let (w1, w3, w2) = (&ffn.experts.w1, &ffn.experts.w3, &ffn.experts.w2);
        kernels::gemm_quant_experts(
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
        )?;
        match (&ffn.shared, &self.shared) {
            (Some(shared), Some(buffers)) => self.add_shared(shared, buffers, &normed, x),
            _ => Ok(()),
        }
    }

    /// x += the expert that every token goes to, weighed by a sigmoid of the token where the model has it so.
    fn add_shared(&self, shared: &SharedExpert, buffers: &Shared, normed: &Tensor, x: &Tensor) -> Result<()> {
        let tokens = x.shape()[0];
        let first = |buffer: &Tensor| buffer.narrow(0, 0, tokens);
        let (inner, Gated { gate, up, down }) = (first(&buffers.inner)?, &shared.ffn);
        kernels::gemm_quant_swiglu(normed, &gate.data, &up.data, None, None, &inner, 0.0, gate.format, up.format)?;
        scale(&inner, self.residual_scale)?;
        let Some(sigmoid) = &shared.gate else { return self.multiply(&inner, down, None, Some(x), x) };
        let out = buffers.out.narrow(0, 0, 2 * tokens)?;
        product(&inner, down, None, None, None, &out.narrow(0, 0, tokens)?)?;
        let (logits, weights) = (first(&buffers.logits)?, first(&buffers.weights)?);
        product(normed, sigmoid, None, None, None, &logits)?;
        kernels::softmax(&logits, &weights)?;
        Ok(kernels::moe_combine(&out, &weights, &first(&buffers.slot_row)?, Some(x), x)?)
    }

    /// y = rows * W^T + bias + residual, and what the adapters of the rows add.
    fn multiply(
        &self,
        rows: &Tensor,
        weight: &Weight,
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
        y: &Tensor,
    ) -> Result<()> {
        product(rows, weight, None, bias, residual, y)?;
        let Some(room) = &self.low_rank else { return Ok(()) };
        add_to(adapted_rows(&self.runs, &weight.low_rank, 0, rows.shape()[0]), rows, room, y)
    }

    /// Whether something is added to products of so many rows with this weight. Where nothing is, a call may fuse them: the bits
    /// are the same.
    fn is_adapted(&self, rows: usize, weight: &Weight) -> bool {
        adapted_rows(&self.runs, &weight.low_rank, 0, rows).next().is_some()
    }
}

/// Multiplies all elements by a factor.
pub(super) fn scale(x: &Tensor, factor: f64) -> Result<()> {
    if factor == 1.0 { Ok(()) } else { Ok(kernels::scale(x, x, factor as f32)?) }
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
