//! Training an adapter: a model whose weights stay as they are stored, and low-rank factors beside some of them.
//!
//! The factors are the parameters, in one arena, layer after layer, of each matrix that is adapted first A, then B:
//!
//! ```text
//! model.layers.L.self_attn.{q,k,v,o}_proj.lora_A.weight     [rank, in]
//! model.layers.L.self_attn.{q,k,v,o}_proj.lora_B.weight     [out, rank]
//! model.layers.L.mlp.{gate,up,down}_proj.lora_{A,B}.weight
//! ```
//!
//! All of them decay. A begins with uniform numbers from -1/sqrt(in) to 1/sqrt(in), tensor number i of the layout from stream i of
//! the seed, and B with zeros, so that the first step meets the model as it is: what PEFT begins with.
//! (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1; He et al. 2015, eq. 7 with a slope of
//! sqrt(5); Dettmers et al. 2023, "QLoRA", sections 3 and 4)

use std::sync::Arc;

use nn_ffi::{Context, DType, Tensor, kernels};

use super::arena::ParameterArena;
use super::config::MoEConfig;
use super::frozen::FrozenBase;
use super::parameters::ParameterLayout;
use super::transformer::{Beside, MoETransformer, StoredParts};
use crate::error::{Error, Result};
use crate::layer::{
    DenseLayer, DenseNetwork, Embedding, FeedForward, GatedNetwork, HeadNorms, Linear, LowRank, MQAttention, Product,
    Projection, RMSNorm, TransformerBlock, Weight,
};

/// The projections of a layer that may have an adapter, in its order.
pub const LORA_TARGETS: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

const A: &str = ".lora_A.weight";
const B: &str = ".lora_B.weight";

/// What an adapter is made with.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRankOptions {
    /// Of the factors.
    pub rank: usize,
    /// By which their product counts alpha / rank times.
    pub alpha: f64,
    /// The projections that have one, of [`LORA_TARGETS`].
    pub targets: Vec<String>,
}

impl LowRankOptions {
    /// alpha / rank.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    fn adapts(&self, module: &str) -> bool {
        module.rsplit('.').next().is_some_and(|name| self.targets.iter().any(|target| target == name))
    }

    /// The matrices that are adapted beside a dense model of a configuration: their modules, and their sizes.
    fn matrices(&self, config: &MoEConfig) -> Result<Vec<(String, [usize; 2])>> {
        let layout = ParameterLayout::new(config)?;
        let chosen = layout.specs().iter().filter_map(|spec| {
            let module = spec.name.strip_suffix(".weight").filter(|module| self.adapts(module))?;
            Some((module.to_owned(), spec.shape.as_slice().try_into().ok()?))
        });
        Ok(chosen.collect())
    }

    /// Of each matrix that is adapted its name, and the names of A and B.
    pub(crate) fn factors(&self, config: &MoEConfig) -> Result<Vec<(String, [String; 2])>> {
        let named =
            |(module, _): (String, _)| (format!("{module}.weight"), [format!("{module}{A}"), format!("{module}{B}")]);
        Ok(self.matrices(config)?.into_iter().map(named).collect())
    }

    /// Where the factors beside a model of a configuration lie.
    pub(crate) fn layout(&self, config: &MoEConfig) -> Result<ParameterLayout> {
        let factors = self.matrices(config)?.into_iter().flat_map(|(module, [rows, columns])| {
            [(format!("{module}{A}"), [self.rank, columns]), (format!("{module}{B}"), [rows, self.rank])]
        });
        Ok(ParameterLayout::of_decayed(factors))
    }
}

impl MoETransformer {
    /// A stored model with a new adapter beside it, of which the adapter alone is trained: `parameters` has the factors. Activations
    /// are f32.
    pub fn low_rank_random(ctx: &Context, base: &FrozenBase, options: LowRankOptions, seed: i64) -> Result<Self> {
        let model = Self::low_rank_zeros(ctx, base, options)?;
        for (stream, spec) in model.layout().specs().iter().enumerate().filter(|(_, spec)| spec.name.ends_with(A)) {
            let bound = (1.0 / (spec.shape[1] as f64).sqrt()) as f32;
            let part = model.parameters().data().narrow(0, spec.offset, spec.size())?;
            kernels::uniform(&part, -bound, bound, seed, stream as i64, 0)?;
        }
        Ok(model)
    }

    /// The same with factors that are all zero, to be loaded.
    pub(crate) fn low_rank_zeros(ctx: &Context, base: &FrozenBase, options: LowRankOptions) -> Result<Self> {
        let config = base.config().clone();
        config.validate()?;
        let layout = Arc::new(options.layout(&config)?);
        let arenas =
            [ParameterArena::zeros(ctx, &layout, DType::F32)?, ParameterArena::zeros(ctx, &layout, DType::F32)?];
        let widest = config.hidden_size.max(config.num_heads * config.head_dim).max(config.ffn_size);
        let unwanted = ctx.zeros(&[widest], DType::F32)?;
        let views = StoredViews { ctx, base, config: &config, options: &options, arenas: &arenas, unwanted: &unwanted };
        let (table, format) = base.matrix(ctx, "model.embed_tokens.weight")?;
        let head = if config.tie_embeddings { (table.clone(), format) } else { base.matrix(ctx, "lm_head.weight")? };
        let parts = StoredParts {
            rope: base.rope(ctx)?,
            embedding: Embedding::stored(table, format, config.hidden_size),
            blocks: (0..config.num_layers).map(|layer| views.block(layer)).collect::<Result<_>>()?,
            norm: views.norm("model.norm.weight")?,
            head: Linear::stored(head.0, head.1, None, None),
            beside: Beside { options: options.clone(), unwanted: unwanted.clone() },
        };
        Ok(Self::of_stored(ctx, config.clone(), layout, arenas, parts))
    }
}

/// Layers over stored weights and factors.
struct StoredViews<'a> {
    ctx: &'a Context,
    base: &'a FrozenBase,
    config: &'a MoEConfig,
    options: &'a LowRankOptions,
    arenas: &'a [ParameterArena; 2],
    unwanted: &'a Tensor,
}

impl StoredViews<'_> {
    fn norm(&self, name: &str) -> Result<RMSNorm> {
        let missing = || Error::value(format!("the model has no tensor {name}"));
        let gain = self.base.vector(self.ctx, name)?.ok_or_else(missing)?;
        let unwanted = self.unwanted.narrow(0, 0, gain.len())?;
        Ok(RMSNorm::new(Weight::new(gain, Some(unwanted)), self.config.norm_eps))
    }

    fn factor(&self, name: &str) -> Result<Weight> {
        let [parameters, gradients] = self.arenas;
        Ok(Weight::new(parameters.get(name)?, Some(gradients.get(name)?)))
    }

    /// A projection, with its bias and its adapter where it has them.
    fn linear(&self, module: &str) -> Result<Linear> {
        let low_rank = || -> Result<_> {
            let (a, b) = (self.factor(&format!("{module}{A}"))?, self.factor(&format!("{module}{B}"))?);
            Ok(LowRank { a, b, scale: self.options.scale() as f32 })
        };
        let low_rank = self.options.adapts(module).then(low_rank).transpose()?;
        let name = format!("{module}.weight");
        if self.config.ternary {
            let [weight, scale] = self.base.ternary(self.ctx, &name)?;
            return Ok(Linear::ternary(weight, scale, low_rank));
        }
        let (weight, format) = self.base.matrix(self.ctx, &name)?;
        Ok(Linear::stored(weight, format, self.base.vector(self.ctx, &format!("{module}.bias"))?, low_rank))
    }

    /// A projection back to the stream, behind a norm where weights are ternary.
    fn back(&self, product: Linear, norm: &str) -> Result<Product> {
        if self.config.ternary { Ok(Product::Normed(self.norm(norm)?, product)) } else { Ok(Product::Plain(product)) }
    }

    fn block(&self, layer: usize) -> Result<TransformerBlock> {
        let (config, prefix) = (self.config, format!("model.layers.{layer}"));
        let attention = |name: &str| self.linear(&format!("{prefix}.self_attn.{name}_proj"));
        let dense = |name: &str| self.linear(&format!("{prefix}.mlp.{name}_proj"));
        let of_heads = |name: &str| self.norm(&format!("{prefix}.self_attn.{name}_norm.weight"));
        let norms = || -> Result<_> { Ok([of_heads("q")?, of_heads("k")?]) };
        let heads = HeadNorms {
            products: [attention("q")?, attention("k")?, attention("v")?],
            norms: config.qk_norm.then(norms).transpose()?,
        };
        Ok(TransformerBlock {
            input_norm: self.norm(&format!("{prefix}.input_layernorm.weight"))?,
            attention: MQAttention {
                qkv: Projection::Normed(Box::new(heads)),
                output: self.back(attention("o")?, &format!("{prefix}.self_attn.attn_sub_norm.weight"))?,
                heads: config.num_heads,
                kv_heads: config.num_kv_heads,
                head_dim: config.head_dim,
            },
            post_norm: self.norm(&format!("{prefix}.post_attention_layernorm.weight"))?,
            feed_forward: FeedForward::Dense(DenseLayer {
                network: DenseNetwork::Gated(GatedNetwork {
                    gate: dense("gate")?,
                    up: dense("up")?,
                    down: self.back(dense("down")?, &format!("{prefix}.mlp.ffn_sub_norm.weight"))?,
                    squared_relu: config.squared_relu,
                }),
                recompute: false,
            }),
            name: prefix,
            recompute: false,
        })
    }
}
