//! Tokenizers give what SentencePiece gives: the fixtures of `tests/tokenizer`, which Python and Go read, too.

use std::fs;
use std::path::{Path, PathBuf};

use nn_core::Error;
use nn_core::tokenizer::{StreamDecoder, Tokenizer};
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tokenizer")
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder().join(name)).expect(name)).expect(name)
}

fn models() -> Vec<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = files.filter_map(|file| file.strip_suffix(".model").map(str::to_owned)).collect();
    names.sort();
    assert!(names.len() >= 7, "{names:?}");
    names
}

fn load(name: &str) -> Tokenizer {
    Tokenizer::load(folder().join(format!("{name}.model"))).unwrap()
}

fn texts() -> Vec<(String, String)> {
    let texts = json("texts.json");
    let text = |case: &Value| case["text"].as_str().unwrap().repeat(case["repeat"].as_u64().unwrap() as usize);
    texts.as_array().unwrap().iter().map(|case| (case["name"].as_str().unwrap().to_owned(), text(case))).collect()
}

fn ids(value: &Value) -> Vec<i32> {
    value.as_array().unwrap().iter().map(|id| id.as_i64().unwrap() as i32).collect()
}

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn sizes_and_special_ids() {
    for name in models() {
        let (tokenizer, expected) = (load(&name), json(&format!("{name}.json")));
        assert_eq!(expected["vocab_size"], tokenizer.vocab_size(), "{name}");
        assert_eq!(expected["begin_id"], tokenizer.begin_id().unwrap_or(-1), "{name}");
        assert_eq!(expected["end_id"], tokenizer.end_id().unwrap_or(-1), "{name}");
        assert_eq!(expected["ordinary_id"], tokenizer.ordinary_id(), "{name}");
        assert_eq!(fs::read(folder().join(format!("{name}.model"))).unwrap(), tokenizer.model());
    }
}

#[test]
fn encodes_as_sentencepiece() {
    for name in models() {
        let (tokenizer, expected) = (load(&name), json(&format!("{name}.json")));
        for (case, text) in texts() {
            let expected = &expected["encode"][&case];
            let found = tokenizer.encode(&text, false);
            let decoded = tokenizer.decode(&found).unwrap();
            if expected["ids"].is_array() {
                assert_eq!(found, ids(&expected["ids"]), "{name}, {case}");
                assert_eq!(decoded, expected["decoded"].as_str().unwrap_or(&text), "{name}, {case}");
            } else {
                assert_eq!(expected["count"], found.len(), "{name}, {case}");
                let bytes: Vec<u8> = found.iter().flat_map(|id| id.to_le_bytes()).collect();
                assert_eq!(expected["ids_sha256"], sha256(bytes), "{name}, {case}");
                let text = expected["decoded_sha256"].as_str().map_or_else(|| sha256(&text), str::to_owned);
                assert_eq!(text, sha256(decoded), "{name}, {case}");
            }
            let begun = tokenizer.encode(&text, true);
            let first: Vec<i32> = tokenizer.begin_id().into_iter().collect();
            assert_eq!(begun, [first, found].concat(), "{name}, {case}");
        }
    }
}

#[test]
fn decodes_as_sentencepiece() {
    for name in models() {
        let (tokenizer, expected) = (load(&name), json(&format!("{name}.json")));
        for case in expected["decode"].as_array().unwrap() {
            let ids = ids(&case["ids"]);
            assert_eq!(case["text"], tokenizer.decode(&ids).unwrap(), "{name}, {ids:?}");
            let mut decoder = StreamDecoder::new(&tokenizer).unwrap();
            let pushed: Vec<_> = ids.iter().map(|&id| decoder.push(id).unwrap()).collect();
            assert_eq!(case["pushed"], Value::from(pushed), "{name}, {ids:?}");
            assert_eq!(case["flushed"], decoder.flush().unwrap(), "{name}, {ids:?}");
        }
    }
}

#[test]
fn ids_outside_the_vocabulary_are_errors() {
    let tokenizer = load("own_unigram");
    for id in [-1, 400, i32::MIN, i32::MAX] {
        let said = tokenizer.decode(&[5, id]).unwrap_err().to_string();
        assert_eq!(said, format!("ids[1] is {id}; it must be 0 to 399"));
        let mut decoder = StreamDecoder::new(&tokenizer).unwrap();
        match decoder.push(id) {
            Ok(text) => assert!(id >= 400 && text.is_empty()), // of a model whose vocabulary was filled up
            Err(said) => assert!(id < 0 && matches!(said, Error::Value(_))),
        }
        assert_eq!(decoder.flush().unwrap(), "");
    }
}

#[test]
fn refuses_broken_files() {
    for case in json("refused.json").as_array().unwrap() {
        let file = base64(case["model"].as_str().unwrap());
        let said = Tokenizer::from_bytes(file, "x.model").map(drop).expect_err(case["name"].as_str().unwrap());
        assert!(said.to_string().starts_with("x.model: is not a SentencePiece model ("), "{said}");
    }
    let absent = Tokenizer::load("/absent/x.model").map(drop).unwrap_err().to_string();
    assert_eq!(absent, "/absent/x.model: cannot be read: No such file or directory");
}

#[test]
fn every_cut_off_file_is_read_or_refused() {
    let whole = fs::read(folder().join("rules_bpe.model")).unwrap();
    for length in 0..whole.len() {
        if let Ok(tokenizer) = Tokenizer::from_bytes(whole[..length].to_vec(), "x.model") {
            tokenizer.decode(&tokenizer.encode("the cat <user> ﬁnd\u{3000}", true)).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A file with damage anywhere is refused or read; what it then does is unimportant, as long as it does it.
    #[test]
    fn damaged_files_do_no_harm(
        model in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        at_the_end in any::<bool>(),
    ) {
        let mut file = fs::read(folder().join(format!("{}.model", model.get(&models())))).unwrap();
        // Pieces stand first, how text is prepared and the kind of model last: half of the damage is done there.
        let first = if at_the_end { file.len() - file.len().min(300) } else { 0 };
        for (place, byte) in damage {
            let length = file.len() - first;
            file[first + place.index(length)] = byte;
        }
        if let Ok(tokenizer) = Tokenizer::from_bytes(file, "x.model") {
            for text in ["the cat\nÜber ﬁ <user>abcde ꙮꙮ 猫\u{3000}", "  a  b  "] {
                let ids = tokenizer.encode(text, true);
                prop_assert!(tokenizer.decode(&ids).is_ok());
            }
        }
    }

    /// Tokenizers of our own give every text back, but for the sign of a space, which comes back as a space.
    #[test]
    fn own_tokenizers_give_every_text_back(text in "(?s).{0,60}") {
        for name in ["own_unigram", "own_bpe"] {
            let tokenizer = load(name);
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text, false)).unwrap(), text.replace('\u{2581}', " "));
        }
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{text} is not base64"),
    };
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | u32::from(value(letter));
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
