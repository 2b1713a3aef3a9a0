//! Byte-level BPE from the parts of a GGUF file.

use std::path::Path;

use tokenizers::AddedToken;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizer::SplitDelimiterBehavior;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::expression::Expression;
use super::steps::{Decoders, PreTokenizerStep, PreTokenizers, Split};
use super::{JsonTokenizer, Library, budget};
use crate::error::{Error, Result};
use crate::format::value::quoted;

// How text is cut before merging, by the names that GGUF files have for it: the published expressions of GPT-2, of
// Llama 3, and of o200k, gpt-oss' tokenizer; SmolLM's is GPT-2's after a cut at every digit.
const GPT2: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// A way to cut: its name, its expressions, and whether a word that is in the vocabulary is taken whole, whatever the
/// merges say.
const CUTS: [(&str, &[&str], bool); 6] = [
    ("gpt-2", &[GPT2], false),
    ("llama-bpe", &[LLAMA3], true),
    ("llama3", &[LLAMA3], true),
    ("llama-v3", &[LLAMA3], true),
    ("smollm", &[r"\p{N}", GPT2], false),
    ("gpt-4o", &[O200K], false),
];

/// The parts of a byte-level BPE tokenizer.
pub(in crate::tokenizer) struct ByteLevelParts<'a> {
    /// Names by id.
    pub(in crate::tokenizer) tokens: &'a [&'a str],
    pub(in crate::tokenizer) merges: Vec<(&'a str, &'a str)>,
    /// How text is cut, one of `CUTS`.
    pub(in crate::tokenizer) cut: &'a str,
    /// Tokens that no merging makes, and that give no text.
    pub(in crate::tokenizer) control: Vec<&'a str>,
    /// Tokens that no merging makes.
    pub(in crate::tokenizer) user_defined: Vec<&'a str>,
    pub(in crate::tokenizer) prefix_space: bool,
}

/// The expressions of a way to cut, and whether a word of the vocabulary is taken whole. `Error::Format` when there is none of the
/// name.
pub(in crate::tokenizer) fn cut_named(name: &str, source: &Path) -> Result<(&'static [&'static str], bool)> {
    match CUTS.iter().find(|(known, ..)| *known == name) {
        Some(&(_, expressions, whole_words)) => Ok((expressions, whole_words)),
        None => {
            let known: Vec<&str> = CUTS.iter().map(|(name, ..)| *name).collect();
            let problem = format!("cuts text as {}; this program knows {}", quoted(name), known.join(", "));
            Err(Error::format(source, problem))
        }
    }
}

/// A tokenizer of the parts. `Error::Format` when they do not fit.
pub(in crate::tokenizer) fn byte_level_bpe(parts: ByteLevelParts<'_>, source: &Path) -> Result<JsonTokenizer> {
    let (expressions, whole_words) = cut_named(parts.cut, source)?;
    let ids: Vocab = parts.tokens.iter().zip(0..).map(|(&token, id)| (token.to_owned(), id)).collect();
    if ids.len() != parts.tokens.len() {
        return Err(Error::format(source, format!("has duplicate tokens ({})", parts.tokens.len() - ids.len())));
    }
    let size = parts.tokens.iter().map(|token| token.len()).sum();
    let made = budget::within(size, || {
        let merges: Merges = parts.merges.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect();
        let model = BPE::builder().vocab_and_merges(ids, merges).ignore_merges(whole_words).build()?;
        let mut library = Library::new(model.into());
        let cut = |expression: &&str| -> tokenizers::Result<PreTokenizerStep> {
            let pattern = Expression::new(expression)?;
            Ok(PreTokenizerStep::Split(Split { pattern, behavior: SplitDelimiterBehavior::Isolated, invert: false }))
        };
        let mut steps = expressions.iter().map(cut).collect::<tokenizers::Result<Vec<_>>>()?;
        let bytes = ByteLevel::new(parts.prefix_space, true, false);
        steps.push(PreTokenizerStep::Library(Box::new(bytes.into())));
        library.with_pre_tokenizer(Some(PreTokenizers(steps)));
        library.with_decoder(Some(Decoders::of(DecoderWrapper::ByteLevel(ByteLevel::default()))));
        library.add_special_tokens(parts.control.iter().map(|&name| AddedToken::from(name, true)))?;
        let text = |&name: &&str| AddedToken::from(name, false).normalized(false);
        library.add_tokens(parts.user_defined.iter().map(text))?;
        Ok(library)
    });
    let library =
        made.map_err(|problem| Error::format(source, format!("is not a tokenizer of byte-level BPE{problem}")))?;
    JsonTokenizer::of(library, source)
}
