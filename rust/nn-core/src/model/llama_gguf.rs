//! How the metadata of a GGUF file describes a model of one of the families.
//!
//! As in a folder's config.json, a key of the architecture that is unknown here is refused by its name, unless it says no.

use nn_ffi::RopeLayout;

use super::families::{CAPS, FAMILIES, Family, SCALES, Windows};
use super::given::Given;
use super::llama::{Divided, GateActivation, LlamaConfig, Rope, Scaling};
use super::llama_folder::window_of_files;
use super::rope_scaling::{longrope_magnitude, rounded, yarn_divisors, yarn_magnitude};
use crate::error::{Error, Result};
use crate::format::Value;
use crate::format::gguf::{ARCHITECTURE_KEY, Metadata};

/// The gate's activation by the architecture of a GGUF file with ternary weights: llama.cpp computes all of "bitnet" with
/// SiLU, as the first such models had it; bitnet.cpp gave those with a squared ReLU other names.
const BITNET_ARCHITECTURES: [(&str, GateActivation); 3] =
    [("bitnet", GateActivation::Silu), ("bitnet-25", GateActivation::Relu2), ("bitnet-b1.58", GateActivation::Relu2)];

/// Whether an architecture is that of a BitNet.
pub(super) fn is_bitnet(architecture: &str) -> bool {
    BITNET_ARCHITECTURES.iter().any(|(name, _)| *name == architecture)
}

/// What the tensors of a GGUF file say of its model.
#[derive(Debug, Default)]
pub(super) struct OfTensors {
    /// There is no output.weight.
    pub(super) tied: bool,
    /// Attention has biases: of queries, keys and values, and behind it.
    pub(super) qkv_bias: bool,
    pub(super) o_bias: bool,
    /// There is an expert for all tokens.
    pub(super) shared: bool,
    /// The values of rope_freqs.weight.
    pub(super) divisors: Option<Vec<f32>>,
    /// Those of rope_factors_short.weight and rope_factors_long.weight.
    pub(super) short: Option<Vec<f32>>,
    pub(super) long: Option<Vec<f32>>,
}

/// Reads the metadata of a GGUF file of an architecture of one of the families.
///
/// # Errors
///
/// [`Error::Value`] when it is of another model, lacks something, or asks for what this engine does not do.
pub(super) fn config_from_gguf(metadata: &Metadata, of_tensors: OfTensors) -> Result<LlamaConfig> {
    let kind = metadata.plain(ARCHITECTURE_KEY).unwrap_or(Value::None);
    let architecture = kind.as_text().unwrap_or_default();
    let prefix = format!("{architecture}.");
    let given = Given::of_metadata(metadata, prefix.clone());
    let has_experts = given.get("expert_count").is_some_and(|count| count.as_integer::<i128>() != Some(0));
    let Some(family) = Family::of_architecture(architecture, has_experts, of_tensors.shared) else {
        let mut names: Vec<String> = Vec::new();
        for name in FAMILIES.iter().flat_map(|family| family.architectures).map(|name| format!("'{name}'")) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let problem = format!("{ARCHITECTURE_KEY} is {}", kind.shown());
        return Err(Error::value(format!("{problem}; this program runs {}", names.join(", "))));
    };
    check_keys(metadata, &given, family)?;
    let (heads, hidden) = (given.whole("attention.head_count", None)?, given.whole("embedding_length", None)?);
    let head_dim = given.whole("attention.key_length", Some(hidden / heads))?;
    let part = given.whole("rope.dimension_count", Some(head_dim))?;
    for (name, found) in [
        ("attention.value_length", given.whole("attention.value_length", Some(head_dim))?),
        ("rope.dimension_count", part),
    ] {
        let partial = name == "rope.dimension_count" && family.partial_rotary && found < head_dim;
        if found != head_dim && !partial {
            let problem = format!("{prefix}{name} is {found}; it must be the size of a head ({head_dim})");
            return Err(Error::value(problem));
        }
    }
    let context = given.whole("context_length", None)?;
    let periodic = matches!(family.windows, Windows::Period(_));
    if periodic {
        given.whole("attention.sliding_window", None)?;
    }
    let window = given.get("attention.sliding_window");
    let name = format!("{prefix}attention.sliding_window");
    let (window, mut window_period) = window_of_files(window.as_ref(), &name, family, context)?;
    if periodic {
        window_period = given.whole("attention.sliding_window_pattern", Some(window_period))?;
    }
    let extended_context = given.whole("nncuda.extended_context", Some(context))?;
    let (tied, qkv_bias, o_bias) = (of_tensors.tied, of_tensors.qkv_bias, of_tensors.o_bias);
    let rope = Rope {
        base: given.number("rope.freq_base", Some(10000.0))?,
        layout: if family.interleaved { RopeLayout::Interleaved } else { RopeLayout::Half },
        rotated: if part == head_dim { 0 } else { part },
        scaling: scaling(&given, of_tensors, family, [part, context, extended_context])?,
    };
    let tokens = metadata.get("tokenizer.ggml.tokens").and_then(|tokens| Some(tokens.strings()?.len()));
    let gate = BITNET_ARCHITECTURES.iter().find(|(name, _)| *name == architecture).map(|(_, gate)| *gate);
    let ffn = given.whole("feed_forward_length", None)?;
    let mut config = LlamaConfig {
        vocab_size: given.whole("vocab_size", tokens.filter(|tokens| *tokens > 0))?,
        hidden_size: hidden,
        num_layers: given.whole("block_count", None)?,
        num_heads: heads,
        num_kv_heads: given.whole("attention.head_count_kv", Some(heads))?,
        head_dim,
        ffn_size: ffn,
        context,
        extended_context,
        norm_eps: given.number("attention.layer_norm_rms_epsilon", None)?,
        rope,
        tie_embeddings: tied,
        qkv_bias,
        o_bias,
        activation: gate.unwrap_or(family.activations[0]),
        window,
        window_period,
        ..LlamaConfig::of(family)
    };
    if let Some(experts) = family.experts {
        config.ffn_size = given.whole("expert_feed_forward_length", Some(ffn))?;
        config.num_experts = given.whole("expert_count", None)?;
        config.experts_per_token = given.whole("expert_used_count", None)?;
        // llama.cpp divides the weights of Qwen3's experts by their sum, though its folders say it with an option.
        let normed = experts.norm.usual || family.name == "qwen3_moe";
        config.norm_topk_prob = given.flag("expert_weights_norm", normed)?;
        if let Some((_, _, gate)) = experts.shared {
            config.shared_ffn_size = given.whole("expert_shared_feed_forward_length", Some(ffn))?;
            config.shared_gate = gate;
        }
    }
    if family.scaled {
        for (_, key, usual, of) in SCALES {
            *of(&mut config) = given.number(key, Some(usual))?;
        }
    }
    if let Some(gemma) = &family.gemma {
        let largest = config.num_layers == gemma.largest;
        let scalar = if largest { hidden as f64 / heads as f64 } else { head_dim as f64 };
        if gemma.local_base > 0.0 {
            config.local_rope_base = given.number("rope.freq_base_swa", Some(gemma.local_base))?;
        }
        config.embedding_scale = (hidden as f64).sqrt();
        config.attention_scale = given.number("attention.scale", Some(1.0 / scalar.sqrt()))?;
        for ((name, of), usual) in CAPS.into_iter().zip(gemma.caps) {
            *of(&mut config) = given.number(name, Some(usual))?;
        }
    }
    config.validate()
}

fn check_keys(metadata: &Metadata, given: &Given<'_>, family: &Family) -> Result<()> {
    for (key, _) in metadata.iter() {
        let Some(name) = key.strip_prefix(&given.prefix).filter(|name| !family.has_key(name)) else { continue };
        let shown = match given.get(name) {
            None | Some(Value::Bool(false) | Value::Integer(0)) => continue,
            Some(Value::Float(0.0)) => continue,
            Some(value) => value.shown(),
        };
        let architecture = given.prefix.trim_end_matches('.');
        return Err(Error::value(format!("{key} is {shown}; this engine does not know that key of '{architecture}'")));
    }
    if family.scaled && given.get("rope.scaling.finetuned") == Some(Value::Bool(false)) {
        let problem = format!("{}rope.scaling.finetuned is False", given.prefix);
        return Err(Error::value(format!("{problem}; this engine rotates queries and keys in all layers")));
    }
    Ok(())
}

fn scaling(
    given: &Given<'_>,
    found: OfTensors,
    family: &Family,
    [part, context, longest]: [usize; 3],
) -> Result<Scaling> {
    let extended = longest > context;
    let usual = if given.get("rope.scale_linear").is_some() { "linear" } else { "none" };
    let kind = given.get("rope.scaling.type").unwrap_or(usual.into());
    let factor = given.number("rope.scaling.factor", Some(given.number("rope.scale_linear", Some(1.0))?))?;
    let original = given.whole("rope.scaling.original_context_length", Some(context))?;
    let Some(kind) = kind.as_text().filter(|kind| ["none", "linear", "yarn", "longrope"].contains(kind)) else {
        let problem = format!("{}rope.scaling.type is {}", given.prefix, kind.shown());
        return Err(Error::value(format!("{problem}; this engine has 'none', 'linear', 'yarn', 'longrope'")));
    };
    let linear = kind == "linear" && factor != 1.0;
    let long = found.short.is_some() || found.long.is_some();
    let ways = [linear, kind == "yarn", found.divisors.is_some(), long, extended];
    if ways.iter().filter(|way| **way).count() > 1 {
        let problem = "the rotary embedding is scaled in more than one way (linear, yarn, rope_freqs.weight, ntk)";
        return Err(Error::value(problem));
    }
    if kind == "longrope" && !long {
        let problem = format!("{}rope.scaling.type is 'longrope'", given.prefix);
        return Err(Error::value(format!("{problem}; the file lacks rope_factors_long.weight")));
    }
    if linear {
        return Ok(Scaling::Linear { factor });
    }
    if kind == "yarn" {
        return Ok(Scaling::Yarn(yarn(given, part, original, factor, family.whole_turns)?));
    }
    if let Some(divisors) = found.divisors {
        return Ok(Scaling::Llama3(Divided::by(1.0, divisors)));
    }
    if long {
        let usual = longrope_magnitude(context as f64 / original as f64, original as f64);
        return Ok(Scaling::LongRope(Divided {
            factor: 1.0,
            magnitude: given.number("rope.scaling.attn_factor", Some(usual))?,
            divisors: found.short.unwrap_or_default(),
            long_divisors: found.long.unwrap_or_default(),
            original_context: original,
        }));
    }
    if extended {
        return Ok(Scaling::Ntk { alpha: given.number("nncuda.ntk_alpha", Some(1.0))? });
    }
    Ok(Scaling::None)
}

/// llama.cpp's YaRN: both ends of the stretched part are whole numbers, or in a family whose folders say otherwise not: files
/// have no key for it.
fn yarn(given: &Given<'_>, part: usize, original: usize, factor: f64, whole: bool) -> Result<Divided> {
    let base = given.number("rope.freq_base", Some(10000.0))?;
    let fast = given.number("rope.scaling.yarn_beta_fast", Some(32.0))?;
    let slow = given.number("rope.scaling.yarn_beta_slow", Some(1.0))?;
    let betas = 1e-3 <= slow && slow <= fast && fast <= 1e6;
    if !(base > 1.0 && original > 1 && (1.0..=1e6).contains(&factor) && betas) {
        return Err(Error::value(format!(
            "rotary embedding of yarn with base {base:?}, original_context_length {original}, factor {factor:?}, \
             yarn_beta_fast {fast:?} and yarn_beta_slow {slow:?}: the first two must be above 1, the factor 1 to 1e6, the betas \
             0.001 to 1e6 and not below each other"
        )));
    }
    for (name, right) in [("ext_factor", 1.0), ("attn_factor", 1.0), ("log_multiplier", 0.0)] {
        let name = format!("rope.scaling.yarn_{name}");
        if given.number(&name, Some(right))? != right {
            return Err(Error::value(format!("{name} is not {right:?}, as this engine has it")));
        }
    }
    Ok(Divided {
        magnitude: rounded(yarn_magnitude(factor, 1.0)),
        original_context: original,
        ..Divided::by(factor, yarn_divisors(base, part, factor, [fast, slow], original as f64, whole))
    })
}
