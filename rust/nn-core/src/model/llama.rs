//! What a Llama is made of.
//!
//! A Llama here is a pre-norm decoder with RMSNorm, rotary attention of grouped heads and a SwiGLU, or a mixture of SwiGLU
//! experts behind a router (Mixtral, and this library's own models), or with ternary weights, further norms and a squared
//! ReLU as the gate (BitNet b1.58). Tensors are named as in Hugging Face transformers:
//!
//! ```text
//! model.embed_tokens.weight                                  [vocab, hidden]
//! for each layer L, with the prefix model.layers.L:
//!   input_layernorm.weight, post_attention_layernorm.weight  [hidden]
//!   self_attn.{q,k,v}_proj.weight                            [heads * head_dim, hidden]
//!   self_attn.o_proj.weight                                  [hidden, heads * head_dim]
//!   self_attn.{q,k,v,o}_proj.bias                            with attention_bias
//!   mlp.{gate,up}_proj.weight, mlp.down_proj.weight          [ffn, hidden], [hidden, ffn]
//! or, with experts, all of them in one tensor a matrix:
//!   block_sparse_moe.gate.weight                             [experts, hidden]
//!   block_sparse_moe.{w1,w3}.weight                          [experts, ffn, hidden]: gate and up
//!   block_sparse_moe.w2.weight                               [experts, hidden, ffn]: down
//! with sub_norms, before the projections of the attention and of the feed-forward network:
//!   self_attn.attn_sub_norm.weight, mlp.ffn_sub_norm.weight  [heads * head_dim], [ffn]
//! model.norm.weight, lm_head.weight                          [hidden], [vocab, hidden]
//! ```
//!
//! (Touvron et al. 2023, "Llama 2"; Jiang et al. 2024, "Mixtral of Experts"; Ma et al. 2025, "BitNet b1.58 2B4T Technical
//! Report")

use nn_ffi::RopeLayout;

use super::config::BOUNDS;
use crate::error::{Error, Result};
use crate::format::limits::COUNT;
use crate::format::{Table, Value};
use crate::options::{refuse, require, whole_rule};

/// Most elements of a head.
pub(super) const MOST_HEAD_DIM: usize = 256;
/// Most layers of a model.
const MOST_LAYERS: usize = 10_000;

/// How the positions, or the frequencies, of a rotary embedding are scaled.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scaling {
    /// Not at all.
    #[default]
    None,
    /// Positions are divided by a factor. (Chen et al. 2023, "Extending Context Window")
    Linear {
        /// The factor.
        factor: f64,
    },
    /// The base grows with alpha, beyond `context` alone. (bloc97 2023)
    Ntk {
        /// The factor of the base.
        alpha: f64,
    },
    /// Each frequency is divided by its number, one for every pair of a head. (Dubey et al. 2024, "The Llama 3 Herd of
    /// Models")
    Llama3 {
        /// How much the longest waves are stretched, as files tell it; the divisors have it in them.
        factor: f64,
        /// The numbers.
        divisors: Vec<f32>,
    },
}

impl Scaling {
    /// Its name: "none", "linear", "ntk" or "llama3".
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Linear { .. } => "linear",
            Self::Ntk { .. } => "ntk",
            Self::Llama3 { .. } => "llama3",
        }
    }
}

/// Rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Of the angles.
    pub base: f64,
    /// Which elements of a head make a pair, as the rows of the stored query and key weights ask for.
    pub layout: RopeLayout,
    /// How it is scaled.
    pub scaling: Scaling,
}

/// The options of `kernels::rope_freqs_scaled` beside its factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeOptions {
    /// Of the angles.
    pub base: f64,
    /// NTK-aware factor of that base.
    pub ntk_alpha: f64,
    /// Positions are multiplied with it.
    pub scale: f64,
}

/// The gate's activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateActivation {
    /// x * sigmoid(x).
    #[default]
    Silu,
    /// max(x, 0)^2.
    Relu2,
}

/// Sizes and options of a Llama.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Size of the vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Blocks.
    pub num_layers: usize,
    /// Query heads of attention.
    pub num_heads: usize,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Elements of a head; a multiple of 8, at most 256.
    pub head_dim: usize,
    /// Inner width of the SwiGLU, or of one expert.
    pub ffn_size: usize,
    /// Longest sequence without stretching beyond what the model was made for.
    pub context: usize,
    /// Longest sequence at all; above `context` with the scaling "ntk" alone.
    pub extended_context: usize,
    /// Added to the mean square in RMSNorm.
    pub norm_eps: f64,
    /// Rotary embedding.
    pub rope: Rope,
    /// Experts of a layer; 0 without experts.
    pub num_experts: usize,
    /// Experts that each token goes to; 0 without experts.
    pub experts_per_token: usize,
    /// Whether a token's expert weights are divided by their sum.
    pub norm_topk_prob: bool,
    /// Whether the LM head is the table of embeddings.
    pub tie_embeddings: bool,
    /// Whether the four products of attention have biases.
    pub attention_bias: bool,
    /// Of the gate.
    pub activation: GateActivation,
    /// Whether there are norms before the projections of attention and feed-forward network.
    pub sub_norms: bool,
    /// Whether the weights of all layers' products are -1, 0 and 1 times a number, and activations are rounded to 8 bits
    /// before them.
    pub ternary: bool,
}

impl LlamaConfig {
    /// `Error::Value` names an option that has a value it may not have.
    pub(super) fn validate(self) -> Result<Self> {
        for (name, count, least) in [
            ("vocab_size", self.vocab_size, 1),
            ("hidden_size", self.hidden_size, 1),
            ("num_layers", self.num_layers, 1),
            ("num_heads", self.num_heads, 1),
            ("num_kv_heads", self.num_kv_heads, 1),
            ("head_dim", self.head_dim, 1),
            ("ffn_size", self.ffn_size, 1),
            ("context", self.context, 1),
            ("extended_context", self.extended_context, 1),
            ("num_experts", self.num_experts, 0),
            ("experts_per_token", self.experts_per_token, 0),
        ] {
            require((least..=COUNT).contains(&count), name, &count, whole_rule(least))?;
        }
        bounded("norm_eps", self.norm_eps, "norm_eps")?;
        bounded("rope.base", self.rope.base, "rope_base")?;
        match &self.rope.scaling {
            Scaling::None => {}
            Scaling::Linear { factor } => stretch("rope.factor", *factor)?,
            Scaling::Ntk { alpha } => bounded("rope.factor", *alpha, "ntk_alpha")?,
            Scaling::Llama3 { factor, divisors } => {
                stretch("rope.factor", *factor)?;
                for divisor in divisors {
                    stretch("a divisor of rope", f64::from(*divisor))?;
                }
            }
        }
        let (heads, dim) = (self.num_heads, self.head_dim);
        require(self.num_layers <= MOST_LAYERS, "num_layers", &self.num_layers, "at most 10000")?;
        let divisor = format!("a divisor of num_heads ({heads})");
        require(heads.is_multiple_of(self.num_kv_heads), "num_kv_heads", &self.num_kv_heads, &divisor)?;
        let right = dim.is_multiple_of(8) && dim <= MOST_HEAD_DIM;
        require(right, "head_dim", &dim, "a multiple of 8, at most 256")?;
        let (least, most) = (self.num_experts.min(1), self.num_experts.min(64));
        let chosen = self.experts_per_token;
        require((least..=most).contains(&chosen), "experts_per_token", &chosen, &format!("{least} to {most}"))?;
        let (longest, context) = (self.extended_context, self.context);
        let (right, allowed) = match self.rope.scaling {
            Scaling::Ntk { .. } => (longest >= context, format!("at least context ({context})")),
            _ => (longest == context, format!("context ({context}) without the scaling ntk")),
        };
        require(right, "extended_context", &longest, &allowed)?;
        if self.sub_norms || self.ternary || self.activation != GateActivation::Silu {
            let none = self.num_experts == 0;
            require(none, "num_experts", &self.num_experts, "0 in a model of the kind of BitNet")?;
        }
        require(!(self.ternary && self.attention_bias), "attention_bias", &true, "false with ternary weights")?;
        if let Scaling::Llama3 { divisors, .. } = &self.rope.scaling {
            let right = divisors.len() == dim / 2;
            let half = format!("head_dim / 2 ({})", dim / 2);
            require(right, "the number of divisors of rope", &divisors.len(), &half)?;
        }
        Ok(self)
    }

    /// All options by name.
    pub fn to_table(&self) -> Table {
        let none = (1.0, &[][..]);
        let (factor, divisors) = match &self.rope.scaling {
            Scaling::None => none,
            Scaling::Linear { factor } | Scaling::Ntk { alpha: factor } => (*factor, none.1),
            Scaling::Llama3 { factor, divisors } => (*factor, &divisors[..]),
        };
        let layout = match self.rope.layout {
            RopeLayout::Half => "half",
            RopeLayout::Interleaved => "interleaved",
        };
        let activation = match self.activation {
            GateActivation::Silu => "silu",
            GateActivation::Relu2 => "relu2",
        };
        let rope = Table::from([
            ("base", self.rope.base.into()),
            ("layout", layout.into()),
            ("scaling", self.rope.scaling.name().into()),
            ("factor", factor.into()),
            ("divisors", Value::List(divisors.iter().map(|divisor: &f32| f64::from(*divisor).into()).collect())),
        ]);
        Table::from([
            ("vocab_size", self.vocab_size.into()),
            ("hidden_size", self.hidden_size.into()),
            ("num_layers", self.num_layers.into()),
            ("num_heads", self.num_heads.into()),
            ("num_kv_heads", self.num_kv_heads.into()),
            ("head_dim", self.head_dim.into()),
            ("ffn_size", self.ffn_size.into()),
            ("context", self.context.into()),
            ("extended_context", self.extended_context.into()),
            ("norm_eps", self.norm_eps.into()),
            ("rope", rope.into()),
            ("num_experts", self.num_experts.into()),
            ("experts_per_token", self.experts_per_token.into()),
            ("norm_topk_prob", self.norm_topk_prob.into()),
            ("tie_embeddings", self.tie_embeddings.into()),
            ("attention_bias", self.attention_bias.into()),
            ("activation", activation.into()),
            ("sub_norms", self.sub_norms.into()),
            ("ternary", self.ternary.into()),
        ])
    }

    /// How the rotary embedding is made for sequences of up to that many positions.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] beyond `extended_context`.
    pub fn rope_options(&self, positions: usize) -> Result<RopeOptions> {
        let most = self.extended_context;
        if positions > most {
            return Err(Error::value(format!("{positions} positions; this model has at most {most}")));
        }
        let plain = RopeOptions { base: self.rope.base, ntk_alpha: 1.0, scale: 1.0 };
        Ok(match self.rope.scaling {
            Scaling::Ntk { alpha } if positions > self.context => RopeOptions { ntk_alpha: alpha, ..plain },
            Scaling::Linear { factor } => RopeOptions { scale: 1.0 / factor, ..plain },
            _ => plain,
        })
    }

    /// Name and shape of every tensor, in the order of the layers; `lm_head.weight` in tied models too.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn, experts) = (self.hidden_size, self.ffn_size, self.num_experts);
        let (queries, keys) = (self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim);
        let mut shapes = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab_size, hidden])];
        for layer in 0..self.num_layers {
            let mut add = |name: &str, shape: &[usize]| {
                shapes.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            };
            add("input_layernorm.weight", &[hidden]);
            for (part, rows, columns) in
                [("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, queries)]
            {
                add(&format!("self_attn.{part}_proj.weight"), &[rows, columns]);
                if self.attention_bias {
                    add(&format!("self_attn.{part}_proj.bias"), &[rows]);
                }
            }
            if self.sub_norms {
                add("self_attn.attn_sub_norm.weight", &[queries]);
            }
            add("post_attention_layernorm.weight", &[hidden]);
            if experts > 0 {
                add("block_sparse_moe.gate.weight", &[experts, hidden]);
                add("block_sparse_moe.w1.weight", &[experts, ffn, hidden]);
                add("block_sparse_moe.w3.weight", &[experts, ffn, hidden]);
                add("block_sparse_moe.w2.weight", &[experts, hidden, ffn]);
            } else {
                add("mlp.gate_proj.weight", &[ffn, hidden]);
                add("mlp.up_proj.weight", &[ffn, hidden]);
                add("mlp.down_proj.weight", &[hidden, ffn]);
            }
            if self.sub_norms {
                add("mlp.ffn_sub_norm.weight", &[ffn]);
            }
        }
        shapes.push(("model.norm.weight".to_owned(), vec![hidden]));
        shapes.push(("lm_head.weight".to_owned(), vec![self.vocab_size, hidden]));
        shapes
    }
}

/// Whether a tensor must be in f32, f16 or bf16: norms, biases, routers. They are multiplied element by element in f32 and so
/// cannot be in blocks.
pub(super) fn is_plain(name: &str) -> bool {
    ["layernorm.weight", "sub_norm.weight", ".bias", "model.norm.weight", "block_sparse_moe.gate.weight"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Whether a tensor is one of the matrices that are ternary in a model with ternary weights.
pub(super) fn is_projection(name: &str) -> bool {
    name.ends_with("_proj.weight")
}

/// Refuses a number outside the bounds that the option `bound` has.
fn bounded(name: &str, value: f64, bound: &str) -> Result<()> {
    let Some((_, least, most, rule)) = BOUNDS.iter().find(|bounds| bounds.0 == bound) else { return Ok(()) };
    if (*least..=*most).contains(&value) { Ok(()) } else { Err(refuse(name, &Value::Float(value), rule)) }
}

/// Refuses what positions, or a frequency, cannot be divided by.
fn stretch(name: &str, value: f64) -> Result<()> {
    let rule = "a number, from 1e-06 to 1e+06";
    if (1e-6..=1e6).contains(&value) { Ok(()) } else { Err(refuse(name, &Value::Float(value), rule)) }
}

/// What the frequencies of Llama 3.1 are divided by, a number a pair, rounded to f32.
///
/// Waves shorter than original/high stay, those longer than original/low are stretched by `factor`, between them the
/// frequency goes over linearly in original/wavelength. (Dubey et al. 2024, and its reference code;
/// <https://github.com/meta-llama/llama-models>)
pub(super) fn llama3_divisors(
    base: f64,
    head_dim: usize,
    factor: f64,
    [low, high]: [f64; 2],
    original_context: f64,
) -> Vec<f32> {
    let divisor = |pair: usize| {
        let turns = original_context * base.powf(-2.0 * pair as f64 / head_dim as f64) / (2.0 * std::f64::consts::PI);
        let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - share) / factor + share)) as f32
    };
    (0..head_dim / 2).map(divisor).collect()
}
