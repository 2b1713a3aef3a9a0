//! Byte-level BPE from the parts of a GGUF file.

use std::path::Path;

use tokenizers::AddedToken;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizer::SplitDelimiterBehavior;
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::expression::Expression;
use super::steps::{Decoders, Normalizers, PreTokenizerStep, PreTokenizers, Split};
use super::{JsonTokenizer, Library, budget};
use crate::error::{Error, Result};
use crate::format::value::quoted;

// What the names stand for is what the makers of the models published, in the tokenizer.json of each, with its normaliser,
// since the model learned from normalised text. The names are those that llama.cpp's converter writes; llama.cpp normalises
// nothing, and cuts by expressions of its own where its library lacks a class of characters.
const DIGIT: &str = r"\p{N}";
const GPT2: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
// Of cl100k, OpenAI's: Llama 3's as well. Qwen's is the same with every digit for itself.
const CL100K: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
// Of o200k, OpenAI's too, which cuts before capitals. Mistral's Tekken is the same with every digit for itself, and without
// contractions.
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// How text is cut before merging, by the names that GGUF files have for it.
#[derive(Debug)]
pub(in crate::tokenizer) struct Cut {
    names: &'static [&'static str],
    /// Each cuts what the one before left.
    pub(in crate::tokenizer) expressions: &'static [&'static str],
    /// A word that is in the vocabulary is taken whole, whatever the merges say.
    pub(in crate::tokenizer) whole_words: bool,
    /// Text is normalised first, to NFC.
    pub(in crate::tokenizer) nfc: bool,
    /// Texts begin with the begin token where a file does not say whether they do.
    pub(in crate::tokenizer) begins: bool,
}

impl Cut {
    const fn of(names: &'static [&'static str], expressions: &'static [&'static str]) -> Self {
        Self { names, expressions, whole_words: false, nfc: false, begins: false }
    }
}

static CUTS: [Cut; 8] = [
    Cut::of(&["gpt-2"], &[GPT2]),
    Cut { whole_words: true, begins: true, ..Cut::of(&["llama-bpe", "llama3", "llama-v3"], &[CL100K]) },
    // The same without whole words: cl100k's tokenizer, which DBRX and Phi-4 have; and Llama 3's as the first models made
    // from it, such as Smaug, have it.
    Cut::of(&["dbrx", "smaug-bpe"], &[CL100K]),
    // GPT-2's after a cut at every digit: SmolLM's, and StarCoder's, which Refact and Granite have.
    Cut::of(&["smollm", "refact"], &[DIGIT, GPT2]),
    Cut::of(&["gpt-4o"], &[O200K]), // gpt-oss, Phi-4-mini
    // Mistral Nemo, Ministral, Mistral Small
    Cut { whole_words: true, begins: true, ..Cut::of(&["tekken"], &[TEKKEN]) },
    // Qwen1.5 to Qwen3; what DeepSeek made from Qwen2.5 has other control tokens.
    Cut { nfc: true, ..Cut::of(&["qwen2", "deepseek-r1-qwen"], &[QWEN2]) },
    // GPT-NeoX's, which OLMo 1 and OLMoE have
    Cut { nfc: true, ..Cut::of(&["olmo"], &[GPT2]) },
];

/// The parts of a byte-level BPE tokenizer.
pub(in crate::tokenizer) struct ByteLevelParts<'a> {
    /// Names by id.
    pub(in crate::tokenizer) tokens: &'a [&'a str],
    pub(in crate::tokenizer) merges: Vec<(&'a str, &'a str)>,
    pub(in crate::tokenizer) cut: &'static Cut,
    /// Tokens that no merging makes, and that give no text.
    pub(in crate::tokenizer) control: Vec<&'a str>,
    /// Tokens that no merging makes.
    pub(in crate::tokenizer) user_defined: Vec<&'a str>,
    pub(in crate::tokenizer) prefix_space: bool,
}

/// The cut of a file that names it so. `Error::Format` when there is none, or when the name, empty for none, says nothing.
pub(in crate::tokenizer) fn cut_named(name: &str, source: &Path) -> Result<&'static Cut> {
    if let Some(cut) = CUTS.iter().find(|cut| cut.names.contains(&name)) {
        return Ok(cut);
    }
    let known = CUTS.iter().flat_map(|cut| cut.names).copied().collect::<Vec<_>>().join(", ");
    let problem = match name {
        "" | "default" => {
            let said = if name.is_empty() { "missing".to_owned() } else { quoted(name) };
            format!(
                "does not name how it cuts text (tokenizer.ggml.pre is {said}): convert the model anew, or set it to one of \
                 {known}, as gguf_new_metadata.py --pre-tokenizer of llama.cpp does"
            )
        }
        _ => format!("cuts text as {}; this program knows {known}", quoted(name)),
    };
    Err(Error::format(source, problem))
}

/// A tokenizer of the parts. `Error::Format` when they do not fit.
pub(in crate::tokenizer) fn byte_level_bpe(parts: ByteLevelParts<'_>, source: &Path) -> Result<JsonTokenizer> {
    let ids: Vocab = parts.tokens.iter().zip(0..).map(|(&token, id)| (token.to_owned(), id)).collect();
    if ids.len() != parts.tokens.len() {
        return Err(Error::format(source, format!("has duplicate tokens ({})", parts.tokens.len() - ids.len())));
    }
    let size = parts.tokens.iter().map(|token| token.len()).sum();
    let made = budget::within(size, || {
        let merges: Merges = parts.merges.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect();
        let model = BPE::builder().vocab_and_merges(ids, merges).ignore_merges(parts.cut.whole_words).build()?;
        let mut library = Library::new(model.into());
        if parts.cut.nfc {
            library.with_normalizer(Some(Normalizers::of(NFC.into())))?;
        }
        let cut = |expression: &&str| -> tokenizers::Result<PreTokenizerStep> {
            let pattern = Expression::new(expression)?;
            Ok(PreTokenizerStep::Split(Split { pattern, behavior: SplitDelimiterBehavior::Isolated, invert: false }))
        };
        let mut steps = parts.cut.expressions.iter().map(cut).collect::<tokenizers::Result<Vec<_>>>()?;
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
