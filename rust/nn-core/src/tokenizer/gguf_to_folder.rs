//! The tokenizer of a GGUF file as the files of a folder.

use std::path::Path;

use super::gguf::{Given, Metadata, is_special};
use super::text::{Kind, TextTokenizer};
use crate::error::Result;
use crate::format::{Table, Value};

impl TextTokenizer {
    /// Name and content of its own file, and the content of tokenizer_config.json but for a chat template. It was made of
    /// `metadata`; `source` is what errors name.
    pub(super) fn as_files(&self, metadata: &dyn Metadata, source: &Path) -> Result<((&'static str, Vec<u8>), Table)> {
        let given = Given { metadata, source };
        let end = given.id("tokenizer.ggml.eos_token_id", self.vocab_size())?;
        match &self.kind {
            Kind::SentencePiece(model) => {
                let described = model.described(self.adds_begin, self.begin, end);
                Ok((("tokenizer.model", model.model().to_vec()), described))
            }
            Kind::Json(_) => {
                let name = |id: Option<i32>| id.and_then(|id| self.piece(id)).map_or(Value::None, Value::from);
                let described = Table::from([
                    ("add_bos_token", self.adds_begin.into()),
                    ("add_eos_token", false.into()),
                    ("bos_token", name(self.begin)),
                    ("eos_token", name(end)),
                    ("tokenizer_class", self.transformers_class().into()),
                ]);
                let begin = self.begin.filter(|_| self.adds_begin).and_then(|id| Some((id, self.piece(id)?)));
                Ok((("tokenizer.json", byte_level_file(&given, begin)?.to_json().into_bytes()), described))
            }
        }
    }

    /// The ids of begin, end and padding as `config.json` and `generation_config.json` have them; none for none, and a list of
    /// several ends.
    pub(super) fn special_ids(&self) -> Table {
        let value = |id: Option<i32>| id.map(i64::from).into();
        let ends: Vec<Value> = self.ends.iter().map(|id| i64::from(*id).into()).collect();
        let ends = match &ends[..] {
            [] => Value::None,
            [one] => one.clone(),
            _ => Value::List(ends),
        };
        Table::from([
            ("bos_token_id", value(self.begin)),
            ("eos_token_id", ends),
            ("pad_token_id", value(self.pad_id())),
        ])
    }
}

/// The content of a tokenizer.json of a byte-level BPE, as the library `tokenizers` writes it, which puts `begin`, an id and its
/// name, before a text. All of the metadata was checked when the tokenizer was made of them.
fn byte_level_file(given: &Given<'_>, begin: Option<(i32, &str)>) -> Result<Value> {
    let (tokens, cut) = (given.tokens()?, given.cut()?);
    let kinds = given.kinds(tokens.len())?;
    let added = (0i64..).zip(tokens.iter().zip(&kinds)).filter_map(|(id, (token, kind))| {
        let special = is_special(*kind)?;
        Some(Value::Table(Table::from([
            ("id", id.into()),
            ("content", (*token).into()),
            ("single_word", false.into()),
            ("lstrip", false.into()),
            ("rstrip", false.into()),
            ("normalized", false.into()),
            ("special", special.into()),
        ])))
    });
    let split = |expression: &&str| {
        Value::Table(Table::from([
            ("type", "Split".into()),
            ("pattern", Table::from([("Regex", (*expression).into())]).into()),
            ("behavior", "Isolated".into()),
            ("invert", false.into()),
        ]))
    };
    let bytes = |prefix_space: bool, expression: bool| {
        Value::Table(Table::from([
            ("type", "ByteLevel".into()),
            ("add_prefix_space", prefix_space.into()),
            ("trim_offsets", true.into()),
            ("use_regex", expression.into()),
        ]))
    };
    let mut steps: Vec<Value> = cut.expressions.iter().map(split).collect();
    steps.push(bytes(given.truth("tokenizer.ggml.add_space_prefix", false)?, false));
    let vocabulary: Table = tokens.iter().zip(0i64..).map(|(token, id)| ((*token).to_owned(), id.into())).collect();
    let merges = given.merges()?.into_iter().map(|(first, second)| Value::List(vec![first.into(), second.into()]));
    let model = Table::from([
        ("type", "BPE".into()),
        ("dropout", Value::None),
        ("unk_token", Value::None),
        ("continuing_subword_prefix", Value::None),
        ("end_of_word_suffix", Value::None),
        ("fuse_unk", false.into()),
        ("byte_fallback", false.into()),
        ("ignore_merges", cut.whole_words.into()),
        ("vocab", vocabulary.into()),
        ("merges", Value::List(merges.collect())),
    ]);
    Ok(Value::Table(Table::from([
        ("version", "1.0".into()),
        ("truncation", Value::None),
        ("padding", Value::None),
        ("added_tokens", Value::List(added.collect())),
        ("normalizer", if cut.nfc { Table::from([("type", "NFC".into())]).into() } else { Value::None }),
        ("pre_tokenizer", Table::from([("type", "Sequence".into()), ("pretokenizers", Value::List(steps))]).into()),
        ("post_processor", begin.map_or(Value::None, begin_before)),
        ("decoder", bytes(true, true)),
        ("model", model.into()),
    ])))
}

/// The post-processor that puts an id before a text.
fn begin_before((id, name): (i32, &str)) -> Value {
    let part = |kind: &str, name: &str| {
        let part = Table::from([("id", name.into()), ("type_id", 0i64.into())]);
        Value::Table(Table::from([(kind, part.into())]))
    };
    let begun = |which: &str| [part("SpecialToken", name), part("Sequence", which)];
    let token = Table::from([
        ("id", name.into()),
        ("ids", Value::List(vec![i64::from(id).into()])),
        ("tokens", Value::List(vec![name.into()])),
    ]);
    Value::Table(Table::from([
        ("type", "TemplateProcessing".into()),
        ("single", Value::List(begun("A").to_vec())),
        ("pair", Value::List([begun("A"), begun("B")].concat())),
        ("special_tokens", Table::from([(name, token.into())]).into()),
    ]))
}
