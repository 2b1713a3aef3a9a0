//! The input of /v1/responses, a text or items, as the messages that chat templates know.

use nn_core::format::{Table, Value};
use nn_core::infer::Message;

use super::api::{API, ApiError, cut};
use super::fields::{GivenInput, refused};
use super::messages::content_text;

/// What a template is told for each role.
const ROLES: [(&str, &str); 4] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant")];

/// The messages of an input, after the instructions.
pub(super) fn input_messages(given: &GivenInput, instructions: &str) -> Result<Vec<Message>, ApiError> {
    let said = |role: &str, content: &str| Message { role: role.to_owned(), content: content.to_owned() };
    let mut messages = Vec::new();
    if !instructions.is_empty() {
        messages.push(said("system", instructions));
    }
    match given {
        GivenInput::Text(text) => messages.push(said("user", text)),
        GivenInput::Items(items) => {
            for (number, item) in items.iter().enumerate() {
                messages.push(message(&format!("input[{number}]"), item)?);
            }
        }
    }
    Ok(messages)
}

fn wrong<T>(place: &str, value: &Value, word: &str) -> Result<T, ApiError> {
    Err(ApiError::wrong(place, value, API.word(word)))
}

fn entry<'a>(table: &'a Table, name: &str) -> &'a Value {
    table.get(name).unwrap_or(&Value::None)
}

fn message(name: &str, item: &Value) -> Result<Message, ApiError> {
    let Some(table) = item.as_table() else { return wrong(name, item, "item") };
    let kind = entry(table, "type");
    if *kind != Value::None && kind.as_text() != Some("message") {
        return wrong(&format!("{name}.type"), kind, "item_type");
    }
    for (key, value) in table.iter() {
        let place = cut(&format!("{name}.{key}"));
        match (key, value) {
            ("type" | "role" | "content", _) | ("id" | "status", Value::None) | ("id", Value::Text(_)) => {}
            ("id", _) => return wrong(&place, value, "text"),
            // Answers of this API have one, and clients therefore send it back.
            ("status", _) => {
                if !matches!(value.as_text(), Some("in_progress" | "completed" | "incomplete")) {
                    return wrong(&place, value, "item_status");
                }
            }
            _ => return Err(ApiError::unknown(&place, API.word("a_message"))),
        }
    }
    let given = entry(table, "role");
    let role = given.as_text().and_then(|role| ROLES.into_iter().find(|(name, _)| *name == role));
    let Some((_, role)) = role else { return wrong(&format!("{name}.role"), given, "item_role") };
    let content = content_text(&format!("{name}.content"), entry(table, "content"), "item_content", part)?;
    Ok(Message { role: role.to_owned(), content })
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
        let parts = r#"[{"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "text": "a", "annotations": [], "logprobs": [1]}, {"type": "input_text", "text": "b"}]}]"#;
        let found = read(parts).unwrap();
        assert_eq!((found[0].role.as_str(), found[0].content.as_str()), ("system", "be brief"));
        assert_eq!((found[1].role.as_str(), found[1].content.as_str()), ("assistant", "ab"));
        for (text, sentence) in [
            (r#"[{"type": "item_reference"}]"#, r#"input[0].type is "item_reference"; it must be "message""#),
            (r#"[{"role": "user", "content": "a", "id": 1}]"#, "input[0].id is 1; it must be a text"),
            (r#"[{"role": "user", "content": "a", "name": "b"}]"#, "input[0].name is not a field of a message"),
        ] {
            assert_eq!(read(text).unwrap_err(), sentence);
        }
    }
}
