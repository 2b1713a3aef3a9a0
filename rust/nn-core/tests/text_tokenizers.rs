//! Tokenizers of tokenizer.json and of GGUF metadata give what Python's give: the fixtures of `tests/tokenizer/library`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nn_core::Error;
use nn_core::tokenizer::gguf::{Metadata, MetadataValue};
use nn_core::tokenizer::{Encoding, StreamDecoder, TextTokenizer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const SPECIAL: Encoding = Encoding { begin: false, special: true };

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tokenizer")
}

fn json(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&fs::read(folder().join(&path)).unwrap()).unwrap()
}

/// Metadata as JSON: a list of numbers is of whole ones, or of others.
struct Given(Value);

impl Metadata for Given {
    fn value(&self, key: &str) -> Option<MetadataValue<'_>> {
        Some(match self.0.get(key)? {
            Value::Bool(value) => MetadataValue::Bool(*value),
            Value::String(text) => MetadataValue::Text(text),
            Value::Number(number) => match number.as_i64() {
                Some(number) => MetadataValue::Whole(number.into()),
                None => MetadataValue::Float(number.as_f64().unwrap()),
            },
            Value::Array(list) if list.iter().all(Value::is_string) => {
                MetadataValue::Texts(list.iter().map(|text| text.as_str().unwrap()).collect())
            }
            Value::Array(list) if list.iter().all(Value::is_i64) => {
                MetadataValue::Wholes(list.iter().map(|number| number.as_i64().unwrap().into()).collect())
            }
            Value::Array(list) if list.iter().all(Value::is_number) => {
                MetadataValue::Floats(list.iter().map(|number| number.as_f64().unwrap() as f32).collect())
            }
            _ => MetadataValue::Other,
        })
    }
}

fn tokenizers() -> BTreeMap<String, TextTokenizer> {
    let entries = fs::read_dir(folder().join("library")).unwrap().map(|entry| entry.unwrap().path());
    let found: BTreeMap<_, _> = entries
        .filter_map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                return Some((name, TextTokenizer::from_folder(&path).unwrap().unwrap()));
            }
            let name = name.strip_suffix(".json")?.to_owned();
            if !name.starts_with("gguf_") || name.ends_with(".expected") {
                return None;
            }
            let metadata = Given(json(&path));
            Some((name.clone(), TextTokenizer::from_gguf(&metadata, &name).unwrap().unwrap()))
        })
        .collect();
    assert!(found.len() >= 17, "{:?}", found.keys());
    found
}

fn expected(name: &str) -> Value {
    json(format!("library/{name}.expected.json"))
}

fn texts() -> BTreeMap<String, String> {
    let cases = [json("texts.json"), json("library/texts.json")];
    let cases = cases.iter().flat_map(|cases| cases.as_array().unwrap());
    let text = |case: &Value| case["text"].as_str().unwrap().repeat(case["repeat"].as_u64().unwrap_or(1) as usize);
    cases.map(|case| (case["name"].as_str().unwrap().to_owned(), text(case))).collect()
}

fn ids(value: &Value) -> Vec<i32> {
    value.as_array().unwrap().iter().map(|id| id.as_i64().unwrap() as i32).collect()
}

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn sizes_names_and_special_ids() {
    for (name, tokenizer) in tokenizers() {
        let expected = expected(&name);
        assert_eq!(expected["vocab_size"], tokenizer.vocab_size(), "{name}");
        assert_eq!(expected["begin_id"], tokenizer.begin_id().unwrap_or(-1), "{name}");
        assert_eq!(expected["end_ids"], json!(tokenizer.end_ids()), "{name}");
        assert_eq!(expected["adds_begin"], tokenizer.adds_begin(), "{name}");
        assert_eq!(expected["ordinary_id"], tokenizer.ordinary_id(), "{name}");
        let pieces: Vec<&str> =
            (0..tokenizer.vocab_size()).step_by(7).map(|id| tokenizer.piece(id as i32).unwrap()).collect();
        assert_eq!(expected["pieces"], json!(pieces), "{name}");
    }
}

#[test]
fn encodes_as_python() {
    let texts = texts();
    for (name, tokenizer) in tokenizers() {
        let expected = expected(&name);
        for (key, how) in [("encode", Encoding::default()), ("encode_special", SPECIAL)] {
            for (case, wanted) in expected[key].as_object().unwrap() {
                let text = &texts[case];
                let found = tokenizer.encode(text, how).unwrap();
                let decoded = tokenizer.decode(&found).unwrap();
                if wanted["ids"].is_array() {
                    assert_eq!(found, ids(&wanted["ids"]), "{name}, {key}, {case}");
                    assert_eq!(decoded, wanted["decoded"].as_str().unwrap_or(text), "{name}, {key}, {case}");
                } else {
                    let bytes: Vec<u8> = found.iter().flat_map(|id| id.to_le_bytes()).collect();
                    assert_eq!(wanted["count"], found.len(), "{name}, {case}");
                    assert_eq!(wanted["ids_sha256"], sha256(bytes), "{name}, {case}");
                    let wanted = wanted["decoded_sha256"].as_str().map_or_else(|| sha256(text), str::to_owned);
                    assert_eq!(wanted, sha256(decoded), "{name}, {case}");
                }
                let begun = tokenizer.encode(text, Encoding { begin: true, ..how }).unwrap();
                let first: Vec<i32> = tokenizer.begin_id().into_iter().collect();
                assert_eq!(begun, [first, found].concat(), "{name}, {case}");
            }
        }
    }
}

#[test]
fn decodes_as_python() {
    for (name, tokenizer) in tokenizers() {
        let tokenizer = Arc::new(tokenizer);
        for case in expected(&name)["decode"].as_array().unwrap() {
            let ids = ids(&case["ids"]);
            assert_eq!(case["text"], tokenizer.decode(&ids).unwrap(), "{name}, {ids:?}");
            let mut decoder = StreamDecoder::new(tokenizer.clone()).unwrap();
            let pushed: Vec<_> = ids.iter().map(|&id| decoder.push(id).unwrap()).collect();
            assert_eq!(case["pushed"], Value::from(pushed), "{name}, {ids:?}");
            assert_eq!(case["flushed"], decoder.flush().unwrap(), "{name}, {ids:?}");
        }
    }
}

#[test]
fn ids_outside_the_vocabulary() {
    for (name, tokenizer) in tokenizers() {
        let size = tokenizer.vocab_size() as i32;
        for id in [-1, size, i32::MAX] {
            let said = tokenizer.decode(&[5, id]).unwrap_err();
            assert!(matches!(said, Error::Value(_)), "{name}");
            assert_eq!(said.to_string(), format!("ids[1] is {id}; it must be 0 to {}", size - 1));
        }
        // A model's vocabulary may have been filled up.
        let mut decoder = StreamDecoder::new(&tokenizer).unwrap();
        assert_eq!(decoder.push(size + 7).unwrap(), "");
        assert!(decoder.push(-1).is_err());
        assert_eq!(decoder.flush().unwrap(), "");
        assert_eq!(tokenizer.piece(size), None);
    }
}

/// The ways to cut that GGUF files have names for.
#[test]
fn cuts_give_what_the_library_gives() {
    let given = json("cuts/cases.json");
    let (cuts, texts) = (given["cuts"].as_object().unwrap(), given["texts"].as_array().unwrap());
    assert!(cuts.len() >= 8 && texts.len() >= 10);
    for cut in cuts.values() {
        for name in cut["names"].as_array().unwrap() {
            let mut metadata = given["metadata"].clone();
            metadata["tokenizer.ggml.pre"] = name.clone();
            let made = TextTokenizer::from_gguf(&Given(metadata), "cuts.gguf").unwrap().unwrap();
            assert_eq!(cut["begins"], made.adds_begin(), "{name}");
            for (text, wanted) in texts.iter().zip(cut["ids"].as_array().unwrap()) {
                let text = text.as_str().unwrap();
                assert_eq!(made.encode(text, SPECIAL).unwrap(), ids(wanted), "{name}, {text:?}");
            }
        }
    }
}
