//! Constrained output: JSON, JSON of a schema, or calls of tools.

use std::collections::HashMap;
use std::sync::OnceLock;

use nn_core::Error;
use nn_core::format::{Table, Value};
use nn_core::infer::{Grammar, Grammars, LanguageModel, check_grammar, schema_text};

use super::api::{API, ApiError};
use super::call_grammars::{arguments_schema, call_grammar};
use super::fields::check_keys;
use super::tool_calls::CallForm;
use super::tools::{Tools, wrong};

const FIELD: &str = "response_format";
const TEXT: &str = "text.format";

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
    pub(super) fn of(&self, response_format: Option<&Table>) -> Result<Option<Grammar>, ApiError> {
        let Some(format) = response_format else { return Ok(None) };
        let place = format!("{FIELD}.json_schema");
        match Kind::of(format, FIELD)? {
            Kind::Schema => {
                check_keys(format, FIELD, &["type", "json_schema"], FIELD)?;
                let given = format.get("json_schema");
                let described = given.and_then(Value::as_table).ok_or_else(|| wrong(&place, given, "json_schema"))?;
                self.built(schema(described, &place, &SCHEMA_KEYS[1..])?, FIELD, &place).map(Some)
            }
            kind => {
                check_keys(format, FIELD, &["type"], FIELD)?;
                self.any_object(kind, FIELD, &place)
            }
        }
    }

    /// That of a `text.format`, whose schema stands beside its type.
    pub(super) fn of_text(&self, format: Option<&Table>) -> Result<Option<Grammar>, ApiError> {
        let Some(format) = format else { return Ok(None) };
        match Kind::of(format, TEXT)? {
            Kind::Schema => self.built(schema(format, TEXT, &SCHEMA_KEYS)?, TEXT, TEXT).map(Some),
            kind => {
                check_keys(format, TEXT, &["type"], TEXT)?;
                self.any_object(kind, TEXT, TEXT)
            }
        }
    }

    /// The grammar of texts that call tools; `None` where texts are free. `marks` are those texts of the form that are control
    /// tokens.
    pub(super) fn of_calls(
        &self,
        tools: &Tools,
        form: &CallForm,
        marks: &HashMap<&'static str, i32>,
    ) -> Result<Option<Grammar>, ApiError> {
        if tools.enforced().next().is_none() {
            return Ok(None);
        }
        let schemas = tools
            .enforced()
            .map(|tool| (format!("{}.parameters", tool.place), schema_text(&arguments_schema(tool, true))));
        let parts: Vec<(String, String)> =
            schemas.chain([("tools".to_owned(), call_grammar(tools, form, marks))]).collect();
        // All that can be refused at once is, before anything takes time; the schemas by their names.
        for (name, text) in &parts {
            check_grammar(text).map_err(|why| ApiError::named("bad_schema", name, &[("why", &why)]))?;
        }
        let mut last = None;
        for (name, text) in &parts {
            last = Some(self.made("tools", name, |grammars| grammars.checked(text))?);
        }
        Ok(last)
    }

    /// The grammar of a format without a schema.
    fn any_object(&self, kind: Kind, field: &str, place: &str) -> Result<Option<Grammar>, ApiError> {
        if kind == Kind::Text {
            return Ok(None);
        }
        self.built(&Table::from([("type", "object".into())]), field, place).map(Some)
    }

    /// The grammar of the schema that stands at a place within a field.
    fn built(&self, schema: &Table, field: &str, place: &str) -> Result<Grammar, ApiError> {
        self.made(field, &format!("{place}.schema"), |grammars| grammars.json_schema(schema))
    }

    /// A grammar for a field; `name` is what it is made of.
    fn made(
        &self,
        field: &str,
        name: &str,
        make: impl FnOnce(&Grammars) -> nn_core::Result<Grammar>,
    ) -> Result<Grammar, ApiError> {
        let tokenizer = self.model.tokenizer().ok_or_else(|| ApiError::named("no_tokenizer", field, &[]))?;
        let vocab = self.model.config().vocab_size;
        let grammars = self.grammars.get_or_init(|| Grammars::new(tokenizer, vocab)).as_ref();
        make(grammars.map_err(super::requests::failed)?)
            .map_err(|why| ApiError::named("bad_schema", name, &[("why", &why)]))
    }
}

/// The type of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Object,
    Schema,
}

impl Kind {
    fn of(format: &Table, name: &str) -> Result<Self, ApiError> {
        let kind = format.get("type");
        match kind.and_then(Value::as_text) {
            Some("text") => Ok(Self::Text),
            Some("json_object") => Ok(Self::Object),
            Some("json_schema") => Ok(Self::Schema),
            _ => Err(wrong(&format!("{name}.type"), kind, "format_type")),
        }
    }
}

/// What stands beside a schema: the type of a `text.format`, and what describes any schema.
const SCHEMA_KEYS: [&str; 5] = ["type", "name", "description", "schema", "strict"];

/// The schema that an object of these keys describes.
fn schema<'t>(described: &'t Table, name: &str, known: &[&str]) -> Result<&'t Table, ApiError> {
    check_keys(described, name, known, name)?;
    for (key, words) in [("name", "text"), ("description", "text"), ("strict", "flag")] {
        match (described.get(key), words) {
            (None | Some(Value::None), _) | (Some(Value::Text(_)), "text") | (Some(Value::Bool(_)), "flag") => {}
            (Some(value), _) => return Err(ApiError::wrong(&format!("{name}.{key}"), value, API.word(words))),
        }
    }
    let given = described.get("schema");
    given.and_then(Value::as_table).ok_or_else(|| wrong(&format!("{name}.schema"), given, "schema"))
}
