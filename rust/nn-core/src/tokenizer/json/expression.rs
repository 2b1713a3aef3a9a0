//! Regular expressions of files, written for Oniguruma.

use fancy_regex::{Regex, RegexBuilder};
use serde::Deserialize;
use tokenizers::Offsets;
use tokenizers::pattern::Pattern;

use super::budget;
use crate::format::value::quoted;

/// Steps back of one match, after which it gives up: Oniguruma's own limit.
const STEPS_BACK: usize = 10_000_000;

/// How often the clock is looked at, in matches.
const MATCHES_A_LOOK: usize = 16;

/// A pattern as files have it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
enum Written {
    String(String),
    Regex(String),
}

/// What is looked for in a text. Unlike the library's own, it says when it gives up, where that takes the rest of the
/// text for one without a match.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Expression(Regex);

impl Expression {
    pub(super) fn new(expression: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(expression).backtrack_limit(STEPS_BACK).oniguruma_mode(true).build();
        built.map(Self).map_err(|error| format!("the expression {} is none: {error}", quoted(expression)))
    }

    /// Where `text` has the pattern, in bytes.
    pub(super) fn matches(&self, text: &str) -> tokenizers::Result<Vec<Offsets>> {
        let mut found = Vec::new();
        for (count, part) in self.0.find_iter(text).enumerate() {
            if count % MATCHES_A_LOOK == 0 {
                budget::check_time()?;
            }
            match part {
                Ok(part) => found.push((part.start(), part.end())),
                Err(error) => return budget::refuse(format!("an expression of it gave up ({error})")),
            }
        }
        budget::check_time()?;
        Ok(found)
    }
}

impl TryFrom<Written> for Expression {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::String(text) => Self::new(&fancy_regex::escape(&text)),
            Written::Regex(expression) => Self::new(&expression),
        }
    }
}

impl Pattern for &Expression {
    fn find_matches(&self, text: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        if text.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let mut parts = Vec::new();
        let mut end = 0;
        for (from, to) in self.matches(text)? {
            if end != from {
                parts.push(((end, from), false));
            }
            parts.push(((from, to), true));
            end = to;
        }
        if end != text.len() {
            parts.push(((end, text.len()), false));
        }
        Ok(parts)
    }
}
