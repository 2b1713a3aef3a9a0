//! Text from ids as they come.

use super::Tokenizer;
use crate::error::Result;

/// Bytes of a character in UTF-8, so what is older than this many byte pieces is final.
const LONGEST_CHARACTER: usize = 4;

/// Turns ids into text as they come, holding back the bytes of a character that is not complete yet.
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Characters that the anchor decodes to.
    start: usize,
    /// An anchor, then the ids held back. Some models drop the space at the start of a text, so what is decoded never
    /// starts with the new ids.
    held: Vec<i32>,
}

impl<'a> StreamDecoder<'a> {
    /// A decoder at the start of a text.
    pub fn new(tokenizer: &'a Tokenizer) -> Result<Self> {
        let held = vec![tokenizer.ordinary_id()];
        let start = tokenizer.decode(&held)?.chars().count();
        Ok(Self { tokenizer, start, held })
    }

    /// The text that this id completes. An id outside the vocabulary is an `Error::Value`, and is as if never given.
    pub fn push(&mut self, token: i32) -> Result<String> {
        self.tokenizer.decode(&[token])?;
        self.held.push(token);
        let text = self.text()?;
        let incomplete = text.chars().rev().take_while(|&letter| letter == char::REPLACEMENT_CHARACTER).count();
        if (1..LONGEST_CHARACTER).contains(&incomplete) {
            return Ok(String::new());
        }
        self.held.truncate(1);
        Ok(text)
    }

    /// What was held back when the text ends.
    pub fn flush(&mut self) -> Result<String> {
        let text = self.text()?;
        self.held.truncate(1);
        Ok(text)
    }

    fn text(&self) -> Result<String> {
        Ok(self.tokenizer.decode(&self.held)?.chars().skip(self.start).collect())
    }
}
