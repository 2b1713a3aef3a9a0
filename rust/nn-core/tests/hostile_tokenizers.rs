//! Files of strangers: a tokenizer.json is a program, and metadata may say anything. Each is used within seconds and little
//! memory, or refused in one sentence.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nn_core::tokenizer::gguf::{Metadata, MetadataValue};
use nn_core::tokenizer::{Encoding, TextTokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

const WRONG: &str = "is not a tokenizer that the tokenizers library can use";
const TEXTS: [&str; 3] = ["hello  <s>hell\nÄö 中文\u{1f642}", "", "a a a a"];

/// A tokenizer.json of byte-level BPE over few letters, with entries replaced, at the top or in `model`.
fn bpe(changes: &[(&str, Value)]) -> Value {
    let words = ["<unk>", "<s>", "</s>", "h", "e", "l", "o", "a", "he", "ll", "hell", "Ġ"];
    let vocab: serde_json::Map<_, _> = words.iter().zip(0..).map(|(word, id)| (word.to_string(), json!(id))).collect();
    let added = |id: i32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let mut whole = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": null, "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": [["h", "e"], ["l", "l"], ["he", "ll"]]},
    });
    for (key, value) in changes {
        let table = if whole["model"].get(key).is_some() { &mut whole["model"] } else { &mut whole };
        table[*key] = value.clone();
    }
    whole
}

fn split(expression: &str) -> (&'static str, Value) {
    let step = json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false});
    ("pre_tokenizer", step)
}

fn normalizers(steps: Vec<Value>) -> (&'static str, Value) {
    ("normalizer", json!({"type": "Sequence", "normalizers": steps}))
}

fn replaced(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

fn load(folder: &Path, content: &[u8]) -> Result<TextTokenizer, String> {
    fs::write(folder.join("tokenizer.json"), content).unwrap();
    TextTokenizer::from_folder(folder).map(Option::unwrap).map_err(|error| error.to_string())
}

/// Loads a file and uses it; what was wrong with it, if anything.
fn used(content: &[u8]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = load(folder.path(), content)?;
    for text in TEXTS {
        for special in [false, true] {
            let ids = tokenizer.encode(text, Encoding { begin: true, special }).map_err(|error| error.to_string())?;
            tokenizer.decode(&ids).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[test]
fn what_is_odd_and_harmless_is_used() {
    let fill = json!({"strategy": {"Fixed": 1u32 << 31}, "direction": "Right", "pad_to_multiple_of": null,
                      "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    let cut = json!({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0});
    let flood = json!({"type": "Sequence", "decoders": [replaced(json!({"Regex": ""}), &"a".repeat(2000))]});
    let strip = json!({"type": "Strip", "content": "h", "start": 9, "stop": 9});
    for changes in [
        vec![],
        vec![split(r"\p{L}+|\s+")],
        vec![("padding", fill), ("truncation", cut)],
        vec![("decoder", flood)],
        vec![("decoder", strip)],
        vec![("decoder", Value::Null)],
        vec![("pre_tokenizer", Value::Null)],
        vec![("vocab", json!({"h": 0, "l": 1, "ö": i32::MAX - 1})), ("merges", json!([])), ("unk_token", Value::Null)],
    ] {
        let file = bpe(&changes).to_string();
        assert_eq!(used(file.as_bytes()), Ok(()), "{changes:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = load(folder.path(), bpe(&[]).to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("hello</s>", Encoding { special: true, ..Encoding::default() }).unwrap(), [10, 6, 2]);
}

#[test]
fn what_is_wrong_is_refused() {
    let pieces = json!([["<unk>", 0.0], ["▁he", -1.0], ["l", -2.0]]);
    let unigram = |pieces: &Value, unknown: i32| {
        let model = json!({"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": false});
        ("model", model)
    };
    let table = |bytes: &str| ("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": bytes}));
    let words = |most: usize| {
        let model = json!({"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
                           "max_input_chars_per_word": most, "vocab": {"a": 0}});
        ("model", model)
    };
    let none = ("added_tokens", json!([]));
    let too_long = "its rules make the text too long";
    for (changes, problem) in [
        (vec![("vocab", json!({})), ("merges", json!([])), none.clone(), ("unk_token", Value::Null)], "without tokens"),
        (vec![("model", json!({"type": "Plamo2"}))], WRONG),
        (vec![("merges", json!([["h", "x"]]))], WRONG),
        (vec![("vocab", json!({"h": -1}))], WRONG),
        (vec![("vocab", json!({"h": 1u64 << 32}))], WRONG),
        (vec![("vocab", json!({"h": u32::MAX})), ("merges", json!([])), none.clone()], "the id of 'h' is 4294967295"),
        (vec![split("(")], "the expression '(' is none"),
        (vec![unigram(&json!([]), 0), none.clone()], WRONG),
        (vec![unigram(&pieces, 9), none.clone()], WRONG),
        (vec![words(1 << 30), none.clone()], "its words may have 1073741824 characters; 10000 is most"),
        (vec![("end_of_word_suffix", json!("x".repeat(1 << 20)))], "a prefix or suffix of more than 256 bytes"),
        (vec![("dropout", json!(2.0))], WRONG),
        (vec![("dropout", json!(0.1))], "it leaves out merges by chance"),
        (vec![normalizers(vec![replaced(json!({"String": "a"}), "aa"); 60])], too_long),
        (vec![normalizers(vec![json!({"type": "ByteLevel"}); 60])], too_long),
        (vec![normalizers(vec![json!({"type": "Prepend", "prepend": "a".repeat(1 << 20)}); 30])], too_long),
        (vec![("normalizer", replaced(json!({"Regex": ""}), &"a".repeat(9_000_000)))], too_long),
        (vec![normalizers(vec![json!({"type": "Lowercase"}); 65])], "more than 64 normalizers"),
        (vec![("normalizer", json!({"prepend": "x"}))], "a rule of it has no type"),
        (vec![split("(?:(?:a|aa|Ä|.)+)+(?<=b)(?!x)c")], "an expression of it gave up"),
        (vec![table("AAAAAAAAAAA=")], "the library that reads it gave up"),
        (vec![table("BAAAAAAAAAA=")], "the library that reads it gave up"),
        (vec![table("no base64")], "the library that reads it gave up"),
        (vec![("pre_tokenizer", json!({"type": "FixedLength", "length": 0}))], "the library that reads it gave up"),
    ] {
        let start = Instant::now();
        let said = used(bpe(&changes).to_string().as_bytes()).unwrap_err();
        assert!(said.contains(problem), "{said}, not {problem}");
        assert!(start.elapsed() < Duration::from_secs(15), "{said} took {:?}", start.elapsed());
    }
}

#[test]
fn what_is_no_tokenizer_is_refused() {
    let deep = format!("{{\"normalizer\":{}", "{\"a\":".repeat(5000));
    let marks = format!("[{}", ",".repeat((1 << 24) + 1));
    for (content, problem) in [
        ("", WRONG),
        ("[]", WRONG),
        ("{\"version\": \"1.0\"}", WRONG),
        (&deep[..], "recursion limit exceeded"),
        (&marks[..], "it has more than 16777216 brackets, commas and colons"),
        ("\u{1b}[2J", WRONG),
    ] {
        let said = used(content.as_bytes()).unwrap_err();
        assert!(said.contains(problem) && said.chars().count() < 700 && !said.contains('\u{1b}'), "{said}");
    }
}

#[test]
fn an_expression_that_is_slow_in_many_places_is_stopped_in_time() {
    // Each match takes as many steps back as it may, from every place of the text.
    let file = bpe(&[split("(?:a|aa|aaa)*(?!a)b|(?:a|b)(?=.*(?:c|cc)*d)")]).to_string();
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = load(folder.path(), file.as_bytes()).unwrap();
    let start = Instant::now();
    let said = tokenizer.encode(&"ab".repeat(200_000), Encoding::default());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(30), "it took {took:?}");
    if let Err(said) = said {
        assert!(said.to_string().contains("cannot encode a text: "), "{said}");
    }
}

struct Entries(Vec<(&'static str, MetadataValue<'static>)>);

impl Metadata for Entries {
    fn value(&self, key: &str) -> Option<MetadataValue<'_>> {
        self.0.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    }
}

fn byte_level() -> Vec<(&'static str, MetadataValue<'static>)> {
    vec![
        ("tokenizer.ggml.model", MetadataValue::Text("gpt2")),
        ("tokenizer.ggml.pre", MetadataValue::Text("llama-bpe")),
        ("tokenizer.ggml.tokens", MetadataValue::Texts(vec!["a", "b", "ab", "<|im_end|>", "x"])),
        ("tokenizer.ggml.token_type", MetadataValue::Wholes(vec![1, 1, 1, 3, 4])),
        ("tokenizer.ggml.merges", MetadataValue::Texts(vec!["a b"])),
    ]
}

fn pieces() -> Vec<(&'static str, MetadataValue<'static>)> {
    vec![
        ("tokenizer.ggml.model", MetadataValue::Text("llama")),
        ("tokenizer.ggml.tokens", MetadataValue::Texts(vec!["<unk>", "<s>", "a", "b", "ab"])),
        ("tokenizer.ggml.token_type", MetadataValue::Wholes(vec![2, 3, 1, 1, 1])),
        ("tokenizer.ggml.scores", MetadataValue::Floats(vec![0.0, 0.0, -1.0, -1.0, 0.0])),
    ]
}

fn from(entries: Vec<(&'static str, MetadataValue<'static>)>) -> Result<Option<TextTokenizer>, String> {
    TextTokenizer::from_gguf(&Entries(entries), "m.gguf").map_err(|error| error.to_string())
}

#[test]
fn metadata_of_a_tokenizer() {
    assert!(from(vec![]).unwrap().is_none());
    assert!(from(vec![("tokenizer.ggml.model", MetadataValue::Text("none"))]).unwrap().is_none());
    let made = from(byte_level()).unwrap().unwrap();
    assert_eq!(made.encode("abx", Encoding::default()).unwrap(), [2, 4]);
    assert!(made.end_ids().iter().eq([&3]) && made.adds_begin() && made.begin_id().is_none());
    let made = from(pieces()).unwrap().unwrap();
    assert_eq!(made.vocab_size(), 5);
    assert_eq!(made.encode("<s>ab", Encoding { special: true, ..Encoding::default() }).unwrap(), [1, 0, 4]);
}

#[test]
fn wrong_metadata_are_refused() {
    let with = |mut entries: Vec<_>, key, value| {
        entries.push((key, value));
        from(entries).map(drop).unwrap_err()
    };
    use MetadataValue::{Bool, Floats, Other, Text, Texts, Whole, Wholes};
    for (key, value, problem) in [
        ("tokenizer.ggml.model", Text("rwkv"), "is 'rwkv'; this program has the tokenizers 'llama', 't5' and 'gpt2'"),
        ("tokenizer.ggml.model", Other, "tokenizer.ggml.model is an array; "),
        ("tokenizer.ggml.pre", Text("qwen9"), "cuts text as 'qwen9'; this program knows gpt-2, llama-bpe, "),
        ("tokenizer.ggml.pre", Text("default"), "how it cuts text (tokenizer.ggml.pre is 'default'): convert "),
        ("tokenizer.ggml.pre", Whole(1), "tokenizer.ggml.pre is 1; it must be a string"),
        ("tokenizer.ggml.tokens", Texts(vec![]), "tokenizer.ggml.tokens is empty"),
        ("tokenizer.ggml.tokens", Texts(vec!["a", ""]), "token 1 of tokenizer.ggml.tokens is empty"),
        ("tokenizer.ggml.tokens", Texts(vec!["a", "b", "ab", "a", "x"]), "has duplicate tokens (1)"),
        ("tokenizer.ggml.tokens", Floats(vec![1.0]), "tokenizer.ggml.tokens is no array of strings"),
        ("tokenizer.ggml.token_type", Wholes(vec![1; 4]), "has 4 entries, tokenizer.ggml.tokens 5"),
        ("tokenizer.ggml.token_type", Wholes(vec![1, 1, 7, 3, 4]), "has 7 for token 2; it is 1 to 6"),
        ("tokenizer.ggml.token_type", Floats(vec![1.0; 5]), "is of another type; it must be an array of numbers"),
        ("tokenizer.ggml.merges", Texts(vec!["ab"]), "merge 0 is 'ab'; it must be two tokens with a space between"),
        ("tokenizer.ggml.merges", Texts(vec!["a b c"]), "merge 0 is 'a b c'"),
        ("tokenizer.ggml.merges", Texts(vec!["a z"]), "is not a tokenizer of byte-level BPE"),
        ("tokenizer.ggml.bos_token_id", Whole(5), "bos_token_id is 5; it must be the id of a token, 0 to 4"),
        ("tokenizer.ggml.eot_token_id", Whole(-1), "eot_token_id is -1; "),
        ("tokenizer.ggml.eos_token_id", Bool(true), "eos_token_id is true; "),
        ("tokenizer.ggml.add_bos_token", Whole(1), "add_bos_token is 1; it must be true or false"),
    ] {
        let said = with(byte_level(), key, value);
        assert!(said.starts_with("m.gguf: ") && said.contains(problem), "{said}, not {problem}");
    }
    let spelled: Vec<&str> = vec!["<unk>", "<s>", "<0x41>", "<0x41>", "ab"];
    let byte_types = vec![2, 3, 6, 6, 1];
    for (changes, problem) in [
        (vec![("tokenizer.ggml.scores", Floats(vec![f32::NAN; 5]))], "has NaN for token 0; it must be finite"),
        (vec![("tokenizer.ggml.scores", Wholes(vec![1; 5]))], "scores is of another type"),
        (vec![("tokenizer.ggml.token_type", Wholes(vec![3, 3, 1, 1, 1]))], "has 0 unknown tokens; there must be one"),
        (vec![("tokenizer.ggml.token_type", Wholes(vec![2, 2, 1, 1, 1]))], "has 2 unknown tokens"),
        (vec![("tokenizer.ggml.token_type", Wholes(vec![2, 3, 6, 1, 1]))], "byte token 2 is 'a'; it must be <0x00>"),
        (
            vec![("tokenizer.ggml.tokens", Texts(spelled.clone())), ("tokenizer.ggml.token_type", Wholes(byte_types))],
            "byte token 3 is '<0x41>'",
        ),
        (
            vec![("tokenizer.ggml.tokens", Texts(spelled)), ("tokenizer.ggml.token_type", Wholes(vec![2, 3, 6, 1, 1]))],
            "has 1 byte tokens; there must be 256, or none",
        ),
        (vec![("tokenizer.ggml.unknown_token_id", Whole(1))], "unknown_token_id is 1, but the unknown token is 0"),
        (vec![("tokenizer.ggml.tokens", Texts(vec!["<unk>", "<s>", "a", "a", "b"]))], "has duplicate tokens (1)"),
    ] {
        let said = from([pieces(), changes].concat()).map(drop).unwrap_err();
        assert!(said.starts_with("m.gguf: ") && said.contains(problem), "{said}, not {problem}");
    }
}

fn library_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tokenizer/library");
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("tokenizer.json"));
    folders.filter(|path| path.exists()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A file with damage anywhere is refused or used; what it then does is unimportant, as long as it does it.
    #[test]
    fn damaged_files_do_no_harm(
        file in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 32..127_u8), 1..4),
        in_the_rules in any::<bool>(),
    ) {
        let mut content = fs::read(file.get(&library_files())).unwrap();
        // The rules stand first, the vocabulary last: half of the damage is done to them.
        let end = if in_the_rules { content.len().min(2500) } else { content.len() };
        for (place, byte) in damage {
            content[place.index(end)] = byte;
        }
        if let Err(said) = used(&content) {
            prop_assert!(said.contains("tokenizer.json: "), "{}", said);
        }
    }
}
