//! Constrained output: JSON, or JSON of a schema.

use std::sync::OnceLock;

use nn_core::Error;
use nn_core::format::{Table, Value};
use nn_core::infer::{Grammar, Grammars, LanguageModel};

use super::api::{API, ApiError};
use super::fields::Values;

const FIELD: &str = "response_format";

/// Makes grammars of what requests ask for, for texts of one model.
#[derive(Debug)]
pub(super) struct Formats {
    model: LanguageModel,
    /// Made with the first grammar, since not every server needs it.
    grammars: OnceLock<Result<Grammars, Error>>,
}

impl Formats {
    pub(super) fn new(model: LanguageModel) -> Self {
        Self { model, grammars: OnceLock::new() }
    }

    /// The grammar of a request's response_format; `None` where that leaves texts free.
    pub(super) fn grammar(&self, values: &Values) -> Result<Option<Grammar>, ApiError> {
        let Some(format) = values.object(FIELD) else { return Ok(None) };
        let kind = format.get("type").unwrap_or(&Value::None);
        match kind.as_text() {
            Some("text") => check_keys(&format, FIELD, &["type"]).map(|()| None),
            Some("json_object") => {
                check_keys(&format, FIELD, &["type"])?;
                self.built(&Table::from([("type", "object".into())])).map(Some)
            }
            Some("json_schema") => {
                check_keys(&format, FIELD, &["type", "json_schema"])?;
                self.built(schema(format.get("json_schema").unwrap_or(&Value::None))?).map(Some)
            }
            _ => Err(ApiError::wrong(&format!("{FIELD}.type"), kind, API.word("format_type"))),
        }
    }

    fn built(&self, schema: &Table) -> Result<Grammar, ApiError> {
        let tokenizer = self.model.tokenizer().ok_or_else(|| ApiError::named("no_tokenizer", FIELD, &[]))?;
        let vocab = self.model.config().vocab_size;
        let grammars = self.grammars.get_or_init(|| Grammars::new(tokenizer, vocab)).as_ref();
        grammars
            .map_err(super::requests::failed)?
            .json_schema(schema)
            .map_err(|why| ApiError::named("bad_schema", &format!("{FIELD}.json_schema.schema"), &[("why", &why)]))
    }
}

/// The schema of a json_schema.
fn schema(described: &Value) -> Result<&Table, ApiError> {
    let name = format!("{FIELD}.json_schema");
    let Value::Table(described) = described else {
        return Err(ApiError::wrong(&name, described, API.word("json_schema")));
    };
    check_keys(described, &name, &["name", "description", "schema", "strict"])?;
    for (key, words) in [("name", "text"), ("description", "text"), ("strict", "flag")] {
        match (described.get(key), words) {
            (None | Some(Value::None), _) | (Some(Value::Text(_)), "text") | (Some(Value::Bool(_)), "flag") => {}
            (Some(value), _) => return Err(ApiError::wrong(&format!("{name}.{key}"), value, API.word(words))),
        }
    }
    match described.get("schema") {
        Some(Value::Table(schema)) => Ok(schema),
        other => Err(ApiError::wrong(&format!("{name}.schema"), other.unwrap_or(&Value::None), API.word("schema"))),
    }
}

fn check_keys(found: &Table, name: &str, known: &[&str]) -> Result<(), ApiError> {
    match found.names().find(|key| !known.contains(key)) {
        None => Ok(()),
        Some(key) => Err(ApiError::unknown(&format!("{name}.{key}"), name)),
    }
}
