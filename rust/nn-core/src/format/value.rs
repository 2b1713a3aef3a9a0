//! Values of JSON and TOML files, of options, and of what messages show of them.

use serde::{Serialize, Serializer};

use super::json::json_lines;
use super::limits::SHOWN_CHARACTERS;

/// A JSON or TOML value. Tables keep their order; of a name given twice the last value counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// JSON's null.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction or an exponent, or a whole one beyond 64 bits. One that is not finite is null in JSON.
    Float(f64),
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

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.collect_map(self.iter())
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
        serde_json::to_string(self).unwrap_or_default() // names are text, and nothing else can fail
    }

    /// JSON with an entry a line, two spaces deeper at each level, numbers as Python writes them, and a line end behind it: a
    /// file.
    pub fn to_json_lines(&self) -> String {
        json_lines(self) + "\n"
    }

    /// As messages show it, cut off where it is long.
    pub fn shown(&self) -> String {
        match self {
            Value::None => "none".into(),
            Value::Float(number) => format!("{number:?}"),
            Value::Text(text) => quoted(text),
            other => excerpt(other.to_json()),
        }
    }
}

/// A number rounded to so many significant digits, at least 1.
pub(crate) fn significant(number: f64, digits: usize) -> f64 {
    format!("{number:.*e}", digits - 1).parse().unwrap_or(number)
}

/// A number with at most so many significant digits, as C's `%g` has it: 1.5, 0.0001, 1e-05.
pub fn general(number: f64, digits: usize) -> String {
    let rounded = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let plain = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text.to_owned() }
    };
    if (-4..digits as i32).contains(&exponent) {
        return plain(&format!("{number:.*}", (digits as i32 - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", plain(mantissa), exponent.abs())
}

/// A text from a file as messages show it, cut off where it is long.
pub fn excerpt(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARACTERS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Text as messages show it: in quotes, with control characters escaped; cut off where it is long.
pub fn quoted(text: &str) -> String {
    excerpt(format!("'{}'", text.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_in_the_order_of_tables() {
        let value = Value::Table(Table::from([
            ("b", Value::List(vec![1i32.into(), Value::None, true.into(), f64::NAN.into()])),
            ("a\n", "\u{1f600}\"".into()),
        ]));
        assert_eq!(value.to_json(), r#"{"b":[1,null,true,null],"a\n":"😀\""}"#);
        assert!(value.to_json_lines().starts_with("{\n  \"b\": [\n    1,"));
    }

    #[test]
    fn numbers_have_so_many_digits() {
        for (number, shown) in [
            (1.5, "1.5"),
            (1.0 / 3.0, "0.333333"),
            (1e-5, "1e-05"),
            (-0.0001, "-0.0001"),
            (1e6, "1e+06"),
            (123_456.0, "123456"),
        ] {
            assert_eq!(general(number, 6), shown);
        }
    }

    #[test]
    fn messages_show_values() {
        for (value, shown) in [
            (Value::None, "none"),
            (1e30.into(), "1e30"),
            (f64::NAN.into(), "NaN"),
            (2.0.into(), "2.0"),
            ("a\tb".into(), "'a\\tb'"),
            (vec![Value::from(1i32), "x".into()].into(), r#"[1,"x"]"#),
        ] {
            assert_eq!(value.shown(), shown);
        }
        let long = Value::List(vec!["é".repeat(9999).into(); 9]).shown();
        assert!(long.starts_with("[\"éé") && long.ends_with("é…") && long.chars().count() == 101);
    }
}
