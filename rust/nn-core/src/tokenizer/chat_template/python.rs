//! What templates find in transformers and in Python beside Jinja itself.

use std::error::Error as _;
use std::fmt;

use jiff::ZonedDateTime;
use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use crate::format::json::{python_float, write_text};

/// Levels of lists and objects that `tojson` goes down.
const DEEPEST: usize = 128;

/// The sentence of `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// What an error says, as the end of a sentence about the template.
pub(super) fn described(error: &Error) -> String {
    if let Some(raised) = error.source().and_then(|source| source.downcast_ref::<Raised>()) {
        return format!("fails: {raised}");
    }
    match error.kind() {
        ErrorKind::OutOfFuel => "takes too many steps, or too much memory".to_owned(),
        _ => format!("fails: {error}"),
    }
}

/// Gives an environment what transformers gives templates: `raise_exception`, `strftime_now`, `tojson` without escapes;
/// and the methods of Python's values.
pub(super) fn equip(environment: &mut Environment<'_>) {
    minijinja_contrib::add_to_environment(environment);
    environment.set_unknown_method_callback(method);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        let problem = Error::new(ErrorKind::InvalidOperation, message.clone());
        Err(problem.with_source(Raised(message)))
    });
    environment.add_function("strftime_now", |form: String| -> Result<String, Error> {
        let formed = jiff::fmt::strtime::format(&form, &ZonedDateTime::now());
        formed.map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
    environment.add_filter("tojson", to_json);
}

/// A template with `{% generation %}` marks as plain blocks: they say what the model wrote, for training; here its
/// content alone matters.
pub(super) fn without_generation_marks(template: &str) -> String {
    let (mut made, mut rest) = (String::with_capacity(template.len()), template);
    while let Some(start) = rest.find("{%") {
        let Some(end) = rest[start..].find("%}").map(|end| start + end) else { break };
        let tag = &rest[start + 2..end];
        let left = tag.strip_prefix(['-', '+']).map_or("", |_| &tag[..1]);
        let word = &tag[left.len()..];
        let (word, right) = match word.strip_suffix(['-', '+']) {
            Some(word) => (word, &tag[tag.len() - 1..]),
            None => (word, ""),
        };
        let block = match word.trim() {
            "generation" => "with",
            "endgeneration" => "endwith",
            _ => {
                // What looks like a tag may stand in a text or in a comment, and a tag in there.
                made.push_str(&rest[..start + 2]);
                rest = &rest[start + 2..];
                continue;
            }
        };
        made.push_str(&rest[..start]);
        made.extend(["{%", left, " ", block, " ", right, "%}"]);
        rest = &rest[end + 2..];
    }
    made.push_str(rest);
    made
}

/// Python's methods: those that `pycompat` lacks, and its own.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    let separated = |parts: Option<(&str, &str)>, separator: &str, otherwise: [&str; 3]| {
        let parts = parts.map_or(otherwise, |(before, after)| [before, separator, after]);
        Value::from(parts.map(Value::from).to_vec())
    };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(separated(text.split_once(separator), separator, [text, "", ""]))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(separated(text.rsplit_once(separator), separator, ["", "", text]))
        }
        "join" => {
            let (parts,): (&Value,) = from_args(args)?;
            join(state, text, parts)
        }
        "format" => {
            pay_for_format(state, text, args)?;
            pycompat::unknown_method_callback(state, value, name, args)
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// Charges for so many bytes before they are made: `pycompat` does not for all of them.
fn pay(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    state.consume_fuel((bytes / 64) as u64)
}

/// `str.join`, whose parts must be strings in Python, too.
fn join(state: &State<'_, '_>, separator: &str, parts: &Value) -> Result<Value, Error> {
    let mut text = String::new();
    for (at, part) in parts.try_iter()?.enumerate() {
        let Some(part) = part.as_str() else {
            let problem = format!("str.join takes strings; part {at} is of type {}", part.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        };
        pay(state, separator.len() + part.len() + 64)?;
        if at > 0 {
            text.push_str(separator);
        }
        text.push_str(part);
    }
    Ok(text.into())
}

/// Charges for what `str.format` may make: every field may be as wide as any number in the text says, and any argument.
fn pay_for_format(state: &State<'_, '_>, text: &str, args: &[Value]) -> Result<(), Error> {
    let numbers = text.split(|letter: char| !letter.is_ascii_digit());
    let width = numbers.filter(|digits| !digits.is_empty()).map(|digits| digits.parse().unwrap_or(usize::MAX)).max();
    let longest = args.iter().map(|arg| match arg.kind() {
        ValueKind::String => Ok(arg.as_str().unwrap_or_default().len()),
        ValueKind::Number | ValueKind::Bool | ValueKind::None | ValueKind::Undefined => Ok(64),
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("str.format is not for a value of type {kind}"))),
    });
    let longest = longest.collect::<Result<Vec<usize>, _>>()?.into_iter().max().unwrap_or(0);
    let fields = text.matches('{').count();
    pay(state, fields.saturating_mul(width.unwrap_or(0).saturating_add(longest)))
}

/// `tojson` as transformers has it: `json.dumps(value, ensure_ascii=False)` with `indent`, `separators` and `sort_keys`.
fn to_json(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) if value.is_none() || value.is_undefined() => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_owned(),
            None => {
                let spaces = usize::try_from(value)?;
                state.consume_fuel(spaces as u64)?;
                " ".repeat(spaces)
            }
        }),
    };
    let separators = options.get::<Option<Value>>("separators")?.filter(|value| !value.is_none());
    let (entries, colon) = match separators {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some(pair) => {
            let pair: Vec<String> = pair.try_iter()?.map(|part| part.to_string()).collect();
            let [entries, colon] = <[String; 2]>::try_from(pair)
                .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators of tojson are not two"))?;
            (entries, colon)
        }
    };
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    // Others, such as ensure_ascii, change nothing here.
    let _: Vec<Value> = options.args().filter_map(|name| options.get(name).ok()).collect();
    let mut writer = Json { state, indent, entries, colon, sorted, text: String::new() };
    writer.write(value, 0)?;
    Ok(writer.text.into())
}

struct Json<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    indent: Option<String>,
    entries: String,
    colon: String,
    sorted: bool,
    text: String,
}

impl Json<'_, '_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.state.consume_fuel(1)?;
        if depth > DEEPEST {
            return Err(Error::new(ErrorKind::InvalidOperation, "the value of tojson is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.text.push_str(&value.to_string()),
            ValueKind::Number => self.text.push_str(&python_float(f64::try_from(value.clone())?)),
            ValueKind::String => self.write_text(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let values: Vec<Value> = value.try_iter()?.collect();
                self.write_all('[', ']', values.len(), depth, |writer, at| writer.write(&values[at], depth + 1))?;
            }
            ValueKind::Map => {
                let mut names: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    names.sort();
                }
                self.write_all('{', '}', names.len(), depth, |writer, at| {
                    let name = match names[at].kind() {
                        ValueKind::None => "null".to_owned(),
                        ValueKind::Bool => names[at].is_true().to_string(),
                        _ => names[at].to_string(),
                    };
                    writer.write_text(&name)?;
                    let colon = writer.colon.clone();
                    writer.text.push_str(&colon);
                    writer.write(&value.get_item(&names[at])?, depth + 1)
                })?;
            }
            kind => {
                let problem = format!("a value of type {kind} is no JSON");
                return Err(Error::new(ErrorKind::BadSerialization, problem));
            }
        }
        Ok(())
    }

    fn write_all(
        &mut self,
        open: char,
        close: char,
        count: usize,
        depth: usize,
        mut entry: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.text.push(open);
        for at in 0..count {
            if at > 0 {
                self.text.push_str(&self.entries);
            }
            self.begin_line(depth + 1)?;
            entry(self, at)?;
        }
        if count > 0 {
            self.begin_line(depth)?;
        }
        self.text.push(close);
        Ok(())
    }

    fn begin_line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            self.state.consume_fuel((depth * indent.len() / 64) as u64)?;
            self.text.push('\n');
            self.text.push_str(&indent.repeat(depth));
        }
        Ok(())
    }

    fn write_text(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel((text.len() / 64) as u64)?;
        write_text(text, &mut self.text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_python_does() {
        for (number, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e300, "1.25e+300"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(python_float(number), text);
        }
    }

    #[test]
    fn marks_of_what_the_model_wrote_are_blocks() {
        for (template, made) in [
            ("{% generation %}a{% endgeneration %}", "{% with %}a{% endwith %}"),
            ("{%- generation -%} {%+endgeneration%}", "{%- with -%} {%+ endwith %}"),
            ("{# {% #}{% generation %}{% endgeneration %}", "{# {% #}{% with %}{% endwith %}"),
            ("{% set generation = 1 %}{{ generation }}{%", "{% set generation = 1 %}{{ generation }}{%"),
        ] {
            assert_eq!(without_generation_marks(template), made);
        }
    }
}
