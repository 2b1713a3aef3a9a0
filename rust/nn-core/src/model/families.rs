//! The families of models that the engine runs: each a description over the same layers.
//!
//! A family says how its files name and default what `LlamaConfig` holds, and which parts its blocks have. To add one is to
//! add an entry here and in its twins in Python and Go; docs/adding-a-model.md has the steps.

use super::llama::{GateActivation, LlamaConfig, QkNorm};
use crate::format::{Table, Value};

/// Whether a part is there: `usual`, unless config.json says otherwise under `key`; `None` where it cannot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    pub(super) usual: bool,
    pub(super) key: Option<&'static str>,
}

/// What config.json calls the sizes of a mixture of experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Experts {
    /// How many there are, and how many transformers takes.
    pub(super) count: &'static str,
    pub(super) usual: usize,
    /// Of num_experts_per_tok.
    pub(super) usual_chosen: usize,
    /// Their inner width.
    pub(super) ffn: &'static str,
    /// Whether a token's weights are divided by their sum.
    pub(super) norm: Switch,
    /// The inner width of the expert that every token goes to, its usual one, and whether a sigmoid of its own weighs it.
    pub(super) shared: Option<(&'static str, usize, bool)>,
    /// Whether they and their router have biases, and their gates are clipped.
    pub(super) biased: bool,
    /// Another name of the count, which newer releases of transformers write.
    pub(super) also: Option<&'static str>,
}

/// The one value that an option of config.json may have, which is what the engine computes, beside null.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fixed {
    Null,
    False,
    One,
    Number(f64),
    Empty,
}

impl Fixed {
    /// Whether it is this value.
    pub(super) fn is(self, value: &Value) -> bool {
        match (self, value) {
            (Self::False, Value::Bool(found)) => !found,
            (Self::One, Value::Integer(found)) => *found == 1,
            (Self::Number(needed), Value::Integer(_) | Value::Float(_)) => value.as_number() == Some(needed),
            (Self::Empty, Value::List(found)) => found.is_empty(),
            _ => false,
        }
    }

    /// As messages have it.
    pub(super) fn shown(self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::False => "false".to_owned(),
            Self::One => "1".to_owned(),
            Self::Number(needed) => format!("{needed:?}"),
            Self::Empty => "[]".to_owned(),
        }
    }
}

/// Which layers have a window that is narrower than the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// None may.
    Never,
    /// All of them.
    Always,
    /// All but each so-manyth.
    Period(usize),
}

/// What Gemma's families have in common, and what transformers takes where config.json does not say. Folders have the gains of
/// norms less 1, embeddings are multiplied by sqrt(hidden_size), and what attention and the feed-forward network give has a norm
/// before it is added to the residual stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gemma {
    /// `query_pre_attn_scalar`.
    pub(super) query_scalar: f64,
    /// Of [`CAPS`]: 0 for none.
    pub(super) caps: [f64; 2],
    /// Layers of the model whose GGUF files have hidden_size / heads for `query_scalar`; in those of all others it is head_dim
    /// (llama.cpp's rule: files have no key for it).
    pub(super) largest: usize,
    /// Base of the rotary embedding in layers with a window, where rope_local_base_freq does not say; 0 where all layers have the
    /// same.
    pub(super) local_base: f64,
}

/// A family of models.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// `model_type` in config.json.
    pub(super) name: &'static str,
    /// `general.architecture` in GGUF files.
    pub(super) architectures: &'static [&'static str],
    /// Whether GGUF files order the rows of queries and keys for interleaved pairs.
    pub(super) interleaved: bool,
    // What transformers takes where config.json does not say: 0 heads are as many as query heads, a head_dim of 0 is
    // hidden_size / num_heads, and a context of `None` must be there.
    pub(super) rope_base: f64,
    pub(super) norm_eps: f64,
    pub(super) context: Option<usize>,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) window: Option<usize>,
    /// The option without which sliding_window means nothing.
    pub(super) window_flag: Option<&'static str>,
    pub(super) windows: Windows,
    /// Whether the head is the table of embeddings where config.json does not say.
    pub(super) tied: bool,
    pub(super) qkv_bias: Switch,
    pub(super) o_bias: Switch,
    pub(super) qk_norm: QkNorm,
    /// `hidden_act` may be one of these; the first is the usual one.
    pub(super) activations: &'static [GateActivation],
    /// Another option with the same values, which stands above that one.
    pub(super) activation_key: &'static str,
    /// Weights and norms of a BitNet.
    pub(super) ternary: bool,
    pub(super) experts: Option<Experts>,
    /// Whether config.json has Granite's four factors.
    pub(super) scaled: bool,
    pub(super) gemma: Option<Gemma>,
    /// Whether a part of each head may stay unrotated.
    pub(super) partial_rotary: bool,
    /// The usual original_max_position_embeddings of families that have it beside the rotary embedding's own options.
    pub(super) original_context: Option<f64>,
    /// Whether each head has a score without a key.
    pub(super) sinks: bool,
    /// The factor and the original context of YaRN, its stretched part between any numbers, where config.json has neither
    /// rope_parameters nor rope_scaling.
    pub(super) yarn: Option<(f64, usize)>,
    /// Whether YaRN's stretched part has whole numbers for its ends in GGUF files, which have no key for it.
    pub(super) whole_turns: bool,
    pub(super) fixed: &'static [(&'static str, Fixed)],
}

const NO: Switch = Switch { usual: false, key: None };
const YES: Switch = Switch { usual: true, key: None };
const BIASED: Switch = Switch { usual: false, key: Some("attention_bias") };
const UNLESS: Switch = Switch { usual: true, key: Some("attention_bias") };
const NORMED: Switch = Switch { usual: false, key: Some("norm_topk_prob") };
/// A mixture in each layer.
const SPARSE: &[(&str, Fixed)] = &[("decoder_sparse_step", Fixed::One), ("mlp_only_layers", Fixed::Empty)];
const NO_MLP_BIAS: &[(&str, Fixed)] = &[("mlp_bias", Fixed::False)];

const PLAIN: Family = Family {
    name: "llama",
    architectures: &["llama"],
    interleaved: true,
    rope_base: 1e4,
    norm_eps: 1e-6,
    context: Some(2048),
    kv_heads: 0,
    head_dim: 0,
    window: None,
    window_flag: None,
    windows: Windows::Never,
    tied: false,
    qkv_bias: BIASED,
    o_bias: BIASED,
    qk_norm: QkNorm::None,
    activations: &[GateActivation::Silu],
    activation_key: "hidden_act",
    ternary: false,
    experts: None,
    scaled: false,
    gemma: None,
    partial_rotary: false,
    original_context: None,
    sinks: false,
    yarn: None,
    whole_turns: true,
    fixed: NO_MLP_BIAS,
};
const QWEN: Family =
    Family { interleaved: false, context: Some(32768), window_flag: Some("use_sliding_window"), fixed: &[], ..PLAIN };
const MIXTURE: Experts = Experts {
    count: "num_local_experts",
    usual: 8,
    usual_chosen: 2,
    ffn: "intermediate_size",
    norm: YES,
    shared: None,
    biased: false,
    also: None,
};
const QWENS_MIXTURE: Experts = Experts {
    count: "num_experts",
    usual: 128,
    usual_chosen: 8,
    ffn: "moe_intermediate_size",
    norm: NORMED,
    shared: None,
    biased: false,
    also: None,
};

/// The families that the engine runs.
pub(super) const FAMILIES: [Family; 16] = [
    PLAIN,
    Family {
        name: "mixtral",
        rope_base: 1e6,
        norm_eps: 1e-5,
        context: None,
        kv_heads: 8,
        qkv_bias: NO,
        o_bias: NO,
        experts: Some(MIXTURE),
        fixed: &[],
        ..PLAIN
    },
    Family {
        name: "bitnet",
        architectures: &["bitnet-b1.58", "bitnet-25", "bitnet"],
        interleaved: false,
        rope_base: 5e5,
        norm_eps: 1e-5,
        kv_heads: 5,
        qkv_bias: NO,
        o_bias: NO,
        activations: &[GateActivation::Relu2, GateActivation::Silu],
        ternary: true,
        fixed: &[],
        ..PLAIN
    },
    Family {
        name: "mistral",
        context: Some(131_072),
        kv_heads: 8,
        window: Some(4096),
        windows: Windows::Always,
        qkv_bias: NO,
        o_bias: NO,
        fixed: &[],
        ..PLAIN
    },
    Family { name: "qwen2", architectures: &["qwen2"], kv_heads: 32, qkv_bias: YES, o_bias: NO, ..QWEN },
    Family { name: "qwen3", architectures: &["qwen3"], kv_heads: 32, head_dim: 128, qk_norm: QkNorm::Head, ..QWEN },
    Family {
        name: "qwen3_moe",
        architectures: &["qwen3moe"],
        kv_heads: 4,
        qk_norm: QkNorm::Head,
        experts: Some(Experts { also: Some("num_local_experts"), ..QWENS_MIXTURE }),
        fixed: SPARSE,
        ..QWEN
    },
    Family {
        name: "olmoe",
        architectures: &["olmoe"],
        interleaved: false,
        norm_eps: 1e-5,
        context: Some(4096),
        qk_norm: QkNorm::Whole,
        experts: Some(Experts { usual: 64, ffn: "intermediate_size", ..QWENS_MIXTURE }),
        fixed: &[("clip_qkv", Fixed::Null)],
        ..PLAIN
    },
    Family { name: "granite", architectures: &["granite"], scaled: true, ..PLAIN },
    Family {
        name: "granitemoe",
        architectures: &["granitemoe"],
        scaled: true,
        experts: Some(MIXTURE),
        fixed: &[],
        ..PLAIN
    },
    Family {
        name: "granitemoeshared",
        architectures: &["granitemoe"],
        scaled: true,
        experts: Some(Experts { shared: Some(("shared_intermediate_size", 0, false)), ..MIXTURE }),
        fixed: &[],
        ..PLAIN
    },
    Family {
        name: "qwen2_moe",
        architectures: &["qwen2moe"],
        kv_heads: 16,
        qkv_bias: Switch { usual: true, key: Some("qkv_bias") },
        o_bias: NO,
        experts: Some(Experts {
            usual: 60,
            usual_chosen: 4,
            shared: Some(("shared_expert_intermediate_size", 5632, true)),
            ..QWENS_MIXTURE
        }),
        fixed: SPARSE,
        ..QWEN
    },
    Family {
        name: "phi3",
        architectures: &["phi3"],
        interleaved: false,
        norm_eps: 1e-5,
        context: Some(4096),
        windows: Windows::Always,
        qkv_bias: NO,
        o_bias: NO,
        partial_rotary: true,
        original_context: Some(4096.0),
        fixed: &[],
        ..PLAIN
    },
    Family {
        name: "gemma2",
        architectures: &["gemma2"],
        interleaved: false,
        context: Some(8192),
        kv_heads: 4,
        head_dim: 256,
        window: Some(4096),
        windows: Windows::Period(2),
        tied: true,
        activations: &[GateActivation::Gelu],
        activation_key: "hidden_activation",
        gemma: Some(Gemma { query_scalar: 256.0, caps: [50.0, 30.0], largest: 46, local_base: 0.0 }),
        fixed: &[],
        ..PLAIN
    },
    Family {
        name: "gemma3_text",
        architectures: &["gemma3"],
        interleaved: false,
        rope_base: 1e6,
        context: Some(131_072),
        kv_heads: 4,
        head_dim: 256,
        window: Some(4096),
        windows: Windows::Period(6),
        tied: true,
        qk_norm: QkNorm::Head,
        activations: &[GateActivation::Gelu],
        activation_key: "hidden_activation",
        gemma: Some(Gemma { query_scalar: 256.0, caps: [0.0, 0.0], largest: 62, local_base: 1e4 }),
        fixed: &[],
        ..PLAIN
    },
    Family {
        name: "gpt_oss",
        architectures: &["gpt-oss"],
        interleaved: false,
        rope_base: 150_000.0,
        norm_eps: 1e-5,
        context: Some(131_072),
        kv_heads: 8,
        head_dim: 64,
        window: Some(128),
        windows: Windows::Period(2),
        qkv_bias: UNLESS,
        o_bias: UNLESS,
        experts: Some(Experts { usual: 128, usual_chosen: 4, biased: true, ..MIXTURE }),
        sinks: true,
        yarn: Some((32.0, 4096)),
        whole_turns: false,
        fixed: &[("swiglu_alpha", Fixed::Number(1.702)), ("swiglu_limit", Fixed::Number(7.0))],
        ..PLAIN
    },
];

/// Options of config.json that all families have.
const COMMON_OPTIONS: &str = "model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads \
    num_key_value_heads head_dim max_position_embeddings rms_norm_eps hidden_act tie_word_embeddings rope_theta \
    rope_parameters rope_scaling sliding_window layer_types partial_rotary_factor nncuda";

/// Those that change nothing of what a model computes: what made it, how it is trained, how it writes.
const NEUTRAL_OPTIONS: &str = "architectures torch_dtype dtype transformers_version name_or_path auto_map unsloth_version \
    unsloth_fixed bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id \
    decoder_start_token_id forced_bos_token_id forced_eos_token_id tokenizer_class model_max_length initializer_range \
    use_cache pretraining_tp attention_dropout hidden_dropout resid_pdrop embd_pdrop router_aux_loss_coef \
    router_jitter_noise output_router_logits output_attentions output_hidden_states return_dict use_return_dict \
    gradient_checkpointing id2label label2id problem_type task_specific_params finetuning_task chunk_size_feed_forward \
    max_window_layers max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty \
    temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size \
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences suppress_tokens begin_suppress_tokens \
    remove_invalid_values exponential_decay_length_penalty prefix tf_legacy_loss use_bfloat16 torchscript \
    cross_attention_hidden_size cache_implementation";

/// Keys of a GGUF file behind its architecture's name that all families have, or that change nothing.
const GGUF_OPTIONS: &str = "vocab_size context_length embedding_length block_count feed_forward_length \
    attention.head_count attention.head_count_kv attention.key_length attention.value_length \
    attention.layer_norm_rms_epsilon attention.layer_norm_epsilon attention.sliding_window rope.dimension_count \
    rope.freq_base rope.scale_linear rope.scaling.type rope.scaling.factor rope.scaling.original_context_length \
    rope.scaling.finetuned rope.scaling.attn_factor rope.scaling.yarn_ext_factor rope.scaling.yarn_attn_factor \
    rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow rope.scaling.yarn_log_multiplier expert_count \
    expert_used_count expert_feed_forward_length expert_shared_feed_forward_length expert_shared_count \
    expert_weights_norm nncuda.extended_context nncuda.ntk_alpha";

/// An option of families with Granite's factors: in config.json, in a GGUF file, its value where a file lacks the key, and
/// where it goes.
type Scale = (&'static str, &'static str, f64, fn(&mut LlamaConfig) -> &mut f64);

pub(super) const SCALES: [Scale; 4] = [
    ("embedding_multiplier", "embedding_scale", 1.0, |config| &mut config.embedding_scale),
    ("residual_multiplier", "residual_scale", 1.0, |config| &mut config.residual_scale),
    ("attention_multiplier", "attention.scale", 0.0, |config| &mut config.attention_scale),
    ("logits_scaling", "logit_scale", 1.0, |config| &mut config.logits_scaling),
];

/// An option of Gemma's families with a soft bound, in config.json and GGUF files alike, and where it goes. Null is none.
type Cap = (&'static str, fn(&mut LlamaConfig) -> &mut f64);

pub(super) const CAPS: [Cap; 2] = [
    ("attn_logit_softcapping", |config| &mut config.scores_cap),
    ("final_logit_softcapping", |config| &mut config.logits_cap),
];

fn among(name: &str, words: &str) -> bool {
    words.split(' ').any(|word| word == name)
}

impl Family {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// The family of a GGUF file. Where several have one architecture's name, what the file has in its blocks decides.
    pub(super) fn of_architecture(name: &str, experts: bool, shared: bool) -> Option<&'static Self> {
        match name {
            "llama" if experts => Self::named("mixtral"),
            "granitemoe" if shared => Self::named("granitemoeshared"),
            _ => FAMILIES.iter().find(|family| family.architectures.contains(&name)),
        }
    }

    /// Whether layers with a window have a rotary embedding of their own.
    pub(super) fn has_local_rope(&self) -> bool {
        self.gemma.is_some_and(|gemma| gemma.local_base > 0.0)
    }

    /// Whether an option of config.json decides what a model of the family computes.
    fn has_option(&self, name: &str) -> bool {
        let experts = self.experts.is_some_and(|experts| {
            [experts.count, experts.ffn, "num_experts_per_tok"].contains(&name)
                || [experts.norm.key, experts.also].contains(&Some(name))
                || experts.shared.is_some_and(|shared| shared.0 == name)
                || experts.biased
                    && ["experts_per_token", "initial_context_length", "quantization_config"].contains(&name)
        });
        among(name, COMMON_OPTIONS)
            || experts
            || [self.qkv_bias.key, self.o_bias.key, self.window_flag].contains(&Some(name))
            || name == self.activation_key
            || self.has_local_rope() && ["rope_local_base_freq", "sliding_window_pattern"].contains(&name)
            || self.gemma.is_some() && (name == "query_pre_attn_scalar" || CAPS.iter().any(|cap| cap.0 == name))
            || self.scaled && SCALES.iter().any(|scale| scale.0 == name)
            || self.ternary && name == "quantization_config"
            || self.original_context.is_some() && name == "original_max_position_embeddings"
            || self.fixed.iter().any(|option| option.0 == name)
    }

    /// The first option of a config.json that is neither read here nor known to change nothing, and does not say no.
    pub(super) fn unknown_option<'v>(&self, values: &'v Table) -> Option<(&'v str, &'v Value)> {
        values.iter().find(|(name, value)| {
            !self.has_option(name) && !among(name, NEUTRAL_OPTIONS) && !name.starts_with('_') && !says_no(value)
        })
    }

    /// Whether a key of a GGUF file behind the architecture's name is known here.
    pub(super) fn has_key(&self, name: &str) -> bool {
        among(name, GGUF_OPTIONS)
            || self.scaled && SCALES.iter().any(|scale| scale.1 == name)
            || self.gemma.is_some() && (name == "attention.scale" || CAPS.iter().any(|cap| cap.0 == name))
            || self.has_local_rope() && name == "rope.freq_base_swa"
            || matches!(self.windows, Windows::Period(_)) && name == "attention.sliding_window_pattern"
    }
}

/// Whether a value asks for nothing: false, null, an empty text, list or object.
pub(super) fn says_no(value: &Value) -> bool {
    match value {
        Value::None => true,
        Value::Bool(value) => !value,
        Value::Text(value) => value.is_empty(),
        Value::List(value) => value.is_empty(),
        Value::Table(value) => value.is_empty(),
        Value::Integer(_) | Value::Float(_) => false,
    }
}
