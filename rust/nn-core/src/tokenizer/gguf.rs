//! Tokenizers from the metadata of GGUF files.
//!
//! `tokenizer.ggml.model` is "llama" (SentencePiece, merging by score), "t5" (SentencePiece, unigram) or "gpt2"
//! (byte-level BPE). All of it is checked before a tokenizer is made.
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, "Tokenizer")

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use super::json::{ByteLevelParts, Cut, byte_level_bpe, cut_named};
use super::model_file::{Kind, ModelFile, ModelType, Piece, byte_of};
use super::text::{self, TextTokenizer};
use super::{SPACE, Tokenizer, id};
use crate::error::{Error, Result};
use crate::format::Value;
use crate::format::gguf::ARCHITECTURE_KEY;
use crate::format::limits::COUNT;
use crate::format::value::quoted;

/// A value of metadata, by its type.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue<'a> {
    /// A truth value.
    Bool(bool),
    /// A whole number of any width, with a sign or without.
    Whole(i128),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(&'a str),
    /// An array of strings.
    Texts(Vec<&'a str>),
    /// An array of whole numbers of any width.
    Wholes(Vec<i128>),
    /// An array of floating-point numbers; those of 64 bits rounded.
    Floats(Vec<f32>),
    /// An array of anything else.
    Other,
}

/// The metadata of a file, as its reader gives them to the tokenizer.
pub trait Metadata {
    /// The value of a key; none when the file does not have it.
    fn value(&self, key: &str) -> Option<MetadataValue<'_>>;
}

/// Control tokens that end an answer wherever they are, since many files name only one end.
const END_PIECES: [&str; 7] =
    ["<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>"];

// Kinds of tokens, which are SentencePiece's.
const UNKNOWN: i128 = 2;
const CONTROL: i128 = 3;
const USER_DEFINED: i128 = 4;
const UNUSED: i128 = 5;
const BYTE: i128 = 6;

impl TextTokenizer {
    /// The tokenizer that a file has in its metadata; none when it has none, `Error::Format` when it is wrong. `source`
    /// is what errors name.
    pub fn from_gguf(metadata: &dyn Metadata, source: impl AsRef<Path>) -> Result<Option<Self>> {
        let given = Given { metadata, source: source.as_ref() };
        let model = match given.value("tokenizer.ggml.model") {
            None | Some(MetadataValue::Text("none")) => return Ok(None),
            Some(MetadataValue::Text(model @ ("llama" | "t5" | "gpt2"))) => model,
            Some(other) => {
                let problem = "this program has the tokenizers 'llama', 't5' and 'gpt2'";
                return Err(given.wrong(format!("tokenizer.ggml.model is {}; {problem}", other.shown())));
            }
        };
        let tokens = given.tokens()?;
        let kinds = given.kinds(tokens.len())?;
        let mut ends = BTreeSet::new();
        for name in ["eos", "eot", "eom"] {
            ends.extend(given.id(&format!("tokenizer.ggml.{name}_token_id"), tokens.len())?);
        }
        let named = tokens.iter().zip(&kinds).enumerate();
        let named = named.filter(|(_, (token, kind))| **kind == CONTROL && END_PIECES.contains(token));
        ends.extend(named.map(|(index, _)| id(index)));
        let cut = if model == "gpt2" { Some(given.cut()?) } else { None };
        let begin = given.id("tokenizer.ggml.bos_token_id", tokens.len())?;
        let usual = cut.map_or(model == "llama", |cut| cut.begins);
        let adds_begin = given.truth("tokenizer.ggml.add_bos_token", usual)?;
        let kind = match (cut, model) {
            (Some(cut), _) => text::Kind::Json(Box::new(given.byte_level(&tokens, &kinds, cut)?)),
            (None, "t5") => {
                text::Kind::SentencePiece(Box::new(given.sentence_piece(&tokens, &kinds, ModelType::Unigram)?))
            }
            _ => text::Kind::SentencePiece(Box::new(given.sentence_piece(&tokens, &kinds, ModelType::Bpe)?)),
        };
        Ok(Some(Self::new(kind, begin, ends, adds_begin)))
    }
}

/// The metadata of a tokenizer, of which all is checked that is taken.
pub(super) struct Given<'a> {
    pub(super) metadata: &'a dyn Metadata,
    pub(super) source: &'a Path,
}

/// Whether a token of a kind is one of those that no merging makes, and if so, whether it is a control.
pub(super) fn is_special(kind: i128) -> Option<bool> {
    matches!(kind, CONTROL | USER_DEFINED).then_some(kind == CONTROL)
}

impl<'a> Given<'a> {
    fn value(&self, key: &str) -> Option<MetadataValue<'a>> {
        self.metadata.value(key)
    }

    fn wrong(&self, problem: impl Into<String>) -> Error {
        Error::format(self.source, problem)
    }

    pub(super) fn truth(&self, key: &str, otherwise: bool) -> Result<bool> {
        match self.value(key) {
            None => Ok(otherwise),
            Some(MetadataValue::Bool(value)) => Ok(value),
            Some(other) => Err(self.wrong(format!("{key} is {}; it must be true or false", other.shown()))),
        }
    }

    /// How byte-level BPE cuts text.
    pub(super) fn cut(&self) -> Result<&'static Cut> {
        // The converter of bitnet.cpp does not name the pre-tokenizer of its models, which have Llama 3's tokenizer.
        let unnamed = match self.value(ARCHITECTURE_KEY) {
            Some(MetadataValue::Text("bitnet-25" | "bitnet-b1.58")) => "llama-bpe",
            _ => "",
        };
        match self.value("tokenizer.ggml.pre") {
            None => cut_named(unnamed, self.source),
            Some(MetadataValue::Text(name)) => cut_named(name, self.source),
            Some(other) => Err(self.wrong(format!("tokenizer.ggml.pre is {}; it must be a string", other.shown()))),
        }
    }

    /// The id of a token; none when the file names none.
    pub(super) fn id(&self, key: &str, size: usize) -> Result<Option<i32>> {
        match self.value(key) {
            None => Ok(None),
            Some(MetadataValue::Whole(value)) if (0..size as i128).contains(&value) => Ok(Some(id(value as usize))),
            Some(other) => {
                let last = size - 1;
                Err(self.wrong(format!("{key} is {}; it must be the id of a token, 0 to {last}", other.shown())))
            }
        }
    }

    fn texts(&self, key: &str) -> Result<Vec<&'a str>> {
        match self.value(key) {
            Some(MetadataValue::Texts(texts)) => Ok(texts),
            None => Err(self.wrong(format!("{key} is missing"))),
            Some(_) => Err(self.wrong(format!("{key} is no array of strings"))),
        }
    }

    /// Names by id, none of them empty.
    pub(super) fn tokens(&self) -> Result<Vec<&'a str>> {
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        if tokens.is_empty() {
            return Err(self.wrong("tokenizer.ggml.tokens is empty"));
        }
        if tokens.len() > COUNT {
            return Err(self.wrong(format!("has {} tokens; {COUNT} is most", tokens.len())));
        }
        match tokens.iter().position(|token| token.is_empty()) {
            Some(at) => Err(self.wrong(format!("token {at} of tokenizer.ggml.tokens is empty"))),
            None => Ok(tokens),
        }
    }

    fn not_numbers(&self, key: &str, value: Option<&MetadataValue<'_>>) -> Error {
        let problem = if value.is_none() { "missing" } else { "of another type" };
        self.wrong(format!("{key} is {problem}; it must be an array of numbers, one a token"))
    }

    fn check_length(&self, key: &str, length: usize, size: usize) -> Result<()> {
        if length == size {
            return Ok(());
        }
        Err(self.wrong(format!("{key} has {length} entries, tokenizer.ggml.tokens {size}")))
    }

    /// Kinds of the tokens.
    pub(super) fn kinds(&self, size: usize) -> Result<Vec<i128>> {
        let key = "tokenizer.ggml.token_type";
        let kinds = match self.value(key) {
            Some(MetadataValue::Wholes(kinds)) => kinds,
            other => return Err(self.not_numbers(key, other.as_ref())),
        };
        self.check_length(key, kinds.len(), size)?;
        match kinds.iter().position(|kind| !(1..=BYTE).contains(kind)) {
            Some(at) => Err(self.wrong(format!("{key} has {} for token {at}; it is 1 to {BYTE}", kinds[at]))),
            None => Ok(kinds),
        }
    }

    fn byte_level(&self, tokens: &[&'a str], kinds: &[i128], cut: &'static Cut) -> Result<super::json::JsonTokenizer> {
        let of =
            |kind: i128| tokens.iter().zip(kinds).filter(move |(_, k)| **k == kind).map(|(&token, _)| token).collect();
        let parts = ByteLevelParts {
            tokens,
            merges: self.merges()?,
            cut,
            control: of(CONTROL),
            user_defined: of(USER_DEFINED),
            prefix_space: self.truth("tokenizer.ggml.add_space_prefix", false)?,
        };
        byte_level_bpe(parts, self.source)
    }

    pub(super) fn merges(&self) -> Result<Vec<(&'a str, &'a str)>> {
        let merges = self.texts("tokenizer.ggml.merges")?.into_iter().enumerate().map(|(index, merge)| {
            match merge.split_once(' ') {
                Some((first, second)) if !first.is_empty() && !second.is_empty() && !second.contains(' ') => {
                    Ok((first, second))
                }
                _ => {
                    let problem = "it must be two tokens with a space between";
                    Err(self.wrong(format!("merge {index} is {}; {problem}", quoted(merge))))
                }
            }
        });
        merges.collect()
    }

    fn sentence_piece(&self, tokens: &[&str], kinds: &[i128], kind: ModelType) -> Result<Tokenizer> {
        let key = "tokenizer.ggml.scores";
        let scores = match self.value(key) {
            Some(MetadataValue::Floats(scores)) => scores,
            other => return Err(self.not_numbers(key, other.as_ref())),
        };
        self.check_length(key, scores.len(), tokens.len())?;
        if let Some(at) = scores.iter().position(|score| !score.is_finite()) {
            return Err(self.wrong(format!("{key} has {} for token {at}; it must be finite", scores[at])));
        }
        let byte_fallback = self.check_bytes(tokens, kinds)?;
        self.check_unknown(kinds)?;
        let known: HashSet<&str> = tokens.iter().copied().collect();
        if known.len() != tokens.len() {
            return Err(self.wrong(format!("has duplicate tokens ({})", tokens.len() - known.len())));
        }
        // Files have a user-defined token as it is in a text; SentencePiece looks for it where spaces are ▁ already.
        let as_piece = |token: &str| Some(token.replace(' ', SPACE)).filter(|piece| !known.contains(piece.as_str()));
        let pieces = tokens.iter().zip(kinds).zip(scores).map(|((&text, &kind), score)| {
            let kind = match kind {
                UNKNOWN => Kind::Unknown,
                CONTROL => Kind::Control,
                USER_DEFINED => Kind::UserDefined,
                UNUSED => Kind::Unused,
                BYTE => Kind::Byte(byte_of(text).unwrap_or_default()), // all were checked
                _ => Kind::Normal,
            };
            let piece = if kind == Kind::UserDefined { as_piece(text) } else { None };
            Piece { text: piece.unwrap_or_else(|| text.to_owned()), score, kind }
        });
        let mut file = ModelFile::empty();
        file.pieces = pieces.collect();
        file.kind = kind;
        file.byte_fallback = byte_fallback;
        file.normalizer.dummy_prefix = self.truth("tokenizer.ggml.add_space_prefix", true)?;
        file.normalizer.remove_extra_spaces = self.truth("tokenizer.ggml.remove_extra_whitespaces", false)?;
        Tokenizer::from_bytes(file.to_bytes(), self.source)
    }

    /// Whether there are byte tokens.
    fn check_bytes(&self, tokens: &[&str], kinds: &[i128]) -> Result<bool> {
        let mut spelled = HashSet::new();
        for (index, (&token, _)) in tokens.iter().zip(kinds).enumerate().filter(|(_, (_, kind))| **kind == BYTE) {
            if !byte_of(token).is_some_and(|byte| spelled.insert(byte)) {
                let problem = "it must be <0x00> to <0xFF>, each once";
                return Err(self.wrong(format!("byte token {index} is {}; {problem}", quoted(token))));
            }
        }
        match spelled.len() {
            0 => Ok(false),
            256 => Ok(true),
            count => Err(self.wrong(format!("has {count} byte tokens; there must be 256, or none"))),
        }
    }

    fn check_unknown(&self, kinds: &[i128]) -> Result<()> {
        let unknown: Vec<usize> = (0..kinds.len()).filter(|&index| kinds[index] == UNKNOWN).collect();
        let [unknown] = unknown[..] else {
            return Err(self.wrong(format!("has {} unknown tokens; there must be one", unknown.len())));
        };
        let key = "tokenizer.ggml.unknown_token_id";
        match self.value(key) {
            None => Ok(()),
            Some(MetadataValue::Whole(named)) if named == unknown as i128 => Ok(()),
            Some(other) => Err(self.wrong(format!("{key} is {}, but the unknown token is {unknown}", other.shown()))),
        }
    }
}

impl MetadataValue<'_> {
    /// As messages show it.
    fn shown(&self) -> String {
        match self {
            Self::Bool(value) => Value::Bool(*value).shown(),
            Self::Whole(value) => Value::Integer(*value).shown(),
            Self::Float(value) => Value::Float(*value).shown(),
            Self::Text(text) => quoted(text),
            Self::Texts(_) => "an array of strings".to_owned(),
            Self::Wholes(_) | Self::Floats(_) => "an array of numbers".to_owned(),
            Self::Other => "an array".to_owned(),
        }
    }
}
