//! What the server accepts and refuses, from `api.json`, which the servers of all languages read.

use std::collections::HashMap;
use std::sync::LazyLock;

use nn_core::format::{Value, write_json};
use serde::Deserialize;

use super::tool_calls::CallForm;
use super::wire::Json;

/// The table of the servers.
pub(super) static API: LazyLock<Api> = LazyLock::new(|| {
    // It is a part of this program, whose tests read it.
    serde_json::from_str(include_str!("api.json")).unwrap_or_else(|error| panic!("api.json: {error}"))
});

#[derive(Debug, Deserialize)]
pub(super) struct Api {
    pub(super) limits: Limits,
    errors: HashMap<String, (u16, String, String)>,
    words: HashMap<String, String>,
    pub(super) call_forms: Vec<CallForm>,
    pub(super) fields: Vec<Field>,
    pub(super) metrics: Vec<Metric>,
}

impl Api {
    /// What errors say of parts of fields.
    pub(super) fn word(&self, name: &str) -> &str {
        self.words.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Limits {
    pub(super) body_bytes: usize,
    pub(super) body_seconds: u64,
    pub(super) header_bytes: usize,
    pub(super) headers: usize,
    pub(super) header_seconds: u64,
    pub(super) keep_alive_seconds: u64,
    pub(super) linger_seconds: u64,
    pub(super) write_seconds: u64,
    pub(super) connections: usize,
    shown_characters: usize,
}

/// What the value of a field is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Boolean,
    Number,
    Integer,
    String,
    Strings,
    Ids,
    Bias,
    Object,
    Choice,
    Choices,
    Input,
    Prompt,
    StreamOptions,
    Messages,
    Tools,
    ToolChoice,
    Unsupported,
}

/// A field of some routes.
#[derive(Debug, Deserialize)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) routes: Vec<String>,
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) must: String,
    #[serde(default)]
    pub(super) required: bool,
    #[serde(default)]
    pub(super) default: serde_json::Value,
    pub(super) least: Option<serde_json::Number>,
    pub(super) above: Option<f64>,
    pub(super) most: Option<serde_json::Number>,
    #[serde(default)]
    pub(super) longest: usize,
    #[serde(default)]
    pub(super) allowed: Vec<serde_json::Value>,
    #[serde(default)]
    pub(super) why: String,
}

/// What is counted.
#[derive(Debug, Deserialize)]
pub(super) struct Metric {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) kind: String,
    pub(super) about: String,
    #[serde(default)]
    pub(super) buckets: Vec<f64>,
}

/// A request that is refused: one of the errors of the table, with the words that its sentence leaves open.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{sentence}")]
pub(super) struct ApiError {
    pub(super) code: &'static str,
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) sentence: String,
    /// The field that was wrong, if there is one.
    pub(super) param: Option<String>,
    /// What goes with the response.
    pub(super) headers: Vec<(&'static str, String)>,
}

impl ApiError {
    pub(super) fn new(code: &'static str, words: &[(&str, &dyn std::fmt::Display)]) -> Self {
        let (status, kind, sentence) = API
            .errors
            .get(code)
            .map_or((500, "server_error", code), |(status, kind, text)| (*status, kind.as_str(), text.as_str()));
        Self { code, status, kind, sentence: filled(sentence, words), param: None, headers: Vec::new() }
    }

    /// Of a field.
    pub(super) fn of(code: &'static str, param: &str, words: &[(&str, &dyn std::fmt::Display)]) -> Self {
        Self { param: Some(param.to_owned()), ..Self::new(code, words) }
    }

    /// Of a field that is named in the sentence, too.
    pub(super) fn named(code: &'static str, name: &str, words: &[(&str, &dyn std::fmt::Display)]) -> Self {
        let words: Vec<_> =
            [("name", &name as &dyn std::fmt::Display)].into_iter().chain(words.iter().copied()).collect();
        Self::of(code, name, &words)
    }

    /// That a field has a wrong value.
    pub(super) fn wrong(name: &str, value: &Value, must: &str) -> Self {
        Self::named("invalid_value", name, &[("value", &quoted(value)), ("must", &must)])
    }

    /// That there is no such field.
    pub(super) fn unknown(name: &str, route: &str) -> Self {
        let name = cut(name);
        Self::named("unknown_field", &name, &[("route", &route)])
    }

    pub(super) fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }

    /// The response's body, in the form of OpenAI's errors.
    pub(super) fn body(&self) -> String {
        let error = Json::object([
            ("message", Json::from(self.sentence.as_str())),
            ("type", self.kind.into()),
            ("param", self.param.as_deref().map_or(Json::Null, Json::from)),
            ("code", self.code.into()),
        ]);
        Json::object([("error", error)]).text()
    }
}

/// A sentence with its open places, which are names in braces, filled in one pass.
fn filled(sentence: &str, words: &[(&str, &dyn std::fmt::Display)]) -> String {
    let mut parts = sentence.split('{');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        if let Some((_, word)) = words.iter().find(|(known, _)| *known == name) {
            out += &word.to_string();
        }
        out += rest;
    }
    out
}

/// The first 256 characters of a name.
pub(super) fn cut(name: &str) -> String {
    name.chars().take(256).collect()
}

/// A value of a request as errors quote it: its JSON, cut off where it is long.
pub(super) fn quoted(value: &Value) -> String {
    let (mut text, most) = (write_json(value), API.limits.shown_characters);
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_form_of_openai() {
        let error = ApiError::wrong("temperature", &Value::Integer(5), "a {number}");
        let expected = r#"{"error":{"message":"temperature is 5; it must be a {number}","type":"invalid_request_error","param":"temperature","code":"invalid_value"}}"#;
        assert_eq!((error.status, error.body()), (400, expected.to_owned()));
        assert_eq!(quoted(&Value::Text("é".repeat(80))), format!("\"{}…", "é".repeat(59)));
    }
}
