//! Tokenizers of the crate `tokenizers`: files named tokenizer.json, and byte-level BPE made from its parts.
//!
//! The rules of such a file are a stranger's program. Python runs them in a process with limits; here they run in the
//! caller's thread, each step within a budget (`budget`) of time and of text.
//! (Sennrich, Haddow, Birch 2016; bytes as characters: Radford et al. 2019, "Language Models are Unsupervised Multitask
//! Learners")

mod budget;
mod byte_level;
mod expression;
mod steps;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokenizers::models::ModelWrapper;
use tokenizers::pre_tokenizer::OffsetType;
use tokenizers::{AddedVocabulary, Decoder, Model, PostProcessorWrapper, PreTokenizer, TokenizerImpl};

use crate::error::{Error, Result};
use crate::format::json::check_marks;
use crate::format::limits::{COUNT, TOKENIZER_JSON_BYTES, TOKENIZER_JSON_MARKS};
use crate::format::read_regular;
use crate::format::value::quoted;
pub(super) use byte_level::{ByteLevelParts, Cut, byte_level_bpe, cut_named};
use steps::{Decoders, Normalizers, PreTokenizers};

/// A tokenizer of the library whose steps keep to their budget.
type Library = TokenizerImpl<ModelWrapper, Normalizers, PreTokenizers, PostProcessorWrapper, Decoders>;

/// What cannot encode a text at all is found with this one.
const PROBE: &str = "The quick brown fox jumps over the lazy dog. ÄÖÜ, 0123456789, 中文\n";

/// What a model may put before or behind each part of a word, in bytes.
const LONGEST_AFFIX: usize = 256;
/// How long a word may be that a model looks for in every place of the word.
const LONGEST_WORD: usize = 10_000;

/// A tokenizer of the library `tokenizers`.
#[derive(Debug)]
pub(super) struct JsonTokenizer {
    source: PathBuf,
    library: Library,
    /// The same added tokens, of which those that are special are only text.
    plain: AddedVocabulary,
    names: BTreeMap<i32, String>,
    first: Option<i32>,
}

impl JsonTokenizer {
    /// Reads a tokenizer.json.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let content = read_regular(path, TOKENIZER_JSON_BYTES)?;
        let read = check_marks(&content, TOKENIZER_JSON_MARKS)
            .map_err(|problem| format!(" ({problem})"))
            .and_then(|()| budget::within(content.len(), || Ok(serde_json::from_slice(&content)?)));
        Self::of(read.map_err(|problem| unusable(path, &problem))?, path)
    }

    /// A tokenizer of the library; `source` is what errors name.
    fn of(mut library: Library, source: &Path) -> Result<Self> {
        // A file may ask for texts filled up to any length, or cut.
        library.with_padding(None);
        let uncut = library.with_truncation(None).map(drop).map_err(|error| format!(" ({error})"));
        uncut.and_then(|()| check_model(library.get_model())).map_err(|problem| unusable(source, &problem))?;

        let mut plain = library.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        let names = names(&library, source)?;
        let mut made = Self { source: source.to_owned(), library, plain, names, first: None };
        made.ids(PROBE, made.library.get_added_vocabulary()).map_err(|problem| unusable(source, &problem))?;
        let begun = budget::within(0, || made.library.encode_fast("", true));
        let begun = begun.map_err(|problem| unusable(source, &problem))?;
        made.first = begun.get_ids().first().and_then(|&id| i32::try_from(id).ok());
        Ok(made)
    }

    /// One more than the largest id.
    pub(super) fn vocab_size(&self) -> usize {
        self.names.last_key_value().map_or(0, |(&id, _)| id as usize + 1)
    }

    /// What the file lets it put before a text.
    pub(super) fn first_id(&self) -> Option<i32> {
        self.first
    }

    /// Some id that stands for text: that of a letter where there is one.
    pub(super) fn ordinary_id(&self) -> i32 {
        let letters = ["a", "e", "▁a", "Ġa"].into_iter().filter_map(|name| self.id_of(name)).next();
        let word = |text: &str| !text.is_empty() && text.chars().all(char::is_alphanumeric);
        let readable = |&id: &i32| self.decode(&[id]).is_ok_and(|text| word(&text));
        letters.or_else(|| self.names.keys().copied().find(readable)).unwrap_or(0)
    }

    /// The id of a name in the vocabulary.
    pub(super) fn id_of(&self, name: &str) -> Option<i32> {
        self.library.token_to_id(name).and_then(|id| i32::try_from(id).ok())
    }

    /// The name of an id.
    pub(super) fn piece(&self, id: i32) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// Ids of a text; with `special` the names of special tokens in it are these tokens.
    pub(super) fn encode(&self, text: &str, special: bool) -> Result<Vec<i32>> {
        let added = if special { self.library.get_added_vocabulary() } else { &self.plain };
        self.ids(text, added).map_err(|problem| Error::format(&self.source, format!("cannot encode a text{problem}")))
    }

    fn ids(&self, text: &str, added: &AddedVocabulary) -> std::result::Result<Vec<i32>, String> {
        let encoding = budget::within(text.len(), || {
            let mut cut = added.extract_and_normalize(self.library.get_normalizer(), text);
            if let Some(rules) = self.library.get_pre_tokenizer() {
                rules.pre_tokenize(&mut cut)?;
            }
            self.library.get_model().tokenize_in_pretokenized(&mut cut, None)?;
            cut.into_encoding(None, 0, OffsetType::None)
        })?;
        Ok(encoding.get_ids().iter().map(|&id| i32::try_from(id).expect("ids were checked with the names")).collect())
    }

    /// The text of ids that are in the vocabulary; special tokens give nothing.
    pub(super) fn decode(&self, ids: &[i32]) -> Result<String> {
        // Added tokens that are looked for in normalised text have the normalised name here.
        let added = self.library.get_added_vocabulary();
        let name = |&id: &i32| added.simple_id_to_token(id as u32).or_else(|| self.names.get(&id).cloned());
        let names: Vec<String> = ids.iter().filter_map(name).filter(|name| !added.is_special_token(name)).collect();
        let Some(rules) = self.library.get_decoder() else { return Ok(names.join(" ")) };
        let size = names.iter().map(String::len).sum();
        budget::within(size, || rules.decode(names))
            .map_err(|problem| Error::format(&self.source, format!("cannot decode ids{problem}")))
    }
}

fn unusable(source: &Path, problem: &str) -> Error {
    Error::format(source, format!("is not a tokenizer that the tokenizers library can use{problem}"))
}

/// Names by id. Two tokens may have one name, and ids may lie far apart.
fn names(library: &Library, source: &Path) -> Result<BTreeMap<i32, String>> {
    let mut names = BTreeMap::new();
    for (name, id) in library.get_vocab(true) {
        let small = i32::try_from(id).ok().filter(|&id| (id as usize) < COUNT);
        let id = small.ok_or_else(|| {
            unusable(source, &format!(" (the id of {} is {id}; it may be {} at most)", quoted(&name), COUNT - 1))
        })?;
        names.insert(id, name);
    }
    let Some((&last, _)) = names.last_key_value() else {
        return Err(Error::format(source, "is a tokenizer without tokens"));
    };
    if last as usize <= 2 * names.len() {
        let unlisted: Vec<i32> = (0..last).filter(|id| !names.contains_key(id)).collect();
        names.extend(unlisted.into_iter().filter_map(|id| Some((id, library.id_to_token(id as u32)?))));
    }
    Ok(names)
}

/// What makes a model slow, or draw: its time for a word may otherwise grow with the square of it.
fn check_model(model: &ModelWrapper) -> std::result::Result<(), String> {
    let short = |affix: &Option<String>| affix.as_ref().is_none_or(|affix| affix.len() <= LONGEST_AFFIX);
    match model {
        ModelWrapper::BPE(model) if model.dropout.is_some_and(|share| share != 0.0) => {
            Err(": it leaves out merges by chance (dropout), so that a text has no ids of its own".to_owned())
        }
        ModelWrapper::BPE(model) if !short(&model.continuing_subword_prefix) || !short(&model.end_of_word_suffix) => {
            Err(format!(": its words have a prefix or suffix of more than {LONGEST_AFFIX} bytes"))
        }
        ModelWrapper::WordPiece(model) if model.max_input_chars_per_word > LONGEST_WORD => {
            Err(format!(": its words may have {} characters; {LONGEST_WORD} is most", model.max_input_chars_per_word))
        }
        ModelWrapper::WordPiece(model) if model.continuing_subword_prefix.len() > LONGEST_AFFIX => {
            Err(format!(": its words have a prefix of more than {LONGEST_AFFIX} bytes"))
        }
        _ => Ok(()),
    }
}
