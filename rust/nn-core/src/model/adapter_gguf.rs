//! Low-rank adapters in GGUF files, as llama.cpp reads them.
//!
//! Such a file has the base's `general.architecture`, `general.type` "adapter", `adapter.type` "lora" and `adapter.lora.alpha`, and
//! of each matrix that is adapted, under the name that GGUF files have for it, `NAME.lora_a` `[rank, in]` and `NAME.lora_b`
//! `[out, rank]`. The scale is alpha / rank, 1 where alpha is 0 or not there. The rows of `lora_b` are in the order of the base's
//! GGUF files.
//!
//! (llama.cpp: src/llama-adapter.cpp and llama-adapter.h for what is read, `convert_lora_to_gguf.py` for what is written)

use std::path::Path;

use super::adapter::Factor;
use super::families::Family;
use super::gguf_names::name_of_gguf;
use super::llama::LlamaConfig;
use crate::error::{Error, Result};
use crate::format::gguf::{ARCHITECTURE_KEY, Metadata, MetadataValue};
use crate::format::{Gguf, Value};

pub(super) const TYPE: &str = "general.type";
pub(super) const KIND: &str = "adapter.type";
pub(super) const ALPHA: &str = "adapter.lora.alpha";
/// What says something of how a file's users ask, and nothing of what it computes; so does `general.*`.
const NEUTRAL: [&str; 2] = ["adapter.lora.task_name", "adapter.lora.prompt_prefix"];

/// Rank, scale and factors of a file, the rows of B in the order of folders. [`Error::Format`] when it is of another family, or
/// asks for what this program does not do.
pub(super) fn read_gguf(path: &Path, config: &LlamaConfig) -> Result<(usize, f64, Vec<Factor>)> {
    let file = Gguf::open(path)?;
    let Some(family) = Family::named(config.family) else { unreachable!("a configuration has one of the families") };
    let alpha = alpha_of(path, file.metadata(), family)?;
    let factors = file.iter().map(|(theirs, _)| factor(&file, theirs, family, config.head_dim));
    let factors = factors.collect::<Result<Vec<Factor>>>()?;
    // That of all matrices, or, where these differ, of the first.
    let rank = factors.iter().find(|factor| factor.first).map_or(1, |factor| factor.tensor.shape[0]);
    Ok((rank, if alpha == 0.0 { 1.0 } else { alpha / rank as f64 }, factors))
}

/// Alpha, 0 where there is none.
fn alpha_of(path: &Path, metadata: &Metadata, family: &Family) -> Result<f64> {
    let one = |key: &str| match metadata.get(key) {
        Some(MetadataValue::One(_, value)) => value.clone(),
        _ => Value::None,
    };
    let shown = |key: &str| metadata.plain(key).unwrap_or(Value::None).shown();
    let right: [(&str, &[&str]); 3] =
        [(TYPE, &["adapter"]), (KIND, &["lora"]), (ARCHITECTURE_KEY, family.architectures)];
    for (key, values) in right {
        if !one(key).as_text().is_some_and(|text| values.contains(&text)) {
            let values = values.join("' or '");
            let problem = format!("{key} is {}; an adapter of this model has '{values}'", shown(key));
            return Err(Error::format(path, problem));
        }
    }
    for (key, _) in metadata.iter() {
        let nothing = match one(key) {
            Value::Bool(flag) => !flag,
            Value::Text(text) => text.is_empty(),
            number => number.as_number() == Some(0.0),
        };
        let known = [KIND, ALPHA].contains(&key) || NEUTRAL.contains(&key);
        let general = key.strip_prefix("general.").is_some_and(|rest| !rest.is_empty());
        if !known && !general && !nothing {
            let problem = "this program does not know that key of an adapter";
            return Err(Error::format(path, format!("{key} is {}; {problem}", shown(key))));
        }
    }
    if metadata.get(ALPHA).is_none() {
        return Ok(0.0);
    }
    let alpha = one(ALPHA).as_number().filter(|alpha| alpha.abs() <= f64::from(f32::MAX));
    alpha.ok_or_else(|| Error::format(path, format!("{ALPHA} is {}; it must be a finite number of f32", shown(ALPHA))))
}

fn factor(file: &Gguf, theirs: &str, family: &Family, head_dim: usize) -> Result<Factor> {
    let mut tensor = file.tensor(theirs)?;
    let of_a = theirs.strip_suffix(".lora_a");
    let module = of_a.or_else(|| theirs.strip_suffix(".lora_b")).filter(|module| !module.is_empty());
    let name = module.and_then(name_of_gguf);
    let first = of_a.is_some();
    if first && tensor.shape.len() == 1 {
        tensor.shape.insert(0, 1); // of rank 1: files may leave such a dimension out
    }
    let turned = family.interleaved && !first && name.as_deref().is_some_and(is_rotated);
    // A tensor of a shape that it should not have stays as it is.
    if turned && tensor.shape.len() == 2 && tensor.shape[0].is_multiple_of(head_dim) {
        let order = interleaved_order(head_dim);
        let mut back = vec![0; head_dim];
        order.iter().enumerate().for_each(|(at, row)| back[*row] = at);
        tensor = tensor.rows_in_order(&back)?;
    }
    Ok(Factor { theirs: theirs.to_owned(), module: module.map(str::to_owned), name, first, tensor })
}

/// Rows of a head with half-split pairs in the order in which each pair is side by side.
pub(crate) fn interleaved_order(head_dim: usize) -> Vec<usize> {
    (0..head_dim / 2).flat_map(|pair| [pair, pair + head_dim / 2]).collect()
}

/// Whether a matrix is of queries or keys, by its name in `LlamaConfig::shapes`.
pub(crate) fn is_rotated(name: &str) -> bool {
    name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight")
}
