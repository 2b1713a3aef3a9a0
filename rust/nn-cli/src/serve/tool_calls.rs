//! Reads calls of tools in what a model writes: while it is written, and the same however the text is cut.
//!
//! Models are trained to write calls in forms of their own. Which one a model has, its chat template tells, since that puts
//! calls of earlier turns in the same form.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use serde::Deserialize;

use super::api::API;
use super::json_follower::{JsonFollower, Part, is_space};

/// How a model writes calls: an entry of api.json.
#[derive(Debug, Deserialize)]
pub(super) struct CallForm {
    #[cfg_attr(not(test), allow(dead_code, reason = "fixtures call forms by it"))]
    pub(super) name: String,
    /// Of one of these lists, the chat template has all texts.
    template_has: Vec<Vec<String>>,
    /// It has none of these.
    template_lacks: Vec<String>,
    /// Texts around a call, or around a list of them; no `end` where nothing follows.
    pub(super) begin: String,
    pub(super) end: String,
    /// Calls stand in a JSON list.
    pub(super) listed: bool,
    /// `begin` may be missing where a call is the first thing, or follows another one.
    pub(super) bare: bool,
    /// What the object of a call calls its arguments.
    pub(super) arguments: String,
}

/// The form of a chat template; `None` for one that knows no tools, or has another form.
pub(super) fn call_form(template: &str) -> Option<&'static CallForm> {
    if !template.contains("tools") {
        return None;
    }
    let has = |text: &String| template.contains(text.as_str());
    let fits = |form: &&CallForm| {
        form.template_has.iter().any(|texts| texts.iter().all(has)) && !form.template_lacks.iter().any(has)
    };
    API.call_forms.iter().find(fits)
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text that belongs to no call.
    Words(String),
    /// A call begins: the so many-th of the text, from 0, with its name.
    Call(usize, String),
    /// A piece of the JSON of a call's arguments.
    Arguments(usize, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    Words,
    /// What begins a call.
    Begin,
    /// Behind that.
    Open,
    /// Behind the bracket of a list, or a comma in it.
    List,
    Call,
    /// Behind a call.
    Close,
    /// Nothing more is read.
    Over,
}

/// Reads one text.
///
/// A call has begun when its name and the brace before its arguments are there. From then on its arguments are given as they
/// are written. What looked like a call but is none is text, up to the character that shows it.
#[derive(Debug)]
pub(super) struct ToolCallReader {
    form: &'static CallForm,
    names: Arc<HashSet<String>>,
    parallel: bool,
    at: In,
    /// What is either text or a part of a call.
    held: String,
    /// Bytes of `begin` or `end` that are there; all of them are ASCII.
    fits: usize,
    /// Whether no text came yet, or none since the last call.
    fresh: bool,
    call: CallObject,
    count: usize,
    pieces: Vec<Piece>,
}

impl ToolCallReader {
    /// `names` are those of the functions that may be called; without `parallel`, all behind the first call is left out.
    pub(super) fn new(form: &'static CallForm, names: &Arc<HashSet<String>>, parallel: bool) -> Self {
        Self {
            form,
            names: Arc::clone(names),
            parallel,
            at: In::Words,
            held: String::new(),
            fits: 0,
            fresh: true,
            call: CallObject::default(),
            count: 0,
            pieces: Vec::new(),
        }
    }

    /// Calls that have begun.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// What the next piece of the text makes certain.
    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        for sign in text.chars() {
            self.take(sign);
        }
        mem::take(&mut self.pieces)
    }

    /// What was held back, when no more text comes.
    pub(super) fn end(&mut self) -> Vec<Piece> {
        let held = mem::take(&mut self.held);
        let in_call = self.at == In::Close || self.at == In::Call && self.call.begun();
        let after_call = self.count > 0 && self.fresh && held.chars().all(is_space);
        if !held.is_empty() && !in_call && !after_call {
            self.write(&held);
        }
        self.at = In::Over;
        mem::take(&mut self.pieces)
    }

    fn take(&mut self, sign: char) {
        match self.at {
            In::Words => self.words(sign),
            In::Begin => self.begin(sign),
            In::Open | In::List => self.open(sign),
            In::Call => self.in_call(sign),
            In::Close => self.close(sign),
            In::Over => {}
        }
    }

    fn words(&mut self, sign: char) {
        let bare = self.form.bare && self.fresh;
        if is_space(sign) || (bare && self.count > 0 && sign == ';') {
            self.held.push(sign);
        } else if bare && sign == '{' {
            self.start_call(sign);
        } else {
            self.held.push(sign);
            if self.form.begin.starts_with(sign) {
                (self.at, self.fits) = (In::Begin, 1);
            } else {
                let held = mem::take(&mut self.held);
                self.write(&held);
            }
        }
    }

    fn begin(&mut self, sign: char) {
        if !self.form.begin[self.fits..].starts_with(sign) {
            return self.fail(sign);
        }
        self.held.push(sign);
        self.fits += 1;
        if self.fits == self.form.begin.len() {
            self.at = In::Open;
        }
    }

    fn open(&mut self, sign: char) {
        if is_space(sign) {
            self.held.push(sign);
        } else if sign == '[' && self.form.listed && self.at == In::Open {
            self.held.push(sign);
            self.at = In::List;
        } else if sign == '{' && self.form.listed == (self.at == In::List) {
            self.start_call(sign);
        } else {
            self.fail(sign);
        }
    }

    fn start_call(&mut self, sign: char) {
        self.call = CallObject::default();
        self.at = In::Call;
        self.in_call(sign);
    }

    fn in_call(&mut self, sign: char) {
        let begun = self.call.begun();
        let Some(added) = self.call.push(sign, &self.form.arguments, &self.names) else { return self.fail(sign) };
        if !self.call.begun() {
            return self.held.push(sign);
        }
        if !begun {
            self.pieces.push(Piece::Call(self.count, mem::take(&mut self.call.name)));
            self.count += 1;
            self.held.clear();
            self.fresh = true;
        }
        if added.is_empty() {
            self.held.push(sign);
        } else {
            self.argue(&added);
        }
        if self.call.json.part == Part::Done {
            self.held.clear();
            self.fits = 0;
            if self.parallel && !self.form.end.is_empty() {
                self.at = In::Close;
            } else {
                self.go_on("");
            }
        }
    }

    fn close(&mut self, sign: char) {
        if self.fits == 0 && is_space(sign) {
            self.held.push(sign);
        } else if self.fits == 0 && sign == ',' && self.form.listed {
            self.held.push(sign);
            self.at = In::List;
        } else if self.form.end[self.fits..].starts_with(sign) {
            self.held.push(sign);
            self.fits += 1;
            if self.fits == self.form.end.len() {
                self.held.clear();
                self.at = In::Words;
            }
        } else {
            // It is missing.
            let spaces = self.held.find(|sign| !is_space(sign)).unwrap_or(self.held.len());
            let mut rest = self.held.split_off(spaces);
            rest.push(sign);
            self.go_on(&rest);
        }
    }

    /// What is held is text; the character may begin something else.
    fn fail(&mut self, sign: char) {
        let held = mem::take(&mut self.held);
        if !held.is_empty() {
            self.write(&held);
        }
        self.fresh = false;
        self.go_on(sign.encode_utf8(&mut [0; 4]));
    }

    /// What comes is text, or begins a call.
    fn go_on(&mut self, signs: &str) {
        self.at = if self.parallel || self.count == 0 { In::Words } else { In::Over };
        for sign in signs.chars() {
            self.take(sign);
        }
    }

    fn write(&mut self, text: &str) {
        self.fresh = false;
        match self.pieces.last_mut() {
            Some(Piece::Words(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Words(text.to_owned())),
        }
    }

    fn argue(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Arguments(_, last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Arguments(self.count - 1, text.to_owned())),
        }
    }
}

/// The object of a call on its way.
#[derive(Debug, Default)]
struct CallObject {
    json: JsonFollower,
    key: String,
    name: String,
    /// Arguments that came before the name.
    written: String,
    named: bool,
    argued: bool,
}

impl CallObject {
    fn begun(&self) -> bool {
        self.named && self.argued
    }

    /// Takes the next character, and gives what that adds to the arguments; `None` when this is no call.
    fn push(&mut self, sign: char, arguments: &str, names: &HashSet<String>) -> Option<String> {
        let before = self.json.part;
        if !self.json.push(sign) {
            return None;
        }
        let fits = match (before, self.json.part) {
            (Part::Key, Part::Key) => {
                self.key.push(sign);
                true
            }
            (_, Part::Key) => {
                self.key.clear();
                true
            }
            (Part::Value, part) => return self.value_goes_on(sign, part == Part::Value, arguments, names),
            (_, Part::Value) if self.key == arguments => {
                let first = !mem::replace(&mut self.argued, true);
                return (first && sign == '{').then(|| self.argue(sign));
            }
            (_, Part::Value) if self.key == "name" => sign == '"' && !self.named,
            (_, Part::Value) => sign == '"' && matches!(self.key.as_str(), "id" | "type"),
            (_, Part::Done) => self.begun(),
            (_, Part::Between) => true,
        };
        fits.then(String::new)
    }

    fn value_goes_on(&mut self, sign: char, inside: bool, arguments: &str, names: &HashSet<String>) -> Option<String> {
        if self.key == arguments {
            return Some(self.argue(sign));
        }
        if self.key != "name" {
            return Some(String::new());
        }
        if inside {
            self.name.push(sign);
            return Some(String::new());
        }
        self.named = names.contains(&self.name);
        self.named.then(|| mem::take(&mut self.written))
    }

    fn argue(&mut self, sign: char) -> String {
        if self.named {
            return sign.to_string();
        }
        self.written.push(sign);
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        form: String,
        parallel: bool,
        text: String,
        pieces: Vec<(String, String)>,
        seen: Vec<usize>,
    }

    fn form(name: &str) -> &'static CallForm {
        API.call_forms.iter().find(|form| form.name == name).unwrap()
    }

    /// Pieces as the fixtures have them, those that belong together as one.
    fn joined(pieces: impl IntoIterator<Item = Piece>) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for piece in pieces {
            let (kind, text) = match piece {
                Piece::Words(text) => ("words", text),
                Piece::Call(_, text) => ("call", text),
                Piece::Arguments(_, text) => ("arguments", text),
            };
            match found.last_mut() {
                Some(last) if last.0 == kind && kind != "call" => last.1 += &text,
                _ => found.push((kind.to_owned(), text)),
            }
        }
        found
    }

    #[test]
    fn calls_in_texts_that_are_cut_anywhere() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../../../tests/serve/tool_calls.json")).expect("it is JSON");
        let names = Arc::new(HashSet::from(["f".to_owned(), "get_sea-2".to_owned()]));
        for case in cases {
            let reader = || ToolCallReader::new(form(&case.form), &names, case.parallel);
            for at in case.text.char_indices().map(|(at, _)| at).chain(iter::once(case.text.len())) {
                let (begin, end) = case.text.split_at(at);
                let mut reader = reader();
                let pieces = [reader.push(begin), reader.push(end), reader.end()].concat();
                assert_eq!(joined(pieces), case.pieces, "{} cut at {at}", case.text);
            }
            let (mut reader, mut seen) = (reader(), 0);
            let after_each = case.text.chars().map(|sign| {
                let pieces = joined(reader.push(sign.encode_utf8(&mut [0; 4])));
                seen += pieces.iter().map(|(_, text)| text.chars().count()).sum::<usize>();
                seen
            });
            assert_eq!(after_each.collect::<Vec<_>>(), case.seen, "{}", case.text);
        }
    }

    #[test]
    fn long_texts_take_time_in_proportion() {
        let long = "x".repeat(1_000_000);
        let names = Arc::default();
        for text in [
            "<tool_call>{\"name\": \"".repeat(50_000),
            format!("<tool_call>{{\"{long}"),
            format!("<tool_call>{{\"arguments\": {{\"a\": \"{long}"),
            "x ".repeat(500_000) + "x",
        ] {
            for step in [5, text.len()] {
                let mut reader = ToolCallReader::new(form("hermes"), &names, true);
                let mut size = 0;
                for part in text.as_bytes().chunks(step) {
                    let pieces = joined(reader.push(std::str::from_utf8(part).unwrap()));
                    size += pieces.iter().map(|(_, text)| text.len()).sum::<usize>();
                }
                size += joined(reader.end()).iter().map(|(_, text)| text.len()).sum::<usize>();
                assert_eq!(size, text.len());
            }
        }
    }

    #[test]
    fn templates_have_forms() {
        for (template, name) in [
            ("{% if tools %}<tool_call>{% endif %}", Some("hermes")),
            ("{% if tools %}<tool_call><function={% endif %}", None),
            ("<tool_call>", None),
            ("{{ tools }}", None),
            ("{{ tools }}[TOOL_CALLS]", Some("mistral")),
            ("{{ tools }}[TOOL_CALLS][ARGS]", None),
            ("{{ tools }}<|python_tag|>", Some("llama")),
            (r#"{{ tools }}{{ '{"name": "' }}{{ '"parameters": ' }}"#, Some("llama")),
        ] {
            assert_eq!(call_form(template).map(|form| form.name.as_str()), name, "{template}");
        }
    }
}
