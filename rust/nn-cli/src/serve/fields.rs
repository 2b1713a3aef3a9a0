//! Checks the fields of a request against the table: what is not right is an error that names it, nothing is ignored.

use std::collections::HashMap;

use nn_core::format::{Table, Value};

use super::api::{API, ApiError, Field, Kind, cut, quoted};

type Checked = Result<Given, ApiError>;

/// A prompt as a request has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GivenPrompt {
    Text(String),
    Ids(Vec<i128>),
}

/// What a response is to answer, as a request has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GivenInput {
    Text(String),
    Items(Vec<Value>),
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    Nothing,
    Bool(bool),
    Number(f64),
    Integer(i64),
    Text(String),
    Texts(Vec<String>),
    Ids(Vec<i128>),
    Bias(Vec<(i64, f64)>),
    Object(Table),
    Input(GivenInput),
    Prompts(Vec<GivenPrompt>),
    Usage(Usage),
    Messages(Vec<Value>),
    Tools(Vec<Value>),
    Choice(Value),
}

/// Where a stream counts its tokens: a last event has the count, and each one before that so far or null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    Nowhere,
    AtTheEnd,
    Everywhere,
}

/// The values of all supported fields of a route.
#[derive(Debug)]
pub(super) struct Values(HashMap<&'static str, Given>);

macro_rules! values_of {
    ($($method:ident: $kind:ident => $type:ty;)*) => {$(
        /// The value of such a field, if it has one.
        pub(super) fn $method(&self, name: &str) -> Option<$type> {
            if let Some(Given::$kind(value)) = self.0.get(name) { Some(value.clone()) } else { None }
        }
    )*};
}

impl Values {
    values_of! {
        bool: Bool => bool;
        number: Number => f64;
        integer: Integer => i64;
        text: Text => String;
        texts: Texts => Vec<String>;
        ids: Ids => Vec<i128>;
        bias: Bias => Vec<(i64, f64)>;
        object: Object => Table;
        input: Input => GivenInput;
        prompts: Prompts => Vec<GivenPrompt>;
        usage: Usage => Usage;
        messages: Messages => Vec<Value>;
        tools: Tools => Vec<Value>;
        choice: Choice => Value;
    }

    /// Whether a flag is set.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.bool(name).unwrap_or(false)
    }
}

/// The fields of one route. `path` is how errors call it.
#[derive(Debug)]
pub(super) struct Checker {
    path: &'static str,
    fields: Vec<&'static Field>,
}

impl Checker {
    pub(super) fn new(route: &str, path: &'static str) -> Self {
        Self { path, fields: API.fields.iter().filter(|field| field.routes.iter().any(|it| it == route)).collect() }
    }

    /// The value of every supported field, with the defaults of those that are missing or null.
    pub(super) fn check(&self, body: &Table) -> Result<Values, ApiError> {
        for name in body.names() {
            if self.fields.iter().all(|field| field.name != name) {
                return Err(ApiError::unknown(name, self.path));
            }
        }
        let mut values = HashMap::new();
        for field in &self.fields {
            let value = body.get(&field.name).filter(|value| **value != Value::None);
            let given = match value {
                _ if field.kind == Kind::Unsupported => {
                    unsupported(field, &field.name, value)?;
                    continue;
                }
                Some(value) => checked(field, value)?,
                None if field.required => {
                    return Err(ApiError::named("missing_field", &field.name, &[("must", &field.must)]));
                }
                None => usual(field),
            };
            values.insert(field.name.as_str(), given);
        }
        Ok(Values(values))
    }
}

/// The default of a field.
fn usual(field: &Field) -> Given {
    match (field.kind, &field.default) {
        (Kind::Boolean, serde_json::Value::Bool(value)) => Given::Bool(*value),
        (Kind::Number, serde_json::Value::Number(number)) => Given::Number(number.as_f64().unwrap_or_default()),
        (Kind::Choice, serde_json::Value::String(text)) => Given::Text(text.clone()),
        (Kind::Integer, serde_json::Value::Number(number)) => Given::Integer(number.as_i64().unwrap_or_default()),
        _ => Given::Nothing,
    }
}

fn wrong(field: &Field, value: &Value) -> ApiError {
    ApiError::wrong(&field.name, value, &field.must)
}

/// Only what asks for nothing may stand there.
fn unsupported(field: &Field, name: &str, value: Option<&Value>) -> Result<(), ApiError> {
    match value.filter(|value| !field.allowed.iter().any(|allowed| same(value, allowed))) {
        None => Ok(()),
        Some(value) => Err(refused(name, value, &field.why)),
    }
}

/// That a field asks for what this server does not do.
pub(super) fn refused(name: &str, value: &Value, why: &str) -> ApiError {
    ApiError::named("unsupported_field", name, &[("value", &quoted(value)), ("why", &why)])
}

/// Refuses a key that is not known to what has these keys, whose words are `owner`.
pub(super) fn check_keys(found: &Table, place: &str, known: &[&str], owner: &str) -> Result<(), ApiError> {
    match found.names().find(|key| !known.contains(key)) {
        None => Ok(()),
        Some(key) => Err(ApiError::unknown(&format!("{place}.{key}"), owner)),
    }
}

/// Whether a value is one of the table's. 1 is not true, nor is 0 false.
fn same(value: &Value, other: &serde_json::Value) -> bool {
    use serde_json::Value as Other;
    match (value, other) {
        (Value::Bool(one), Other::Bool(two)) => one == two,
        (Value::Integer(_) | Value::Float(_), Other::Number(two)) => value.as_number() == two.as_f64(),
        (Value::Text(one), Other::String(two)) => one == two,
        (Value::List(one), Other::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same(one, two))
        }
        (Value::Table(one), Other::Object(two)) => {
            one.names().count() == two.len()
                && one.iter().all(|(name, value)| two.get(name).is_some_and(|other| same(value, other)))
        }
        _ => false,
    }
}

fn checked(field: &Field, value: &Value) -> Checked {
    match field.kind {
        Kind::Boolean => match value {
            Value::Bool(value) => Ok(Given::Bool(*value)),
            _ => Err(wrong(field, value)),
        },
        Kind::Number => {
            value.as_number().filter(|_| within(field, value)).map(Given::Number).ok_or_else(|| wrong(field, value))
        }
        Kind::Integer => {
            value.as_integer().filter(|_| within(field, value)).map(Given::Integer).ok_or_else(|| wrong(field, value))
        }
        Kind::String => match value.as_text().filter(|text| text.chars().count() <= field.longest) {
            Some(text) => Ok(Given::Text(text.to_owned())),
            None => Err(wrong(field, value)),
        },
        Kind::Strings => strings(field, value),
        Kind::Ids => ids(value).map(Given::Ids).ok_or_else(|| wrong(field, value)),
        Kind::Bias => bias(field, value),
        Kind::Object => value.as_table().cloned().map(Given::Object).ok_or_else(|| wrong(field, value)),
        Kind::Choice => match value.as_text().filter(|_| field.allowed.iter().any(|allowed| same(value, allowed))) {
            Some(text) => Ok(Given::Text(text.to_owned())),
            None => Err(wrong(field, value)),
        },
        Kind::Choices => choices(field, value),
        Kind::Input => match value {
            Value::Text(text) if text.chars().count() <= field.longest => {
                Ok(Given::Input(GivenInput::Text(text.clone())))
            }
            Value::List(list) if !list.is_empty() => Ok(Given::Input(GivenInput::Items(list.clone()))),
            _ => Err(wrong(field, value)),
        },
        Kind::Prompt => prompts(field, value),
        Kind::StreamOptions => stream_options(field, value),
        Kind::Messages => match value {
            Value::List(list) if !list.is_empty() => Ok(Given::Messages(list.clone())),
            _ => Err(wrong(field, value)),
        },
        Kind::Tools => {
            let most = field.most.as_ref().and_then(serde_json::Number::as_u64).unwrap_or(0);
            match value {
                Value::List(list) if list.len() as u64 <= most => Ok(Given::Tools(list.clone())),
                _ => Err(wrong(field, value)),
            }
        }
        Kind::ToolChoice => match value {
            Value::Text(_) | Value::Table(_) => Ok(Given::Choice(value.clone())),
            _ => Err(wrong(field, value)),
        },
        Kind::Unsupported => Err(wrong(field, value)),
    }
}

/// Whether a number is within the bounds of a field.
fn within(field: &Field, value: &Value) -> bool {
    let holds = |bound: &serde_json::Number, test: fn(i128, i128) -> bool, of_f64: fn(f64, f64) -> bool| match (
        value,
        bound.as_i64(),
    ) {
        (Value::Integer(number), Some(bound)) => test(*number, bound.into()),
        _ => value.as_number().zip(bound.as_f64()).is_some_and(|(number, bound)| of_f64(number, bound)),
    };
    field.least.as_ref().is_none_or(|least| holds(least, |a, b| a >= b, |a, b| a >= b))
        && field.most.as_ref().is_none_or(|most| holds(most, |a, b| a <= b, |a, b| a <= b))
        && field.above.is_none_or(|above| value.as_number().is_some_and(|number| number > above))
}

fn strings(field: &Field, value: &Value) -> Checked {
    let one = std::slice::from_ref(value);
    let list = match value {
        Value::Text(_) => one,
        Value::List(list) => list,
        _ => return Err(wrong(field, value)),
    };
    let most = field.most.as_ref().and_then(serde_json::Number::as_u64).unwrap_or(0);
    let text = |one: &Value| {
        one.as_text().filter(|text| (1..=field.longest).contains(&text.chars().count())).map(str::to_owned)
    };
    let texts: Option<Vec<String>> = list.iter().map(text).collect();
    texts.filter(|texts| texts.len() as u64 <= most).map(Given::Texts).ok_or_else(|| wrong(field, value))
}

/// A list of texts that are all in the table.
fn choices(field: &Field, value: &Value) -> Checked {
    let Value::List(list) = value else { return Err(wrong(field, value)) };
    let one = |one: &Value| {
        let known = field.allowed.iter().any(|allowed| same(one, allowed));
        one.as_text().filter(|_| known).map(str::to_owned)
    };
    list.iter().map(one).collect::<Option<_>>().map(Given::Texts).ok_or_else(|| wrong(field, value))
}

/// Whole numbers. Whether they are ids of the model, who knows it says.
fn ids(value: &Value) -> Option<Vec<i128>> {
    let Value::List(list) = value else { return None };
    list.iter().map(Value::as_integer).collect()
}

fn prompts(field: &Field, value: &Value) -> Checked {
    let list = match value {
        Value::Text(text) => return Ok(Given::Prompts(vec![GivenPrompt::Text(text.clone())])),
        Value::List(list) if !list.is_empty() => list,
        _ => return Err(wrong(field, value)),
    };
    if let Some(ids) = ids(value) {
        return Ok(Given::Prompts(vec![GivenPrompt::Ids(ids)]));
    }
    let one = |(number, one): (usize, &Value)| match one {
        Value::Text(text) => Ok(GivenPrompt::Text(text.clone())),
        other => ids(other)
            .map(GivenPrompt::Ids)
            .ok_or_else(|| ApiError::wrong(&format!("{}[{number}]", field.name), other, &field.must)),
    };
    list.iter().enumerate().map(one).collect::<Result<_, _>>().map(Given::Prompts)
}

fn bias(field: &Field, value: &Value) -> Checked {
    let table = value.as_table().filter(|table| table.names().count() <= field.longest);
    let table = table.ok_or_else(|| wrong(field, value))?;
    let mut found = Vec::new();
    for (key, one) in table.iter() {
        let name = cut(&format!("{}.{key}", field.name));
        // A token id as a key: no sign, no zeros before it.
        let digits = key.len() <= 10 && key.bytes().all(|digit| digit.is_ascii_digit());
        let id = key.parse().ok().filter(|_| digits && (key == "0" || !key.starts_with('0')));
        let id = id.ok_or_else(|| ApiError::unknown(&name, API.word("bias_keys")))?;
        let number = one.as_number().filter(|_| within(field, one));
        found.push((id, number.ok_or_else(|| ApiError::wrong(&name, one, API.word("bias")))?));
    }
    Ok(Given::Bias(found))
}

fn stream_options(field: &Field, value: &Value) -> Checked {
    let table = value.as_table().ok_or_else(|| wrong(field, value))?;
    let (mut include, mut continuous) = (false, false);
    for (key, one) in table.iter() {
        let name = cut(&format!("{}.{key}", field.name));
        match (key, one) {
            // Which OpenAI's servers do unless told not to.
            ("include_obfuscation", Value::None | Value::Bool(false)) => {}
            ("include_obfuscation", one) => return Err(refused(&name, one, API.word("not_padded"))),
            ("include_usage", one) => include = flag(&name, one)?,
            ("continuous_usage_stats", one) => continuous = flag(&name, one)?,
            _ => return Err(ApiError::unknown(&name, &field.name)),
        }
    }
    Ok(Given::Usage(match (include, continuous) {
        (false, _) => Usage::Nowhere,
        (true, false) => Usage::AtTheEnd,
        (true, true) => Usage::Everywhere,
    }))
}

/// True or false; null is false.
fn flag(name: &str, value: &Value) -> Result<bool, ApiError> {
    match value {
        Value::Bool(value) => Ok(*value),
        Value::None => Ok(false),
        other => Err(ApiError::wrong(name, other, API.word("flag"))),
    }
}

#[cfg(test)]
mod tests {
    use nn_core::format::parse_json;

    use super::*;

    fn check(route: &str, body: &str) -> Result<Values, String> {
        let body = parse_json(body.as_bytes()).unwrap();
        Checker::new(route, "/x").check(body.as_table().unwrap()).map_err(|error| error.sentence)
    }

    #[test]
    fn fields_have_their_defaults() {
        let values = check("completions", r#"{"prompt": [1, 2], "n": null}"#).unwrap();
        assert_eq!(values.prompts("prompt"), Some(vec![GivenPrompt::Ids(vec![1, 2])]));
        assert_eq!(
            (values.integer("n"), values.integer("max_tokens"), values.integer("seed")),
            (Some(1), Some(16), Some(0))
        );
        assert_eq!(
            (values.number("temperature"), values.flag("stream"), values.texts("stop")),
            (Some(1.0), false, None)
        );
        let values = check(
            "completions",
            r#"{"prompt": "a", "stop": "b", "best_of": 1.0, "temperature": 0, "logit_bias": {"7": 1}}"#,
        );
        let values = values.unwrap();
        assert_eq!((values.texts("stop"), values.bias("logit_bias")), (Some(vec!["b".into()]), Some(vec![(7, 1.0)])));
        assert!(check("completions", r#"{"prompt": "a", "seed": -9223372036854775808}"#).is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, sentence) in [
            ("{}", "prompt is missing; it must be a text, a list of token ids, or a list of such prompts"),
            (r#"{"prompt": "a", "stops": 1}"#, "stops is not a field of /x"),
            (
                r#"{"prompt": "a", "best_of": true}"#,
                "best_of is true, which is not supported: texts are not ranked; n gives several",
            ),
            (r#"{"prompt": "a", "temperature": 2.5}"#, "temperature is 2.5; it must be a number from 0 to 2"),
            (r#"{"prompt": "a", "top_p": 0}"#, "top_p is 0; it must be a number above 0, at most 1"),
            (
                r#"{"prompt": "a", "seed": 9223372036854775808}"#,
                "seed is 9223372036854775808; it must be a whole number of 64 bits",
            ),
            (r#"{"prompt": "a", "n": 1.0}"#, "n is 1.0; it must be a whole number from 1 to 128"),
            (r#"{"prompt": "a", "echo": 1}"#, "echo is 1; it must be true or false"),
            (
                r#"{"prompt": "a", "logit_bias": {"07": 1}}"#,
                "logit_bias.07 is not a field of logit_bias, whose keys are token ids",
            ),
            (
                r#"{"prompt": "a", "logit_bias": {"7": 101}}"#,
                "logit_bias.7 is 101; it must be a number from -100 to 100",
            ),
            (
                r#"{"prompt": ["a", true]}"#,
                "prompt[1] is true; it must be a text, a list of token ids, or a list of such prompts",
            ),
            (r#"{"prompt": "a", "stream_options": {"x": 1}}"#, "stream_options.x is not a field of stream_options"),
            (
                r#"{"prompt": "a", "stop": ""}"#,
                "stop is \"\"; it must be a text or a list of at most 16 texts, each of 1 to 1024 characters",
            ),
        ] {
            assert_eq!(check("completions", body).unwrap_err(), sentence);
        }
        let refused = check("chat", r#"{"messages": [1], "functions": [{}]}"#).unwrap_err();
        assert_eq!(refused, "functions is [{}], which is not supported: send `tools`");
        let refused = check("chat", r#"{"messages": [1], "tools": {}}"#).unwrap_err();
        assert_eq!(refused, "tools is {}; it must be a list of at most 128 tools");
    }
}
