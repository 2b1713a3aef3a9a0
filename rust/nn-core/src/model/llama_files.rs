//! How GGUF files and Hugging Face folders describe a Llama.

use nn_ffi::RopeLayout;

use super::llama::{GateActivation, LlamaConfig, MOST_HEAD_DIM, Rope, Scaling, llama3_divisors};
use crate::error::{Error, Result};
use crate::format::gguf::Metadata;
use crate::format::limits::COUNT;
use crate::format::{Table, Value};
use crate::options::{refuse, whole_rule};

/// The gate's activation by the architecture of a GGUF file with ternary weights: llama.cpp computes all of "bitnet" with
/// SiLU, as the first such models had it; bitnet.cpp gave those with a squared ReLU other names.
const BITNET_ARCHITECTURES: [(&str, GateActivation); 3] =
    [("bitnet", GateActivation::Silu), ("bitnet-25", GateActivation::Relu2), ("bitnet-b1.58", GateActivation::Relu2)];

/// Options of a file by name, each checked for its type; those without a default must be there.
struct Given<'v> {
    source: Source<'v>,
    prefix: String,
}

enum Source<'v> {
    Json(&'v Table),
    Gguf(&'v Metadata),
}

impl<'v> Given<'v> {
    fn of_table(table: &'v Table) -> Self {
        Self { source: Source::Json(table), prefix: String::new() }
    }

    fn of_metadata(metadata: &'v Metadata, prefix: String) -> Self {
        Self { source: Source::Gguf(metadata), prefix }
    }

    fn get(&self, name: &str) -> Option<Value> {
        let name = format!("{}{name}", self.prefix);
        let value = match &self.source {
            Source::Json(table) => table.get(&name).cloned(),
            Source::Gguf(metadata) => metadata.plain(&name),
        };
        value.filter(|value| *value != Value::None)
    }

    fn whole(&self, name: &str, default: Option<usize>) -> Result<usize> {
        let least = usize::from(default != Some(0));
        let value = match (self.get(name), default) {
            (Some(value), _) => value,
            (None, Some(default)) => default.into(),
            (None, None) => return Err(self.missing(name)),
        };
        let count = value.as_integer().filter(|count| (least..=COUNT).contains(count));
        count.ok_or_else(|| refuse(&format!("{}{name}", self.prefix), &value, whole_rule(least)))
    }

    fn number(&self, name: &str, default: Option<f64>) -> Result<f64> {
        let value = match (self.get(name), default) {
            (Some(value), _) => value,
            (None, Some(default)) => default.into(),
            (None, None) => return Err(self.missing(name)),
        };
        let number = value.as_number().filter(|number| number.is_finite());
        number.ok_or_else(|| refuse(&format!("{}{name}", self.prefix), &value, "a finite number"))
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(value),
            Some(value) => Err(refuse(&format!("{}{name}", self.prefix), &value, "true or false")),
        }
    }

    fn missing(&self, name: &str) -> Error {
        Error::value(format!("{}{name} is missing", self.prefix))
    }
}

/// Reads the content of a `config.json` of Hugging Face transformers, model_type llama, mixtral or bitnet.
///
/// # Errors
///
/// [`Error::Value`] when it is of another model, lacks something, or asks for what this engine does not do.
pub(super) fn config_from_folder(values: &Table) -> Result<LlamaConfig> {
    let given = Given::of_table(values);
    let kind = given.get("model_type").unwrap_or(Value::None);
    let (mixtral, bitnet) = match kind.as_text() {
        Some("llama") => (false, false),
        Some("mixtral") => (true, false),
        Some("bitnet") => (false, true),
        _ => {
            let problem = format!("the model_type is {}", kind.shown());
            return Err(Error::value(format!("{problem}; this program runs 'llama', 'mixtral' and 'bitnet'")));
        }
    };
    if let Some(value) = given.get("mlp_bias").filter(|value| *value != Value::Bool(false)) {
        return Err(Error::value(format!("mlp_bias is {}; this engine has false", value.shown())));
    }
    whole_heads(&given)?;
    let activation = match given.get("hidden_act") {
        None if bitnet => GateActivation::Relu2,
        None => GateActivation::Silu,
        Some(value) => match value.as_text() {
            Some("silu") => GateActivation::Silu,
            Some("relu2") if bitnet => GateActivation::Relu2,
            _ => {
                let has = if bitnet { "'silu' and 'relu2'" } else { "'silu'" };
                let problem = format!("hidden_act is {}", value.shown());
                return Err(Error::value(format!("{problem}; this engine has {has} for model_type {}", kind.shown())));
            }
        },
    };
    let (heads, hidden) = (given.whole("num_attention_heads", None)?, given.whole("hidden_size", None)?);
    let head_dim = given.whole("head_dim", Some(hidden / heads))?;
    let context = given.whole("max_position_embeddings", (!mixtral).then_some(2048))?;
    check_window(&given, "sliding_window", context)?;
    let none = Value::Table(Table::new());
    let extra = values.get("nncuda").unwrap_or(&none);
    let known = ["extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor"];
    let Some(extra) = extra.as_table().filter(|extra| extra.names().all(|name| known.contains(&name))) else {
        return Err(Error::value(format!("the options under 'nncuda' must be among {}", known.join(", "))));
    };
    let extra = Given::of_table(extra);
    // This and others are transformers' own defaults.
    let base = if mixtral {
        1e6
    } else if bitnet {
        5e5
    } else {
        1e4
    };
    let mut rope = rope_from_folder(&given, head_dim, base)?;
    let extended_context = extra.whole("extended_context", Some(context))?;
    if extended_context > context {
        if rope.scaling != Scaling::None {
            let name = rope.scaling.name();
            let problem = "extended_context of a model whose rotary embedding is scaled already";
            return Err(Error::value(format!("{problem} ({name})")));
        }
        rope.scaling = Scaling::Ntk { alpha: extra.number("ntk_alpha", Some(1.0))? };
    }
    let kv_heads = if mixtral {
        8
    } else if bitnet {
        5
    } else {
        heads
    };
    let of_experts = |name: &str, default: usize| if mixtral { given.whole(name, Some(default)) } else { Ok(0) };
    LlamaConfig {
        vocab_size: given.whole("vocab_size", None)?,
        hidden_size: hidden,
        num_layers: given.whole("num_hidden_layers", None)?,
        num_heads: heads,
        num_kv_heads: given.whole("num_key_value_heads", Some(kv_heads))?,
        head_dim,
        ffn_size: given.whole("intermediate_size", None)?,
        context,
        extended_context,
        norm_eps: given.number("rms_norm_eps", Some(if mixtral || bitnet { 1e-5 } else { 1e-6 }))?,
        rope,
        num_experts: of_experts("num_local_experts", 8)?,
        experts_per_token: of_experts("num_experts_per_tok", 2)?,
        norm_topk_prob: extra.flag("norm_topk_prob", true)?,
        tie_embeddings: given.flag("tie_word_embeddings", false)?,
        attention_bias: given.flag("attention_bias", false)?,
        activation,
        sub_norms: bitnet,
        ternary: bitnet,
    }
    .validate()
}

fn whole_heads(given: &Given<'_>) -> Result<()> {
    match given.get("partial_rotary_factor").filter(|value| value.as_number() != Some(1.0)) {
        None => Ok(()),
        Some(value) => {
            let problem = format!("partial_rotary_factor is {}; this engine rotates whole heads", value.shown());
            Err(Error::value(problem))
        }
    }
}

fn rope_from_folder(values: &Given<'_>, head_dim: usize, default_base: f64) -> Result<Rope> {
    // transformers 5 writes rope_parameters; earlier ones rope_theta and, for stretched models, rope_scaling.
    let filled = |name: &str| values.get(name).filter(|value| *value != Value::Table(Table::new()));
    let rope = filled("rope_parameters").or_else(|| filled("rope_scaling")).unwrap_or(Value::Table(Table::new()));
    let Some(table) = rope.as_table() else {
        return Err(Error::value(format!("rope_parameters is {}; it must be an object", rope.shown())));
    };
    let given = Given::of_table(table);
    let kind = table.get("rope_type").or_else(|| table.get("type")).cloned().unwrap_or("default".into());
    let base = given.number("rope_theta", Some(values.number("rope_theta", Some(default_base))?))?;
    whole_heads(&given)?;
    let layout = RopeLayout::Half;
    match kind.as_text() {
        Some("default") => return Ok(Rope { base, layout, scaling: Scaling::None }),
        Some("linear") => {
            return Ok(Rope { base, layout, scaling: Scaling::Linear { factor: given.number("factor", None)? } });
        }
        Some("llama3") => {}
        _ => {
            let problem = format!("rotary embedding of type {}", kind.shown());
            return Err(Error::value(format!("{problem}; this engine has 'default', 'linear' and 'llama3'")));
        }
    }
    let (low, high) = (given.number("low_freq_factor", None)?, given.number("high_freq_factor", None)?);
    let factor = given.number("factor", None)?;
    let original = given.number("original_max_position_embeddings", None)?;
    if base < 1.0 || factor < 1.0 || !(0.0 < low && low < high) || original < 1.0 {
        return Err(Error::value(format!(
            "rotary embedding of llama3 with base {base:?}, factor {factor:?}, low_freq_factor {low:?}, high_freq_factor \
             {high:?} and original_max_position_embeddings {original:?}: they must be above 0, the base, the factor and the \
             context at least 1, low below high"
        )));
    }
    if head_dim > MOST_HEAD_DIM {
        // There is a divisor for every pair of it.
        return Err(refuse("head_dim", &head_dim.into(), "a multiple of 8, at most 256"));
    }
    let divisors = llama3_divisors(base, head_dim, factor, [low, high], original);
    Ok(Rope { base, layout, scaling: Scaling::Llama3 { factor, divisors } })
}

/// What the tensors of a GGUF file say of its model.
#[derive(Debug, Default)]
pub(super) struct OfTensors {
    /// There is no output.weight.
    pub(super) tied: bool,
    /// Attention has biases.
    pub(super) biased: bool,
    /// The values of rope_freqs.weight.
    pub(super) divisors: Option<Vec<f32>>,
}

/// Reads the metadata of a GGUF file of the architecture llama (which Mixtral's have too) or of a BitNet.
///
/// # Errors
///
/// [`Error::Value`] when it is of another model, lacks something, or asks for what this engine does not do.
pub(super) fn config_from_gguf(metadata: &Metadata, of_tensors: OfTensors) -> Result<LlamaConfig> {
    let kind = metadata.plain("general.architecture").unwrap_or(Value::None);
    let architecture = kind.as_text().unwrap_or_default();
    let bitnet = BITNET_ARCHITECTURES.iter().find(|(name, _)| *name == architecture).map(|(_, gate)| *gate);
    if architecture != "llama" && bitnet.is_none() {
        let names = BITNET_ARCHITECTURES.map(|(name, _)| format!("'{name}'")).join(", ");
        let problem = format!("general.architecture is {}", kind.shown());
        return Err(Error::value(format!("{problem}; this program runs 'llama', {names}")));
    }
    let prefix = format!("{architecture}.");
    let given = Given::of_metadata(metadata, prefix.clone());
    let (heads, hidden) = (given.whole("attention.head_count", None)?, given.whole("embedding_length", None)?);
    let head_dim = given.whole("attention.key_length", Some(hidden / heads))?;
    for name in ["attention.value_length", "rope.dimension_count"] {
        let found = given.whole(name, Some(head_dim))?;
        if found != head_dim {
            let problem = format!("{prefix}{name} is {found}; it must be the size of a head ({head_dim})");
            return Err(Error::value(problem));
        }
    }
    let context = given.whole("context_length", None)?;
    check_window(&given, "attention.sliding_window", context)?;
    let experts = given.whole("expert_count", Some(0))?;
    let usual = if given.get("rope.scale_linear").is_some() { "linear" } else { "none" };
    let kind = given.get("rope.scaling.type").unwrap_or(usual.into());
    let factor = given.number("rope.scaling.factor", Some(given.number("rope.scale_linear", Some(1.0))?))?;
    let extended_context = given.whole("nncuda.extended_context", Some(context))?;
    if !matches!(kind.as_text(), Some("none" | "linear")) {
        let problem = format!("{prefix}rope.scaling.type is {}", kind.shown());
        return Err(Error::value(format!("{problem}; this engine has 'none' and 'linear'")));
    }
    let linear = kind.as_text() == Some("linear") && factor != 1.0;
    let scaling = match (linear, of_tensors.divisors, extended_context > context) {
        (false, None, false) => Scaling::None,
        (true, None, false) => Scaling::Linear { factor },
        (false, Some(divisors), false) => Scaling::Llama3 { factor: 1.0, divisors },
        (false, None, true) => Scaling::Ntk { alpha: given.number("nncuda.ntk_alpha", Some(1.0))? },
        _ => {
            let problem = "the rotary embedding is scaled in more than one way (linear, rope_freqs.weight, ntk)";
            return Err(Error::value(problem));
        }
    };
    let layout = if bitnet.is_some() { RopeLayout::Half } else { RopeLayout::Interleaved };
    let tokens = metadata.get("tokenizer.ggml.tokens").and_then(|tokens| Some(tokens.strings()?.len()));
    LlamaConfig {
        vocab_size: given.whole("vocab_size", tokens.filter(|tokens| *tokens > 0))?,
        hidden_size: hidden,
        num_layers: given.whole("block_count", None)?,
        num_heads: heads,
        num_kv_heads: given.whole("attention.head_count_kv", Some(heads))?,
        head_dim,
        ffn_size: given.whole("feed_forward_length", None)?,
        context,
        extended_context,
        norm_eps: given.number("attention.layer_norm_rms_epsilon", None)?,
        rope: Rope { base: given.number("rope.freq_base", Some(10000.0))?, layout, scaling },
        num_experts: experts,
        experts_per_token: given.whole("expert_used_count", (experts == 0).then_some(0))?,
        norm_topk_prob: given.flag("expert_weights_norm", true)?,
        tie_embeddings: of_tensors.tied,
        attention_bias: of_tensors.biased,
        activation: bitnet.unwrap_or_default(),
        sub_norms: bitnet.is_some(),
        ternary: bitnet.is_some(),
    }
    .validate()
}

fn check_window(given: &Given<'_>, name: &str, context: usize) -> Result<()> {
    let Some(window) = given.get(name) else { return Ok(()) };
    match window.as_integer::<i128>() {
        Some(0) => Ok(()),
        Some(width) if width >= context as i128 => Ok(()),
        _ => {
            let name = format!("{}{name}", given.prefix);
            let problem =
                format!("{name} is {}; this engine attends to all of the context ({context})", window.shown());
            Err(Error::value(problem))
        }
    }
}
