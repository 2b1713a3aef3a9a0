//! The weights of a stored model by the layers that they are of.

use std::sync::Arc;

use nn_ffi::{Context, Tensor};

use super::low_rank::Adapters;
use super::ternary_weights::{TernaryLayer, ternary_layers};
use super::weight_reader::{Experts, Place, Weight, WeightReader};
use crate::error::{Error, Result};
use crate::model::{Adapter, LlamaConfig, QkNorm, StoredModel};

/// A feed-forward network: down (act(gate x) * (up x)).
#[derive(Debug)]
pub(super) struct Gated {
    pub(super) gate: Weight,
    pub(super) up: Weight,
    pub(super) down: Weight,
}

/// The expert that every token goes to; the gate has a second row of zeros, and is `None` where nothing weighs it.
#[derive(Debug)]
pub(super) struct SharedExpert {
    pub(super) ffn: Gated,
    pub(super) gate: Option<Weight>,
}

/// What the products of a mixture have added, f32: of the router `[experts]`, of gate and up `[experts, ffn]` each, and of down
/// `[experts, hidden]`.
#[derive(Debug)]
pub(super) struct ExpertBiases {
    pub(super) router: Tensor,
    pub(super) w1: Tensor,
    pub(super) w3: Tensor,
    pub(super) w2: Tensor,
}

/// A mixture of experts; one with biases has clipped gates.
#[derive(Debug)]
pub(super) struct Mixture {
    pub(super) router: Weight,
    pub(super) experts: Experts,
    pub(super) shared: Option<SharedExpert>,
    pub(super) biases: Option<ExpertBiases>,
}

impl Gated {
    fn bytes(&self) -> usize {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}

impl SharedExpert {
    fn bytes(&self) -> usize {
        self.ffn.bytes() + self.gate.as_ref().map_or(0, Weight::bytes)
    }
}

/// What follows attention in a block.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a layer has one, in its place")]
pub(super) enum FeedForward {
    Gated(Gated),
    Mixture(Mixture),
}

/// A block's weights; the norms and the biases are f32.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) input_norm: Tensor,
    pub(super) q: Weight,
    pub(super) k: Weight,
    pub(super) v: Weight,
    pub(super) qkv_bias: Option<Tensor>,
    /// Gains of the norms of queries and keys.
    pub(super) qk_norms: Option<[Tensor; 2]>,
    /// Of each head a score without a key.
    pub(super) sinks: Option<Tensor>,
    pub(super) o: Weight,
    pub(super) o_bias: Option<Tensor>,
    /// Gains of the norms behind attention and behind the feed-forward network.
    pub(super) added_norms: Option<[Tensor; 2]>,
    pub(super) post_norm: Tensor,
    pub(super) ffn: FeedForward,
}

impl Layer {
    /// Bytes of the matrices that every token meets, and of the experts'.
    fn bytes(&self) -> (usize, usize) {
        let (inner, experts) = match &self.ffn {
            FeedForward::Gated(ffn) => (ffn.bytes(), 0),
            FeedForward::Mixture(ffn) => {
                (ffn.router.bytes() + ffn.shared.as_ref().map_or(0, SharedExpert::bytes), ffn.experts.bytes())
            }
        };
        (inner + [&self.q, &self.k, &self.v, &self.o].into_iter().map(Weight::bytes).sum::<usize>(), experts)
    }
}

/// The blocks of a model.
#[derive(Debug)]
pub(super) enum Layers {
    Stored(Vec<Layer>),
    Ternary(Vec<TernaryLayer>),
}

/// All weights of a model. Ternary weights are always packed into the context's memory, so of such a model the place is about
/// the embedding and the head alone.
#[derive(Debug)]
pub struct Weights {
    in_memory: bool,
    pub(super) adapters: Adapters,
    pub(super) embedding: Weight,
    pub(super) layers: Layers,
    pub(super) norm: Tensor,
    pub(super) head: Weight,
    tied: bool,
    /// Experts that a token meets, and that there are.
    experts: (usize, usize),
    common_bytes: usize,
    expert_bytes: usize,
}

impl Weights {
    /// Those of a model, brought to a context, with what adapters add to them, which are those of the engine's options.
    pub(super) fn new(
        ctx: &Context,
        model: &StoredModel,
        place: Place,
        adapter: Option<&Adapter>,
        adapters: &[(String, Arc<Adapter>)],
    ) -> Result<Self> {
        let (read, config) = (WeightReader::new(ctx, model, place)?, model.config());
        let adapters = Adapters::new(ctx, config, read.order.as_deref(), adapter, adapters)?;
        let (tied, table) = (config.tie_embeddings, "model.embed_tokens.weight");
        let embedding = read.table(table, tied)?;
        let layers = if config.ternary {
            let layers = Layers::Ternary(ternary_layers(ctx, model, &adapters)?);
            ctx.trim()?; // what was needed to pack them
            layers
        } else {
            let layers = (0..config.num_layers).map(|number| layer(&read, config, number, &adapters));
            Layers::Stored(layers.collect::<Result<_>>()?)
        };
        let norm = read.vector(&["model.norm.weight".to_owned()])?;
        let head = if tied { read.tied_head(table, &embedding)? } else { read.matrix("lm_head.weight")? };
        let (common, experts) = match &layers {
            Layers::Stored(layers) => {
                layers.iter().map(Layer::bytes).fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
            }
            Layers::Ternary(layers) => (layers.iter().map(TernaryLayer::bytes).sum(), 0),
        };
        Ok(Self {
            in_memory: read.in_memory,
            adapters,
            tied,
            experts: (config.experts_per_token, config.num_experts),
            common_bytes: common + head.bytes(),
            expert_bytes: experts,
            embedding,
            layers,
            norm,
            head,
        })
    }

    /// Whether they were copied into the context's memory.
    pub fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// Bytes of all matrices, of a tied embedding once, and of all adapters.
    pub fn bytes(&self) -> usize {
        let embedding = if self.tied { 0 } else { self.embedding.bytes() };
        self.common_bytes + self.expert_bytes + embedding + self.adapters.bytes()
    }

    /// Bytes that tokens with these adapters need at least in one call: a row of the embedding each, and every matrix, of the
    /// experts' as many as the tokens meet if none meets another's; and the adapters.
    pub(super) fn bytes_per_step(&self, adapters: &[usize]) -> usize {
        let tokens = adapters.len();
        let (met, all) = self.experts;
        let experts = match all {
            0 => 0,
            all => (self.expert_bytes as u128 * (tokens * met).min(all) as u128 / all as u128) as usize,
        };
        let added = self.adapters.bytes_of(adapters.iter().copied());
        self.common_bytes + experts + tokens * self.embedding.data.shape()[1] + added
    }
}

fn layer(read: &WeightReader<'_>, config: &LlamaConfig, number: usize, adapters: &Adapters) -> Result<Layer> {
    let block = format!("model.layers.{number}");
    let matrix = |name: &str| {
        let name = format!("{block}.{name}.weight");
        Ok::<_, Error>(Weight { low_rank: adapters.of(&name), ..read.matrix(&name)? })
    };
    let vector = |names: &[&str]| read.vector(&names.iter().map(|name| format!("{block}.{name}")).collect::<Vec<_>>());
    let given = |there: bool, names: &[&str]| there.then(|| vector(names)).transpose();
    let biases = ["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"];
    let qkv_bias = given(config.qkv_bias, &biases)?;
    let o_bias = given(config.o_bias, &["self_attn.o_proj.bias"])?;
    let gains = || Ok::<_, Error>([vector(&["self_attn.q_norm.weight"])?, vector(&["self_attn.k_norm.weight"])?]);
    let qk_norms = (config.qk_norm != QkNorm::None).then(gains).transpose()?;
    let behind = || Ok::<_, Error>([vector(&["self_attn.post_norm.weight"])?, vector(&["mlp.post_norm.weight"])?]);
    let added_norms = config.post_norms.then(behind).transpose()?;
    let gated = |prefix: &str| {
        let projection = |name: &str| matrix(&format!("{prefix}.{name}_proj"));
        Ok::<_, Error>(Gated { gate: projection("gate")?, up: projection("up")?, down: projection("down")? })
    };
    let ffn = if config.num_experts > 0 {
        let gate = || read.beside_zeros(&format!("{block}.block_sparse_moe.shared_gate.weight"));
        let shared = || {
            let ffn = gated("block_sparse_moe.shared")?;
            Ok::<_, Error>(SharedExpert { ffn, gate: config.shared_gate.then(gate).transpose()? })
        };
        let shared = (config.shared_ffn_size > 0).then(shared).transpose()?;
        let (router, experts) = (matrix("block_sparse_moe.gate")?, read.experts(number)?);
        let bias = |name: &str| vector(&[&format!("block_sparse_moe.{name}.bias")]);
        let each = |name: &str, width: usize| Ok::<_, Error>(bias(name)?.view(&[config.num_experts, width])?);
        let (hidden, ffn) = (config.hidden_size, config.ffn_size);
        let biases = || {
            let (w1, w3, w2) = (each("w1", ffn)?, each("w3", ffn)?, each("w2", hidden)?);
            Ok::<_, Error>(ExpertBiases { router: bias("gate")?, w1, w3, w2 })
        };
        let biases = config.biased_experts.then(biases).transpose()?;
        FeedForward::Mixture(Mixture { router, experts, shared, biases })
    } else {
        FeedForward::Gated(gated("mlp")?)
    };
    Ok(Layer {
        input_norm: vector(&["input_layernorm.weight"])?,
        q: matrix("self_attn.q_proj")?,
        k: matrix("self_attn.k_proj")?,
        v: matrix("self_attn.v_proj")?,
        qkv_bias,
        qk_norms,
        sinks: given(config.sinks, &["self_attn.sinks.weight"])?,
        o: matrix("self_attn.o_proj")?,
        o_bias,
        added_norms,
        post_norm: vector(&["post_attention_layernorm.weight"])?,
        ffn,
    })
}
