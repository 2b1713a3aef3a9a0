//! Checks the messages of a chat, and puts them into the form that chat templates know: a role and a text each.

use nn_core::format::Value;
use nn_core::infer::Message;

use super::api::{API, ApiError, cut};
use super::fields::refused;

/// What a template is told for each role. OpenAI calls the system's turn the developer's by now, which templates do not.
const ROLES: [(&str, &str); 4] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant")];

/// What answers of this API hold besides, and what clients therefore send back: it must be empty.
const EMPTY: [&str; 5] = ["refusal", "tool_calls", "function_call", "audio", "annotations"];

/// The messages as templates take them.
pub(super) fn plain_messages(messages: &[Value]) -> Result<Vec<Message>, ApiError> {
    messages.iter().enumerate().map(|(number, message)| plain(&format!("messages[{number}]"), message)).collect()
}

fn plain(name: &str, message: &Value) -> Result<Message, ApiError> {
    let wrong = |place: &str, value: &Value, word| Err(ApiError::wrong(place, value, API.word(word)));
    let Some(table) = message.as_table() else { return wrong(name, message, "message") };
    for (key, value) in table.iter() {
        let place = cut(&format!("{name}.{key}"));
        if EMPTY.contains(&key) {
            let empty = match value {
                Value::None => true,
                Value::List(list) => list.is_empty(),
                Value::Text(text) => text.is_empty(),
                _ => false,
            };
            if !empty {
                return Err(refused(&place, value, API.word("texts_alone")));
            }
        } else if !matches!(key, "role" | "content") {
            return Err(ApiError::unknown(&place, API.word("a_message")));
        }
    }
    let given = table.get("role").unwrap_or(&Value::None);
    let role = given.as_text().and_then(|role| ROLES.into_iter().find(|(name, _)| *name == role));
    let Some((_, role)) = role else { return wrong(&format!("{name}.role"), given, "role") };
    let content = text(&format!("{name}.content"), table.get("content").unwrap_or(&Value::None))?;
    Ok(Message { role: role.to_owned(), content })
}

fn text(name: &str, content: &Value) -> Result<String, ApiError> {
    match content {
        Value::Text(text) => Ok(text.clone()),
        Value::List(parts) if !parts.is_empty() => {
            parts.iter().enumerate().map(|(number, one)| part(&format!("{name}[{number}]"), one)).collect()
        }
        _ => Err(ApiError::wrong(name, content, API.word("content"))),
    }
}

fn part(name: &str, part: &Value) -> Result<String, ApiError> {
    let table = part.as_table().ok_or_else(|| ApiError::wrong(name, part, API.word("part")))?;
    let kind = table.get("type").unwrap_or(&Value::None);
    if kind.as_text() != Some("text") {
        return Err(ApiError::wrong(&format!("{name}.type"), kind, API.word("part_type")));
    }
    if let Some(key) = table.names().find(|key| !matches!(*key, "type" | "text")) {
        return Err(ApiError::unknown(&format!("{name}.{key}"), API.word("a_part")));
    }
    let text = table.get("text").unwrap_or(&Value::None);
    let found = text.as_text().map(str::to_owned);
    found.ok_or_else(|| ApiError::wrong(&format!("{name}.text"), text, API.word("text")))
}

#[cfg(test)]
mod tests {
    use nn_core::format::parse_json;

    use super::*;

    #[test]
    fn messages_are_texts_with_roles() {
        let read = |text: &str| {
            let Ok(Value::List(list)) = parse_json(text.as_bytes()) else { panic!("{text} is no list") };
            plain_messages(&list).map_err(|error| error.sentence)
        };
        let parts = r#"[{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "refusal": null}]"#;
        let found = read(parts).unwrap();
        assert_eq!((found[0].role.as_str(), found[0].content.as_str()), ("system", "ab"));
        for (text, sentence) in [
            (
                r#"[{"role": "tool", "content": "a"}]"#,
                r#"messages[0].role is "tool"; it must be "system", "developer", "user" or "assistant""#,
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
}
