//! Values of JSON and TOML files, and the one form in which every language of this project writes JSON.
//!
//! Files must not differ by the language that wrote them, so numbers are written as Python writes them: the shortest
//! digits that read back as the same number, with an exponent below 1e-4 and from 1e16 on.

use std::fmt::Write as _;

use super::limits::SHOWN_CHARACTERS;

/// A JSON or TOML value. Tables keep their order; of a name given twice the last value counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// JSON's null.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction or an exponent, or a whole one beyond an `i128`; it may be infinite or no number.
    Float(f64),
    /// A whole number that no float can hold, of so many digits. No option or record may be one.
    Beyond(usize),
    /// Text.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// An object.
    Table(Table),
}

/// Names and values in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(Vec<(String, Value)>);

impl Table {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Sets the value of a name, in its place when it is there already, else at the end.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes a name out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// Names and values in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

impl FromIterator<(String, Value)> for Table {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        let mut list: Vec<(String, Value)> = Vec::new();
        // By position, since a hostile file may hold a great many names.
        let mut places = std::collections::HashMap::new();
        for (name, value) in entries {
            match places.get(&name) {
                Some(&at) => {
                    let entry: &mut (String, Value) = &mut list[at];
                    entry.1 = value;
                }
                None => {
                    places.insert(name.clone(), list.len());
                    list.push((name, value));
                }
            }
        }
        Self(list)
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Table {
    fn from(entries: [(&str, Value); N]) -> Self {
        entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

macro_rules! value_from {
    ($($source:ty, $name:ident => $made:expr;)*) => {$(
        impl From<$source> for Value {
            fn from($name: $source) -> Self { $made }
        }
    )*};
}

value_from! {
    bool, value => Value::Bool(value);
    i32, value => Value::Integer(value.into());
    i64, value => Value::Integer(value.into());
    u64, value => Value::Integer(value.into());
    usize, value => Value::Integer(value as i128);
    f64, value => Value::Float(value);
    &str, value => Value::Text(value.to_owned());
    String, value => Value::Text(value);
    Table, value => Value::Table(value);
    Vec<Value>, value => Value::List(value);
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::None, Into::into)
    }
}

impl From<toml::Value> for Value {
    fn from(value: toml::Value) -> Self {
        match value {
            toml::Value::String(text) => Value::Text(text),
            toml::Value::Integer(number) => number.into(),
            toml::Value::Float(number) => number.into(),
            toml::Value::Boolean(value) => value.into(),
            toml::Value::Datetime(date) => Value::Text(date.to_string()),
            toml::Value::Array(list) => Value::List(list.into_iter().map(Into::into).collect()),
            toml::Value::Table(table) => {
                Value::Table(table.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}

impl Value {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// The table, if it is one.
    pub fn as_table(&self) -> Option<&Table> {
        if let Value::Table(table) = self { Some(table) } else { None }
    }

    /// The whole number, if it is one that fits.
    pub fn as_integer<T: TryFrom<i128>>(&self) -> Option<T> {
        if let Value::Integer(number) = self { T::try_from(*number).ok() } else { None }
    }

    /// The number, whole or not.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// JSON on one line.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        write_json(&mut out, self, None);
        out
    }

    /// JSON with an entry a line, two spaces deeper at each level, without a line end behind it.
    pub fn to_json_lines(&self) -> String {
        let mut out = String::new();
        write_json(&mut out, self, Some(0));
        out
    }

    /// As messages show it: text in quotes, and None, True and False as the other languages of this project have them;
    /// cut off where it is long.
    pub fn repr(&self) -> String {
        excerpt(self.whole_repr())
    }

    fn whole_repr(&self) -> String {
        match self {
            Value::None => "None".into(),
            Value::Bool(true) => "True".into(),
            Value::Bool(false) => "False".into(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => float_text(*number, "inf", "nan"),
            Value::Beyond(digits) => format!("a number of {digits} digits"),
            Value::Text(text) => whole_quoted(text),
            Value::List(list) => format!("[{}]", list.iter().map(Value::whole_repr).collect::<Vec<_>>().join(", ")),
            Value::Table(table) => {
                let entries: Vec<_> = table
                    .iter()
                    .map(|(name, value)| format!("{}: {}", whole_quoted(name), value.whole_repr()))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }
}

/// A text from a file as messages show it, cut off where it is long.
pub fn excerpt(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARACTERS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Text as messages show it: in single quotes, or in double ones where it holds single ones, with control characters
/// escaped; cut off where it is long.
pub fn quoted(text: &str) -> String {
    excerpt(whole_quoted(text))
}

fn whole_quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            _ if character.is_control() => {
                let _ = write!(out, "\\x{:02x}", character as u32);
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
    out
}

/// A number as messages show it.
pub fn number_text(number: f64) -> String {
    float_text(number, "inf", "nan")
}

/// A number with at most so many significant digits, as C's `%.*g` writes it.
pub fn short_text(number: f64, digits: usize) -> String {
    if !number.is_finite() {
        return number_text(number);
    }
    let last = digits.max(1) - 1;
    let scientific = format!("{number:.last$e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let bare = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(i64::try_from(last).unwrap_or(i64::MAX) - i64::from(exponent)) {
        Ok(decimals) if exponent >= -4 => bare(&format!("{number:.decimals$}")),
        _ => format!("{}e{}{:02}", bare(mantissa), if exponent < 0 { "-" } else { "+" }, exponent.abs()),
    }
}

fn float_text(number: f64, infinity: &str, nan: &str) -> String {
    if number.is_nan() {
        return nan.into();
    }
    if number.is_infinite() {
        return format!("{}{infinity}", if number < 0.0 { "-" } else { "" });
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    format!("{digits}e{}{:02}", if exponent < 0 { "-" } else { "+" }, exponent.abs())
}

fn write_json(out: &mut String, value: &Value, depth: Option<usize>) {
    match value {
        Value::None => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Integer(number) => {
            let _ = write!(out, "{number}");
        }
        // No JSON, strictly, but what every language here writes of a loss that is no number, and skips on reading.
        Value::Float(number) => out.push_str(&float_text(*number, "Infinity", "NaN")),
        Value::Beyond(_) => out.push_str("Infinity"),
        Value::Text(text) => write_text(out, text),
        Value::List(list) => write_entries(out, ['[', ']'], list, depth, |out, entry, depth| {
            write_json(out, entry, depth);
        }),
        Value::Table(table) => write_entries(out, ['{', '}'], &table.0, depth, |out, (name, entry), depth| {
            write_text(out, name);
            out.push_str(": ");
            write_json(out, entry, depth);
        }),
    }
}

fn write_entries<T>(
    out: &mut String,
    brackets: [char; 2],
    entries: &[T],
    depth: Option<usize>,
    write: impl Fn(&mut String, &T, Option<usize>),
) {
    out.push(brackets[0]);
    let inner = depth.map(|depth| depth + 1);
    for (number, entry) in entries.iter().enumerate() {
        match (number, inner) {
            (0, None) => {}
            (_, None) => out.push_str(", "),
            (_, Some(inner)) => {
                out.push_str(if number == 0 { "\n" } else { ",\n" });
                out.push_str(&"  ".repeat(inner));
            }
        }
        write(out, entry, inner);
    }
    if let Some(depth) = depth.filter(|_| !entries.is_empty()) {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    }
    out.push(brackets[1]);
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        // Expected texts are Python's repr.
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e100, "1.25e+100"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (3.870_862_007_141_113_3, "3.8708620071411133"),
        ] {
            assert_eq!(number_text(number), text);
            assert_eq!(Value::Float(number).to_json(), text);
        }
        assert_eq!(Value::Float(f64::NAN).to_json(), "NaN");
        assert_eq!(Value::Float(f64::NEG_INFINITY).to_json(), "-Infinity");
    }

    #[test]
    fn numbers_are_shortened_as_c_shortens_them() {
        // Expected texts are those of C's printf with %.4g and %.2g.
        for (number, four, two) in [
            (412.7, "412.7", "4.1e+02"),
            (103.716_33, "103.7", "1e+02"),
            (0.0, "0", "0"),
            (-2.5, "-2.5", "-2.5"),
            (99_996.0, "1e+05", "1e+05"),
            (9999.5, "1e+04", "1e+04"),
            (1.2e8, "1.2e+08", "1.2e+08"),
            (0.000_123_456, "0.0001235", "0.00012"),
            (0.000_012_345_6, "1.235e-05", "1.2e-05"),
            (10.0, "10", "10"),
            (f64::NAN, "nan", "nan"),
            (f64::NEG_INFINITY, "-inf", "-inf"),
        ] {
            assert_eq!((short_text(number, 4).as_str(), short_text(number, 2).as_str()), (four, two));
        }
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let value = Value::Table(Table::from([
            ("a", Value::List(vec![1i32.into(), Value::None, true.into()])),
            ("é\n", "\u{1f600}\"\\\u{1}".into()),
            ("empty", Value::List(vec![])),
        ]));
        assert_eq!(value.to_json(), r#"{"a": [1, null, true], "\u00e9\n": "\ud83d\ude00\"\\\u0001", "empty": []}"#);
        assert_eq!(
            value.to_json_lines(),
            "{\n  \"a\": [\n    1,\n    null,\n    true\n  ],\n  \"\\u00e9\\n\": \"\\ud83d\\ude00\\\"\\\\\\u0001\",\n  \
             \"empty\": []\n}"
        );
    }

    #[test]
    fn messages_quote_text() {
        assert_eq!(Value::Text("it's".into()).repr(), "\"it's\"");
        assert_eq!(Value::Text("a\tb".into()).repr(), "'a\\tb'");
        let long = Value::List(vec!["é".repeat(9999).into(); 9]).repr();
        assert!(long.starts_with("['éé") && long.ends_with("é…") && long.chars().count() == 101);
    }
}
