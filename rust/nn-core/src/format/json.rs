//! Reading JSON as every language of this project reads it: RFC 8259 and, as Python's json does, NaN, Infinity and
//! -Infinity, which a loss may be.

use std::collections::HashSet;

use super::limits::{JSON_DEPTH, JSON_DIGITS, JSON_MARKS};
use super::value::{Value, quoted};

/// One JSON value. Tables keep their order. A key stands once in an object, since readers differ in which of two they
/// take; nesting, digits and the number of values are bounded, so that a text takes memory and time in proportion to its
/// size. Half a surrogate pair becomes the replacement character. The error says what is wrong and at which byte.
pub fn parse_json(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| String::from("it is not UTF-8"))?;
    let mut parser = Parser { text, at: 0, marks: 0 };
    parser.space();
    let value = parser.value(0)?;
    parser.space();
    if parser.at < text.len() { Err(parser.problem("something follows the value")) } else { Ok(value) }
}

/// Why a JSON text has more values than its reader would take, before another reader sees it.
pub(crate) fn check_marks(text: &[u8]) -> Result<(), String> {
    let (mut marks, mut quoted, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'[' | b'{' | b',' | b':' => marks += usize::from(!quoted),
            _ => {}
        }
    }
    if marks > JSON_MARKS { Err(too_many_marks()) } else { Ok(()) }
}

fn too_many_marks() -> String {
    format!("it has more than {JSON_MARKS} brackets, commas and colons")
}

/// A problem and where it is.
fn problem_at(text: &str, what: &str, at: usize) -> String {
    match text[..at].matches('\n').count() {
        0 => format!("{what}, at byte {at}"),
        lines => format!("{what}, in line {}, at byte {at}", lines + 1),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Brackets, braces, commas and colons so far.
    marks: usize,
}

impl<'a> Parser<'a> {
    fn problem(&self, what: &str) -> String {
        problem_at(self.text, what, self.at)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// Steps over `text` if it comes next.
    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// Steps over a bracket, a comma or a colon if it comes next.
    fn mark(&mut self, text: &str) -> bool {
        let found = self.take(text);
        self.marks += usize::from(found);
        found
    }

    fn value(&mut self, level: usize) -> Result<Value, String> {
        if level > JSON_DEPTH {
            return Err(self.problem(&format!("it is nested deeper than {JSON_DEPTH} levels")));
        }
        if self.marks > JSON_MARKS {
            return Err(self.problem(&too_many_marks()));
        }
        let words = [
            ("null", Value::None),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        for (word, value) in words {
            if self.take(word) {
                return Ok(value);
            }
        }
        if self.take("\"") {
            self.string().map(Value::Text)
        } else if self.mark("[") {
            self.entries("]", |parser| parser.value(level + 1)).map(Value::List)
        } else if self.mark("{") {
            let mut seen = HashSet::new();
            let entries = self.entries("}", |parser| {
                let (name, value) = parser.entry(level + 1)?;
                if !seen.insert(name.clone()) {
                    return Err(parser.problem(&format!("the key {} is twice in one object", quoted(&name))));
                }
                Ok((name, value))
            });
            entries.map(|entries| Value::Table(entries.into_iter().collect()))
        } else {
            self.number()
        }
    }

    /// What stands between commas up to the bracket that closes it.
    fn entries<T>(
        &mut self,
        end: &str,
        mut read: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut found = Vec::new();
        self.space();
        if self.take(end) {
            return Ok(found);
        }
        loop {
            self.space();
            found.push(read(self)?);
            self.space();
            if self.take(end) {
                return Ok(found);
            }
            if !self.mark(",") {
                return Err(self.problem(&format!("a ',' or '{end}' was expected")));
            }
        }
    }

    fn entry(&mut self, level: usize) -> Result<(String, Value), String> {
        if !self.take("\"") {
            return Err(self.problem("a name in double quotes was expected"));
        }
        let name = self.string()?;
        self.space();
        if !self.mark(":") {
            return Err(self.problem("a ':' was expected"));
        }
        self.space();
        Ok((name, self.value(level)?))
    }

    /// What follows the opening quote.
    fn string(&mut self) -> Result<String, String> {
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let Some(end) = rest.find(|letter| matches!(letter, '"' | '\\' | '\0'..='\x1f')) else {
                self.at = self.text.len();
                return Err(self.problem("a string does not end"));
            };
            out.push_str(&rest[..end]);
            self.at += end;
            if self.take("\"") {
                return Ok(out);
            }
            if !self.take("\\") {
                return Err(self.problem("a control character stands in a string"));
            }
            out.push(self.escape()?);
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char, String> {
        let letter = self.rest().chars().next().ok_or_else(|| self.problem("a string does not end"))?;
        let known = match letter {
            '"' | '\\' | '/' => letter,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.problem("an unknown escape stands in a string")),
        };
        self.at += 1;
        Ok(known)
    }

    /// What follows `\u`: one unit of UTF-16, or two that belong together.
    fn unicode(&mut self) -> Result<char, String> {
        let first = self.unit()?;
        if let Some(letter) = char::from_u32(first.into()) {
            return Ok(letter);
        }
        let here = self.at;
        if self.take("\\u") {
            let second = self.unit()?;
            if let Some(Ok(pair)) = char::decode_utf16([first, second]).next() {
                return Ok(pair);
            }
            self.at = here;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn unit(&mut self) -> Result<u16, String> {
        let digits = self.rest().get(..4).filter(|text| text.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let unit = digits.and_then(|text| u16::from_str_radix(text, 16).ok());
        let unit = unit.ok_or_else(|| self.problem("four hexadecimal digits must follow \\u"))?;
        self.at += 4;
        Ok(unit)
    }

    fn digits(&mut self) -> &'a str {
        let rest = self.rest();
        let count = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += count;
        &rest[..count]
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        let text = self.text;
        let refuse = |problem: &str| Err(problem_at(text, problem, start));
        self.take("-");
        let digits = self.digits();
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
            return refuse("a value was expected");
        }
        let mut whole = true;
        if self.take(".") {
            whole = false;
            if self.digits().is_empty() {
                return refuse("a value was expected");
            }
        }
        if self.take("e") || self.take("E") {
            whole = false;
            let _sign = self.take("+") || self.take("-");
            if self.digits().is_empty() {
                return refuse("a value was expected");
            }
        }
        let text = &self.text[start..self.at];
        if whole && text.len() > JSON_DIGITS {
            return refuse(&format!("a whole number has more than {JSON_DIGITS} digits"));
        }
        if whole && let Ok(number) = text.parse() {
            return Ok(Value::Integer(number));
        }
        // With a fraction or an exponent too large a number becomes infinite, as in Python; who uses it refuses it by name.
        match text.parse::<f64>() {
            Ok(number) if whole && number.is_infinite() => Ok(Value::Beyond(text.len())),
            Ok(number) => Ok(Value::Float(number)),
            Err(_) => refuse("a value was expected"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_json_is_read() {
        for (text, read) in [
            (r#"{"a": 1, "b": [2, {}], "c": -0}"#, r#"{"a": 1, "b": [2, {}], "c": 0}"#),
            (" [NaN, -Infinity, 1e999, 1.5E+2, 0.1]\r\n", "[NaN, -Infinity, Infinity, 150.0, 0.1]"),
            (r#""\ud800\ud83d\ude00\/é\u00e9""#, r#""\ufffd\ud83d\ude00/\u00e9\u00e9""#),
        ] {
            assert_eq!(parse_json(text.as_bytes()).unwrap().to_json(), read);
        }
        assert!(matches!(parse_json("9".repeat(50).as_bytes()), Ok(Value::Float(number)) if number > 9.9e49));
        assert!(parse_json(format!("{}{}", "[".repeat(513), "]".repeat(513)).as_bytes()).is_ok());
    }

    #[test]
    fn what_is_none_is_refused_at_its_byte() {
        for (text, problem) in [
            ("", "a value was expected, at byte 0"),
            ("[1,\n\n]", "a value was expected, in line 3, at byte 5"),
            ("[1,]", "a value was expected, at byte 3"),
            ("[01]", "a value was expected, at byte 1"),
            ("1 2", "something follows the value, at byte 2"),
            ("{\"a\" 1}", "a ':' was expected, at byte 5"),
            ("\"a\nb\"", "a control character stands in a string, at byte 2"),
            (r#""\u12""#, "four hexadecimal digits must follow \\u, at byte 3"),
            ("\"a", "a string does not end, at byte 2"),
            (r#"[{"a": 1, "b": 2, "a": 3}]"#, "the key 'a' is twice in one object, at byte 24"),
        ] {
            assert_eq!(parse_json(text.as_bytes()).unwrap_err(), problem, "{text}");
        }
        assert!(parse_json(b"\xff").is_err());
        assert!(parse_json("[".repeat(100_000).as_bytes()).unwrap_err().starts_with("it is nested deeper than 512"));
        assert!(parse_json("9".repeat(5000).as_bytes()).is_err());
        assert_eq!(parse_json("9".repeat(400).as_bytes()).unwrap().repr(), "a number of 400 digits");
        let many = format!("[1{}]", ",1".repeat(JSON_MARKS));
        assert!(parse_json(many.as_bytes()).unwrap_err().starts_with("it has more than 2097152 brackets"));
        assert!(parse_json(format!("\"{}\"", ",".repeat(2 * JSON_MARKS)).as_bytes()).is_ok());
    }
}
