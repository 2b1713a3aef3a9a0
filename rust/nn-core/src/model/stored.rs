//! Stored models: a Llama or BitNet in a GGUF file or a Hugging Face folder, as one description.
//!
//! Nothing is read ahead, copied or converted: tensors are the mapped pages of the files, in their format and in the order of
//! rows they have. (GGUF files order the rows of queries and keys for interleaved pairs, folders for half-split ones;
//! `config.rope.layout` says which.) There are two exceptions. Experts that a folder has in a tensor each are needed in a row by
//! one call that uses them in place: [`StoredTensors::whole`] copies those that do not follow each other. And gpt-oss' folders
//! have the elements of experts in an order of their own, from which each reading makes ours.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use nn_ffi::HostBytes;

use super::adapter::check_no_adapter;
use super::bitnet::{
    Matrices, matrices_from_folder, matrices_from_gguf, matrix_of_part, quantization_from_folder, table_in_blocks,
};
use super::gguf_names::{LONG_FACTORS, ROPE_FREQUENCIES, SHORT_FACTORS, gguf_name, layer_number, name_of_gguf};
use super::gpt_oss::experts_in_blocks;
use super::llama::{LlamaConfig, is_plain, is_projection};
use super::llama_folder::config_from_folder;
use super::llama_gguf::{OfTensors, config_from_gguf, is_bitnet};
use super::tensor_names::{cut_rows, is_redundant, own_names};
use crate::error::{Error, Result};
use crate::format::gguf::ARCHITECTURE_KEY;
use crate::format::ternary::TernaryMatrix;
use crate::format::value::quoted;
use crate::format::{Gguf, SafetensorsFolder, StoredTensor, Value, read_json};
use crate::tokenizer::{ChatTemplate, TextTokenizer};
use crate::train::resolve_checkpoint;

/// The tensors of a model by the names of `LlamaConfig::shapes`.
#[derive(Debug)]
pub struct StoredTensors {
    parts: HashMap<String, Vec<StoredTensor>>,
    shapes: HashMap<String, Vec<usize>>,
}

impl StoredTensors {
    /// What the files have of a tensor, in order: itself, or the same matrix of each expert.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when the model has none of the name.
    pub fn parts(&self, name: &str) -> Result<&[StoredTensor]> {
        let parts = self.parts.get(name).map(Vec::as_slice);
        parts.ok_or_else(|| Error::value(format!("the model has no tensor {}", quoted(name))))
    }

    /// A tensor in one piece, for which experts that do not follow one another in their file are copied.
    ///
    /// # Errors
    ///
    /// As [`parts`](Self::parts), and [`Error::OutOfMemory`] when there is no memory for the copy.
    pub fn whole(&self, name: &str) -> Result<StoredTensor> {
        let parts = self.parts(name)?;
        let [first, others @ ..] = parts else { return Err(Error::value(format!("{name} has no part"))) };
        if others.is_empty() {
            return Ok(first.clone());
        }
        let bytes = parts.iter().map(StoredTensor::bytes).collect::<Result<Vec<_>>>()?;
        let in_a_row = bytes[1..].iter().try_fold(bytes[0].clone(), |all, part| all.followed_by(part));
        let data = match in_a_row {
            Some(data) => data,
            None => HostBytes::joined(bytes.iter().map(|part| &part[..])).map_err(|error| {
                Error::OutOfMemory(format!("the experts of {name} cannot be put together: {error}"))
            })?,
        };
        let shape = self.shapes[name].clone();
        Ok(StoredTensor { name: name.to_owned(), format: first.format, shape, data, made: None })
    }

    /// Bytes in the files; the head of a tied model counts once.
    pub fn bytes(&self) -> usize {
        let mut seen = HashSet::new();
        let parts = self.parts.values().flatten();
        parts.filter(|part| seen.insert(part.data.as_ptr())).map(StoredTensor::byte_count).sum()
    }
}

/// A model as its files have it.
#[derive(Debug)]
pub struct StoredModel {
    path: PathBuf,
    config: LlamaConfig,
    tensors: StoredTensors,
    matrices: Matrices,
    file: Option<Gguf>,
}

impl StoredModel {
    /// Opens a GGUF file (of a split one its first part), a Hugging Face folder of one of the families, a checkpoint, or
    /// the last checkpoint of a run. All but the values of the tensors is checked.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] says what is wrong.
    pub fn open(path: &Path) -> Result<Self> {
        if path.is_dir() { open_folder(&resolve_checkpoint(path, false)?) } else { open_gguf(path) }
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sizes and options.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// The tensors, but for the matrices of layers with ternary weights.
    pub fn tensors(&self) -> &StoredTensors {
        &self.tensors
    }

    /// The opened GGUF file; `None` of a folder.
    pub fn file(&self) -> Option<&Gguf> {
        self.file.as_ref()
    }

    /// A matrix of a layer of a model with ternary weights, by its name in `LlamaConfig::shapes`.
    pub fn ternary(&self, name: &str) -> Option<&TernaryMatrix> {
        self.matrices.get(name)
    }

    /// Bytes of all tensors in the files; the head of a tied model counts once.
    pub fn bytes(&self) -> usize {
        self.tensors.bytes() + self.matrices.values().map(|matrix| matrix.data.len()).sum::<usize>()
    }

    /// Parameters in all; a head that is the table of embeddings does not count.
    pub fn num_parameters(&self) -> u128 {
        let tied = self.config.tie_embeddings;
        let counted = self.config.shapes().into_iter().filter(|(name, _)| !(tied && name == "lm_head.weight"));
        counted.map(|(_, shape)| shape.iter().map(|size| *size as u128).product::<u128>()).sum()
    }

    /// The model's tokenizer; `None` when the files have none.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] when it is wrong, or has more tokens than the model.
    pub fn tokenizer(&self) -> Result<Option<TextTokenizer>> {
        let tokenizer = match &self.file {
            Some(file) => TextTokenizer::from_gguf(file.metadata(), &self.path)?,
            None => TextTokenizer::from_folder(&self.path)?,
        };
        let vocab = self.config.vocab_size;
        match tokenizer.as_ref().map(TextTokenizer::vocab_size).filter(|tokens| *tokens > vocab) {
            None => Ok(tokenizer),
            Some(tokens) => {
                let problem = format!("has a tokenizer of {tokens} tokens for a model of {vocab}");
                Err(Error::format(&self.path, problem))
            }
        }
    }

    /// The model's chat template, with the names that its tokenizer has for begin and end; a plain one when the files have none.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] when it is wrong.
    pub fn chat_template(&self, tokenizer: &TextTokenizer) -> Result<ChatTemplate> {
        match &self.file {
            Some(file) => ChatTemplate::from_gguf(file.metadata(), tokenizer, &self.path),
            None => ChatTemplate::from_folder(&self.path),
        }
    }
}

/// Tensors of a file by the name of the model's tensor that they are, or are experts of.
type Found = BTreeMap<String, Vec<StoredTensor>>;

fn open_gguf(path: &Path) -> Result<StoredModel> {
    let file = Gguf::open(path)?;
    let architecture = file.metadata().plain(ARCHITECTURE_KEY).unwrap_or(Value::None);
    let bitnet = is_bitnet(architecture.as_text().unwrap_or_default());
    let has = |name: &str| file.entry(name).is_some();
    let table = |name: &str| has(name).then(|| file.tensor(name)?.f32()).transpose();
    let of_tensors = || {
        Ok(OfTensors {
            tied: !has("output.weight"),
            qkv_bias: has("blk.0.attn_q.bias"),
            o_bias: has("blk.0.attn_output.bias"),
            shared: has("blk.0.ffn_up_shexp.weight"),
            // BitNet files of bitnet.cpp have the frequencies themselves under this name, and nothing reads them there.
            divisors: if bitnet { None } else { table(ROPE_FREQUENCIES)? },
            short: table(SHORT_FACTORS)?,
            long: table(LONG_FACTORS)?,
        })
    };
    let config = of_tensors().and_then(|of_tensors| config_from_gguf(file.metadata(), of_tensors));
    let config = config.map_err(|error| error.in_file(path))?;
    check_layers(path, &config, file.len())?;
    let matrices = if config.ternary { matrices_from_gguf(path, &config, &file)? } else { Matrices::new() };
    let mut found = Found::new();
    for (theirs, _) in
        file.iter().filter(|(theirs, _)| ![ROPE_FREQUENCIES, SHORT_FACTORS, LONG_FACTORS].contains(theirs))
    {
        let weight = theirs.strip_suffix(".scale").map(|stem| format!("{stem}.weight"));
        let whole = name_of_gguf(weight.as_deref().unwrap_or(theirs)).filter(|whole| matrices.contains_key(whole));
        if whole.is_some_and(|whole| theirs.starts_with(gguf_name(&whole).trim_end_matches("weight"))) {
            continue;
        }
        let name = name_of_gguf(theirs).filter(|name| !found.contains_key(name) && !matrices.contains_key(name));
        let Some(name) = name else {
            let problem = format!("has the tensor {}, which no model of this architecture has", quoted(theirs));
            return Err(Error::format(path, problem));
        };
        // gpt-oss' name of the norm before the experts.
        let moved = config.family == "gpt_oss";
        let name = if moved { name.replace(".self_attn.post_norm.", ".post_attention_layernorm.") } else { name };
        let tensor = file.tensor(theirs)?;
        // Phi-3's has the gate's rows, too.
        let both = name.ends_with(".mlp.up_proj.weight") && tensor.shape.first() == Some(&(2 * config.ffn_size));
        let name = if both { name.replace(".up_proj.", ".gate_up_proj.") } else { name };
        found.extend(cut_rows(path, &config, &name, tensor)?);
    }
    let tensors = checked(path, &config, found)?;
    Ok(StoredModel { path: path.to_owned(), config, tensors, matrices, file: Some(file) })
}

fn open_folder(folder: &Path) -> Result<StoredModel> {
    check_no_adapter(folder)?;
    let path = folder.join("config.json");
    let values = read_json(&path)?;
    let in_config = |error: Error| error.in_file(&path);
    let config = config_from_folder(&values).map_err(in_config)?;
    let quantization = config.ternary.then(|| quantization_from_folder(&values)).transpose().map_err(in_config)?;
    let files = SafetensorsFolder::open(folder)?;
    check_layers(folder, &config, files.iter().count())?;
    let matrices = match &quantization {
        Some(quantization) => matrices_from_folder(folder, &config, quantization, &files)?,
        None => Matrices::new(),
    };
    let (mut found, mut experts) = (Found::new(), BTreeMap::<String, BTreeMap<usize, StoredTensor>>::new());
    let mut of_experts = HashSet::new();
    for (theirs, _) in files.iter() {
        if is_redundant(theirs) || (theirs == "lm_head.weight" && config.tie_embeddings) {
            continue;
        }
        if let Some(quantization) = &quantization {
            if let Some(matrix) = matrix_of_part(theirs) {
                if !matrices.contains_key(matrix) {
                    return Err(foreign(folder, theirs));
                }
                continue;
            }
            if let Some(format) = quantization.blocks.get(theirs) {
                found.insert(theirs.to_owned(), vec![table_in_blocks(folder, &config, theirs, format, &files)?]);
                continue;
            }
        }
        let in_blocks = if config.biased_experts { experts_in_blocks(folder, &config, theirs, &files)? } else { None };
        let named = match in_blocks {
            Some(named) => named,
            None => own_names(folder, &config, theirs, files.stored(theirs)?)?,
        };
        for (name, pieces) in named {
            if found.contains_key(&name) || of_experts.contains(&name) {
                let problem = format!("has {name} twice: of itself, and together with others");
                return Err(Error::format(folder, problem));
            }
            if let Some((whole, number)) = expert(&name) {
                experts.entry(whole).or_default().extend(pieces.into_iter().map(|piece| (number, piece)));
                of_experts.insert(name);
            } else if !pieces.is_empty() {
                found.insert(name, pieces);
            }
        }
    }
    for (name, parts) in experts_together(folder, &config, experts)? {
        if found.contains_key(&name) {
            let problem = format!("has {name} twice: of each expert, and of all together");
            return Err(Error::format(folder, problem));
        }
        found.insert(name, parts);
    }
    let tensors = checked(folder, &config, found)?;
    Ok(StoredModel { path: folder.to_owned(), config, tensors, matrices, file: None })
}

fn foreign(path: &Path, name: &str) -> Error {
    Error::format(path, format!("has the tensor {}, which no model of this configuration has", quoted(name)))
}

/// Number and matrix of an expert's tensor, after the name of all experts' together.
fn expert(name: &str) -> Option<(String, usize)> {
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once(".block_sparse_moe.experts.")?;
    let (number, matrix) = rest.strip_suffix(".weight")?.split_once('.')?;
    let (_, number) = (layer_number(layer)?, layer_number(number)?);
    matches!(matrix, "w1" | "w2" | "w3")
        .then(|| (format!("model.layers.{layer}.block_sparse_moe.{matrix}.weight"), number))
}

/// Tensors of single experts, by the name of all experts' together and number, in that order.
fn experts_together(
    path: &Path,
    config: &LlamaConfig,
    experts: BTreeMap<String, BTreeMap<usize, StoredTensor>>,
) -> Result<Found> {
    let together = |(name, pieces): (String, BTreeMap<usize, StoredTensor>)| {
        let (count, right) = (pieces.len(), config.num_experts);
        let last = pieces.last_key_value().map_or(0, |(number, _)| *number);
        if count != right || last >= count {
            let problem = format!("{name} has {count} experts; config.json makes it {right}");
            return Err(Error::format(path, problem));
        }
        Ok((name, pieces.into_values().collect()))
    };
    experts.into_iter().map(together).collect()
}

/// Before every tensor of every layer gets an entry in a table.
fn check_layers(path: &Path, config: &LlamaConfig, tensors: usize) -> Result<()> {
    let layers = config.num_layers;
    if layers > tensors {
        let problem = format!("has {tensors} tensors; the configuration makes it {layers} layers");
        return Err(Error::format(path, problem));
    }
    Ok(())
}

fn checked(path: &Path, config: &LlamaConfig, mut found: Found) -> Result<StoredTensors> {
    let shapes = config.shapes().into_iter().filter(|(name, _)| !(config.ternary && is_projection(name)));
    let shapes: Vec<(String, Vec<usize>)> = shapes.collect();
    if config.tie_embeddings
        && let Some(table) = found.get("model.embed_tokens.weight").cloned()
    {
        found.insert("lm_head.weight".to_owned(), table);
    }
    let known: HashSet<&str> = shapes.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(name) = found.keys().find(|name| !known.contains(name.as_str())) {
        return Err(foreign(path, name));
    }
    let mut parts = HashMap::new();
    for (name, shape) in &shapes {
        let Some(of_name) = found.remove(name) else {
            return Err(Error::format(path, format!("lacks the tensor {name} of shape {shape:?}")));
        };
        let right = if of_name.len() == 1 { &shape[..] } else { &shape[1..] };
        let format = of_name[0].format;
        for part in &of_name {
            if part.shape != right {
                let problem = format!("has shape {:?}; the configuration makes it {right:?}", part.shape);
                return Err(Error::format(path, format!("tensor {} {problem}", part.name)));
            }
            if part.format != format {
                let problem = format!("the experts of {name} are in {} and {}", format.name, part.format.name);
                return Err(Error::format(path, problem));
            }
        }
        if is_plain(name) && format.dtype().is_none() {
            let (name, format) = (&of_name[0].name, format.name);
            let problem = format!("tensor {name} is in {format}; it must be in f32, f16 or bf16");
            return Err(Error::format(path, problem));
        }
        parts.insert(name.clone(), of_name);
    }
    Ok(StoredTensors { parts, shapes: shapes.into_iter().collect() })
}
