//! `nncuda-rs inspect`: what is in a file or folder.

mod stored;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use nn_core::format::safetensors::Entry;
use nn_core::format::shards::MAGIC;
use nn_core::format::{SafetensorsFile, Table, TokenShard, Tokenizer, Value, open_regular, present, read_json};
use nn_core::model::is_adapter;
use nn_core::train::{Checkpoint, read_training_state, resolve_checkpoint};
use nn_core::{Error, Result};

use crate::failure::Failure;
use crate::paths;
use crate::terminal::{bytes_text, columns, count_text};

/// Show what is in PATH: config, tensors, shapes, dtypes, sizes.
///
/// PATH is a checkpoint, a run (its last checkpoint), a folder of Hugging Face, of PEFT, a GGUF file, a
/// safetensors file, a token shard or a tokenizer. Everything shown has been checked, including every id of a shard. Long
/// arrays of a GGUF file's metadata are shortened.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// A file or folder.
    #[arg(value_name = "PATH", value_parser = paths::file_or_folder)]
    path: PathBuf,
    /// Write JSON, for programs.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> std::result::Result<(), Failure> {
    let content = describe(&arguments.path)?;
    let text = if arguments.json { Value::Table(content).to_json_lines() } else { for_people(&content) };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn describe(path: &Path) -> Result<Table> {
    if path.is_dir() {
        return describe_folder(&resolve_checkpoint(path, false)?);
    }
    let mut head = Vec::new();
    let (file, _) = open_regular(path)?;
    file.take(MAGIC.len() as u64).read_to_end(&mut head).map_err(|error| Error::io(path, error))?;
    let of_kind = |kind: &str| Table::from([("kind", kind.into()), ("path", path.display().to_string().into())]);
    if head.starts_with(b"GGUF") {
        return stored::describe_gguf(path);
    }
    if head == MAGIC {
        let shard = TokenShard::open(path)?;
        shard.check_ids()?;
        let mut content = of_kind("token shard");
        content.set("tokens", shard.count());
        content.set("vocabulary", shard.vocab_size());
        content.set("bytes per token", shard.width());
        let digest = shard.tokenizer();
        let known = digest.iter().any(|byte| *byte != 0);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        content.set("tokenizer", if known { hex } else { "unknown".into() });
        if shard.has_documents() {
            let (mut documents, mut targets) = (0u64, 0u64);
            shard.documents(|_, bits| {
                documents += u64::from(bits.ends);
                targets += u64::from(bits.target);
                Ok(())
            })?;
            content.set("documents", documents);
            content.set("targets", targets);
        }
        return Ok(content);
    }
    match path.extension().map(|extension| extension.to_string_lossy()).as_deref() {
        Some("model") => {
            let mut content = of_kind("tokenizer");
            content.set("pieces", Tokenizer::load(path)?.vocab_size());
            Ok(content)
        }
        Some("safetensors") => {
            let mut content = of_kind("safetensors");
            describe_tensors(&mut content, SafetensorsFile::open(path)?.iter());
            Ok(content)
        }
        _ => {
            let known = "GGUF, token shard, tokenizer (.model), .safetensors";
            Err(Error::format(path, format!("is not a kind of file that nncuda-rs knows: {known}")))
        }
    }
}

/// What is in the folder of an adapter by itself: whether it is of a model, that model says.
fn describe_adapter(folder: &Path) -> Result<Table> {
    let file = SafetensorsFile::open(&folder.join("adapter_model.safetensors"))?;
    let state = folder.join("training.json");
    let training = present(&state).then(|| read_training_state(&state)).transpose()?;
    let kind = if training.is_some() { "adapter that is trained" } else { "adapter" };
    let parameters: u128 = file.iter().map(|(_, entry)| entry.count() as u128).sum();
    let mut content = Table::from([
        ("kind", kind.into()),
        ("path", folder.display().to_string().into()),
        ("parameters", count_text(parameters).into()),
        ("adapter", read_json(&folder.join("adapter_config.json"))?.into()),
    ]);
    if let Some(training) = training {
        let mut state = training.to_table();
        state.remove("train");
        content.set("train", training.train.to_table());
        content.set("training state", state);
    }
    describe_tensors(&mut content, file.iter());
    Ok(content)
}

fn describe_folder(folder: &Path) -> Result<Table> {
    if is_adapter(folder) {
        return describe_adapter(folder);
    }
    let checkpoint = match Checkpoint::open(folder) {
        // A Llama from elsewhere is described as the engine runs it.
        Ok(checkpoint) if checkpoint.config.num_experts == 0 && checkpoint.training.is_none() => {
            return stored::describe_other(folder, Error::format(folder, "is no checkpoint"));
        }
        Ok(checkpoint) => checkpoint,
        Err(why) => return stored::describe_other(folder, why),
    };
    let config = &checkpoint.config;
    let (all, active) = (count_text(config.num_parameters()), count_text(config.num_active_parameters()));
    let kind = if checkpoint.training.is_some() { "checkpoint" } else { "model" };
    let mut content = Table::from([
        ("kind", kind.into()),
        ("path", folder.display().to_string().into()),
        ("parameters", format!("{all}, {active} active per token").into()),
        ("model", config.to_table().into()),
    ]);
    if let Some(tokenizer) = &checkpoint.tokenizer {
        content.set("tokenizer", format!("{} pieces", tokenizer.vocab_size()));
    }
    if let Some(training) = &checkpoint.training {
        let mut state = training.to_table();
        state.remove("train");
        content.set("train", training.train.to_table());
        content.set("training state", state);
    }
    describe_tensors(&mut content, checkpoint.weights.files().iter());
    Ok(content)
}

fn describe_tensors<'a>(content: &mut Table, tensors: impl Iterator<Item = (&'a str, &'a Entry)>) {
    let mut total = 0;
    let rows: Vec<Value> = tensors
        .map(|(name, entry)| {
            total += entry.bytes();
            row(name, &entry.shape, entry.dtype.name, entry.bytes())
        })
        .collect();
    content.set("total", format!("{} tensors, {}", rows.len(), bytes_text(total)));
    content.set("tensors", rows);
}

/// A tensor in a description.
fn row(name: &str, shape: &[usize], dtype: &str, bytes: u64) -> Value {
    Value::Table(Table::from([
        ("name", name.into()),
        ("shape", Value::List(shape.iter().map(|size| (*size).into()).collect())),
        ("dtype", dtype.into()),
        ("bytes", bytes.into()),
    ]))
}

fn for_people(content: &Table) -> String {
    let mut text = String::new();
    for (name, value) in content.iter() {
        match value {
            Value::List(tensors) => {
                let head = ["tensor", "shape", "dtype", "size"].map(String::from).to_vec();
                let rows = tensors.iter().filter_map(Value::as_table).map(tensor_row);
                text.push('\n');
                text.push_str(&columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
            }
            Value::Table(table) => {
                let mut rows = Vec::new();
                values("", table, &mut rows);
                text.push_str(&format!("\n{name}\n{}", columns(&rows)));
            }
            other => {
                let before = if name == "total" { "\n" } else { "" };
                text.push_str(&format!("{before}{name}: {}\n", plain(other)));
            }
        }
    }
    text
}

/// A row for each value that is not a group, with its path: "loss_scaling.scale".
fn values(before: &str, table: &Table, rows: &mut Vec<Vec<String>>) {
    for (key, value) in table.iter() {
        match value {
            Value::Table(group) => values(&format!("{before}{key}."), group, rows),
            value => rows.push(vec![format!("{before}{key}"), plain(value)]),
        }
    }
}

fn tensor_row(tensor: &Table) -> Vec<String> {
    let cell = |name: &str| tensor.get(name).map(plain).unwrap_or_default();
    let shape = match tensor.get("shape") {
        Some(Value::List(sizes)) if !sizes.is_empty() => sizes.iter().map(plain).collect::<Vec<_>>().join(" × "),
        _ => "scalar".into(),
    };
    let size = tensor.get("bytes").and_then(Value::as_integer).map(bytes_text).unwrap_or_default();
    vec![cell("name"), shape, cell("dtype"), size]
}

/// A value as configuration files write it, without quotes around text.
fn plain(value: &Value) -> String {
    match value {
        Value::None => "none".into(),
        Value::Bool(value) => value.to_string(),
        Value::Text(text) => text.clone(),
        other => other.shown(),
    }
}
