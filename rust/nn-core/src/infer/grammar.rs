//! Texts that obey a JSON schema or a grammar, by llguidance, which says after each token which may be next.
//! (<https://github.com/guidance-ai/llguidance>)

use std::fmt;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory, panic_utils};

use super::constraint::Constraint;
use super::schema_cost::check_cost;
use crate::error::{Error, Result};
use crate::format::json::{check_marks, parse_json};
use crate::format::{Table, Value, write_json};
use crate::tokenizer::TextTokenizer;

/// Between the parts of a JSON text, as a regular expression: without a bound, a model could go on with spaces for ever.
pub const SPACES: &str = r"[ \n\r\t]{0,32}";

/// What a schema says to llguidance alone: no part of JSON Schema, and a way around what it cannot enforce.
const OPTIONS: &str = "x-guidance";

/// The line that a grammar in Lark begins with: the model cuts a text into tokens, also where the grammar leaves it no choice
/// of characters. How the tokenizer would cut that, perhaps with a space of its own before it, is not asked.
pub const NO_FORCING: &str = "%llguidance {\"no_forcing\": true}\n";

/// Brackets, commas and colons of schemas: llguidance needs time and stack for each.
const MOST_MARKS: usize = 4096;

/// Characters of a problem that an error shows.
const PROBLEM_CHARACTERS: usize = 300;

/// Makes grammars for texts of one vocabulary, which is handed over once. Threads may share it.
pub struct Grammars {
    factory: ParserFactory,
}

/// What texts must obey. Each takes a constraint of its own.
pub struct Grammar {
    matcher: Matcher,
}

/// A [`Constraint`] by a grammar.
pub struct GrammarConstraint {
    matcher: Matcher,
}

impl Grammars {
    /// For a model with so many ids. Ids without text, control tokens among them, are in no text; one of the tokenizer's end
    /// ids ends it, and where it has none, the text ends when the grammar allows no more.
    ///
    /// This takes time in proportion to the vocabulary: a second for 100 000 tokens.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when llguidance refuses the vocabulary.
    pub fn new(tokenizer: &TextTokenizer, vocab: usize) -> Result<Self> {
        let mut tokens: Vec<Vec<u8>> = (0..vocab).map(|id| trie_bytes(tokenizer, id)).collect();
        let known = |id: &u32| (*id as usize) < vocab;
        let mut ends: Vec<u32> = tokenizer.end_ids().iter().map(|id| id.cast_unsigned()).filter(known).collect();
        if ends.is_empty() {
            // One beyond the vocabulary, which is never drawn.
            ends.push(u32::try_from(vocab).map_err(|_| Error::TooLarge)?);
            tokens.push(b"\xff</s>".to_vec());
        }
        let size = u32::try_from(tokens.len()).map_err(|_| Error::TooLarge)?;
        let factory = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let trie = TokTrie::from(&TokRxInfo::new(size, ends[0]), &tokens).with_eos_tokens(&ends);
            let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let mut factory = ParserFactory::new_simple(&environment)?;
            factory.quiet();
            Ok(factory)
        }));
        factory.map(|factory| Self { factory }).map_err(|error| failed(&error))
    }

    /// JSON of a schema, with at most 32 spaces and line ends between its parts. It takes up to a second, usually
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] that says which part of the schema cannot be enforced.
    pub fn json_schema(&self, schema: &Table) -> Result<Grammar> {
        self.llguidance(&schema_text(schema))
    }

    /// A grammar in llguidance's own words: its variant of Lark, or a JSON list of such grammars and JSON schemas. It should
    /// begin with [`NO_FORCING`], or the first one of the list should: other languages need it.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] that says what cannot be enforced.
    pub fn llguidance(&self, text: &str) -> Result<Grammar> {
        check_grammar(text)?;
        self.checked(text)
    }

    /// The same of a text that [`check_grammar`] has let through.
    ///
    /// # Errors
    ///
    /// As [`llguidance`](Self::llguidance).
    pub fn checked(&self, text: &str) -> Result<Grammar> {
        let made = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.factory.create_parser(TopLevelGrammar::from_lark_or_grammar_list(text)?)
        }));
        let mut matcher = Matcher::new(made);
        if !matcher.is_stopped() {
            let _ = matcher.compute_mask(); // which fails when no text obeys, and the matcher with it
        }
        match matcher.get_error() {
            None => Ok(Grammar { matcher }),
            Some(problem) => Err(failed(&problem)),
        }
    }
}

/// A schema as [`Grammars::llguidance`] takes it.
pub fn schema_text(schema: &Table) -> String {
    let mut schema = schema.clone();
    schema.set(OPTIONS, Table::from([("whitespace_pattern", SPACES.into())]));
    let start = Table::from([("lark_grammar", format!("{NO_FORCING}start: @schema").into())]);
    let schema = Table::from([("name", "schema".into()), ("json_schema", schema.into())]);
    write_json(&Table::from([("grammars", Value::List(vec![start.into(), schema.into()]))]).into())
}

/// That a list of grammars has no schemas that together could keep llguidance busy.
///
/// # Errors
///
/// [`Error::Value`] that says which limit they are beyond.
pub fn check_grammar(text: &str) -> Result<()> {
    if !text.starts_with('{') {
        return Ok(());
    }
    check_marks(text.as_bytes(), MOST_MARKS).map_err(Error::Value)?;
    let whole = parse_json(text.as_bytes()).map_err(|problem| failed(&problem))?;
    let Some(Value::List(grammars)) = whole.as_table().and_then(|whole| whole.get("grammars")) else {
        return Ok(());
    };
    let schemas: Vec<&Value> =
        grammars.iter().filter_map(|one| one.as_table().and_then(|one| one.get("json_schema"))).collect();
    check_cost(&schemas).map_err(Error::Value)
}

impl Grammar {
    /// The constraint of one text, at its beginning.
    pub fn constraint(&self) -> GrammarConstraint {
        // What one text costs counts for it alone, so nothing is shared.
        GrammarConstraint { matcher: self.matcher.deep_clone() }
    }
}

impl Constraint for GrammarConstraint {
    fn mask(&mut self) -> Result<Vec<u32>> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(Vec::new()); // the grammar allows no more text
        }
        let mask = self.matcher.compute_mask().map_err(|error| broken(&error))?;
        Ok(mask.as_slice().to_vec())
    }

    fn accept(&mut self, token: i32) -> Result<()> {
        self.matcher.consume_token(token.cast_unsigned()).map_err(|error| broken(&error))
    }
}

/// The bytes of a token as llguidance takes them: one that begins with FF, which no text has, is in no text.
fn trie_bytes(tokenizer: &TextTokenizer, id: usize) -> Vec<u8> {
    let unnamed = || format!("token_id:{id}");
    let Some(token) = i32::try_from(id).ok().filter(|_| id < tokenizer.vocab_size()) else {
        return [b"\xff", unnamed().as_bytes()].concat();
    };
    match tokenizer.added(token) {
        (_, bytes) if !bytes.is_empty() => bytes,
        _ => [b"\xff", tokenizer.piece(token).map_or_else(unnamed, str::to_owned).as_bytes()].concat(),
    }
}

/// What is wrong with a grammar, in one line.
fn failed(problem: &impl fmt::Display) -> Error {
    Error::Value(sentence(problem))
}

/// That a text cannot go on.
fn broken(problem: &impl fmt::Display) -> Error {
    Error::Value(format!("the grammar failed: {}", sentence(problem)))
}

/// llguidance's words without what it adds for its own developers.
fn sentence(problem: &impl fmt::Display) -> String {
    let problem = problem.to_string();
    let words = problem.split("\n<").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(PROBLEM_CHARACTERS).collect()
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

impl fmt::Debug for GrammarConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarConstraint").field("stopped", &self.matcher.is_stopped()).finish_non_exhaustive()
    }
}
