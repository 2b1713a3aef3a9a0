//! The input of /v1/responses, a text or items, as the messages that chat templates know.

use nn_core::format::{Table, Value};

use super::api::{API, ApiError, cut};
use super::fields::{GivenInput, refused};
use super::messages::{call_id, content_text, plain_call};

/// What a template is told for each role.
const ROLES: [(&str, &str); 4] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant")];

/// The messages of an input, after the instructions, and the place of the first item that has to do with tools.
pub(super) fn input_messages(given: &GivenInput, instructions: &str) -> Result<(Vec<Table>, Option<String>), ApiError> {
    let (mut messages, mut about_tools) = (Vec::new(), None);
    if !instructions.is_empty() {
        messages.push(said("system", instructions.to_owned()));
    }
    let items = match given {
        GivenInput::Text(text) => {
            messages.push(said("user", text.clone()));
            return Ok((messages, None));
        }
        GivenInput::Items(items) => items,
    };
    // Whether the last message is one of an assistant, which calls that follow it belong to.
    let mut turn = false;
    for (number, item) in items.iter().enumerate() {
        let name = format!("input[{number}]");
        let Some(table) = item.as_table() else { return wrong(&name, item, "item") };
        let kind = table.get("type").and_then(Value::as_text);
        if kind == Some("function_call") {
            let call = call(&name, table)?;
            if !turn {
                messages.push(said("assistant", String::new()));
            }
            if let Some(last) = messages.last_mut() {
                let calls = last.remove("tool_calls");
                let mut calls = if let Some(Value::List(calls)) = calls { calls } else { Vec::new() };
                calls.push(call);
                last.set("tool_calls", calls);
            }
            turn = true;
        } else {
            let read = if kind == Some("function_call_output") { output } else { message };
            let message = read(&name, table)?;
            turn = message.get("role").and_then(Value::as_text) == Some("assistant");
            messages.push(message);
        }
        if about_tools.is_none() && !matches!(kind, None | Some("message")) {
            about_tools = Some(format!("{name}.type"));
        }
    }
    Ok((messages, about_tools))
}

/// A message with a text.
fn said(role: &str, content: String) -> Table {
    Table::from([("role", role.into()), ("content", content.into())])
}

fn wrong<T>(place: &str, value: &Value, word: &str) -> Result<T, ApiError> {
    Err(ApiError::wrong(place, value, API.word(word)))
}

fn entry<'a>(table: &'a Table, name: &str) -> &'a Value {
    table.get(name).unwrap_or(&Value::None)
}

/// A call that an answer had.
fn call(name: &str, item: &Table) -> Result<Value, ApiError> {
    check(name, item, &["type", "call_id", "name", "arguments"], "a_call")?;
    let id = call_id(&format!("{name}.call_id"), item.get("call_id"))?;
    plain_call(name, id, item)
}

/// What a call gave.
fn output(name: &str, item: &Table) -> Result<Table, ApiError> {
    check(name, item, &["type", "call_id", "output"], "an_output")?;
    let id = call_id(&format!("{name}.call_id"), item.get("call_id"))?;
    let content = content_text(&format!("{name}.output"), entry(item, "output"), "item_content", part)?;
    let mut made = said("tool", content);
    made.set("tool_call_id", id);
    Ok(made)
}

fn message(name: &str, item: &Table) -> Result<Table, ApiError> {
    let kind = entry(item, "type");
    if *kind != Value::None && kind.as_text() != Some("message") {
        return wrong(&format!("{name}.type"), kind, "item_type");
    }
    let given = entry(item, "role");
    let keys: &[&str] = match given.as_text() {
        Some("assistant") => &["type", "role", "content", "phase"],
        _ => &["type", "role", "content"],
    };
    check(name, item, keys, "a_message")?;
    let role = given.as_text().and_then(|role| ROLES.into_iter().find(|(name, _)| *name == role));
    let Some((_, role)) = role else { return wrong(&format!("{name}.role"), given, "item_role") };
    let content = content_text(&format!("{name}.content"), entry(item, "content"), "item_content", part)?;
    Ok(said(role, content))
}

/// Refuses a key that an item of its type does not have. What answers give their items besides says nothing to a
/// template, and neither does a label.
fn check(name: &str, item: &Table, keys: &[&str], route: &str) -> Result<(), ApiError> {
    for (key, value) in item.iter() {
        let place = cut(&format!("{name}.{key}"));
        match (key, value) {
            ("id" | "status", Value::None) | ("id", Value::Text(_)) => {}
            ("id", _) => return wrong(&place, value, "text"),
            ("status", _) if !matches!(value.as_text(), Some("in_progress" | "completed" | "incomplete")) => {
                return wrong(&place, value, "item_status");
            }
            ("status", _) => {}
            _ if !keys.contains(&key) => return Err(ApiError::unknown(&place, API.word(route))),
            ("phase", value)
                if *value != Value::None && !matches!(value.as_text(), Some("commentary" | "final_answer")) =>
            {
                return wrong(&place, value, "item_phase");
            }
            _ => {}
        }
    }
    Ok(())
}

fn part(name: &str, part: &Value) -> Result<String, ApiError> {
    let Some(table) = part.as_table() else { return wrong(name, part, "part") };
    let kind = entry(table, "type");
    if !matches!(kind.as_text(), Some("input_text" | "output_text")) {
        return wrong(&format!("{name}.type"), kind, "item_part_type");
    }
    for (key, value) in table.iter() {
        let place = cut(&format!("{name}.{key}"));
        match (key, value) {
            // Log-probabilities of a text that was written change nothing in what comes.
            ("type" | "text", _) | ("annotations" | "logprobs", Value::None) | ("logprobs", Value::List(_)) => {}
            ("annotations", Value::List(list)) if list.is_empty() => {}
            ("annotations", _) => return Err(refused(&place, value, API.word("texts_alone"))),
            ("logprobs", _) => return wrong(&place, value, "log_probabilities"),
            _ => return Err(ApiError::unknown(&place, API.word("an_item_part"))),
        }
    }
    let found = entry(table, "text");
    found.as_text().map_or_else(|| wrong(&format!("{name}.text"), found, "text"), |text| Ok(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use nn_core::format::parse_json;

    use super::*;

    #[test]
    fn items_are_messages() {
        let read = |text: &str| {
            let Ok(Value::List(list)) = parse_json(text.as_bytes()) else { panic!("{text} is no list") };
            input_messages(&GivenInput::Items(list), "be brief").map_err(|error| error.sentence)
        };
        let parts = r#"[{"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "phase": "commentary", "content": [
            {"type": "output_text", "text": "a", "annotations": [], "logprobs": [1]}, {"type": "input_text", "text": "b"}]}]"#;
        let written = |found: &[Table]| Value::List(found.iter().cloned().map(Value::Table).collect()).to_json();
        let (found, place) = read(parts).unwrap();
        let said = r#"{"role":"system","content":"be brief"},{"role":"assistant","content":"ab""#;
        assert_eq!((written(&found), place), (format!("[{said}}}]"), None));
        // Calls belong to the turn before them.
        let calls = [
            &parts[..parts.len() - 1],
            r#"{"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "1", "name": "f", "arguments": "{\"a\": 1}"}"#,
            r#"{"type": "function_call_output", "call_id": "1", "output": "x"}]"#,
        ];
        let (found, place) = read(&calls.join(",")).unwrap();
        let call = r#"{"id":"1","type":"function","function":{"name":"f","arguments":{"a":1}}}"#;
        let told = r#"{"role":"tool","content":"x","tool_call_id":"1"}"#;
        assert_eq!(written(&found), format!(r#"[{said},"tool_calls":[{call}]}},{told}]"#));
        assert_eq!(place.as_deref(), Some("input[1].type"));
        for (text, sentence) in [
            (
                r#"[{"type": "item_reference"}]"#,
                r#"input[0].type is "item_reference"; it must be "message", "function_call" or "function_call_output""#,
            ),
            (r#"[{"role": "user", "content": "a", "id": 1}]"#, "input[0].id is 1; it must be a text"),
            (r#"[{"role": "user", "content": "a", "name": "b"}]"#, "input[0].name is not a field of a message"),
            (
                r#"[{"role": "assistant", "content": "a", "phase": "said"}]"#,
                r#"input[0].phase is "said"; it must be "commentary" or "final_answer""#,
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), sentence);
        }
    }
}
