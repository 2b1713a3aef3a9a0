//! The rules of a file, step by step, each within the budget of its text.
//!
//! The library runs a sequence of rules as one, so sequences are taken apart here, and the steps that search a text by an
//! expression of the file are this module's own.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::normalizer::SplitDelimiterBehavior;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pattern::Invert;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{
    Decoder, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
};

use super::budget;
use super::expression::Expression;

/// How many steps a file may have of a kind: published ones have up to ten.
const MOST_STEPS: usize = 64;

/// How text is changed before it is cut.
#[derive(Debug, Clone)]
pub(super) struct Normalizers(Vec<NormalizerStep>);

#[derive(Debug, Clone)]
enum NormalizerStep {
    Library(Box<NormalizerWrapper>),
    Replace(Replace),
}

/// How text is cut before tokens are looked for.
#[derive(Debug, Clone)]
pub(super) struct PreTokenizers(pub(super) Vec<PreTokenizerStep>);

#[derive(Debug, Clone)]
pub(super) enum PreTokenizerStep {
    Library(Box<PreTokenizerWrapper>),
    Split(Split),
}

/// How names of tokens become text.
#[derive(Debug, Clone)]
pub(super) struct Decoders(Vec<DecoderStep>);

#[derive(Debug, Clone)]
enum DecoderStep {
    Library(Box<DecoderWrapper>),
    Replace(Replace),
    Strip(Strip),
}

#[derive(Debug, Clone, Deserialize)]
struct Replace {
    pattern: Expression,
    content: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Split {
    pub(super) pattern: Expression,
    pub(super) behavior: SplitDelimiterBehavior,
    pub(super) invert: bool,
}

/// Takes up to `start` characters `content` away at the start of a token, and up to `stop` at its end.
#[derive(Debug, Clone, Deserialize)]
struct Strip {
    content: char,
    start: usize,
    stop: usize,
}

impl<'de> Deserialize<'de> for Normalizers {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        steps(Value::deserialize(source)?, "normalizers", |kind, value| {
            Ok(match kind {
                "Replace" => NormalizerStep::Replace(part(value)?),
                _ => NormalizerStep::Library(part(value)?),
            })
        })
        .map(Self)
        .map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for PreTokenizers {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        steps(Value::deserialize(source)?, "pretokenizers", |kind, value| {
            Ok(match kind {
                "Split" => PreTokenizerStep::Split(part(value)?),
                _ => PreTokenizerStep::Library(part(value)?),
            })
        })
        .map(Self)
        .map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Decoders {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        steps(Value::deserialize(source)?, "decoders", |kind, value| {
            Ok(match kind {
                "Replace" => DecoderStep::Replace(part(value)?),
                "Strip" => DecoderStep::Strip(part(value)?),
                _ => DecoderStep::Library(part(value)?),
            })
        })
        .map(Self)
        .map_err(D::Error::custom)
    }
}

/// The steps of a rule, those of its sequences in their order. `list` is the name that a sequence has its steps under.
fn steps<T>(rule: Value, list: &str, read: impl Fn(&str, Value) -> Result<T, String>) -> Result<Vec<T>, String> {
    let (mut found, mut waiting) = (Vec::new(), vec![rule]);
    while let Some(mut rule) = waiting.pop() {
        let kind = rule.get("type").and_then(Value::as_str).ok_or("a rule of it has no type")?.to_owned();
        if kind == "Sequence" {
            let Some(Value::Array(inside)) = rule.get_mut(list).map(Value::take) else {
                return Err(format!("a sequence of it has no {list}"));
            };
            waiting.extend(inside.into_iter().rev());
        } else {
            found.push(read(&kind, rule)?);
        }
        if found.len() > MOST_STEPS {
            return Err(format!("it has more than {MOST_STEPS} {list}"));
        }
    }
    Ok(found)
}

fn part<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

impl Normalizers {
    /// One rule of the library.
    pub(super) fn of(rule: NormalizerWrapper) -> Self {
        Self(vec![NormalizerStep::Library(Box::new(rule))])
    }
}

impl Normalizer for Normalizers {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        for step in &self.0 {
            match step {
                NormalizerStep::Library(rule) => {
                    rule.normalize(text)?;
                    budget::write(text.get().len())?;
                }
                NormalizerStep::Replace(rule) => {
                    budget::write(rule.length(text.get())?)?;
                    text.replace(&rule.pattern, &rule.content)?;
                }
            }
            budget::check_time()?;
        }
        Ok(())
    }
}

impl Replace {
    /// Bytes that a text has, at most, with every match replaced.
    fn length(&self, text: &str) -> tokenizers::Result<usize> {
        Ok(self.pattern.matches(text)?.len().saturating_mul(self.content.len()).saturating_add(text.len()))
    }

    fn replace(&self, text: &str) -> tokenizers::Result<String> {
        let (mut made, mut end) = (String::new(), 0);
        for (from, to) in self.pattern.matches(text)? {
            budget::write(self.content.len())?;
            made.push_str(&text[end..from]);
            made.push_str(&self.content);
            end = to;
        }
        made.push_str(&text[end..]);
        Ok(made)
    }
}

impl PreTokenizer for PreTokenizers {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        for step in &self.0 {
            match step {
                PreTokenizerStep::Library(rule) => rule.pre_tokenize(text)?,
                PreTokenizerStep::Split(rule) if rule.invert => {
                    text.split(|_, part| part.split(Invert(&rule.pattern), rule.behavior))?;
                }
                PreTokenizerStep::Split(rule) => text.split(|_, part| part.split(&rule.pattern, rule.behavior))?,
            }
            let parts = text.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
            budget::write(parts.iter().map(|(part, ..)| part.len()).sum())?;
            budget::check_time()?;
        }
        Ok(())
    }
}

impl Decoders {
    /// One rule of the library.
    pub(super) fn of(rule: DecoderWrapper) -> Self {
        Self(vec![DecoderStep::Library(Box::new(rule))])
    }
}

impl Decoder for Decoders {
    fn decode_chain(&self, mut names: Vec<String>) -> tokenizers::Result<Vec<String>> {
        for step in &self.0 {
            names = match step {
                DecoderStep::Library(rule) => rule.decode_chain(names)?,
                DecoderStep::Replace(rule) => {
                    names.iter().map(|name| rule.replace(name)).collect::<tokenizers::Result<_>>()?
                }
                DecoderStep::Strip(rule) => names.iter().map(|name| rule.strip(name).to_owned()).collect(),
            };
            budget::write(names.iter().map(String::len).sum())?;
            budget::check_time()?;
        }
        Ok(names)
    }
}

impl Strip {
    fn strip<'a>(&self, mut name: &'a str) -> &'a str {
        for _ in 0..self.start {
            let Some(rest) = name.strip_prefix(self.content) else { break };
            name = rest;
        }
        for _ in 0..self.stop {
            let Some(rest) = name.strip_suffix(self.content) else { break };
            name = rest;
        }
        name
    }
}
