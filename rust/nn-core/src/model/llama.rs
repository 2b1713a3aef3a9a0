//! What a Llama is made of.
//!
//! A Llama here is a pre-norm decoder with RMSNorm, rotary attention of grouped heads and a SwiGLU, or a mixture of SwiGLU
//! experts behind a router (Mixtral, and this library's own models), or with ternary weights, further norms and a squared
//! ReLU as the gate (BitNet b1.58), or with bounded scores, windows and norms behind its parts (Gemma 2 and 3), or with sinks and
//! biased experts (gpt-oss). `families` says which models are such, with which of the parts. Tensors are named as in Hugging Face
//! transformers' Llama and Mixtral, in every family:
//!
//! ```text
//! model.embed_tokens.weight                                  [vocab, hidden]
//! for each layer L, with the prefix model.layers.L:
//!   input_layernorm.weight, post_attention_layernorm.weight  [hidden]
//!   self_attn.{q,k,v}_proj.weight                            [heads * head_dim, hidden]
//!   self_attn.o_proj.weight                                  [hidden, heads * head_dim]
//!   self_attn.{q,k,v}_proj.bias, self_attn.o_proj.bias       with qkv_bias, with o_bias
//!   self_attn.{q,k}_norm.weight                              with qk_norm: [head_dim], or [heads * head_dim]
//!   self_attn.sinks.weight                                   with sinks: [heads]
//!   mlp.{gate,up}_proj.weight, mlp.down_proj.weight          [ffn, hidden], [hidden, ffn]
//! or, with experts, all of them in one tensor a matrix:
//!   block_sparse_moe.gate.weight                             [experts, hidden]
//!   block_sparse_moe.{w1,w3}.weight                          [experts, ffn, hidden]: gate and up
//!   block_sparse_moe.w2.weight                               [experts, hidden, ffn]: down
//!   block_sparse_moe.gate.bias, .{w1,w3}.bias, .w2.bias      with biased_experts: [experts], [experts, ffn] twice and
//!                                                            [experts, hidden]
//! with shared_ffn_size, the expert that every token goes to, and with shared_gate what weighs it:
//!   block_sparse_moe.shared.{gate,up,down}_proj.weight       as those of mlp
//!   block_sparse_moe.shared_gate.weight                      [hidden]
//! with sub_norms, before the projections of the attention and of the feed-forward network:
//!   self_attn.attn_sub_norm.weight, mlp.ffn_sub_norm.weight  [heads * head_dim], [ffn]
//! with post_norms, of what attention and the feed-forward network add to the residual stream:
//!   self_attn.post_norm.weight, mlp.post_norm.weight         [hidden]
//! model.norm.weight, lm_head.weight                          [hidden], [vocab, hidden]
//! ```
//!
//! (Touvron et al. 2023, "Llama 2"; Jiang et al. 2024, "Mixtral of Experts"; Ma et al. 2025, "BitNet b1.58 2B4T Technical
//! Report"; Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b Model Card")

use nn_ffi::RopeLayout;

use super::config::BOUNDS;
use super::families::Family;
use super::rope_scaling::{UNROTATED, base_of_part};
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
    /// Positions are stretched beyond `context` alone, where a model with it does not go here.
    Dynamic {
        /// How much, as files tell it.
        factor: f64,
    },
    /// Each frequency is divided by a number. (Dubey et al. 2024, "The Llama 3 Herd of Models")
    Llama3(Divided),
    /// Each frequency is divided by a number. (Peng et al. 2023, "YaRN")
    Yarn(Divided),
    /// Each frequency is divided by a number, another one for long sequences. (Ding et al. 2024, "LongRoPE")
    LongRope(Divided),
}

/// What the frequencies of a rotary embedding are divided by.
#[derive(Clone, Debug, PartialEq)]
pub struct Divided {
    /// How much the longest waves are stretched, as files tell it; the divisors have it in them.
    pub factor: f64,
    /// A number for every pair of the rotated elements.
    pub divisors: Vec<f32>,
    /// Of LongRoPE: what takes their place for sequences longer than `original_context`.
    pub long_divisors: Vec<f32>,
    /// The context before the stretching; 0 where nothing asks for it.
    pub original_context: usize,
    /// What cosines and sines are multiplied with.
    pub magnitude: f64,
}

impl Divided {
    pub(super) fn by(factor: f64, divisors: Vec<f32>) -> Self {
        Self { factor, divisors, long_divisors: Vec::new(), original_context: 0, magnitude: 1.0 }
    }
}

impl Scaling {
    /// Its name: "none", "linear", "dynamic", "ntk", "llama3", "yarn" or "longrope".
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Linear { .. } => "linear",
            Self::Dynamic { .. } => "dynamic",
            Self::Ntk { .. } => "ntk",
            Self::Llama3(_) => "llama3",
            Self::Yarn(_) => "yarn",
            Self::LongRope(_) => "longrope",
        }
    }

    /// What the frequencies are divided by, where they are.
    fn divided(&self) -> Option<&Divided> {
        match self {
            Self::Llama3(divided) | Self::Yarn(divided) | Self::LongRope(divided) => Some(divided),
            _ => None,
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
    /// Elements at the head's beginning that are rotated, 0 for all. Where they make half-split pairs, rows of queries and keys
    /// are read in an order in which they are the pairs of a whole head.
    pub rotated: usize,
    /// How it is scaled.
    pub scaling: Scaling,
}

impl Rope {
    /// What cosines and sines are multiplied with.
    pub fn magnitude(&self) -> f64 {
        self.scaling.divided().map_or(1.0, |divided| divided.magnitude)
    }
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
    /// GELU by its approximation.
    Gelu,
}

impl GateActivation {
    /// "silu", "relu2" or "gelu_pytorch_tanh".
    pub fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::Relu2 => "relu2",
            Self::Gelu => "gelu_pytorch_tanh",
        }
    }
}

/// Norms of queries and keys before they are rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    #[default]
    None,
    /// Each head by itself.
    Head,
    /// All heads together.
    Whole,
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
    /// Whether the products for queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether the product behind attention has.
    pub o_bias: bool,
    /// Norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Of the gate.
    pub activation: GateActivation,
    /// Whether there are norms before the projections of attention and feed-forward network.
    pub sub_norms: bool,
    /// Whether the weights of all layers' products are -1, 0 and 1 times a number, and activations are rounded to 8 bits
    /// before them.
    pub ternary: bool,
    /// Inner width of the expert that every token goes to; 0 without one.
    pub shared_ffn_size: usize,
    /// Whether that one is weighed by a sigmoid of the token.
    pub shared_gate: bool,
    /// Factor of the embeddings.
    pub embedding_scale: f64,
    /// Factor of what is added to the residual stream.
    pub residual_scale: f64,
    /// Factor of the products of queries and keys; 0 for 1 / sqrt(head_dim).
    pub attention_scale: f64,
    /// What logits are divided by.
    pub logits_scaling: f64,
    /// Soft bound c * tanh(x / c) of attention's scores; 0 for none.
    pub scores_cap: f64,
    /// Soft bound of the logits; 0 for none.
    pub logits_cap: f64,
    /// Most tokens that a token sees in layers with a window, itself the last of them; 0 for all.
    pub window: usize,
    /// n where each n-th layer has no window, 0 where all have.
    pub window_period: usize,
    /// Base of the rotary embedding in layers with a window, where it is not scaled; 0 for that of all.
    pub local_rope_base: f64,
    /// Whether there are norms of what attention and the feed-forward network add to the residual stream.
    pub post_norms: bool,
    /// Whether the stored gains of norms are less by 1 than what is multiplied with.
    pub norms_less_one: bool,
    /// Whether each head has a score without a key, of which its softmax has the sum alone.
    pub sinks: bool,
    /// Whether the router and the experts have biases, and the gates of these are clipped: of min(g, 7) sigmoid(1.702 g) (u + 1)
    /// with u held between -7 and 7.
    pub biased_experts: bool,
    /// Which of the families it is, as `model_type` names it.
    pub family: &'static str,
}

impl LlamaConfig {
    /// The parts that a family has, without sizes.
    pub(super) fn of(family: &Family) -> Self {
        Self {
            vocab_size: 0,
            hidden_size: 0,
            num_layers: 0,
            num_heads: 0,
            num_kv_heads: 0,
            head_dim: 0,
            ffn_size: 0,
            context: 0,
            extended_context: 0,
            norm_eps: family.norm_eps,
            rope: Rope { base: family.rope_base, layout: RopeLayout::Half, rotated: 0, scaling: Scaling::None },
            num_experts: 0,
            experts_per_token: 0,
            norm_topk_prob: true,
            tie_embeddings: false,
            qkv_bias: false,
            o_bias: false,
            qk_norm: family.qk_norm,
            activation: family.activations[0],
            sub_norms: family.ternary,
            ternary: family.ternary,
            shared_ffn_size: 0,
            shared_gate: false,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            attention_scale: 0.0,
            logits_scaling: 1.0,
            scores_cap: 0.0,
            logits_cap: 0.0,
            window: 0,
            window_period: 0,
            local_rope_base: 0.0,
            post_norms: family.gemma.is_some(),
            norms_less_one: false,
            sinks: family.sinks,
            biased_experts: family.experts.is_some_and(|experts| experts.biased),
            family: family.name,
        }
    }

    /// Elements of a head that are rotated.
    pub fn rotated(&self) -> usize {
        if self.rope.rotated == 0 { self.head_dim } else { self.rope.rotated }
    }

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
            ("shared_ffn_size", self.shared_ffn_size, 0),
            ("window", self.window, 0),
            ("window_period", self.window_period, 0),
        ] {
            require((least..=COUNT).contains(&count), name, &count, whole_rule(least))?;
        }
        bounded("norm_eps", self.norm_eps, "norm_eps")?;
        bounded("rope.base", self.rope.base, "rope_base")?;
        match &self.rope.scaling {
            Scaling::None => {}
            Scaling::Linear { factor } | Scaling::Dynamic { factor } => stretch("rope.factor", *factor)?,
            Scaling::Ntk { alpha } => bounded("rope.factor", *alpha, "ntk_alpha")?,
            Scaling::Llama3(divided) | Scaling::Yarn(divided) | Scaling::LongRope(divided) => {
                stretch("rope.factor", divided.factor)?;
                stretch("rope.magnitude", divided.magnitude)?;
                for divisor in divided.divisors.iter().chain(&divided.long_divisors) {
                    stretch("a divisor of rope", f64::from(*divisor))?;
                }
            }
        }
        for (name, value) in [
            ("embedding_scale", self.embedding_scale),
            ("residual_scale", self.residual_scale),
            ("logits_scaling", self.logits_scaling),
        ] {
            stretch(name, value)?;
        }
        for (name, value) in [
            ("attention_scale", self.attention_scale),
            ("scores_cap", self.scores_cap),
            ("logits_cap", self.logits_cap),
        ] {
            if !(0.0..=1e6).contains(&value) {
                return Err(refuse(name, &Value::Float(value), "a number, from 0 to 1e+06"));
            }
        }
        if self.local_rope_base != 0.0 {
            bounded("local_rope_base", self.local_rope_base, "rope_base")?;
            let (right, rule) =
                (self.window > 0 && self.rope.rotated == 0, "0 without windows, and where a part is rotated");
            require(right, "local_rope_base", &self.local_rope_base, rule)?;
        }
        let windows = self.window > 0 || self.window_period == 0;
        require(windows, "window_period", &self.window_period, "0 in a model without windows")?;
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
        if self.sub_norms || self.ternary || self.post_norms || self.activation != GateActivation::Silu {
            let none = self.num_experts == 0;
            require(none, "num_experts", &self.num_experts, "0 in a model of the kind of BitNet or Gemma")?;
        }
        let rotated = self.rotated();
        for (name, there) in [
            ("a bias", self.qkv_bias || self.o_bias),
            ("qk_norm", self.qk_norm != QkNorm::None),
            ("rope.rotated", rotated != dim),
            ("attention_scale", self.attention_scale != 0.0),
            ("embedding_scale", self.embedding_scale != 1.0),
            ("residual_scale", self.residual_scale != 1.0),
            ("post_norms", self.post_norms),
            ("norms_less_one", self.norms_less_one),
        ] {
            require(!(self.ternary && there), name, &true, "absent with ternary weights")?;
        }
        let unscaled = self.residual_scale == 1.0;
        require(!self.o_bias || unscaled, "o_bias", &true, "false with a residual_scale")?;
        let (shared, mixed) = (self.shared_ffn_size, self.num_experts > 0);
        require(mixed || shared == 0, "shared_ffn_size", &shared, "0 in a model without experts")?;
        let rule = "false without experts, with a shared one, and with a residual_scale";
        require(!self.biased_experts || mixed && shared == 0 && unscaled, "biased_experts", &true, rule)?;
        require(shared > 0 || !self.shared_gate, "shared_gate", &true, "false in a model without a shared expert")?;
        let rule = format!("an even number below head_dim ({dim}), or 0");
        require(rotated.is_multiple_of(2) && rotated <= dim, "rope.rotated", &rotated, &rule)?;
        let plain = !self.qkv_bias && self.qk_norm == QkNorm::None;
        let rule = "0 with biases or norms of queries and keys";
        require(rotated == dim || plain, "rope.rotated", &rotated, rule)?;
        if let Some(divided) = self.rope.scaling.divided() {
            let half = format!("half of the rotated elements ({})", rotated / 2);
            let mut tables = vec![&divided.divisors];
            if let Scaling::LongRope(_) = self.rope.scaling {
                tables.push(&divided.long_divisors);
            }
            for divisors in tables {
                let right = divisors.len() == rotated / 2;
                require(right, "the number of divisors of rope", &divisors.len(), &half)?;
            }
        }
        Ok(self)
    }

    /// All options by name.
    pub fn to_table(&self) -> Table {
        let none = Divided::by(1.0, Vec::new());
        let divided = self.rope.scaling.divided().unwrap_or(&none);
        let factor = match &self.rope.scaling {
            Scaling::Linear { factor } | Scaling::Dynamic { factor } | Scaling::Ntk { alpha: factor } => *factor,
            _ => divided.factor,
        };
        let layout = match self.rope.layout {
            RopeLayout::Half => "half",
            RopeLayout::Interleaved => "interleaved",
        };
        let qk_norm = match self.qk_norm {
            QkNorm::None => "none",
            QkNorm::Head => "head",
            QkNorm::Whole => "whole",
        };
        let numbers = |values: &[f32]| Value::List(values.iter().map(|value| f64::from(*value).into()).collect());
        let rope = Table::from([
            ("base", self.rope.base.into()),
            ("layout", layout.into()),
            ("rotated", self.rope.rotated.into()),
            ("scaling", self.rope.scaling.name().into()),
            ("factor", factor.into()),
            ("divisors", numbers(&divided.divisors)),
            ("long_divisors", numbers(&divided.long_divisors)),
            ("original_context", divided.original_context.into()),
            ("magnitude", divided.magnitude.into()),
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
            ("qkv_bias", self.qkv_bias.into()),
            ("o_bias", self.o_bias.into()),
            ("qk_norm", qk_norm.into()),
            ("activation", self.activation.name().into()),
            ("sub_norms", self.sub_norms.into()),
            ("ternary", self.ternary.into()),
            ("shared_ffn_size", self.shared_ffn_size.into()),
            ("shared_gate", self.shared_gate.into()),
            ("embedding_scale", self.embedding_scale.into()),
            ("residual_scale", self.residual_scale.into()),
            ("attention_scale", self.attention_scale.into()),
            ("logits_scaling", self.logits_scaling.into()),
            ("scores_cap", self.scores_cap.into()),
            ("logits_cap", self.logits_cap.into()),
            ("window", self.window.into()),
            ("window_period", self.window_period.into()),
            ("local_rope_base", self.local_rope_base.into()),
            ("post_norms", self.post_norms.into()),
            ("norms_less_one", self.norms_less_one.into()),
            ("sinks", self.sinks.into()),
            ("biased_experts", self.biased_experts.into()),
            ("family", self.family.into()),
        ])
    }

    /// Most tokens that a token sees in a layer, counted from 0; 0 for all.
    pub fn window_of(&self, layer: usize) -> usize {
        let unbounded = self.window_period > 0 && (layer + 1).is_multiple_of(self.window_period);
        if unbounded { 0 } else { self.window }
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
        let base = base_of_part(self.rope.base, self.head_dim, self.rotated());
        let plain = RopeOptions { base, ntk_alpha: 1.0, scale: 1.0 };
        Ok(match self.rope.scaling {
            Scaling::Ntk { alpha } if positions > self.context => RopeOptions { ntk_alpha: alpha, ..plain },
            Scaling::Linear { factor } => RopeOptions { scale: 1.0 / factor, ..plain },
            _ => plain,
        })
    }

    /// What the frequencies of each pair of a head are divided by, for sequences of up to that many positions; empty for ones.
    pub fn rope_divisors(&self, positions: usize) -> Vec<f32> {
        let divisors: &[f32] = match &self.rope.scaling {
            Scaling::LongRope(divided) if positions > divided.original_context => &divided.long_divisors,
            scaling => scaling.divided().map_or(&[], |divided| &divided.divisors),
        };
        let (rotated, pairs) = (self.rotated() / 2, self.head_dim / 2);
        if rotated == pairs {
            return divisors.to_vec();
        }
        let divisor = |pair: usize| if pair < rotated { divisors.get(pair).copied().unwrap_or(1.0) } else { UNROTATED };
        (0..pairs).map(divisor).collect()
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
                if if part == "o" { self.o_bias } else { self.qkv_bias } {
                    add(&format!("self_attn.{part}_proj.bias"), &[rows]);
                }
            }
            let gains = match self.qk_norm {
                QkNorm::None => None,
                QkNorm::Head => Some([self.head_dim; 2]),
                QkNorm::Whole => Some([queries, keys]),
            };
            if let Some([of_queries, of_keys]) = gains {
                add("self_attn.q_norm.weight", &[of_queries]);
                add("self_attn.k_norm.weight", &[of_keys]);
            }
            if self.sinks {
                add("self_attn.sinks.weight", &[self.num_heads]);
            }
            if self.sub_norms {
                add("self_attn.attn_sub_norm.weight", &[queries]);
            }
            if self.post_norms {
                add("self_attn.post_norm.weight", &[hidden]);
            }
            add("post_attention_layernorm.weight", &[hidden]);
            if experts > 0 {
                add("block_sparse_moe.gate.weight", &[experts, hidden]);
                add("block_sparse_moe.w1.weight", &[experts, ffn, hidden]);
                add("block_sparse_moe.w3.weight", &[experts, ffn, hidden]);
                add("block_sparse_moe.w2.weight", &[experts, hidden, ffn]);
                if self.biased_experts {
                    add("block_sparse_moe.gate.bias", &[experts]);
                    add("block_sparse_moe.w1.bias", &[experts, ffn]);
                    add("block_sparse_moe.w3.bias", &[experts, ffn]);
                    add("block_sparse_moe.w2.bias", &[experts, hidden]);
                }
                if self.shared_ffn_size > 0 {
                    add("block_sparse_moe.shared.gate_proj.weight", &[self.shared_ffn_size, hidden]);
                    add("block_sparse_moe.shared.up_proj.weight", &[self.shared_ffn_size, hidden]);
                    add("block_sparse_moe.shared.down_proj.weight", &[hidden, self.shared_ffn_size]);
                }
                if self.shared_gate {
                    add("block_sparse_moe.shared_gate.weight", &[hidden]);
                }
            } else {
                add("mlp.gate_proj.weight", &[ffn, hidden]);
                add("mlp.up_proj.weight", &[ffn, hidden]);
                add("mlp.down_proj.weight", &[hidden, ffn]);
            }
            if self.sub_norms {
                add("mlp.ffn_sub_norm.weight", &[ffn]);
            }
            if self.post_norms {
                add("mlp.post_norm.weight", &[hidden]);
            }
        }
        shapes.push(("model.norm.weight".to_owned(), vec![hidden]));
        shapes.push(("lm_head.weight".to_owned(), vec![self.vocab_size, hidden]));
        shapes
    }
}

/// Whether a tensor must be in f32, f16 or bf16: norms, biases, routers, sinks. They are multiplied element by element in f32
/// and so cannot be in blocks.
pub(super) fn is_plain(name: &str) -> bool {
    let small =
        ["norm.weight", ".bias", "sinks.weight", "block_sparse_moe.gate.weight", "block_sparse_moe.shared_gate.weight"];
    small.iter().any(|end| name.ends_with(end))
}

/// Whether a tensor has the gains of a norm.
pub(crate) fn is_norm(name: &str) -> bool {
    name.ends_with("norm.weight")
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
