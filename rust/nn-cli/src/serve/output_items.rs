//! What a response has written so far, as items: messages with text, and calls of functions.

use super::calling::Calls;
use super::tool_calls::Piece;
use super::wire::Json;

/// An event: its type and what it holds beside its number.
pub(super) type Change = (&'static str, Vec<(&'static str, Json)>);

/// The items of one response. Each is opened, added to and closed, one after the other, and every change is an event.
///
/// Without calls, all is one message, and begins with it; with them, a message or a call begins where it does, and the
/// log-probabilities of a token stand with the text that it completes: those of calls are left out.
#[derive(Debug)]
pub(super) struct OutputItems {
    /// What ids are made of.
    number: u128,
    calls: Option<Calls>,
    done: Vec<Json>,
    open: Option<Item>,
    /// Log-probabilities.
    waiting: Vec<Json>,
}

/// A message, or a call of a function.
#[derive(Debug)]
struct Item {
    id: String,
    call: Option<Call>,
    text: String,
    logprobs: Vec<Json>,
}

#[derive(Debug)]
struct Call {
    id: String,
    name: String,
}

impl Item {
    fn part(&self) -> Json {
        Json::object([
            ("type", "output_text".into()),
            ("text", self.text.as_str().into()),
            ("annotations", Json::List(Vec::new())),
            ("logprobs", Json::List(self.logprobs.clone())),
        ])
    }

    /// The item as it is.
    fn shown(&self, status: &str, begins: bool) -> Json {
        let (id, status) = (("id", self.id.as_str().into()), ("status", status.into()));
        match &self.call {
            Some(call) => Json::object([
                ("type", "function_call".into()),
                id,
                status,
                ("call_id", call.id.as_str().into()),
                ("name", call.name.as_str().into()),
                ("arguments", self.text.as_str().into()),
            ]),
            None => Json::object([
                ("type", "message".into()),
                id,
                status,
                ("role", "assistant".into()),
                ("content", Json::List(if begins { Vec::new() } else { vec![self.part()] })),
            ]),
        }
    }
}

impl OutputItems {
    pub(super) fn new(number: u128, calls: Option<Calls>) -> Self {
        Self { number, calls, done: Vec::new(), open: None, waiting: Vec::new() }
    }

    pub(super) fn begin(&mut self) -> Vec<Change> {
        if self.calls.is_some() { Vec::new() } else { self.open(None) }
    }

    /// The items that are closed.
    pub(super) fn done(&self) -> &[Json] {
        &self.done
    }

    /// What a token changes: the text that it adds, and its log-probabilities.
    pub(super) fn push(&mut self, text: &str, logprobs: Vec<Json>) -> Vec<Change> {
        let nothing = text.is_empty() && logprobs.is_empty();
        self.waiting.extend(logprobs);
        match &mut self.calls {
            Some(calls) => {
                let pieces = calls.pieces(text);
                self.take(pieces)
            }
            None if nothing => Vec::new(),
            None => vec![self.add(text)],
        }
    }

    /// What is changed when no more text comes; the last item has that status.
    pub(super) fn end(&mut self, status: &str) -> Vec<Change> {
        let pieces = self.calls.as_mut().map(Calls::last_pieces).unwrap_or_default();
        let mut changes = self.take(pieces);
        if self.open.is_none() {
            changes.extend(self.open(None));
        }
        changes.extend(self.close(status));
        changes
    }

    fn take(&mut self, pieces: Vec<Piece>) -> Vec<Change> {
        let mut changes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Words(text) => {
                    if self.open.as_ref().is_none_or(|item| item.call.is_some()) {
                        changes.extend(self.close("completed"));
                        changes.extend(self.open(None));
                    }
                    changes.push(self.add(&text));
                }
                Piece::Call(number, name) => {
                    changes.extend(self.close("completed"));
                    let id = self.calls.as_ref().map(|calls| calls.id(number)).unwrap_or_default();
                    changes.extend(self.open(Some(Call { id, name })));
                    self.waiting.clear();
                }
                Piece::Arguments(_, text) => {
                    changes.push(self.add(&text));
                    self.waiting.clear();
                }
            }
        }
        changes
    }

    /// Opens a call, or a message.
    fn open(&mut self, call: Option<Call>) -> Vec<Change> {
        let prefix = if call.is_some() { "fc" } else { "msg" };
        let id = format!("{prefix}_{:032x}", self.number.wrapping_add(self.done.len() as u128));
        let item = self.open.insert(Item { id, call, text: String::new(), logprobs: Vec::new() });
        let (shown, part) = (item.shown("in_progress", true), item.part());
        let is_message = item.call.is_none();
        let added = vec![("output_index", self.done.len().into()), ("item", shown)];
        let mut changes = vec![("response.output_item.added", added)];
        if is_message {
            changes.push(("response.content_part.added", self.placed([("part", part)])));
        }
        changes
    }

    fn add(&mut self, text: &str) -> Change {
        let added = match &mut self.open {
            Some(item) => {
                item.text += text;
                if item.call.is_some() {
                    let delta = [("delta", text.into())];
                    return ("response.function_call_arguments.delta", self.placed(delta));
                }
                let added = std::mem::take(&mut self.waiting);
                item.logprobs.extend_from_slice(&added);
                added
            }
            None => Vec::new(),
        };
        ("response.output_text.delta", self.placed([("delta", text.into()), ("logprobs", Json::List(added))]))
    }

    fn close(&mut self, status: &str) -> Vec<Change> {
        let Some(item) = &self.open else { return Vec::new() };
        let (shown, text) = (item.shown(status, false), Json::from(item.text.as_str()));
        let mut changes = match &item.call {
            Some(call) => {
                let done = [("name", call.name.as_str().into()), ("arguments", text)];
                vec![("response.function_call_arguments.done", self.placed(done))]
            }
            None => {
                let (part, logprobs) = (item.part(), Json::List(item.logprobs.clone()));
                vec![
                    ("response.output_text.done", self.placed([("text", text), ("logprobs", logprobs)])),
                    ("response.content_part.done", self.placed([("part", part)])),
                ]
            }
        };
        let done = vec![("output_index", self.done.len().into()), ("item", shown.clone())];
        changes.push(("response.output_item.done", done));
        self.done.push(shown);
        self.open = None;
        changes
    }

    /// What an event of the open item holds: where that is, and more.
    fn placed<const N: usize>(&self, more: [(&'static str, Json); N]) -> Vec<(&'static str, Json)> {
        let Some(item) = &self.open else { return Vec::new() };
        let mut placed = vec![("item_id", item.id.as_str().into()), ("output_index", self.done.len().into())];
        if item.call.is_none() {
            placed.push(("content_index", 0.into()));
        }
        placed.extend(more);
        placed
    }
}
