//! A `MoEConfig` and its parameters in the words of Mixtral in Hugging Face transformers, or, of a dense model, of Llama,
//! Qwen2, Qwen3 or BitNet, and back. A Mistral, too, is read: within its window it is a Llama, and written as one.
//!
//! Every option of ours that these lack stands under the key "nncuda". transformers ignores it, so a model with
//! `norm_topk_prob` false runs there as if it were true, and nothing else differs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::bitnet::quantization_from_folder;
use super::config::{MoEConfig, OF_EXPERTS, OF_ROUTER};
use super::parameters::ParameterLayout;
use super::rope_scaling::rope_options;
use super::tensor_names::is_redundant;
use crate::error::{Error, Result};
use crate::format::safetensors::SafetensorsFile;
use crate::format::value::quoted;
use crate::format::{SafetensorsFolder, Table, Value};

/// Our names beside Mixtral's.
const TO_MIXTRAL: [(&str, &str); 13] = [
    ("vocab_size", "vocab_size"),
    ("hidden_size", "hidden_size"),
    ("num_layers", "num_hidden_layers"),
    ("num_heads", "num_attention_heads"),
    ("num_kv_heads", "num_key_value_heads"),
    ("head_dim", "head_dim"),
    ("num_experts", "num_local_experts"),
    ("experts_per_token", "num_experts_per_tok"),
    ("ffn_size", "intermediate_size"),
    ("context", "max_position_embeddings"),
    ("norm_eps", "rms_norm_eps"),
    ("aux_alpha", "router_aux_loss_coef"),
    ("init_std", "initializer_range"),
];
const OURS: [&str; 4] = ["extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor"];

/// Our options of llama3's scaling and what rope_scaling calls them.
const TO_LLAMA3: [(&str, &str); 4] = [
    ("rope_factor", "factor"),
    ("rope_low", "low_freq_factor"),
    ("rope_high", "high_freq_factor"),
    ("rope_original", "original_max_position_embeddings"),
];

/// A kind of dense model.
struct Dense {
    /// Its model_type, and class in transformers.
    name: &'static str,
    class: &'static str,
    /// Options that are false here.
    off: &'static [&'static str],
    /// What transformers takes where config.json does not say; 0 key heads are as many as query heads.
    context: usize,
    kv_heads: usize,
    /// Likewise; 0 is hidden_size / num_attention_heads.
    head_dim: usize,
    qkv_bias: bool,
    qk_norm: bool,
    ternary: bool,
    norm_eps: f64,
    rope_base: f64,
    /// What hidden_act may be, first the usual one, where there are several.
    activations: &'static [&'static str],
}

/// The first that has the parts of a model is what it is written as.
const DENSE: [Dense; 5] = [
    Dense {
        name: "llama",
        class: "LlamaForCausalLM",
        off: &["attention_bias", "mlp_bias"],
        context: 2048,
        kv_heads: 0,
        head_dim: 0,
        qkv_bias: false,
        qk_norm: false,
        ternary: false,
        norm_eps: 1e-6,
        rope_base: 1e4,
        activations: &["silu"],
    },
    Dense {
        name: "qwen2",
        class: "Qwen2ForCausalLM",
        off: &["use_sliding_window"],
        context: 32768,
        kv_heads: 32,
        head_dim: 0,
        qkv_bias: true,
        qk_norm: false,
        ternary: false,
        norm_eps: 1e-6,
        rope_base: 1e4,
        activations: &["silu"],
    },
    Dense {
        name: "qwen3",
        class: "Qwen3ForCausalLM",
        off: &["attention_bias", "use_sliding_window"],
        context: 32768,
        kv_heads: 32,
        head_dim: 128,
        qkv_bias: false,
        qk_norm: true,
        ternary: false,
        norm_eps: 1e-6,
        rope_base: 1e4,
        activations: &["silu"],
    },
    Dense {
        name: "bitnet",
        class: "BitNetForCausalLM",
        off: &["attention_bias"],
        context: 2048,
        kv_heads: 5,
        head_dim: 0,
        qkv_bias: false,
        qk_norm: false,
        ternary: true,
        norm_eps: 1e-5,
        rope_base: 5e5,
        activations: &["relu2", "silu"],
    },
    Dense {
        name: MISTRAL,
        class: "MistralForCausalLM",
        off: &[],
        context: 131_072,
        kv_heads: 8,
        head_dim: 0,
        qkv_bias: false,
        qk_norm: false,
        ternary: false,
        norm_eps: 1e-6,
        rope_base: 1e4,
        activations: &["silu"],
    },
];

/// Whether a `model_type` is that of a dense model whose folders are read here.
pub fn is_dense_kind(name: &str) -> bool {
    DENSE.iter().any(|kind| kind.name == name)
}

const MISTRAL: &str = "mistral";
/// Of a Mistral's `config.json` that names none.
const MISTRAL_WINDOW: usize = 4096;

/// With which transformers rounds master weights while it runs.
const ONLINE: [(&str, &str); 3] =
    [("quant_method", "bitnet"), ("linear_class", "autobitlinear"), ("quantization_mode", "online")];

/// Our names beside those of a Mixtral, or of a dense model, and those under "nncuda". A dense model has one value of the options of experts and router.
fn names_of(dense: bool) -> (impl Iterator<Item = (&'static str, &'static str)>, Vec<&'static str>) {
    let has = move |name: &str| !(dense && (OF_EXPERTS.contains(&name) || OF_ROUTER.contains(&name)));
    (TO_MIXTRAL.into_iter().filter(move |(ours, _)| has(ours)), OURS.into_iter().filter(|name| has(name)).collect())
}

/// The content of `config.json`: of a Mixtral, or, of a dense model, of a Qwen2, Qwen3, BitNet or Llama.
pub fn config_to_mixtral(config: &MoEConfig) -> Table {
    let values = config.to_table();
    let value = |name: &str| values.get(name).cloned().unwrap_or(Value::None);
    let parts = [config.qkv_bias, config.qk_norm, config.ternary];
    let dense =
        DENSE.iter().find(|kind| config.num_experts == 0 && [kind.qkv_bias, kind.qk_norm, kind.ternary] == parts);
    let (class, kind) = dense.map_or(("MixtralForCausalLM", "mixtral"), |kind| (kind.class, kind.name));
    let mut out = Table::from([("architectures", Value::List(vec![class.into()])), ("model_type", kind.into())]);
    let (names, own) = names_of(dense.is_some());
    for (ours, theirs) in names {
        out.set(theirs, value(ours));
    }
    if let Some(kind) = dense {
        for name in kind.off {
            out.set(*name, false);
        }
        if kind.ternary {
            out.set("quantization_config", Table::from(ONLINE.map(|(name, value)| (name, value.into()))));
        }
    } else {
        out.set("router_jitter_noise", 0.0);
        out.set("output_router_logits", false);
        out.set("sliding_window", Value::None);
    }
    let fixed: [(&str, Value); 8] = [
        ("rope_theta", config.rope_base.into()),
        ("hidden_act", if config.squared_relu { "relu2" } else { "silu" }.into()),
        ("attention_dropout", 0.0.into()),
        ("tie_word_embeddings", config.tie_embeddings.into()),
        ("torch_dtype", "float32".into()),
        ("pad_token_id", 0i32.into()),
        ("bos_token_id", 2i32.into()),
        ("eos_token_id", 3i32.into()),
    ];
    for (name, value) in fixed {
        out.set(name, value);
    }
    let usual = MoEConfig::default().to_table();
    if TO_LLAMA3.iter().any(|(ours, _)| values.get(ours) != usual.get(ours)) {
        let mut scaling = Table::from([("rope_type", "llama3".into())]);
        for (ours, theirs) in TO_LLAMA3 {
            scaling.set(theirs, value(ours));
        }
        out.set("rope_scaling", scaling);
    }
    out.set("nncuda", own.into_iter().map(|name| (name.to_owned(), value(name))).collect::<Table>());
    out
}

/// Reads the content of a `config.json` of a Mixtral, Llama, Qwen2, Qwen3, BitNet or Mistral, of this program or another. The
/// context of a Mistral is no longer than its window.
///
/// `Error::Value` when it is of another model, lacks something, or asks for what this model does not do.
pub fn config_from_mixtral(values: &Table) -> Result<MoEConfig> {
    let given = |name: &str| values.get(name).filter(|value| **value != Value::None);
    let kind = values.get("model_type").cloned().unwrap_or(Value::None);
    let of_dense = DENSE.iter().find(|one| kind.as_text() == Some(one.name));
    let off = match of_dense {
        Some(kind) => kind.off,
        None if kind.as_text() == Some("mixtral") => &["tie_word_embeddings"],
        None => {
            let names: String = DENSE.iter().map(|kind| format!(", '{}'", kind.name)).collect();
            let problem = format!("the model_type is {}; this program trains 'mixtral'{names}", kind.shown());
            return Err(Error::value(problem));
        }
    };
    let dense = of_dense.is_some();
    if of_dense.is_some_and(|kind| kind.ternary) {
        check_masters(values)?;
    }
    let several = of_dense.is_some_and(|kind| kind.activations.len() > 1);
    let off = off.iter().map(|name| (*name, Value::from(false)));
    let act = (!several).then(|| ("hidden_act", Value::from("silu")));
    for (name, needed) in act.into_iter().chain(off) {
        if let Some(value) = values.get(name).filter(|value| **value != needed) {
            return Err(Error::value(format!("{name} is {}; this model has {}", value.shown(), needed.shown())));
        }
    }
    let mut options = of_dense.map_or_else(|| Ok(Table::new()), |kind| usual_of_dense(values, kind))?;
    let (names, own) = names_of(dense);
    for (ours, theirs) in names {
        match (ours, given(theirs)) {
            (_, Some(value)) => options.set(ours, value.clone()),
            ("head_dim", None) if options.get("head_dim").is_none() => {
                options.set(ours, whole(values, "hidden_size")? / whole(values, "num_attention_heads")?);
            }
            ("num_kv_heads", None) if dense && options.get("num_kv_heads").is_none() => {
                options.set(ours, options.get("num_heads").cloned().unwrap_or(Value::None));
            }
            ("context" | "num_kv_heads" | "head_dim", None) if dense => {}
            // Not needed to run the model, or with one default everywhere: ours stands.
            ("aux_alpha" | "init_std" | "norm_eps", None) => {}
            _ => return Err(Error::value(format!("{theirs} is missing"))),
        }
    }
    if !dense && options.get("num_experts") == Some(&Value::Integer(0)) {
        return Err(Error::value("num_local_experts is 0; a model of type 'mixtral' has experts"));
    }
    for (name, value) in rope_from_folder(values, of_dense.map_or(1e6, |kind| kind.rope_base))?.iter() {
        options.set(name, value.clone());
    }
    let window = window_from_mixtral(values)?;
    if window > 0 {
        options.set("context", window);
    }
    let context = options.get("context").cloned().unwrap_or(Value::None);
    let windows = of_dense.is_none_or(|kind| !kind.off.contains(&"use_sliding_window")); // else it means nothing
    if let Some(width) = given("sliding_window").filter(|_| windows && window == 0) {
        let (wide, needed) = (width.as_number(), context.as_number());
        if !matches!((wide, needed), (Some(wide), Some(needed)) if wide >= needed) {
            let (width, context) = (width.shown(), context.shown());
            let problem = format!("sliding_window is {width}; this model attends to all of its context ({context})");
            return Err(Error::value(problem));
        }
    }
    let none = Table::new();
    let extra = match values.get("nncuda") {
        None => Some(&none),
        Some(extra) => extra.as_table(),
    };
    let Some(extra) = extra.filter(|extra| extra.names().all(|name| own.contains(&name))) else {
        return Err(Error::value(format!("the options under 'nncuda' must be among {}", own.join(", "))));
    };
    if extra.get("extended_context").is_none() {
        options.set("extended_context", context);
        options.set("ntk_alpha", 1.0);
    }
    for (name, value) in extra.iter() {
        options.set(name, value.clone());
    }
    MoEConfig::from_table(&options)
}

/// The most tokens that one sees of those before it and itself, by the content of a `config.json`, where that is fewer than the
/// context; 0 where a token sees all.
pub(crate) fn window_from_mixtral(values: &Table) -> Result<usize> {
    let mistral = DENSE.iter().find(|kind| kind.name == MISTRAL);
    let of_kind = |_: &&Dense| values.get("model_type").and_then(Value::as_text) == Some(MISTRAL);
    let Some(kind) = mistral.filter(of_kind) else { return Ok(0) };
    let window = match values.get("sliding_window") {
        None => MISTRAL_WINDOW,
        Some(Value::None) => return Ok(0),
        Some(_) => whole(values, "sliding_window")?,
    };
    let context = match values.get("max_position_embeddings") {
        None | Some(Value::None) => kind.context,
        Some(_) => whole(values, "max_position_embeddings")?,
    };
    Ok(if window < context { window } else { 0 })
}

/// Options of a dense model: those that its kind decides, and what transformers takes for others where config.json does not say.
fn usual_of_dense(values: &Table, kind: &Dense) -> Result<Table> {
    let given = |name: &str| values.get(name).filter(|value| **value != Value::None);
    if let Some(kinds) = given("layer_types") {
        let full = |kinds: &Vec<Value>| kinds.iter().all(|one| one.as_text() == Some("full_attention"));
        if !matches!(kinds, Value::List(kinds) if full(kinds)) {
            let problem = format!("layer_types is {}; this model has 'full_attention' in all layers", kinds.shown());
            return Err(Error::value(problem));
        }
    }
    let mut usual = Table::new();
    for (name, value) in [("num_experts", 0), ("experts_per_token", 0), ("context", kind.context)] {
        usual.set(name, value);
    }
    if kind.kv_heads > 0 {
        usual.set("num_kv_heads", kind.kv_heads);
    }
    if kind.head_dim > 0 {
        usual.set("head_dim", kind.head_dim);
    }
    usual.set("norm_eps", kind.norm_eps);
    usual.set("qkv_bias", kind.qkv_bias);
    usual.set("qk_norm", kind.qk_norm);
    if let Some(tied) = given("tie_word_embeddings") {
        usual.set("tie_embeddings", tied.clone());
    }
    if kind.ternary {
        let standard = Value::from(kind.activations[0]);
        let gate = values.get("hidden_act").unwrap_or(&standard);
        if !kind.activations.iter().any(|name| gate.as_text() == Some(name)) {
            let names: Vec<String> = kind.activations.iter().map(|name| format!("'{name}'")).collect();
            return Err(Error::value(format!("hidden_act is {}; this model has {}", gate.shown(), names.join(" or "))));
        }
        usual.set("ternary", true);
        usual.set("squared_relu", gate.as_text() == Some("relu2"));
    }
    Ok(usual)
}

/// `Error::Value` for a BitNet whose weights are rounded already. Whatever numbers would be rounded to them again, what they
/// were rounded from is lost, and with it how near each is to its neighbour.
fn check_masters(values: &Table) -> Result<()> {
    if quantization_from_folder(values)?.online() {
        return Ok(());
    }
    Err(Error::value(
        "quantization_config says that the weights are ternary already; training needs the master weights that they were \
         rounded from: take the folder with these, in bf16 or f32",
    ))
}

fn whole(values: &Table, name: &str) -> Result<usize> {
    let value = values.get(name).unwrap_or(&Value::None);
    value
        .as_integer()
        .filter(|number| *number >= 1)
        .ok_or_else(|| crate::options::refuse(name, value, "a whole number, at least 1"))
}

/// The options of the rotary embedding.
fn rope_from_folder(values: &Table, usual: f64) -> Result<Table> {
    let table = rope_options(|name| values.get(name).map(Cow::Borrowed))?;
    let kind = table.get("rope_type").or_else(|| table.get("type"));
    if let Some(kind) = kind.filter(|kind| !matches!(kind.as_text(), Some("default" | "llama3"))) {
        let problem = format!("rotary embedding of type {}; this model has 'default' and 'llama3'", kind.shown());
        return Err(Error::value(problem));
    }
    let llama3 = kind.is_some_and(|kind| kind.as_text() == Some("llama3"));
    let standard = Value::Float(usual);
    let base = table.get("rope_theta").or_else(|| values.get("rope_theta")).unwrap_or(&standard);
    let (_, least, most, rule) = super::config::BOUNDS[0];
    let found = base.as_number().filter(|number| (least..=most).contains(number));
    let base = found.ok_or_else(|| crate::options::refuse("rope_theta", base, rule))?;
    let mut options = Table::from([("rope_base", base.into())]);
    for (ours, theirs) in TO_LLAMA3.into_iter().filter(|_| llama3) {
        let Some(value) = table.get(theirs).filter(|value| **value != Value::None) else {
            return Err(Error::value(format!("{theirs} of the rotary embedding is missing")));
        };
        options.set(ours, value.clone());
    }
    Ok(options)
}

/// Where a parameter of ours lies in a folder's files: a tensor, and the place of its first element there.
#[derive(Clone, Debug, PartialEq)]
struct Origin {
    tensor: String,
    first: usize,
    shape: Vec<usize>,
}

/// The parameters of a model in a folder, by the names of our layout, whichever of Mixtral's two layouts they come in.
///
/// The usual one has a tensor an expert and matrix and is taken as it is; the one that transformers 5 holds in memory
/// has all experts of a layer in `mlp.experts.gate_up_proj` and `down_proj`, which are cut up here.
#[derive(Debug)]
pub struct MixtralWeights {
    files: SafetensorsFolder,
    origins: HashMap<String, Origin>,
    /// Our names, in the order of the files.
    names: Vec<String>,
}

/// Weights of a model by the names of [`ParameterLayout`], opened and not read yet.
pub trait Weights {
    /// `Error::Value` when a weight is not a floating-point number.
    fn check_dtypes(&self) -> Result<()>;

    /// Some of the elements of a parameter.
    fn read_part(&self, name: &str, part: Range<usize>) -> Result<Vec<f32>>;

    /// The values of a parameter as they are stored.
    fn read_bytes(&self, name: &str) -> Result<Vec<u8>>;
}

impl MixtralWeights {
    /// The parameters of a model in the files of a folder; `Error::Value` when names or shapes are others.
    pub fn new(files: SafetensorsFolder, config: &MoEConfig) -> Result<Self> {
        let layout = &ParameterLayout::new(config)?;
        let mut weights = Self { origins: HashMap::new(), names: Vec::new(), files };
        let fused = weights.files.iter().any(|(name, _)| fused_part(name).is_some());
        let mut found = Vec::new();
        let left_out = |name: &str| is_redundant(name) || (config.tie_embeddings && name == "lm_head.weight");
        for (name, entry) in weights.files.iter().filter(|(name, _)| !left_out(name)) {
            let shape = entry.shape.clone();
            match fused_part(name).filter(|_| fused) {
                Some((layer, gate_up)) => cut_up(&mut found, name, &shape, layer, gate_up, layout.experts())?,
                None => {
                    let ours = if fused { name.replace(".mlp.gate.", ".block_sparse_moe.gate.") } else { name.into() };
                    found.push((ours, Origin { tensor: name.to_owned(), first: 0, shape }));
                }
            }
        }
        for (name, origin) in found {
            weights.names.push(name.clone());
            weights.origins.insert(name, origin);
        }
        check_names(weights.names.iter().map(String::as_str), &layout.names())?;
        for spec in layout.specs() {
            let origin = &weights.origins[&spec.name];
            if origin.shape != spec.shape {
                let (name, found, needed) = (&spec.name, &origin.shape, &spec.shape);
                let problem = format!("tensor {name} has shape {found:?}; config.json makes it {needed:?}");
                return Err(Error::value(problem));
            }
        }
        Ok(weights)
    }

    /// The files, with their own names.
    pub fn files(&self) -> &SafetensorsFolder {
        &self.files
    }

    fn home(&self, name: &str) -> Result<(&SafetensorsFile, &Origin)> {
        let missing = || Error::value(format!("there is no tensor {}", quoted(name)));
        let origin = self.origins.get(name).ok_or_else(missing)?;
        Ok((self.files.home(&origin.tensor).ok_or_else(missing)?, origin))
    }
}

impl Weights for MixtralWeights {
    fn check_dtypes(&self) -> Result<()> {
        for name in &self.names {
            let dtype = self.files.get(&self.origins[name].tensor).map(|entry| entry.dtype);
            if let Some(dtype) = dtype.filter(|dtype| !dtype.floating) {
                let dtype = dtype.name;
                let problem = format!("tensor {name} has dtype {dtype}; weights are floating-point numbers");
                return Err(Error::value(problem));
            }
        }
        Ok(())
    }

    fn read_part(&self, name: &str, part: Range<usize>) -> Result<Vec<f32>> {
        let (file, origin) = self.home(name)?;
        file.read_f32(&origin.tensor, origin.first + part.start, part.len())
    }

    fn read_bytes(&self, name: &str) -> Result<Vec<u8>> {
        let (file, origin) = self.home(name)?;
        file.read_bytes(&origin.tensor, origin.first..origin.first + origin.shape.iter().product::<usize>())
    }
}

/// The layer of a fused tensor, and whether it is that of gate and up.
fn fused_part(name: &str) -> Option<(&str, bool)> {
    let (layer, part) = name.split_once(".mlp.experts.")?;
    let digits = layer.strip_prefix("model.layers.")?;
    let number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    match part {
        "gate_up_proj" if number => Some((layer, true)),
        "down_proj" if number => Some((layer, false)),
        _ => None,
    }
}

fn cut_up(
    found: &mut Vec<(String, Origin)>,
    name: &str,
    shape: &[usize],
    layer: &str,
    gate_up: bool,
    experts: usize,
) -> Result<()> {
    let [given, rows, columns] = *shape else {
        return Err(Error::value(format!("tensor {name} has shape {shape:?}; it must have three dimensions")));
    };
    if given != experts {
        // Before any name is made of them: a hostile file may claim as many as it likes of no size.
        return Err(Error::value(format!("tensor {name} has {given} experts; config.json makes it {experts}")));
    }
    let parts: &[(&str, usize, usize)] =
        if gate_up { &[("w1", 0, rows / 2), ("w3", rows / 2, rows - rows / 2)] } else { &[("w2", 0, rows)] };
    for expert in 0..given {
        for &(part, first, rows_of_part) in parts {
            found.push((
                format!("{layer}.block_sparse_moe.experts.{expert}.{part}.weight"),
                Origin {
                    tensor: name.to_owned(),
                    first: (expert * rows + first) * columns,
                    shape: vec![rows_of_part, columns],
                },
            ));
        }
    }
    Ok(())
}

/// `Error::Value` when names are missing or too many.
pub(crate) fn check_names<'a>(given: impl Iterator<Item = &'a str>, expected: &[&str]) -> Result<()> {
    let given: Vec<&str> = given.collect();
    let of_given: std::collections::HashSet<_> = given.iter().copied().collect();
    let of_expected: std::collections::HashSet<_> = expected.iter().copied().collect();
    let missing: Vec<_> = expected.iter().copied().filter(|name| !of_given.contains(name)).collect();
    let extra: Vec<_> = given.into_iter().filter(|name| !of_expected.contains(name)).collect();
    for (names, problem) in [(missing, "missing"), (extra, "not part of this model")] {
        if !names.is_empty() {
            let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
            let first = names[..names.len().min(3)].join(", ");
            return Err(Error::value(format!("tensors {problem}: {first}{more}")));
        }
    }
    Ok(())
}
