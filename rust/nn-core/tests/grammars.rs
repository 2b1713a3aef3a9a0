//! Masks of schemas and grammars, token by token, and what cannot be enforced.

use nn_core::format::{Table, Value, parse_json};
use nn_core::infer::{Constraint, GrammarConstraint, Grammars, NO_FORCING};
use nn_core::tokenizer::TextTokenizer;
use nn_core::tokenizer::gguf::{Metadata, MetadataValue};

/// The tokens of a small tokenizer, which puts a space before every text, as those of Llama do.
const WORDS: [&str; 18] = [
    "<unk>", "<s>", "</s>", "a", "▁", "{", "}", "\"", ":", "{\"", "▁{\"", "\"}", "kind", "\":", "\":\"", "▁\"", "sea",
    "1",
];

struct Spaced;

impl Metadata for Spaced {
    fn value(&self, key: &str) -> Option<MetadataValue<'_>> {
        Some(match key.strip_prefix("tokenizer.ggml.")? {
            "model" => MetadataValue::Text("llama"),
            "tokens" => MetadataValue::Texts(WORDS.to_vec()),
            "scores" => MetadataValue::Floats(vec![0.0; WORDS.len()]),
            "token_type" => MetadataValue::Wholes((0..WORDS.len()).map(|at| [2, 3, 3, 1][at.min(3)]).collect()),
            "bos_token_id" => MetadataValue::Whole(1),
            "eos_token_id" => MetadataValue::Whole(2),
            "unknown_token_id" => MetadataValue::Whole(0),
            _ => return None,
        })
    }
}

fn grammars() -> Grammars {
    let tokenizer = TextTokenizer::from_gguf(&Spaced, "spaced").unwrap().unwrap();
    Grammars::new(&tokenizer, WORDS.len() + 1).unwrap()
}

fn schema(text: &str) -> Table {
    match parse_json(text.as_bytes()).unwrap() {
        Value::Table(table) => table,
        _ => panic!("{text} is no object"),
    }
}

fn id_of(word: &str) -> i32 {
    WORDS.iter().position(|one| *one == word).unwrap() as i32
}

/// The words that may be next.
fn allowed(constraint: &mut GrammarConstraint) -> Vec<&'static str> {
    let mask = constraint.mask().unwrap();
    (0..WORDS.len())
        .filter(|at| mask.get(at / 32).is_some_and(|word| word >> (at % 32) & 1 == 1))
        .map(|at| WORDS[at])
        .collect()
}

#[test]
fn the_model_cuts_texts_into_tokens() {
    let sea = r#"{"type": "object", "properties": {"kind": {"enum": ["sea"]}}, "required": ["kind"], "additionalProperties": false}"#;
    let mut constraint = grammars().json_schema(&schema(sea)).unwrap().constraint();
    let steps: [&[&str]; 5] = [&["{", "{\""], &["kind"], &["\"", "\":", "\":\""], &["sea"], &["\"", "\"}"]];
    for (word, step) in ["{\"", "kind", "\":\"", "sea", "\"}"].into_iter().zip(steps) {
        assert_eq!(allowed(&mut constraint), step);
        constraint.accept(id_of(word)).unwrap();
    }
    assert!(allowed(&mut constraint).is_empty());
}

#[test]
fn a_grammar_in_lark() {
    let grammar = grammars()
        .llguidance(&format!("{NO_FORCING}start: \"a\" (\"1\" | %json {{\"enum\": [\"sea\"]}}) \"a\""))
        .unwrap();
    let (mut one, mut other) = (grammar.constraint(), grammar.constraint());
    one.accept(id_of("a")).unwrap();
    assert_eq!((allowed(&mut one), allowed(&mut other)), (vec!["\"", "1"], vec!["a"]));
    one.accept(id_of("1")).unwrap();
    one.accept(id_of("a")).unwrap();
    for _ in 0..2 {
        let error = one.accept(id_of("a")).unwrap_err().to_string();
        assert!(error.starts_with("the grammar failed: ") && !error.contains('\n'), "{error}");
        assert!(one.mask().is_err());
    }
}

#[test]
fn what_cannot_be_enforced_is_said_in_one_line() {
    let grammars = grammars();
    let many = format!("{{\"enum\": [{}2]}}", "1,".repeat(5000));
    for (text, problem) in [
        (r#"{"not": {}}"#, r#"Unimplemented keys: ["not"]"#),
        (r#"{"not": {}, "x-guidance": {"lenient": true}}"#, r#"Unimplemented keys: ["not"]"#),
        (r#"{"type": "string", "pattern": "(?=a)"}"#, "regex parse error: (?=a) ^^^ error: look-around"),
        (r##"{"$ref": "#"}"##, "NoExtensionBias"),
        (&many, "it has more than 4096 brackets, commas and colons"),
    ] {
        let error = grammars.json_schema(&schema(text)).unwrap_err().to_string();
        assert!(error.starts_with(problem) && error.len() <= 300, "{error}");
    }
    for text in ["start: @nothing", "start: (", ""] {
        assert!(!grammars.llguidance(text).unwrap_err().to_string().contains('\n'));
    }
}

#[test]
fn many_names_take_little_stack() {
    let names: Vec<Value> = (0..4000).map(|at| format!("p{at}").into()).collect();
    let table = Table::from([("type", "object".into()), ("required", Value::List(names))]);
    grammars().json_schema(&table).unwrap();
}
