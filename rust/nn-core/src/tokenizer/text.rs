//! Tokenizers of any kind, as what serves a model needs them.

use std::collections::BTreeSet;

use super::json::JsonTokenizer;
use super::{Decode, Tokenizer};
use crate::error::{Error, Result};

/// Text to token ids and back, whatever the file it comes from: a SentencePiece model, a tokenizer.json, or the metadata
/// of a GGUF file. Threads may share one.
///
/// [`TextTokenizer::from_folder`] and [`TextTokenizer::from_gguf`] read one; any [`Tokenizer`] becomes one.
#[derive(Debug)]
pub struct TextTokenizer {
    pub(super) kind: Kind,
    pub(super) begin: Option<i32>,
    pub(super) ends: BTreeSet<i32>,
    pub(super) adds_begin: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    SentencePiece(Box<Tokenizer>),
    Json(Box<JsonTokenizer>),
}

/// How a text becomes ids. The default is the text alone, as the texts of strangers should be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Puts the begin id first, where there is one.
    pub begin: bool,
    /// Makes names of control tokens in the text, such as `</s>`, these tokens, as texts that a chat template made need;
    /// otherwise they are text like any other.
    pub special: bool,
}

impl TextTokenizer {
    pub(super) fn new(kind: Kind, begin: Option<i32>, ends: BTreeSet<i32>, adds_begin: bool) -> Self {
        Self { kind, begin, ends, adds_begin }
    }

    /// One more than the largest id.
    pub fn vocab_size(&self) -> usize {
        match &self.kind {
            Kind::SentencePiece(model) => model.vocab_size(),
            Kind::Json(library) => library.vocab_size(),
        }
    }

    /// The id that begins a text, if there is one.
    pub fn begin_id(&self) -> Option<i32> {
        self.begin
    }

    /// The id that fills up a batch, if the tokenizer says so.
    pub fn pad_id(&self) -> Option<i32> {
        match &self.kind {
            Kind::SentencePiece(model) => model.pad_id(),
            Kind::Json(_) => None,
        }
    }

    /// The class of transformers that reads the files of such a tokenizer.
    pub fn transformers_class(&self) -> &'static str {
        match &self.kind {
            Kind::SentencePiece(_) => "LlamaTokenizer",
            Kind::Json(_) => "PreTrainedTokenizerFast",
        }
    }

    /// The ids that end an answer, ascending: the end of the text, of a turn, of a message.
    pub fn end_ids(&self) -> &BTreeSet<i32> {
        &self.ends
    }

    /// Whether texts are meant to start with the begin id.
    pub fn adds_begin(&self) -> bool {
        self.adds_begin
    }

    /// Some id of ordinary text.
    pub fn ordinary_id(&self) -> i32 {
        match &self.kind {
            Kind::SentencePiece(model) => model.ordinary_id(),
            Kind::Json(library) => library.ordinary_id(),
        }
    }

    /// The name of an id in the vocabulary; none for an id that has none.
    pub fn piece(&self, id: i32) -> Option<&str> {
        match &self.kind {
            Kind::SentencePiece(model) => model.piece(id),
            Kind::Json(library) => library.piece(id),
        }
    }

    /// The ids of a text. The text after a control token of a SentencePiece model starts again, with the space that some
    /// models put before a text. `Error::Format` when the rules of a tokenizer.json fail, or take too much time or memory.
    pub fn encode(&self, text: &str, how: Encoding) -> Result<Vec<i32>> {
        let mut ids = Vec::new();
        ids.extend(self.begin.filter(|_| how.begin));
        match &self.kind {
            Kind::SentencePiece(model) if how.special => ids.extend(model.encode_controls(text)),
            Kind::SentencePiece(model) => ids.extend(model.encode(text, false)),
            Kind::Json(library) => ids.extend(library.encode(text, how.special)?),
        }
        Ok(ids)
    }

    /// The text of ids; control tokens give nothing. `Error::Value` for an id outside the vocabulary, `Error::Format` as
    /// of `encode`.
    pub fn decode(&self, ids: &[i32]) -> Result<String> {
        match &self.kind {
            Kind::SentencePiece(model) => model.decode(ids),
            Kind::Json(library) => {
                let size = self.vocab_size();
                if let Some(position) = ids.iter().position(|&id| usize::try_from(id).map_or(true, |id| id >= size)) {
                    let (id, last) = (ids[position], size - 1);
                    return Err(Error::value(format!("ids[{position}] is {id}; it must be 0 to {last}")));
                }
                library.decode(ids)
            }
        }
    }
}

impl From<Tokenizer> for TextTokenizer {
    /// A SentencePiece model with what its own file says of begin and end.
    fn from(model: Tokenizer) -> Self {
        let begin = model.begin_id();
        let ends = model.end_id().into_iter().collect();
        Self::new(Kind::SentencePiece(Box::new(model)), begin, ends, begin.is_some())
    }
}

impl Decode for TextTokenizer {
    fn vocab_size(&self) -> usize {
        self.vocab_size()
    }

    fn ordinary_id(&self) -> i32 {
        self.ordinary_id()
    }

    fn decode(&self, ids: &[i32]) -> Result<String> {
        self.decode(ids)
    }
}
