//! The tools of a request: checks them, and says what of them the chat template sees and which may be called.

use std::collections::HashSet;

use nn_core::format::{Table, Value};

use super::api::{API, ApiError};
use super::fields::{Values, check_keys};

/// Levels of parameters and arguments, which templates write out.
pub(super) const LEVELS: usize = 64;

/// A function.
#[derive(Debug)]
pub(super) struct Tool {
    /// Where a request has it.
    pub(super) place: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// None of them are those of a function that takes none.
    pub(super) parameters: Option<Table>,
    pub(super) strict: bool,
    /// What the template sees of it.
    shown: Value,
}

/// What a request wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Any, or none.
    Auto,
    /// At least one.
    Required,
    /// The function of that number.
    Named(usize),
}

/// The tools that a request offers, at least one.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) offered: Vec<Tool>,
    pub(super) choice: Choice,
    /// Whether an answer may have several calls.
    pub(super) parallel: bool,
}

impl Tools {
    /// The tools of a request's fields; `None` where the model is not to call any. `format`, which stands in the field of
    /// that name, must not be another than that of calls. `flat`: what a tool or a choice says of its function stands beside
    /// its type, and not in an object of its own.
    pub(super) fn requested(
        values: &Values,
        format_field: &str,
        format: Option<&Table>,
        flat: bool,
    ) -> Result<Option<Self>, ApiError> {
        let mut offered = Vec::new();
        let mut taken = HashSet::new();
        for (number, given) in values.tools("tools").unwrap_or_default().iter().enumerate() {
            let one = tool(format!("tools[{number}]"), given, &taken, flat)?;
            taken.insert(one.name.clone());
            offered.push(one);
        }
        let mut none = false;
        let choice = match values.choice("tool_choice") {
            None => Choice::Auto,
            Some(Value::Table(choice)) => chosen(&choice, &offered, flat)?,
            Some(word) => match word.as_text() {
                Some("auto") => Choice::Auto,
                Some("required") => Choice::Required,
                Some("none") => {
                    none = true;
                    Choice::Auto
                }
                _ => return Err(wrong("tool_choice", Some(&word), if flat { "flat_choice" } else { "choice" })),
            },
        };
        if offered.is_empty() && choice == Choice::Required {
            return Err(ApiError::named("needs_field", "tool_choice", &[("other", &"tools")]));
        }
        if offered.is_empty() || none {
            return Ok(None);
        }
        if format.is_some_and(|format| format.get("type").and_then(Value::as_text) != Some("text")) {
            return Err(ApiError::named("both_fields", format_field, &[("other", &"tools")]));
        }
        Ok(Some(Self { offered, choice, parallel: values.flag("parallel_tool_calls") }))
    }

    pub(super) fn names(&self) -> HashSet<String> {
        self.offered.iter().map(|tool| tool.name.clone()).collect()
    }

    /// What the template sees.
    pub(super) fn shown(&self) -> Value {
        Value::List(self.offered.iter().map(|tool| tool.shown.clone()).collect())
    }

    /// Those that may be called.
    pub(super) fn callable(&self) -> &[Tool] {
        match self.choice {
            Choice::Named(number) => &self.offered[number..=number],
            Choice::Auto | Choice::Required => &self.offered,
        }
    }

    /// Whether the arguments of a function must obey its parameters.
    pub(super) fn enforces(&self, tool: &Tool) -> bool {
        self.choice != Choice::Auto || tool.strict
    }

    /// Those that may be called and whose arguments must obey. Where there are some, texts are to be constrained.
    pub(super) fn enforced(&self) -> impl Iterator<Item = &Tool> {
        self.callable().iter().filter(|tool| self.enforces(tool))
    }
}

/// The keys that say something of a function.
const OF_FUNCTION: [&str; 4] = ["name", "description", "parameters", "strict"];

fn tool(mut place: String, given: &Value, taken: &HashSet<String>, flat: bool) -> Result<Tool, ApiError> {
    let Some(table) = given.as_table() else {
        return Err(wrong(&place, Some(given), if flat { "flat_tool" } else { "tool" }));
    };
    let keys: &[&str] =
        if flat { &["type", "name", "description", "parameters", "strict"] } else { &["type", "function"] };
    check_keys(table, &place, keys, API.word("a_tool"))?;
    check_type(table, &place)?;
    let function = if flat {
        table
    } else {
        place += ".function";
        let given = table.get("function");
        let Some(function) = given.and_then(Value::as_table) else { return Err(wrong(&place, given, "function")) };
        check_keys(function, &place, &OF_FUNCTION, API.word("a_function"))?;
        function
    };
    let given = function.get("name");
    let name = given.and_then(Value::as_text).filter(|name| is_name(name) && !taken.contains(*name));
    let name = name.ok_or_else(|| wrong(&format!("{place}.name"), given, "function_name"))?;
    let description = present(function, "description");
    if description.is_some_and(|text| text.as_text().is_none()) {
        return Err(wrong(&format!("{place}.description"), description, "text"));
    }
    let given = present(function, "parameters");
    let parameters = given.and_then(Value::as_table).cloned();
    if given.is_some_and(|given| parameters.is_none() || !is_plain(given, LEVELS)) {
        return Err(wrong(&format!("{place}.parameters"), given, "parameters"));
    }
    let kind = parameters.as_ref().and_then(|parameters| parameters.get("type"));
    if kind.is_some_and(|kind| kind.as_text() != Some("object")) {
        return Err(wrong(&format!("{place}.parameters.type"), kind, "object_type"));
    }
    let strict = match present(function, "strict") {
        None => false,
        Some(Value::Bool(strict)) => *strict,
        other => return Err(wrong(&format!("{place}.strict"), other, "flag")),
    };
    // Templates get what models were trained with, in the client's order.
    let shown = function.iter().filter(|(key, value)| !["type", "strict"].contains(key) && **value != Value::None);
    let shown = Value::Table(shown.map(|(key, value)| (key.to_owned(), value.clone())).collect());
    let mut whole = if flat { Table::from([("type", "function".into())]) } else { table.clone() };
    whole.set("function", shown);
    let description = description.and_then(Value::as_text).map(str::to_owned);
    Ok(Tool { place, name: name.to_owned(), description, parameters, strict, shown: Value::Table(whole) })
}

/// The function that a choice names.
fn chosen(choice: &Table, offered: &[Tool], flat: bool) -> Result<Choice, ApiError> {
    check_keys(choice, "tool_choice", &["type", if flat { "name" } else { "function" }], API.word("a_choice"))?;
    check_type(choice, "tool_choice")?;
    let (mut place, mut function) = ("tool_choice", choice);
    if !flat {
        place = "tool_choice.function";
        let given = choice.get("function");
        function = given.and_then(Value::as_table).ok_or_else(|| wrong(place, given, "chosen"))?;
        check_keys(function, place, &["name"], API.word("a_choice"))?;
    }
    let given = function.get("name");
    let number = offered.iter().position(|tool| given.and_then(Value::as_text) == Some(&tool.name));
    number.map(Choice::Named).ok_or_else(|| wrong(&format!("{place}.name"), given, "chosen_name"))
}

/// Refuses all but `"type": "function"`.
pub(super) fn check_type(table: &Table, place: &str) -> Result<(), ApiError> {
    let kind = table.get("type");
    if kind.and_then(Value::as_text) == Some("function") {
        return Ok(());
    }
    Err(wrong(&format!("{place}.type"), kind, "function_type"))
}

/// Whether a function may be called so.
pub(super) fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Whether all languages can give a value to a template: its depth, and the size of its numbers.
pub(super) fn is_plain(value: &Value, levels: usize) -> bool {
    let inside = |one: &Value| is_plain(one, levels - 1);
    match value {
        Value::Integer(number) => i64::try_from(*number).is_ok(),
        Value::Float(number) => number.is_finite(),
        Value::List(list) => levels > 0 && list.iter().all(inside),
        Value::Table(table) => levels > 0 && table.iter().all(|(_, one)| inside(one)),
        _ => true,
    }
}

/// A value that is neither missing nor null.
fn present<'t>(table: &'t Table, name: &str) -> Option<&'t Value> {
    table.get(name).filter(|value| **value != Value::None)
}

/// That a value, null if it is missing, is not what the word says.
pub(super) fn wrong(place: &str, value: Option<&Value>, word: &str) -> ApiError {
    ApiError::wrong(place, value.unwrap_or(&Value::None), API.word(word))
}
