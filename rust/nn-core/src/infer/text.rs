//! Text of a continuation, on its way from ids.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::tokenizer::{StreamDecoder, TextTokenizer};

/// Ends a text before the first of some strings, and holds back what may be the beginning of one.
#[derive(Debug)]
pub struct StopStrings {
    strings: Vec<String>,
    held: String,
}

impl StopStrings {
    /// None has come up yet.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for an empty one.
    pub fn new(strings: Vec<String>) -> Result<Self> {
        if strings.iter().any(String::is_empty) {
            return Err(Error::value("a stop string is empty; every text would end at once"));
        }
        Ok(Self { strings, held: String::new() })
    }

    /// What is certain of the text so far, and whether a string came up in it.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.strings.is_empty() {
            return (text.to_owned(), false);
        }
        self.held.push_str(text);
        if let Some(first) = self.strings.iter().filter_map(|string| self.held.find(string)).min() {
            let mut held = std::mem::take(&mut self.held);
            held.truncate(first);
            return (held, true);
        }
        let begun = self.strings.iter().map(|string| begun(&self.held, string)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - begun);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What was held back, when no more text comes.
    pub fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// How many bytes at the end of the text are the beginning of the string, but not all of it.
fn begun(text: &str, string: &str) -> usize {
    let ends = string.char_indices().map(|(at, _)| at).rev();
    ends.into_iter().find(|length| text.ends_with(&string[..*length])).unwrap_or(0)
}

/// A continuation on its way from ids to text.
#[derive(Debug)]
pub(super) struct Text {
    decoder: Option<StreamDecoder<Arc<TextTokenizer>>>,
    stops: StopStrings,
}

impl Text {
    pub(super) fn new(tokenizer: Option<&Arc<TextTokenizer>>, stops: StopStrings) -> Result<Self> {
        let decoder = tokenizer.map(|tokenizer| StreamDecoder::new(Arc::clone(tokenizer))).transpose()?;
        Ok(Self { decoder, stops })
    }

    /// The text that is certain now, and whether a stop string ended it.
    pub(super) fn push(&mut self, token: i32) -> Result<(String, bool)> {
        match &mut self.decoder {
            Some(decoder) => Ok(self.stops.push(&decoder.push(token)?)),
            None => Ok((String::new(), false)),
        }
    }

    /// What was held back, when no more comes.
    pub(super) fn rest(&mut self) -> Result<String> {
        let Some(decoder) = &mut self.decoder else { return Ok(String::new()) };
        let (mut text, stopped) = self.stops.push(&decoder.flush()?);
        if !stopped {
            text.push_str(&self.stops.flush());
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_before_the_first_string() {
        let mut stops = StopStrings::new(vec!["<end>".into(), "dé".into()]).unwrap();
        assert_eq!(stops.push("a<e"), ("a".into(), false));
        assert_eq!(stops.push("x d"), ("<ex ".into(), false));
        assert_eq!(stops.flush(), "d");
        assert_eq!(stops.push("y<end"), ("y".into(), false));
        assert_eq!(stops.push("> dé"), (String::new(), true));
        assert_eq!(stops.push("1 dé <end>"), ("1 ".into(), true));
        assert!(StopStrings::new(vec![String::new()]).is_err());
    }
}
