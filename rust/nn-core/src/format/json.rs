//! JSON, RFC 8259: reading within bounds that keep the time and memory of a text in proportion to its size, and writing.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::limits::{JSON_DEPTH, JSON_MARKS};
use super::value::{Value, quoted};

/// What older versions of this project wrote for a loss that is not finite, though JSON has no word for it.
const NOT_FINITE: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];

/// One JSON value. Tables keep their order. A key stands once in an object, since readers differ in which of two they
/// take; nesting and the number of values are bounded. `NaN` and `Infinity` become text, which no number may be. The
/// error says what is wrong and in which line and column.
pub fn parse_json(bytes: &[u8]) -> Result<Value, String> {
    check_marks(bytes, JSON_MARKS)?;
    let text = words_as_text(bytes);
    let mut reader = serde_json::Deserializer::from_slice(&text);
    reader.disable_recursion_limit(); // `Level` has one
    let value = Level(0).deserialize(&mut reader);
    value.and_then(|value| reader.end().map(|()| value)).map_err(|error| error.to_string())
}

/// Why a JSON text has more values than its reader would take, before the reader sees it: those of at most `most` marks.
pub(crate) fn check_marks(text: &[u8], most: usize) -> Result<(), String> {
    let marks = outside_strings(text).filter(|(_, byte)| matches!(byte, b'[' | b'{' | b',' | b':')).count();
    if marks > most { Err(format!("it has more than {most} brackets, commas and colons")) } else { Ok(()) }
}

/// The bytes of a JSON text that no string has, each with its place.
fn outside_strings(text: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let (mut quoted, mut escaped) = (false, false);
    text.iter().copied().enumerate().filter(move |(_, byte)| {
        let inside = quoted;
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ => {}
        }
        !inside
    })
}

/// The text with the words of `NOT_FINITE` in quotes.
fn words_as_text(text: &[u8]) -> Vec<u8> {
    let (mut out, mut copied) = (Vec::with_capacity(text.len()), 0);
    for (at, _) in outside_strings(text).filter(|(_, byte)| matches!(byte, b'-' | b'I' | b'N')) {
        if let Some(word) = NOT_FINITE.into_iter().find(|word| at >= copied && text[at..].starts_with(word)) {
            let end = at + word.len();
            out.extend([&text[copied..at], b"\"", word, b"\""].concat());
            copied = end;
        }
    }
    out.extend(&text[copied..]);
    out
}

/// Reads a value that is so many levels deep.
struct Level(usize);

impl Level {
    fn inside<E: Error>(&self) -> Result<usize, E> {
        if self.0 > JSON_DEPTH {
            return Err(E::custom(format!("it is nested deeper than {JSON_DEPTH} levels")));
        }
        Ok(self.0 + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let (level, mut list) = (self.inside()?, Vec::new());
        while let Some(value) = entries.next_element_seed(Level(level))? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let (level, mut table, mut seen) = (self.inside()?, Vec::new(), HashSet::new());
        while let Some(name) = entries.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format!("the key {} is twice in one object", quoted(&name))));
            }
            table.push((name, entries.next_value_seed(Level(level))?));
        }
        Ok(Value::Table(table.into_iter().collect()))
    }
}

/// A value as JSON without spaces, with the escapes that JSON needs and no others. A number with a fraction is written as
/// Python's `repr` has it.
pub fn write_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

/// A value as JSON with an entry a line, two spaces deeper at each level. A number is written as Python does, null where it is not
/// finite.
pub(super) fn json_lines(value: &Value) -> String {
    let mut out = Vec::new();
    // Names are text, and nothing else can fail.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut out, PythonLines(PrettyFormatter::new())));
    String::from_utf8(out).unwrap_or_default()
}

/// What `PrettyFormatter` writes, but for numbers with a fraction.
struct PythonLines<'a>(PrettyFormatter<'a>);

macro_rules! as_pretty {
    ($($method:ident($($first:ident)?);)*) => {$(
        fn $method<W: ?Sized + Write>(&mut self, writer: &mut W $(, $first: bool)?) -> io::Result<()> {
            self.0.$method(writer $(, $first)?)
        }
    )*};
}

impl Formatter for PythonLines<'_> {
    as_pretty! {
        begin_array(); end_array(); begin_array_value(first); end_array_value();
        begin_object(); end_object(); begin_object_key(first); begin_object_value(); end_object_value();
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, number: f64) -> io::Result<()> {
        writer.write_all(python_float(number).as_bytes())
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::None => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Integer(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&python_float(*number)),
        Value::Text(text) => write_text(text, out),
        Value::List(list) => {
            out.push('[');
            for (at, one) in list.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_value(one, out);
            }
            out.push(']');
        }
        Value::Table(table) => {
            out.push('{');
            for (at, (name, one)) in table.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_text(name, out);
                out.push(':');
                write_value(one, out);
            }
            out.push('}');
        }
    }
}

/// A text in quotes. Quotes, backslashes and control characters are escaped, all else stands as it is.
pub(crate) fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).unwrap_or_default()); // a text is always JSON
}

/// A number as Python's json writes it: the fewest digits that give it back, and in an exponent a sign and two digits or
/// more.
pub(crate) fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-Infinity" } else { "Infinity" }.to_owned();
    }
    let text = format!("{number:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_python_does() {
        let text = r#"[1.5,1e16,1e-5,0.0001,123456789012345.0,1e22,-2.5e-7,5,null,true,{"a":"é"}]"#;
        let expected = r#"[1.5,1e+16,1e-05,0.0001,123456789012345.0,1e+22,-2.5e-07,5,null,true,{"a":"é"}]"#;
        assert_eq!(write_json(&parse_json(text.as_bytes()).unwrap()), expected);
    }

    #[test]
    fn lines_have_pythons_numbers() {
        let value = parse_json(br#"{"a":[1e-5,2.5,[]],"b":{},"c":1e16}"#).unwrap();
        let expected = "{\n  \"a\": [\n    1e-05,\n    2.5,\n    []\n  ],\n  \"b\": {},\n  \"c\": 1e+16\n}";
        assert_eq!(json_lines(&value), expected);
        assert_eq!(json_lines(&f64::NAN.into()), "null");
    }

    #[test]
    fn what_is_json_is_read() {
        for (text, read) in [
            (r#"{"a": 1, "b": [2, {}], "c": -3}"#, r#"{"a":1,"b":[2,{}],"c":-3}"#),
            (" [1.5E+2, 0.1, 18446744073709551615]\r\n", "[150.0,0.1,18446744073709551615]"),
            (r#"[NaN, -Infinity, "NaN", "\"Infinity"]"#, r#"["NaN","-Infinity","NaN","\"Infinity"]"#),
            (r#""\ud83d\ude00\/é\u00e9""#, r#""😀/éé""#),
        ] {
            assert_eq!(parse_json(text.as_bytes()).unwrap().to_json(), read);
        }
        assert!(matches!(parse_json("9".repeat(50).as_bytes()), Ok(Value::Float(number)) if number > 9.9e49));
        assert!(parse_json(format!("{}{}", "[".repeat(513), "]".repeat(513)).as_bytes()).is_ok());
    }

    #[test]
    fn what_is_none_is_refused_with_its_place() {
        for (text, problem) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("[1,\n\n]", "trailing comma at line 3 column 1"),
            ("1 2", "trailing characters at line 1 column 3"),
            ("[-NaN]", "invalid number at line 1 column 3"),
            (r#"[{"a": 1, "b": 2, "a": 3}]"#, "the key 'a' is twice in one object at line 1 column 21"),
        ] {
            assert_eq!(parse_json(text.as_bytes()).unwrap_err(), problem, "{text}");
        }
        assert!(parse_json(b"\xff").is_err() && parse_json(b"[\"\xff\"]").is_err());
        assert!(parse_json("[".repeat(100_000).as_bytes()).unwrap_err().starts_with("it is nested deeper than 512"));
        assert!(parse_json("9".repeat(400).as_bytes()).unwrap_err().starts_with("number out of range"));
        let many = format!("[1{}]", ",1".repeat(JSON_MARKS));
        assert!(parse_json(many.as_bytes()).unwrap_err().starts_with("it has more than 2097152 brackets"));
        assert!(parse_json(format!("\"{}\"", ",".repeat(2 * JSON_MARKS)).as_bytes()).is_ok());
    }
}
