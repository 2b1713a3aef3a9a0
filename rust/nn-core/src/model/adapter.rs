//! Low-rank adapters: for some matrices W of a model, W + scale * B * A. They are folders of Hugging Face's PEFT, or GGUF files.
//!
//! A folder has `adapter_config.json` and `adapter_model.safetensors`, and this, under the name of its module, of each matrix
//! that is adapted:
//!
//! ```text
//! base_model.model.MODULE.lora_A.weight   [rank, in]
//! base_model.model.MODULE.lora_B.weight   [out, rank]
//! ```
//!
//! The scale is `lora_alpha / r`, with `use_rslora` `lora_alpha / sqrt(r)`. What an option asks for beyond that is refused by its
//! name, unless it says no or only matters while an adapter is trained.
//!
//! (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1; Kalajdzievski 2023, "A Rank Stabilization
//! Scaling Factor for Fine-Tuning with LoRA"; PEFT's documentation, "LoRA" and "PEFT checkpoint format")

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::adapter_gguf::read_gguf;
use super::families::says_no;
use super::given::Given;
use super::llama::LlamaConfig;
use super::low_rank::LowRankOptions;
use crate::error::{Error, Result};
use crate::format::value::quoted;
use crate::format::{SafetensorsFile, StoredTensor, Table, Value, present, read_json};
use crate::train::resolve_checkpoint;

pub(crate) const CONFIG: &str = "adapter_config.json";
pub(crate) const WEIGHTS: &str = "adapter_model.safetensors";
/// What the names of factors in a folder begin with.
pub(crate) const PREFIX: &str = "base_model.model.";
/// Ways to begin an adapter that leave the base's weights as they are, beside true and false.
const BEGINNINGS: [&str; 3] = ["gaussian", "eva", "orthogonal"];
/// Options that say how an adapter is trained, or which matrices it is of, which its tensors say, too.
const NEUTRAL: [&str; 15] = [
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "peft_version",
    "lora_dropout",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "megatron_core",
    "eva_config",
    "ensure_weight_tying",
    "qalora_group_size",
    "runtime_config",
];
const READ: [&str; 7] = ["peft_type", "task_type", "r", "lora_alpha", "use_rslora", "bias", "init_lora_weights"];

/// The factors of one matrix: A `[rank, in]` and B `[out, rank]`, each in f32, f16 or bf16.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// The first one.
    pub a: StoredTensor,
    /// The second one.
    pub b: StoredTensor,
}

/// A tensor of a file of an adapter.
pub(super) struct Factor {
    /// Its name there.
    pub(super) theirs: String,
    /// What that says of its matrix; `None` of one that is no factor.
    pub(super) module: Option<String>,
    /// The matrix's name in `LlamaConfig::shapes`; `None` where there is no such one.
    pub(super) name: Option<String>,
    /// Whether it is A.
    pub(super) first: bool,
    pub(super) tensor: StoredTensor,
}

/// An adapter of a model: what is added to its matrices.
#[derive(Clone, Debug)]
pub struct Adapter {
    rank: usize,
    scale: f64,
    factors: BTreeMap<String, LowRank>,
}

impl Adapter {
    /// Opens the PEFT folder, or the GGUF file, of an adapter of a model with that configuration; of a run that trains one, the
    /// last checkpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] when it is of another, is wrong, or asks for what this program does not do.
    pub fn open(path: &Path, config: &LlamaConfig) -> Result<Self> {
        if path.is_file() {
            let (rank, scale, factors) = read_gguf(path, config)?;
            return Ok(Self { rank, scale, factors: checked(path, factors, rank, config)? });
        }
        let path = &resolve_checkpoint(path, false)?;
        let options = path.join(CONFIG);
        let (rank, scale) = rank_and_scale(&read_json(&options)?).map_err(|error| error.in_file(&options))?;
        let (weights, pickle) = (path.join(WEIGHTS), path.join("adapter_model.bin"));
        if !present(&weights) {
            let problem = format!("is a pickle, which can run anything; save {WEIGHTS}");
            let missing = Error::missing(path, format!("holds no {WEIGHTS}"));
            return Err(if present(&pickle) { Error::format(&pickle, problem) } else { missing });
        }
        Ok(Self { rank, scale, factors: checked(&weights, of_folder(&weights)?, rank, config)? })
    }

    /// Columns of B, and rows of A.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// What the products of the factors are multiplied with.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// scale \* rank, rounded to f32, in which GGUF files have it; infinite where it is too large for that.
    pub(super) fn alpha(&self) -> f32 {
        (self.scale * self.rank as f64) as f32
    }

    /// The factors by the names of their matrices in `LlamaConfig::shapes`, the rows of B in the order of folders.
    pub fn factors(&self) -> &BTreeMap<String, LowRank> {
        &self.factors
    }
}

/// The content of `adapter_config.json` of an adapter of a model that is said to be `base`.
pub(crate) fn adapter_values(options: &LowRankOptions, base: &str) -> Table {
    let whole = options.alpha.trunc() == options.alpha && options.alpha.abs() < (1_u64 << 53) as f64;
    let alpha = if whole { Value::Integer(options.alpha as i128) } else { options.alpha.into() };
    let mut targets: Vec<&str> = options.targets.iter().map(String::as_str).collect();
    targets.sort_unstable();
    Table::from([
        ("base_model_name_or_path", base.into()),
        ("bias", "none".into()),
        ("fan_in_fan_out", false.into()),
        ("inference_mode", true.into()),
        ("init_lora_weights", true.into()),
        ("lora_alpha", alpha),
        ("lora_dropout", 0.0.into()),
        ("modules_to_save", Value::None),
        ("peft_type", "LORA".into()),
        ("r", options.rank.into()),
        ("target_modules", Value::List(targets.into_iter().map(Value::from).collect())),
        ("task_type", "CAUSAL_LM".into()),
        ("use_dora", false.into()),
        ("use_rslora", false.into()),
    ])
}

/// Whether a folder is that of an adapter, as PEFT writes it.
pub fn is_adapter(folder: &Path) -> bool {
    present(&folder.join(CONFIG))
}

/// Refuses the folder of an adapter, in place of a model's.
pub(crate) fn check_no_adapter(folder: &Path) -> Result<()> {
    if is_adapter(folder) && !present(&folder.join("config.json")) {
        let problem = "holds an adapter alone; give the model that it is of, and this as its adapter";
        return Err(Error::format(folder, problem));
    }
    Ok(())
}

/// Rank and scale. [`Error::Value`] for what this program does not do.
fn rank_and_scale(options: &Table) -> Result<(usize, f64)> {
    let value = |name: &str| options.get(name).cloned().unwrap_or(Value::None);
    let unless = |right: bool, name: &str, problem: &str| {
        if right { Ok(()) } else { Err(Error::value(format!("{name} is {}{problem}", value(name).shown()))) }
    };
    let is = |name: &str, texts: &[&str]| value(name).as_text().is_some_and(|text| texts.contains(&text));
    let none = |name: &str| value(name) == Value::None;
    unless(is("peft_type", &["LORA"]), "peft_type", "; this program reads 'LORA'")?;
    let problem = "; this program reads adapters of 'CAUSAL_LM'";
    unless(none("task_type") || is("task_type", &["CAUSAL_LM"]), "task_type", problem)?;
    let problem = "; this program reads adapters without biases, 'none'";
    unless(none("bias") || is("bias", &["none"]), "bias", problem)?;
    let begun = "init_lora_weights";
    let known = none(begun) || matches!(value(begun), Value::Bool(_)) || is(begun, &BEGINNINGS);
    unless(known, begun, ", which may change the base's own weights")?;
    let unknown = |(name, value): &(&str, &Value)| !READ.contains(name) && !NEUTRAL.contains(name) && !says_no(value);
    if let Some((name, value)) = options.iter().find(unknown) {
        let problem = "this program does not know that option of an adapter";
        return Err(Error::value(format!("{} is {}; {problem}", quoted(name), value.shown())));
    }
    let given = Given::of_table(options);
    let (rank, alpha) = (given.whole("r", None)?, given.number("lora_alpha", None)?);
    let divisor = if given.flag("use_rslora", false)? { (rank as f64).sqrt() } else { rank as f64 };
    let scale = alpha / divisor;
    unless(scale.abs() <= f64::from(f32::MAX), "lora_alpha", "; divided by the rank it must fit f32")?;
    Ok((rank, scale))
}

fn of_folder(path: &Path) -> Result<Vec<Factor>> {
    let file = SafetensorsFile::open(path)?;
    let factor = |(theirs, _): (&str, &_)| {
        let stem = theirs.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(".weight"));
        let found = stem.and_then(|stem| stem.rsplit_once(".lora_")).filter(|(_, which)| matches!(*which, "A" | "B"));
        let module = found.map(|(module, _)| module.to_owned()).filter(|module| !module.is_empty());
        Ok::<_, Error>(Factor {
            theirs: theirs.to_owned(),
            name: module.as_ref().map(|module| format!("{module}.weight")),
            first: found.is_some_and(|(_, which)| which == "A"),
            module,
            tensor: file.stored(theirs)?,
        })
    };
    file.iter().map(factor).collect()
}

/// Whether an adapter may be of this matrix.
fn is_adapted(name: &str) -> bool {
    let of_layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    of_layer.is_some_and(|(_, part)| {
        (part.starts_with("self_attn.") || part.starts_with("mlp.")) && part.ends_with("_proj.weight")
    })
}

/// The factors in pairs.
fn checked(path: &Path, factors: Vec<Factor>, rank: usize, config: &LlamaConfig) -> Result<BTreeMap<String, LowRank>> {
    let wrong = |problem: String| Err(Error::format(path, problem));
    let shapes: HashMap<String, Vec<usize>> = config.shapes().into_iter().collect();
    let mut found = BTreeMap::<String, [Option<StoredTensor>; 2]>::new();
    for Factor { theirs, module, name, first, tensor } in factors {
        let Some(module) = module else {
            return wrong(format!("has the tensor {}, which is no factor of an adapted matrix", quoted(&theirs)));
        };
        let name = name.filter(|name| is_adapted(name));
        let Some((name, [rows, columns])) = name.and_then(|name| {
            let shape = <[usize; 2]>::try_from(&shapes.get(&name)?[..]).ok()?;
            Some((name, shape))
        }) else {
            let problem = "of this model it may be the projections of a layer's attention and SwiGLU";
            return wrong(format!("adapts {}; {problem}", quoted(&module)));
        };
        let right = if first { [rank, columns] } else { [rows, rank] };
        if tensor.shape != right {
            let shape = &tensor.shape;
            return wrong(format!("tensor {theirs} has shape {shape:?}; with r {rank} the model makes it {right:?}"));
        }
        if tensor.format.dtype().is_none() {
            let format = tensor.format.name;
            return wrong(format!("tensor {theirs} is in {format}; factors must be in f32, f16 or bf16"));
        }
        if tensor.f32()?.iter().any(|number| !number.is_finite()) {
            return wrong(format!("tensor {theirs} has values that are not finite"));
        }
        let place = &mut found.entry(name.clone()).or_default()[usize::from(!first)];
        if place.replace(tensor).is_some() {
            let which = if first { "A" } else { "B" };
            return wrong(format!("has lora_{which} of {} twice", name.trim_end_matches(".weight")));
        }
    }
    if found.is_empty() {
        return wrong("adapts nothing".to_owned());
    }
    let pair = |(name, pair): (String, [Option<StoredTensor>; 2])| match pair {
        [Some(a), Some(b)] => Ok((name, LowRank { a, b })),
        [a, _] => {
            let which = if a.is_some() { "A" } else { "B" };
            let problem = format!("has lora_{which} of {} alone", name.trim_end_matches(".weight"));
            Err(Error::format(path, problem))
        }
    };
    found.into_iter().map(pair).collect()
}
