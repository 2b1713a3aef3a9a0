//! Tokenizers: SentencePiece models (unigram and BPE), read and run as SentencePiece itself does, id for id; files named
//! tokenizer.json; the tokenizers in GGUF files. Chat templates.
//!
//! Text is normalised (`normalizer`), cut into pieces (`unigram`, `bpe`), and pieces that the vocabulary lacks are spelled
//! in bytes where the model has pieces for them. (Kudo, Richardson 2018, "SentencePiece"; unigram: Kudo 2018; BPE:
//! Sennrich, Haddow, Birch 2016)
//!
//! SentencePiece models are not run by the crate `tokenizers`, which runs the others. It gives other ids where a special or
//! user-defined piece's name stands in the text, where spaces are removed and where runs of unknown characters meet.

mod bpe;
mod carried;
mod chat_template;
mod folder;
pub mod gguf;
mod gguf_to_folder;
mod json;
mod model_file;
mod normalizer;
mod stream;
mod text;
mod token_bytes;
mod trie;
mod unigram;

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::limits::TOKENIZER_MODEL_BYTES;
use crate::format::read_regular;
use bpe::Bpe;
pub use carried::CarriedTokenizer;
pub(crate) use carried::tokenizer_files;
pub use chat_template::{ChatTemplate, Rendering, answer_template, render_templates_apart};
use model_file::{Kind, ModelFile, ModelType};
use normalizer::Normalizer;
pub use stream::{Decode, StreamDecoder};
pub use text::{Encoding, TextTokenizer};
use trie::Trie;
use unigram::Unigram;

/// What stands for a space inside pieces.
const SPACE: &str = "\u{2581}";

/// A SentencePiece model.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    model: Vec<u8>,
    pieces: Vec<model_file::Piece>,
    normalizer: Normalizer,
    denormalizer: Option<Normalizer>,
    cutter: Cutter,
    unknown: usize,
    begin: Option<usize>,
    end: Option<usize>,
    pad: Option<usize>,
    ordinary: usize,
    /// Names of controls.
    controls: Trie,
    /// The piece of each byte, where unknown characters are spelled in bytes.
    bytes: Option<Box<[usize; 256]>>,
    unknown_surface: String,
    /// Whether encoding puts a space before a text.
    puts_first_space: bool,
    /// Whether decoding takes away spaces at the start, and whether all of them.
    strips_first_space: bool,
    strips_all_spaces: bool,
}

#[derive(Debug, Clone)]
enum Cutter {
    Unigram(Unigram),
    Bpe(Bpe),
}

/// A part of a text and its piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    /// Bytes of the part.
    length: usize,
    id: usize,
}

impl Tokenizer {
    /// Reads a tokenizer file. A file that is no whole SentencePiece model of type unigram or BPE is an `Error::Format`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_bytes(read_regular(path, TOKENIZER_MODEL_BYTES)?, path)
    }

    /// A tokenizer from its file's content; `source` is what errors name.
    pub fn from_bytes(file: Vec<u8>, source: impl AsRef<Path>) -> Result<Self> {
        Self::build(file).map_err(|problem| Error::format(source, format!("is not a SentencePiece model ({problem})")))
    }

    fn build(file: Vec<u8>) -> std::result::Result<Self, String> {
        let read = ModelFile::read(&file)?;
        let names = read.names()?;
        let user_defined = names.user_defined(&read.pieces);
        let normalizer = Normalizer::new(&read.normalizer, read.space_as_suffix, user_defined.clone())?;
        let denormalizer = match &read.denormalizer.charsmap[..] {
            [] => None,
            _ => Some(Normalizer::new(&read.denormalizer, false, Trie::default())?),
        };
        let control = |name: &str| names.id(name.as_bytes()).filter(|&id| read.pieces[id].kind == Kind::Control);
        let (begin, end, pad) = (control(&read.begin), control(&read.end), control(&read.pad));
        let ordinary = |kind: Kind| matches!(kind, Kind::Normal | Kind::UserDefined);
        let ordinary = read.pieces.iter().position(|piece| ordinary(piece.kind)).ok_or("it has no pieces of text")?;
        Ok(Self {
            model: file,
            normalizer,
            denormalizer,
            cutter: match read.kind {
                ModelType::Unigram => Cutter::Unigram(Unigram::new(&read.pieces, names.unknown)),
                ModelType::Bpe => Cutter::Bpe(Bpe::new(&read.pieces, names.unknown, user_defined)),
            },
            unknown: names.unknown,
            begin,
            end,
            pad,
            ordinary,
            controls: names.controls(&read.pieces),
            bytes: names.bytes,
            unknown_surface: read.unknown_surface,
            puts_first_space: read.normalizer.dummy_prefix,
            strips_first_space: read.normalizer.dummy_prefix || read.normalizer.remove_extra_spaces,
            strips_all_spaces: read.normalizer.remove_extra_spaces,
            pieces: read.pieces,
        })
    }

    /// The content of the tokenizer's file.
    pub fn model(&self) -> &[u8] {
        &self.model
    }

    /// How many pieces there are: ids are 0 to this, exclusive.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The id that begins a text, if this tokenizer has one.
    pub fn begin_id(&self) -> Option<i32> {
        self.begin.map(id)
    }

    /// The id that ends a text, if this tokenizer has one.
    pub fn end_id(&self) -> Option<i32> {
        self.end.map(id)
    }

    /// The id that fills up a batch, if this tokenizer has one.
    pub fn pad_id(&self) -> Option<i32> {
        self.pad.map(id)
    }

    /// Some id that stands for text, rather than for a byte or a control.
    pub fn ordinary_id(&self) -> i32 {
        id(self.ordinary)
    }

    /// The name of an id in the vocabulary.
    pub fn piece(&self, id: i32) -> Option<&str> {
        Some(&self.pieces.get(usize::try_from(id).ok()?)?.text)
    }

    /// Ids of a text in which the names of controls are these controls, the longest where several fit. What follows one
    /// starts again, as a text of its own.
    fn encode_controls(&self, text: &str) -> Vec<i32> {
        let (mut ids, mut start, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let Some(length) = self.controls.longest(&text.as_bytes()[at..]) else {
                at += 1;
                continue;
            };
            ids.extend(self.encode(&text[start..at], false));
            ids.extend(self.controls.get(&text.as_bytes()[at..at + length]).map(id));
            at += length;
            start = at;
        }
        ids.extend(self.encode(&text[start..], false));
        ids
    }

    /// Ids of a text, after the begin id when asked for and when there is one.
    pub fn encode(&self, text: &str, begin: bool) -> Vec<i32> {
        let text = self.normalizer.normalize(text.as_bytes());
        let cuts = match &self.cutter {
            Cutter::Unigram(unigram) => unigram.cut(&text),
            Cutter::Bpe(bpe) => bpe.cut(&text),
        };
        let mut ids: Vec<i32> = Vec::with_capacity(cuts.len() + 1);
        ids.extend(self.begin_id().filter(|_| begin));
        let mut rest = &text[..];
        let mut after_unknown = false;
        for cut in cuts {
            let (part, behind) = rest.split_at(cut.length);
            let unknown = cut.id == self.unknown;
            match &self.bytes {
                Some(bytes) if unknown => ids.extend(part.iter().map(|&byte| id(bytes[usize::from(byte)]))),
                // Without bytes, a run of unknown characters is one unknown piece.
                None if unknown && after_unknown => {}
                _ => ids.push(id(cut.id)),
            }
            rest = behind;
            after_unknown = unknown;
        }
        ids
    }

    /// The text of ids; controls give nothing, and bytes that are no UTF-8 give U+FFFD each.
    ///
    /// An id outside the vocabulary is an `Error::Value`.
    pub fn decode(&self, ids: &[i32]) -> Result<String> {
        let mut text = Vec::new();
        let mut bytes = Vec::new();
        let mut at_start = true;
        let mut took_space = false;
        for (position, &token) in ids.iter().enumerate() {
            let piece = usize::try_from(token).ok().and_then(|id| self.pieces.get(id)).ok_or_else(|| {
                Error::value(format!("ids[{position}] is {token}; it must be 0 to {}", self.vocab_size() - 1))
            })?;
            if let Kind::Byte(byte) = piece.kind {
                bytes.push(byte);
                continue;
            }
            push_utf8(&mut text, &bytes);
            bytes.clear();
            at_start &= !took_space && text.is_empty();
            took_space = false;
            match piece.kind {
                Kind::Control => {}
                Kind::Unknown => text.extend_from_slice(self.unknown_surface.as_bytes()),
                _ => {
                    let mut part = &piece.text[..];
                    if at_start
                        && self.strips_first_space
                        && let Some(rest) = part.strip_prefix(SPACE)
                    {
                        part = rest;
                        took_space = !self.strips_all_spaces;
                    }
                    text.extend_from_slice(part.replace(SPACE, " ").as_bytes());
                }
            }
        }
        push_utf8(&mut text, &bytes);
        if let Some(denormalizer) = &self.denormalizer {
            text = denormalizer.normalize(&text);
        }
        Ok(String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
}

/// An id as the library takes it. Files are too small for more pieces than an `i32` counts: `ModelFile` sees to that.
fn id(index: usize) -> i32 {
    i32::try_from(index).expect("the number of pieces was checked when the file was read")
}

/// Bytes of the character that begins with this byte, in UTF-8; 1 for a byte that begins none.
fn character_length(first: u8) -> usize {
    match first {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0.. => 4,
        _ => 1,
    }
}

/// The first character of `bytes` (at least one): its bytes, or None when they are no UTF-8.
fn first_character(bytes: &[u8]) -> Option<&[u8]> {
    let character = bytes.get(..character_length(bytes[0]))?;
    std::str::from_utf8(character).is_ok().then_some(character)
}

/// Appends bytes, each that is part of no character as U+FFFD.
fn push_utf8(text: &mut Vec<u8>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let used = match first_character(bytes) {
            Some(character) => {
                text.extend_from_slice(character);
                character.len()
            }
            None => {
                text.extend_from_slice("\u{FFFD}".as_bytes());
                1
            }
        };
        bytes = &bytes[used..];
    }
}
