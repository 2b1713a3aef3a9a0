//! Checks the messages of a chat, and puts them into the form that chat templates know.
//!
//! Each has a role and a text. An assistant's may have calls of tools, whose arguments are then objects, and a tool's answer
//! names the call that it is for.

use nn_core::format::{Table, Value};

use super::api::{API, ApiError, cut};
use super::bodies::object;
use super::fields::{check_keys, refused};
use super::tools::{LEVELS, check_type, is_name, is_plain, wrong};

/// What a template is told for each role. OpenAI calls the system's turn the developer's by now, which templates do not.
const ROLES: [(&str, &str); 5] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant"), ("tool", "tool")];

/// What answers of this API hold besides, and what clients therefore send back: it must be empty.
const EMPTY: [&str; 5] = ["refusal", "function_call", "audio", "annotations", "tool_calls"];

const MOST_CALLS: usize = 128;
const LONGEST_ID: usize = 256;

/// The messages as templates take them.
pub(super) fn plain_messages(messages: &[Value]) -> Result<Vec<Table>, ApiError> {
    messages.iter().enumerate().map(|(number, message)| plain(&format!("messages[{number}]"), message)).collect()
}

/// Where messages for a template first have something of tools.
pub(super) fn place_of_tools(messages: &[Table]) -> Option<String> {
    messages.iter().enumerate().find_map(|(number, message)| {
        if message.get("role").and_then(Value::as_text) == Some("tool") {
            return Some(format!("messages[{number}].role"));
        }
        message.get("tool_calls").map(|_| format!("messages[{number}].tool_calls"))
    })
}

/// What messages of a role have besides.
fn more(role: Option<&str>) -> &'static [&'static str] {
    match role {
        Some("assistant") => &["tool_calls"],
        Some("tool") => &["tool_call_id", "name"],
        _ => &[],
    }
}

fn plain(name: &str, message: &Value) -> Result<Table, ApiError> {
    let Some(table) = message.as_table() else { return Err(wrong(name, Some(message), "message")) };
    let given = table.get("role");
    let role = given.and_then(Value::as_text);
    for (key, value) in table.iter() {
        let place = cut(&format!("{name}.{key}"));
        if matches!(key, "role" | "content") || more(role).contains(&key) {
            continue;
        }
        if !EMPTY.contains(&key) {
            return Err(ApiError::unknown(&place, API.word("a_message")));
        }
        let empty = match value {
            Value::None => true,
            Value::List(list) => list.is_empty(),
            Value::Text(text) => text.is_empty(),
            _ => false,
        };
        if !empty {
            return Err(refused(&place, value, API.word("texts_alone")));
        }
    }
    let known = role.and_then(|role| ROLES.into_iter().find(|(name, _)| *name == role));
    let Some((role, shown)) = known else { return Err(wrong(&format!("{name}.role"), given, "role")) };
    let calls = match table.get("tool_calls") {
        Some(given) if role == "assistant" => calls(&format!("{name}.tool_calls"), given)?,
        _ => Vec::new(),
    };
    // Templates put a text together with others, which null is not.
    let content = table.get("content").unwrap_or(&Value::None);
    let content = match content {
        Value::None if !calls.is_empty() => String::new(),
        content => content_text(&format!("{name}.content"), content, "content", part)?,
    };
    let mut made = Table::from([("role", shown.into()), ("content", content.into())]);
    if !calls.is_empty() {
        made.set("tool_calls", calls);
    }
    if role == "tool" {
        made.set("tool_call_id", call_id(&format!("{name}.tool_call_id"), table.get("tool_call_id"))?);
        if let Some(called) = table.get("name").filter(|called| **called != Value::None) {
            made.set("name", function_name(name, Some(called))?);
        }
    }
    Ok(made)
}

fn calls(name: &str, given: &Value) -> Result<Vec<Value>, ApiError> {
    match given {
        Value::None => Ok(Vec::new()),
        Value::List(list) if list.len() <= MOST_CALLS => {
            list.iter().enumerate().map(|(number, one)| call(&format!("{name}[{number}]"), one)).collect()
        }
        _ => Err(wrong(name, Some(given), "calls")),
    }
}

fn call(name: &str, given: &Value) -> Result<Value, ApiError> {
    let Some(table) = given.as_table() else { return Err(wrong(name, Some(given), "call")) };
    check_keys(table, name, &["id", "type", "function"], API.word("a_call"))?;
    let id = call_id(&format!("{name}.id"), table.get("id"))?;
    check_type(table, name)?;
    let (name, given) = (&format!("{name}.function"), table.get("function"));
    let Some(function) = given.and_then(Value::as_table) else { return Err(wrong(name, given, "called")) };
    check_keys(function, name, &["name", "arguments"], API.word("a_call"))?;
    plain_call(name, id, function)
}

/// A call of that id, whose name and arguments stand in a table.
pub(super) fn plain_call(place: &str, id: &str, given: &Table) -> Result<Value, ApiError> {
    let called = function_name(place, given.get("name"))?;
    let text = given.get("arguments");
    let arguments = text.and_then(Value::as_text).and_then(arguments);
    let arguments = arguments.ok_or_else(|| wrong(&format!("{place}.arguments"), text, "arguments"))?;
    let function = Table::from([("name", called.into()), ("arguments", arguments)]);
    Ok(Table::from([("id", id.into()), ("type", "function".into()), ("function", function.into())]).into())
}

/// The arguments that a text is the JSON of; an empty one is that of none.
fn arguments(text: &str) -> Option<Value> {
    let table = if text.is_empty() { Table::new() } else { object(text.as_bytes()).ok()? };
    Some(Value::Table(table)).filter(|value| is_plain(value, LEVELS))
}

fn function_name<'t>(place: &str, given: Option<&'t Value>) -> Result<&'t str, ApiError> {
    let name = given.and_then(Value::as_text).filter(|name| is_name(name));
    name.ok_or_else(|| wrong(&format!("{place}.name"), given, "called_name"))
}

/// The id of a call.
pub(super) fn call_id<'t>(name: &str, given: Option<&'t Value>) -> Result<&'t str, ApiError> {
    let id = given.and_then(Value::as_text).filter(|id| (1..=LONGEST_ID).contains(&id.chars().count()));
    id.ok_or_else(|| wrong(name, given, "call_id"))
}

/// The text of a content: a text, or a list of parts whose texts follow one another. `word` says what it must be.
pub(super) fn content_text(
    name: &str,
    content: &Value,
    word: &str,
    part: fn(&str, &Value) -> Result<String, ApiError>,
) -> Result<String, ApiError> {
    match content {
        Value::Text(text) => Ok(text.clone()),
        Value::List(parts) if !parts.is_empty() => {
            parts.iter().enumerate().map(|(number, one)| part(&format!("{name}[{number}]"), one)).collect()
        }
        _ => Err(wrong(name, Some(content), word)),
    }
}

fn part(name: &str, part: &Value) -> Result<String, ApiError> {
    let table = part.as_table().ok_or_else(|| wrong(name, Some(part), "part"))?;
    let kind = table.get("type");
    if kind.and_then(Value::as_text) != Some("text") {
        return Err(wrong(&format!("{name}.type"), kind, "part_type"));
    }
    check_keys(table, name, &["type", "text"], API.word("a_part"))?;
    let text = table.get("text");
    let found = text.and_then(Value::as_text).map(str::to_owned);
    found.ok_or_else(|| wrong(&format!("{name}.text"), text, "text"))
}

#[cfg(test)]
mod tests {
    use nn_core::format::parse_json;

    use super::*;

    fn read(text: &str) -> Result<Vec<Table>, String> {
        let Ok(Value::List(list)) = parse_json(text.as_bytes()) else { panic!("{text} is no list") };
        plain_messages(&list).map_err(|error| error.sentence)
    }

    #[test]
    fn messages_are_texts_with_roles() {
        let parts = r#"[{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "refusal": null}]"#;
        let found = read(parts).unwrap();
        assert_eq!(Value::from(found[0].clone()).to_json(), r#"{"role":"system","content":"ab"}"#);
        assert_eq!(place_of_tools(&found), None);
        for (text, sentence) in [
            (
                r#"[{"role": "tools", "content": "a"}]"#,
                r#"messages[0].role is "tools"; it must be "system", "developer", "user", "assistant" or "tool""#,
            ),
            (
                r#"[{"role": "user"}]"#,
                "messages[0].content is null; it must be a text, or a list of parts of type text",
            ),
            (r#"[{"role": "user", "content": "a", "name": "b"}]"#, "messages[0].name is not a field of a message"),
            (
                r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#,
                r#"messages[0].content[0].type is "image_url"; it must be "text""#,
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), sentence);
        }
    }

    #[test]
    fn arguments_of_calls_are_objects() {
        let talk = r#"[{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": [1.5], \"a\": {}}"}}]},
            {"role": "tool", "content": "x", "tool_call_id": "1", "name": "f"}]"#;
        let found = read(talk).unwrap();
        assert_eq!(
            Value::List(found.iter().cloned().map(Value::Table).collect()).to_json(),
            concat!(
                r#"[{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","#,
                r#""function":{"name":"f","arguments":{"b":[1.5],"a":{}}}}]},"#,
                r#"{"role":"tool","content":"x","tool_call_id":"1","name":"f"}]"#
            )
        );
        assert_eq!(place_of_tools(&found).as_deref(), Some("messages[0].tool_calls"));
        assert_eq!(place_of_tools(&found[1..]).as_deref(), Some("messages[0].role"));
        for wrong in [r#"{\"a\":1"#, "[]", r#"{\"a\": 9223372036854775808}"#, r#"{\"a\": 1e999}"#] {
            let sentence = read(&talk.replace(r#"{\"b\": [1.5], \"a\": {}}"#, wrong)).unwrap_err();
            assert!(sentence.starts_with("messages[0].tool_calls[0].function.arguments is \""), "{sentence}");
        }
    }
}
