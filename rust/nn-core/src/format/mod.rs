//! Files: safetensors, token shards, tokenizers, JSON, and writing that a kill cannot spoil.
//!
//! Nothing in here knows a model. Every reader checks a file in full before it hands anything out, and says in one
//! sentence what is wrong with it.

pub mod atomic;
pub mod json;
pub mod limits;
pub mod regular;
pub mod safetensors;
pub mod shards;
pub mod value;

use std::path::Path;

use crate::error::{Error, Result};
pub use crate::tokenizer::Tokenizer;
pub use json::parse_json;
pub use regular::{json_lines, open_regular, present, read_regular};
pub use safetensors::{Dtype, SafetensorsFile, SafetensorsFolder};
pub use shards::TokenShard;
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

/// A TOML file.
pub fn read_toml(path: &Path) -> Result<Table> {
    let bytes = read_regular(path, limits::TOML_BYTES)?;
    let most = limits::TOML_LINE_BYTES;
    if let Some((at, line)) = bytes.split(|byte| *byte == b'\n').enumerate().find(|(_, line)| line.len() > most) {
        let problem = format!("line {} has {} bytes; a line may have at most {most}", at + 1, line.len());
        return Err(Error::format(path, problem));
    }
    let wrong = |problem: String| Error::format(path, format!("is not TOML ({})", problem.replace('\n', ", ")));
    let text = String::from_utf8(bytes).map_err(|error| wrong(error.utf8_error().to_string()))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        wrong(format!("{} at line {line}", error.message()))
    })?;
    Ok(table.into_iter().map(|(name, value)| (name, value.into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.toml");
        std::fs::write(&path, "[train]\nsteps = \n").unwrap();
        let error = read_toml(&path).unwrap_err().to_string();
        assert!(error.contains("a.toml: is not TOML (") && error.ends_with(" at line 2)"), "{error}");
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_toml(&path).unwrap_err().exit_code(), 3);
    }
}
