//! The ternary matrices of a stored BitNet: which tensors of its files they are made of, and in which convention.

use std::collections::BTreeMap;
use std::path::Path;

use super::gguf_names::gguf_name;
use super::llama::{LlamaConfig, is_projection};
use crate::error::{Error, Result};
use crate::format::block_formats::{BlockFormat, FORMATS, StoredTensor, TERNARY_FORMATS, TernaryFormat};
use crate::format::ternary::{Form, TernaryMatrix, checked_scale, tern2_shape};
use crate::format::{Gguf, SafetensorsFolder, Table, Value};

/// The tensors of a BitNet that may be in blocks.
const TABLES: [&str; 2] = ["model.embed_tokens.weight", "lm_head.weight"];
/// `quant_method` in the config.json of a folder whose matrices are in tern2.
const OUR_METHOD: &str = "nncuda-tern2";
const SCALE: &str = "_scale";

/// What `quantization_config` says.
#[derive(Debug, Default)]
pub(super) struct Quantization {
    kind: Kind,
    /// Weights are to be divided by `weight_scale`, and not multiplied.
    divides: bool,
    /// Ours: the formats of `TABLES` that are in blocks, by name.
    pub(super) blocks: BTreeMap<String, &'static BlockFormat>,
}

impl Quantization {
    /// Whether the weights are master weights.
    pub(super) fn online(&self) -> bool {
        self.kind == Kind::Online
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Kind {
    /// Master weights: scale and codes come from them.
    #[default]
    Online,
    /// Codes as numbers or packed, and `weight_scale`.
    Offline,
    /// Ours: tern2, and `weight_scale` f32 `[1]` is the factor.
    Tern2,
}

/// Reads `quantization_config` of a config.json; without it, weights are master weights.
///
/// `linear_class` "bitlinear", the default, divides by weight_scale, "autobitlinear" multiplies; `quantization_mode` "online"
/// has master weights. (transformers, `integrations/bitnet.py`)
///
/// # Errors
///
/// [`Error::Value`] for what this engine does not do.
pub(super) fn quantization_from_folder(values: &Table) -> Result<Quantization> {
    let Some(found) = values.get("quantization_config").filter(|value| **value != Value::None) else {
        return Ok(Quantization::default());
    };
    let Some(given) = found.as_table() else {
        return Err(Error::value(format!("quantization_config is {}; it must be an object", found.shown())));
    };
    let method = given.get("quant_method").cloned().unwrap_or(Value::None);
    if method.as_text() == Some(OUR_METHOD) {
        return Ok(Quantization { kind: Kind::Tern2, divides: false, blocks: blocks_of_tables(given)? });
    }
    if method.as_text() != Some("bitnet") {
        let problem = format!("quant_method is {}; this program reads 'bitnet' and '{OUR_METHOD}'", method.shown());
        return Err(Error::value(problem));
    }
    let choice = |name: &str, allowed: &[&'static str]| {
        let value = given.get(name).cloned().unwrap_or(allowed[0].into());
        allowed.iter().find(|word| value.as_text() == Some(word)).copied().ok_or_else(|| {
            let words = allowed.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" or ");
            Error::value(format!("{name} is {}; it may be {words}", value.shown()))
        })
    };
    let linear = choice("linear_class", &["bitlinear", "autobitlinear"])?;
    let mode = choice("quantization_mode", &["offline", "online"])?;
    if let Some(value) = given.get("use_rms_norm").filter(|value| **value != Value::Bool(false)) {
        return Err(Error::value(format!("use_rms_norm is {}; it may be false", value.shown())));
    }
    let kept = given.get("modules_to_not_convert").cloned().unwrap_or(Value::None);
    let of_layers = |name: &Value| name.as_text().is_none_or(|name| name.contains("_proj") || name.contains("layers"));
    let right = match &kept {
        Value::None => true,
        Value::List(names) => !names.iter().any(of_layers),
        _ => false,
    };
    if !right {
        let problem = format!("modules_to_not_convert is {}", kept.shown());
        return Err(Error::value(format!("{problem}; this engine has ternary weights in all layers")));
    }
    let online = mode == "online" && linear == "autobitlinear";
    let kind = if online { Kind::Online } else { Kind::Offline };
    Ok(Quantization { kind, divides: linear == "bitlinear", blocks: BTreeMap::new() })
}

fn blocks_of_tables(given: &Table) -> Result<BTreeMap<String, &'static BlockFormat>> {
    let none = Value::Table(Table::new());
    let blocks = given.get("blocks").unwrap_or(&none);
    let format = |(name, value): (&str, &Value)| {
        let format = BlockFormat::named(value.as_text()?).filter(|format| format.dtype().is_none())?;
        TABLES.contains(&name).then(|| (name.to_owned(), format))
    };
    blocks.as_table().and_then(|table| table.iter().map(format).collect()).ok_or_else(|| {
        let known: Vec<&str> =
            FORMATS.iter().filter(|format| format.dtype().is_none()).map(|format| format.name).collect();
        let (tables, known) = (TABLES.join(" and "), known.join(", "));
        Error::value(format!("blocks is {}; it may give {tables} one of {known}", blocks.shown()))
    })
}

/// The matrices of a model by their names in `LlamaConfig::shapes`.
pub(super) type Matrices = BTreeMap<String, TernaryMatrix>;

/// Names and shapes of a model's matrices.
fn projections(config: &LlamaConfig) -> impl Iterator<Item = (String, [usize; 2])> {
    let shapes = config.shapes().into_iter().filter(|(name, _)| is_projection(name));
    shapes.map(|(name, shape)| (name, [shape[0], shape[1]]))
}

fn lacks(path: &Path, name: &str, shape: &[usize]) -> Error {
    Error::format(path, format!("lacks the tensor {name} of shape {shape:?}"))
}

/// The matrices of a folder; all but the codes is checked.
pub(super) fn matrices_from_folder(
    folder: &Path,
    config: &LlamaConfig,
    quantization: &Quantization,
    files: &SafetensorsFolder,
) -> Result<Matrices> {
    let matrix = |(name, shape): (String, [usize; 2])| {
        let matrix = matrix_of_folder(folder, &name, shape, quantization, files)?;
        Ok((name, matrix))
    };
    projections(config).map(matrix).collect()
}

fn matrix_of_folder(
    folder: &Path,
    name: &str,
    shape: [usize; 2],
    quantization: &Quantization,
    files: &SafetensorsFolder,
) -> Result<TernaryMatrix> {
    let Some(entry) = files.get(name) else { return Err(lacks(folder, name, &shape)) };
    let wrong = |problem: String| Error::format(folder, format!("tensor {name} {problem}"));
    let need = |right: [usize; 2], what: &str| {
        if entry.shape == right {
            return Ok(());
        }
        Err(wrong(format!("has shape {:?}; the configuration makes it {right:?}{what}", entry.shape)))
    };
    let [rows, columns] = shape;
    let packed = entry.dtype.name == "uint8";
    let scale = || folder_scale(folder, name, quantization, files);
    let form = if quantization.kind == Kind::Tern2 {
        if !packed {
            return Err(wrong(format!("has dtype {}; weights of {OUR_METHOD} are uint8", entry.dtype.name)));
        }
        need(tern2_shape(shape), " in tern2")?;
        Form::Tern2 { scale: scale()? }
    } else if packed {
        if quantization.kind == Kind::Online {
            return Err(wrong("has dtype uint8, that of packed weights, but config.json describes none".to_owned()));
        }
        if !rows.is_multiple_of(4) {
            return Err(wrong(format!("has {rows} outputs; packed weights need a multiple of 4")));
        }
        need([rows / 4, columns], ", four outputs to a byte")?;
        Form::Packed { scale: scale()? }
    } else {
        let stored = files.stored(name)?;
        need(shape, "")?;
        match quantization.kind {
            Kind::Online => Form::Master(stored),
            _ => Form::Numbers { stored, scale: scale()? },
        }
    };
    Ok(TernaryMatrix::new(folder, name, shape, files.mapped(name)?, form))
}

fn folder_scale(folder: &Path, name: &str, quantization: &Quantization, files: &SafetensorsFolder) -> Result<f32> {
    let key = format!("{name}{SCALE}");
    if files.get(&key).is_none() {
        return Err(Error::format(folder, format!("lacks the tensor {key}, the scale of {name}")));
    }
    let wrong = |problem: &str| Error::format(folder, format!("tensor {name} {problem}"));
    let value = checked_scale(one_number(folder, &files.stored(&key)?)?, "weight_scale", wrong)?;
    if quantization.divides { checked_scale(1.0 / value, "factor", wrong) } else { Ok(value) }
}

fn one_number(path: &Path, stored: &StoredTensor) -> Result<f32> {
    if stored.elements() != 1 || stored.format.dtype().is_none() {
        let (name, format, shape) = (&stored.name, stored.format.name, &stored.shape);
        let problem = format!("tensor {name} is {format} {shape:?}; it must be one number in f32, f16 or bf16");
        return Err(Error::format(path, problem));
    }
    Ok(stored.f32()?[0])
}

/// The matrices of a GGUF file; all but the codes is checked. A tensor `NAME.scale`, f32 `[1]`, multiplies the matrix
/// `NAME.weight`: so does llama.cpp.
pub(super) fn matrices_from_gguf(path: &Path, config: &LlamaConfig, file: &Gguf) -> Result<Matrices> {
    let matrix = |(name, shape): (String, [usize; 2])| {
        let theirs = gguf_name(&name);
        let matrix = matrix_of_gguf(path, &theirs, shape, file)?;
        Ok((name, matrix))
    };
    projections(config).map(matrix).collect()
}

fn matrix_of_gguf(path: &Path, theirs: &str, shape: [usize; 2], file: &Gguf) -> Result<TernaryMatrix> {
    let Some(entry) = file.entry(theirs) else { return Err(lacks(path, theirs, &shape)) };
    if entry.shape != shape {
        let problem = format!("has shape {:?}; the configuration makes it {shape:?}", entry.shape);
        return Err(Error::format(path, format!("tensor {theirs} {problem}")));
    }
    let key = format!("{}scale", theirs.strip_suffix("weight").unwrap_or(theirs));
    let factor = if file.entry(&key).is_some() {
        let wrong = |problem: &str| Error::format(path, format!("tensor {key} {problem}"));
        checked_scale(one_number(path, &file.tensor(&key)?)?, "value", wrong)?
    } else {
        1.0
    };
    let form = if let Some(format) = TernaryFormat::named(&entry.type_name) {
        Form::Blocks { format, factor }
    } else if matches!(&*entry.type_name, "f32" | "f16" | "bf16") {
        Form::Multiples { stored: file.tensor(theirs)?, factor }
    } else {
        let known: Vec<&str> =
            ["f32", "f16", "bf16"].into_iter().chain(TERNARY_FORMATS.iter().map(|it| it.name)).collect();
        let kind = &entry.type_name;
        let problem = format!("tensor {theirs} is of type {kind}; ternary weights are {}", known.join(", "));
        return Err(Error::format(path, problem));
    };
    let data = file.mapped(theirs).ok_or_else(|| lacks(path, theirs, &shape))?;
    Ok(TernaryMatrix::new(path, theirs, shape, data, form))
}

/// One of `TABLES` that a folder of ours has in blocks: their bytes, u8 `[vocab, row_bytes]`.
pub(super) fn table_in_blocks(
    folder: &Path,
    config: &LlamaConfig,
    name: &str,
    format: &'static BlockFormat,
    files: &SafetensorsFolder,
) -> Result<StoredTensor> {
    let wrong = |problem: String| Error::format(folder, format!("tensor {name}{problem}"));
    let row_bytes = format.row_bytes(config.hidden_size).map_err(|error| wrong(format!(": {error}")))?;
    let right = [config.vocab_size, row_bytes];
    let entry = files.get(name).ok_or_else(|| lacks(folder, name, &right))?;
    if entry.dtype.name != "uint8" || entry.shape != right {
        let (dtype, shape, format) = (entry.dtype.name, &entry.shape, format.name);
        return Err(wrong(format!(" is {dtype} {shape:?}; in {format} it is uint8 {right:?}")));
    }
    let shape = vec![config.vocab_size, config.hidden_size];
    Ok(StoredTensor { name: name.to_owned(), format, shape, data: files.mapped(name)?, made: None })
}

/// The matrix that a tensor of a folder belongs to if it is one that `matrices_from_folder` reads: itself, or what it is the
/// scale of.
pub(super) fn matrix_of_part(name: &str) -> Option<&str> {
    let matrix = name.strip_suffix(SCALE).unwrap_or(name);
    is_projection(matrix).then_some(matrix)
}
