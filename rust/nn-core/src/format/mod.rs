//! Files: safetensors, GGUF, token shards, tokenizers, JSON, and writing that a kill cannot spoil.
//!
//! Nothing in here knows a model. Every reader checks a file in full before it hands anything out, and says in one
//! sentence what is wrong with it.

pub mod atomic;
pub mod block_formats;
pub mod gguf;
pub mod json;
pub mod limits;
pub mod regular;
pub mod safetensors;
pub mod shards;
pub mod ternary;
pub mod ternary_blocks;
mod toml_file;
pub mod value;

use std::path::Path;

use crate::error::{Error, Result};
pub use crate::tokenizer::Tokenizer;
pub use block_formats::StoredTensor;
pub use gguf::Gguf;
pub use json::{parse_json, write_json};
pub use regular::{json_lines, open_regular, present, read_regular};
pub use safetensors::{Dtype, SafetensorsFile, SafetensorsFolder};
pub use shards::TokenShard;
pub use toml_file::TomlFile;
pub use value::{Table, Value};

/// A JSON file that holds an object.
pub fn read_json(path: &Path) -> Result<Table> {
    read_long_json(path, limits::JSON_BYTES)
}

/// The same, of at most so many bytes.
pub(crate) fn read_long_json(path: &Path, most: u64) -> Result<Table> {
    let bytes = read_regular(path, most)?;
    let value = parse_json(&bytes).map_err(|problem| Error::format(path, format!("is not JSON ({problem})")))?;
    match value {
        Value::Table(table) => Ok(table),
        _ => Err(Error::format(path, "is not a JSON object")),
    }
}
