//! The tokenizer of a model as a run carries it from checkpoint to checkpoint: the files of a folder, byte for byte, or those that
//! a GGUF file's tokenizer makes.
//!
//! What a model was published with is more than ids and pieces: the chat template, the names of special tokens, the
//! defaults of sampling. All of it stays as it was.

use std::path::Path;

use super::gguf::{Metadata, MetadataValue};
use super::{TextTokenizer, Tokenizer};
use crate::error::{Error, Result};
use crate::format::limits::{COUNT, JSON_BYTES, TEMPLATE_BYTES, TOKENIZER_JSON_BYTES, TOKENIZER_MODEL_BYTES};
use crate::format::{Table, Value, present, read_json, read_regular};

/// The files that are carried, and how many bytes each may have.
const FILES: [(&str, u64); 7] = [
    ("tokenizer.model", TOKENIZER_MODEL_BYTES),
    ("tokenizer.json", TOKENIZER_JSON_BYTES),
    ("tokenizer_config.json", JSON_BYTES),
    ("special_tokens_map.json", JSON_BYTES),
    ("added_tokens.json", JSON_BYTES),
    ("generation_config.json", JSON_BYTES),
    ("chat_template.jinja", TEMPLATE_BYTES),
];

/// What of a tokenizer, and of how texts are generated, a model's folder has, by name. `Error::Format` for a file that cannot be
/// read or is too large.
pub(crate) fn tokenizer_files(folder: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    FILES
        .into_iter()
        .map(|(name, most)| (name, folder.join(name), most))
        .filter(|(_, path, _)| present(path))
        .map(|(name, path, most)| Ok((name, read_regular(&path, most)?)))
        .collect()
}

/// The files by name, and the ids that config.json has of begin, end and padding.
#[derive(Clone, Debug)]
pub struct CarriedTokenizer {
    contents: Vec<(&'static str, Vec<u8>)>,
    special_ids: Table,
}

impl CarriedTokenizer {
    /// That of a model without one.
    pub fn none() -> Self {
        let ids = ["bos_token_id", "eos_token_id", "pad_token_id"].map(|name| (name, Value::None));
        Self { contents: Vec::new(), special_ids: Table::from(ids) }
    }

    /// The files of a folder of the tokenizer that a GGUF file with these metadata has: tokenizer.json or tokenizer.model,
    /// tokenizer_config.json with the chat template, and generation_config.json. `Error::Format` for a template that is none.
    pub fn of_gguf(tokenizer: &TextTokenizer, metadata: &dyn Metadata, source: &Path) -> Result<Self> {
        let (file, mut described) = tokenizer.as_files(metadata, source)?;
        match metadata.value("tokenizer.chat_template") {
            None => {}
            Some(MetadataValue::Text(template)) => described.set("chat_template", template),
            Some(_) => return Err(Error::format(source, "tokenizer.chat_template is not a string")),
        }
        let ids = tokenizer.special_ids();
        let json = |table: &Table| Value::Table(table.clone()).to_json_lines().into_bytes();
        let contents = vec![file, ("tokenizer_config.json", json(&described)), ("generation_config.json", json(&ids))];
        Ok(Self { contents, special_ids: ids })
    }

    /// That of a model's folder, which may have none. `Error::Format` for one that cannot be read or is too large.
    pub fn of(folder: &Path) -> Result<Self> {
        let config = folder.join("config.json");
        let values = read_json(&config)?;
        let mut special_ids = Table::new();
        for name in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            let value = values.get(name).unwrap_or(&Value::None);
            let listed = match value {
                Value::None => &[],
                Value::List(list) => &list[..],
                one => std::slice::from_ref(one),
            };
            if !listed.iter().all(|one| one.as_integer().is_some_and(|id: usize| id <= COUNT)) {
                let rule = format!("a whole number, from 0 to {COUNT}, a list of them, or null");
                return Err(Error::format(config, format!("{name} is {}; it must be {rule}", value.shown())));
            }
            special_ids.set(name, value.clone());
        }
        Ok(Self { contents: tokenizer_files(folder)?, special_ids })
    }

    /// Whether there is a tokenizer among them.
    pub fn has_tokenizer(&self) -> bool {
        self.contents.iter().any(|(name, _)| matches!(*name, "tokenizer.model" | "tokenizer.json"))
    }

    /// Names and contents.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.contents.iter().map(|(name, content)| (*name, content.as_slice()))
    }

    /// The ids as `config.json` has them; none for none.
    pub(crate) fn special_ids(&self) -> &Table {
        &self.special_ids
    }
}

impl From<&Tokenizer> for CarriedTokenizer {
    fn from(tokenizer: &Tokenizer) -> Self {
        let json = |table: Table| Value::Table(table).to_json_lines().into_bytes();
        let contents = vec![
            ("tokenizer.model", tokenizer.model().to_vec()),
            ("tokenizer_config.json", json(tokenizer.for_transformers())),
            ("generation_config.json", json(tokenizer.special_ids())),
        ];
        Self { contents, special_ids: tokenizer.special_ids() }
    }
}
