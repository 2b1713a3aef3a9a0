//! How answers are written, to the byte, so that all servers write the same; see "Bytes" in docs/serving.md.

use nn_core::format::{Value, write_json};

/// A value of an answer. Objects keep their order.
#[derive(Clone, Debug)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Integer(u64),
    Signed(i64),
    /// A log-probability, in the fewest digits that give it back.
    Float(f32),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
    /// A value that a request had: its numbers are f64, written as Python does.
    Given(Value),
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<usize> for Json {
    fn from(number: usize) -> Self {
        Self::Integer(number as u64)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Json {
    pub(super) fn object<const N: usize>(entries: [(&str, Json); N]) -> Self {
        Self::Object(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// JSON without spaces.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Integer(number) => out.push_str(&number.to_string()),
            Self::Signed(number) => out.push_str(&number.to_string()),
            Self::Float(number) => out.push_str(&number.to_string()),
            Self::Text(text) => out.push_str(&string(text)),
            Self::Given(value) => out.push_str(&write_json(value)),
            Self::List(list) => write_between(out, ['[', ']'], list, |one, out| one.write(out)),
            Self::Object(entries) => write_between(out, ['{', '}'], entries, |(name, one), out| {
                out.push_str(&string(name));
                out.push(':');
                one.write(out);
            }),
        }
    }

    /// A server-sent event that holds the value.
    pub(super) fn event(&self) -> String {
        format!("data: {}\n\n", self.text())
    }
}

/// The event after the last one.
pub(super) const DONE: &str = "data: [DONE]\n\n";

fn write_between<T>(out: &mut String, [open, close]: [char; 2], list: &[T], mut one: impl FnMut(&T, &mut String)) {
    out.push(open);
    for (at, value) in list.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        one(value, out);
    }
    out.push(close);
}

/// A string in quotes. The escapes of serde_json are those that the servers agreed on.
fn string(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default() // a text is always JSON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_escape_what_they_must() {
        assert_eq!(
            Json::from("\"\\/<\u{1}\u{1f}\u{8}\u{c}\n\r\t\u{7f}\u{2028}ö").text(),
            "\"\\\"\\\\/<\\u0001\\u001f\\b\\f\\n\\r\\t\u{7f}\u{2028}ö\""
        );
        let list = Json::List(vec![Json::Float(-0.1), Json::Float(-9999.0), Json::Float(1e-10), 7.into(), Json::Null]);
        assert_eq!(Json::object([("a", list)]).event(), "data: {\"a\":[-0.1,-9999,0.0000000001,7,null]}\n\n");
    }
}
