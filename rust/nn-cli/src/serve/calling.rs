//! How answers that may call tools are read and written.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nn_core::tokenizer::{Encoding, TextTokenizer};

use super::tool_calls::{CallForm, Piece, ToolCallReader};
use super::tools::Tools;
use super::wire::Json;

const ID_DIGITS: usize = 9;

/// Ids that each text of an answer has for its calls.
const IDS: u128 = 1 << 16;

/// What may be called in the texts of an answer, and in which form.
#[derive(Clone, Debug)]
pub(super) struct Calling {
    form: &'static CallForm,
    names: Arc<HashSet<String>>,
    parallel: bool,
    /// Those texts of the form that are control tokens, which add nothing to what a model writes.
    marks: HashMap<i32, &'static str>,
}

impl Calling {
    /// `marks` are the form's [`control_tokens`].
    pub(super) fn new(tools: &Tools, form: &'static CallForm, marks: &HashMap<&'static str, i32>) -> Self {
        let marks = marks.iter().map(|(text, token)| (*token, *text)).collect();
        Self { form, names: Arc::new(tools.names()), parallel: tools.parallel, marks }
    }

    /// What a token adds to the text that is read, beside what it adds to any text.
    pub(super) fn mark(&self, token: Option<i32>) -> &'static str {
        token.and_then(|token| self.marks.get(&token)).copied().unwrap_or_default()
    }

    /// A reader for one text, the so many-th of an answer of this id.
    pub(super) fn reader(&self, id: u128, index: usize) -> Calls {
        let first = (id >> (128 - 4 * ID_DIGITS)) + index as u128 * IDS;
        Calls { reader: ToolCallReader::new(self.form, &self.names, self.parallel), first }
    }
}

/// The ids of those texts of a form that are control tokens, which add nothing to what a model writes. Errors as of the
/// tokenizer.
pub(super) fn control_tokens(
    form: &'static CallForm,
    tokenizer: &TextTokenizer,
) -> nn_core::Result<HashMap<&'static str, i32>> {
    let mut marks = HashMap::new();
    // Some models drop the space at the start of a text, so a token is decoded after another one.
    let anchor = tokenizer.ordinary_id();
    for text in [&form.begin, &form.end].into_iter().filter(|text| !text.is_empty()) {
        if let [token] = tokenizer.encode(text, Encoding { begin: false, special: true })?[..]
            && tokenizer.decode(&[anchor, token])? == tokenizer.decode(&[anchor])?
        {
            marks.insert(text.as_str(), token);
        }
    }
    Ok(marks)
}

/// The calls of one text.
#[derive(Debug)]
pub(super) struct Calls {
    reader: ToolCallReader,
    /// What their ids are made of.
    first: u128,
}

impl Calls {
    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        self.reader.count() > 0
    }

    /// The message of a whole text.
    pub(super) fn message(&mut self, text: &str) -> Json {
        let (mut content, mut calls) = (String::new(), Vec::<(String, String)>::new());
        for piece in self.reader.push(text).into_iter().chain(self.reader.end()) {
            match piece {
                Piece::Words(text) => content += &text,
                Piece::Call(_, name) => calls.push((name, String::new())),
                Piece::Arguments(number, text) => calls[number].1 += &text,
            }
        }
        let none = content.is_empty() && !calls.is_empty();
        let content = if none { Json::Null } else { Json::Text(content) };
        let role = ("role".to_owned(), "assistant".into());
        let mut message = vec![role, ("content".to_owned(), content), ("refusal".to_owned(), Json::Null)];
        if !calls.is_empty() {
            let calls = calls.into_iter().enumerate();
            let calls = calls.map(|(number, (name, arguments))| Json::Object(self.call(number, name, arguments)));
            message.push(("tool_calls".to_owned(), Json::List(calls.collect())));
        }
        Json::Object(message)
    }

    /// What the next piece of the text makes certain.
    pub(super) fn pieces(&mut self, text: &str) -> Vec<Piece> {
        self.reader.push(text)
    }

    /// What was held back, when no more text comes.
    pub(super) fn last_pieces(&mut self) -> Vec<Piece> {
        self.reader.end()
    }

    /// The deltas of a piece of text.
    pub(super) fn deltas(&mut self, text: &str) -> Vec<Json> {
        let pieces = self.reader.push(text);
        pieces.into_iter().map(|piece| self.delta(piece)).collect()
    }

    /// Those of what was held back, when no more text comes.
    pub(super) fn last_deltas(&mut self) -> Vec<Json> {
        let pieces = self.reader.end();
        pieces.into_iter().map(|piece| self.delta(piece)).collect()
    }

    fn delta(&self, piece: Piece) -> Json {
        let call = match piece {
            Piece::Words(text) => return Json::object([("content", Json::Text(text))]),
            Piece::Call(number, name) => {
                let mut call = vec![("index".to_owned(), number.into())];
                call.extend(self.call(number, name, String::new()));
                Json::Object(call)
            }
            Piece::Arguments(number, text) => {
                let function = Json::object([("arguments", Json::Text(text))]);
                Json::object([("index", number.into()), ("function", function)])
            }
        };
        Json::object([("tool_calls", Json::List(vec![call]))])
    }

    /// The id of a call. It is of letters and digits alone, nine of them: some templates insist.
    pub(super) fn id(&self, number: usize) -> String {
        format!("{:0width$x}", (self.first + number as u128) % (1 << (4 * ID_DIGITS)), width = ID_DIGITS)
    }

    fn call(&self, number: usize, name: String, arguments: String) -> Vec<(String, Json)> {
        let function = Json::object([("name", Json::Text(name)), ("arguments", Json::Text(arguments))]);
        let entries = [("id", Json::Text(self.id(number))), ("type", "function".into()), ("function", function)];
        entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
