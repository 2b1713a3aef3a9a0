//! What a folder that transformers opens says of its tokenizer.
//!
//! tokenizer.json where there is one, since that is what transformers uses, else tokenizer.model; what begins a text and
//! what ends it is also in tokenizer_config.json, generation_config.json and config.json.

use std::path::Path;

use super::json::JsonTokenizer;
use super::text::{Kind, TextTokenizer};
use super::{Tokenizer, id};
use crate::error::{Error, Result};
use crate::format::{Table, Value, present, read_json};

impl TextTokenizer {
    /// The tokenizer of a folder; none when it has none, `Error::Format` when it is wrong.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("tokenizer_config.json");
        let described = optional_json(&path)?;
        let adds_begin = match described.get("add_bos_token") {
            None | Some(Value::None) => None,
            Some(Value::Bool(adds)) => Some(*adds),
            Some(other) => {
                let problem = format!("add_bos_token is {}; it must be true or false", other.shown());
                return Err(Error::format(path, problem));
            }
        };
        let mut made = if present(&folder.join("tokenizer.json")) {
            let library = JsonTokenizer::load(&folder.join("tokenizer.json"))?;
            let named = |key: &str| library.id_of(token_name(&described, key));
            let begin = match named("bos_token") {
                Some(id) => Some(id),
                None => ids(&folder.join("config.json"), "bos_token_id")?.first().copied(),
            };
            let ends = named("eos_token").into_iter().collect();
            let usual = begin.is_some() && library.first_id() == begin;
            Self::new(Kind::Json(Box::new(library)), begin, ends, usual)
        } else if present(&folder.join("tokenizer.model")) {
            Tokenizer::load(folder.join("tokenizer.model"))?.into()
        } else {
            return Ok(None);
        };
        for name in ["config.json", "generation_config.json"] {
            made.ends.extend(ids(&folder.join(name), "eos_token_id")?);
        }
        let size = made.vocab_size();
        let known = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < size);
        made.begin = made.begin.filter(known);
        made.ends.retain(known);
        made.adds_begin = adds_begin.unwrap_or(made.adds_begin);
        Ok(Some(made))
    }
}

/// A JSON object; an empty one when there is no such file.
pub(super) fn optional_json(path: &Path) -> Result<Table> {
    if present(path) { read_json(path) } else { Ok(Table::new()) }
}

/// The name of a token in a tokenizer_config.json, which has it alone or in an object; empty without.
pub(super) fn token_name<'a>(described: &'a Table, key: &str) -> &'a str {
    let value = described.get(key);
    let value = value.and_then(Value::as_table).map_or(value, |table| table.get("content"));
    value.and_then(Value::as_text).unwrap_or_default()
}

/// The ids of a key that has one, a list of them, or none. Ids beyond those that kernels count are of no token.
fn ids(path: &Path, key: &str) -> Result<Vec<i32>> {
    let described = optional_json(path)?;
    let Some(value) = described.get(key) else { return Ok(Vec::new()) };
    let list = if let Value::List(list) = value { &list[..] } else { std::slice::from_ref(value) };
    let given = list.iter().filter(|id| **id != Value::None);
    let ids: Option<Vec<u64>> = given.map(Value::as_integer).collect();
    let ids = ids.ok_or_else(|| {
        Error::format(path, format!("{key} is {}; it must be an id or a list of them", value.shown()))
    })?;
    Ok(ids.into_iter().filter_map(|id| i32::try_from(id).ok()).collect())
}

impl Tokenizer {
    /// The ids of begin, end and padding as `config.json` and `generation_config.json` have them; none for none.
    pub fn special_ids(&self) -> Table {
        let value = |id: Option<i32>| id.map(i64::from).into();
        Table::from([
            ("bos_token_id", value(self.begin_id())),
            ("eos_token_id", value(self.end_id())),
            ("pad_token_id", value(self.pad_id())),
        ])
    }

    /// The content of `tokenizer_config.json`, by which transformers gives a text the ids that it has here, the begin id
    /// before them.
    pub fn for_transformers(&self) -> Table {
        self.described(self.begin.is_some(), self.begin_id(), self.end_id())
    }

    /// The same with begin and end as another file names them.
    pub(super) fn described(&self, adds_begin: bool, begin: Option<i32>, end: Option<i32>) -> Table {
        let name = |id: Option<i32>| id.and_then(|id| self.piece(id)).map_or(Value::None, Value::from);
        Table::from([
            ("add_bos_token", adds_begin.into()),
            ("add_eos_token", false.into()),
            ("bos_token", name(begin)),
            ("eos_token", name(end)),
            ("unk_token", name(Some(id(self.unknown)))),
            ("pad_token", name(self.pad_id())),
            // transformers 4 puts a space before every text unless told otherwise, whatever the model's file says;
            // "legacy" has it begin again after a control token, as SentencePiece does.
            ("add_prefix_space", self.puts_first_space.into()),
            ("legacy", true.into()),
            ("clean_up_tokenization_spaces", false.into()),
            ("tokenizer_class", "LlamaTokenizer".into()),
        ])
    }
}
