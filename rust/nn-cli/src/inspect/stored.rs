//! What is in GGUF files, and in folders of models that the inference engine alone runs.

use std::collections::BTreeMap;
use std::path::Path;

use nn_core::format::gguf::MetadataValue;
use nn_core::format::{Gguf, Table, Value, present, read_json};
use nn_core::model::{StoredModel, is_dense_kind};
use nn_core::{Error, Result};

use super::row;
use crate::terminal::{bytes_text, count_text};

// What is shown of long values of a GGUF file's metadata.
const ELEMENTS_SHOWN: usize = 8;
const CHARACTERS_SHOWN: usize = 200;

/// What is in a GGUF file.
pub(super) fn describe_gguf(path: &Path) -> Result<Table> {
    let file = Gguf::open(path)?;
    let (mut rows, mut formats, mut parameters, mut total) = (Vec::new(), BTreeMap::new(), 0_u128, 0);
    for (name, entry) in file.iter() {
        let bytes = entry.bytes.unwrap_or(0) as u64;
        rows.push(row(name, &entry.shape, &entry.type_name, bytes));
        let held: &mut (u64, u64) = formats.entry(entry.type_name.clone()).or_default();
        *held = (held.0 + 1, held.1 + bytes);
        total += bytes;
        // Tensors of unknown types may be of any size.
        let elements = entry.shape.iter().fold(1_u128, |product, size| product.saturating_mul(*size as u128));
        parameters = parameters.saturating_add(elements);
    }
    let mut metadata = Table::new();
    for (key, value) in file.metadata().iter() {
        metadata.set(key, shortened(value)?);
    }
    let group = |(name, (tensors, bytes)): (String, (u64, u64))| {
        (name, Table::from([("tensors", tensors.into()), ("bytes", bytes.into())]).into())
    };
    Ok(Table::from([
        ("kind", format!("GGUF, version {}", file.version()).into()),
        ("path", path.display().to_string().into()),
        ("parameters", count_text(parameters).into()),
        ("metadata", metadata.into()),
        ("formats", formats.into_iter().map(group).collect::<Table>().into()),
        ("total", format!("{} tensors, {}", rows.len(), bytes_text(total)).into()),
        ("tensors", rows.into()),
    ]))
}

/// A value of metadata, cut where it is long.
fn shortened(value: &MetadataValue) -> Result<Value> {
    let (kind, count, first) = match value {
        MetadataValue::One(_, value) => return Ok(cut(value.clone())),
        MetadataValue::Numbers(kind, _) => {
            let elements = value.numbers().into_iter().flatten();
            let first: Vec<Value> = elements.take(ELEMENTS_SHOWN).collect();
            (kind.name(), value.numbers().map_or(0, |elements| elements.len()), first)
        }
        MetadataValue::Strings(strings) => {
            let first = (0..strings.len().min(ELEMENTS_SHOWN)).map(|at| strings.get(at));
            let first = first.map(|text| text.map(|text| cut(text.unwrap_or_default().into())));
            ("string", strings.len(), first.collect::<Result<Vec<_>>>()?)
        }
    };
    if count <= ELEMENTS_SHOWN {
        return Ok(Value::List(first));
    }
    let words: Vec<String> = first.iter().map(in_ascii).collect();
    Ok(format!("{count} × {kind}: {}, …", words.join(", ")).into())
}

fn cut(value: Value) -> Value {
    let Some(text) = value.as_text() else { return value };
    let length = text.chars().count();
    if length <= CHARACTERS_SHOWN {
        return value;
    }
    let begin: String = text.chars().take(CHARACTERS_SHOWN).collect();
    format!("{begin}… ({length} characters)").into()
}

/// JSON with letters beyond ASCII escaped, as the Python package writes it here.
fn in_ascii(value: &Value) -> String {
    let mut text = String::new();
    for letter in value.to_json().chars() {
        if letter.is_ascii() {
            text.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

/// What is in a folder that is no checkpoint, `why`, but a model that the inference engine runs: a dense model, a BitNet, or a
/// Mixtral that cannot be trained here, such as one with a scaled rotary embedding.
pub(super) fn describe_other(folder: &Path, why: Error) -> Result<Table> {
    // What has been trained here is a checkpoint or wrong.
    let config = match read_json(&folder.join("config.json")) {
        Ok(config) if !present(&folder.join("training.json")) => config,
        _ => return Err(why),
    };
    let kind = config.get("model_type").and_then(Value::as_text);
    let model = match StoredModel::open(folder) {
        Ok(model) => model,
        Err(error) if kind.is_some_and(is_dense_kind) => return Err(error),
        Err(_) => return Err(why),
    };
    let mut content = Table::from([
        ("kind", "model".into()),
        ("path", folder.display().to_string().into()),
        ("parameters", count_text(model.num_parameters()).into()),
        ("model", model.config().to_table().into()),
    ]);
    if let Some(tokenizer) = model.tokenizer()? {
        content.set("tokenizer", format!("{} pieces", tokenizer.vocab_size()));
    }
    let mut rows = Vec::new();
    for (name, _) in model.config().shapes() {
        if let Some(matrix) = model.ternary(&name) {
            let form = format!("ternary, {}", matrix.form.name());
            rows.push(row(&matrix.name, &matrix.shape, &form, matrix.data.len() as u64));
        } else if name != "lm_head.weight" || !model.config().tie_embeddings {
            for part in model.tensors().parts(&name)? {
                rows.push(row(&part.name, &part.shape, part.format.name, part.byte_count() as u64));
            }
        }
    }
    content.set("total", format!("{} tensors, {}", rows.len(), bytes_text(model.bytes() as u64)));
    content.set("tensors", rows);
    Ok(content)
}
