//! Text from ids as they come.

use std::ops::Deref;

use super::Tokenizer;
use crate::error::Result;

/// Bytes of a character in UTF-8, so what is older than this many byte pieces is final.
const LONGEST_CHARACTER: usize = 4;

/// What a [`StreamDecoder`] needs of a tokenizer.
pub trait Decode {
    /// One more than the largest id.
    fn vocab_size(&self) -> usize;

    /// Some id of ordinary text.
    fn ordinary_id(&self) -> i32;

    /// The text of ids; control tokens give nothing.
    fn decode(&self, ids: &[i32]) -> Result<String>;
}

impl Decode for Tokenizer {
    fn vocab_size(&self) -> usize {
        self.vocab_size()
    }

    fn ordinary_id(&self) -> i32 {
        self.ordinary_id()
    }

    fn decode(&self, ids: &[i32]) -> Result<String> {
        self.decode(ids)
    }
}

/// Turns ids into text as they come, holding back the bytes of a character that is not complete yet. It holds its
/// tokenizer as a reference of any kind: `&Tokenizer`, `Arc<TextTokenizer>`.
#[derive(Debug)]
pub struct StreamDecoder<T> {
    tokenizer: T,
    /// Characters that the anchor decodes to.
    start: usize,
    /// An anchor, then the ids held back. Some models drop the space at the start of a text, so what is decoded never
    /// starts with the new ids.
    held: Vec<i32>,
}

impl<T: Deref<Target: Decode>> StreamDecoder<T> {
    /// A decoder at the start of a text.
    pub fn new(tokenizer: T) -> Result<Self> {
        let held = vec![tokenizer.ordinary_id()];
        let start = tokenizer.decode(&held)?.chars().count();
        Ok(Self { tokenizer, start, held })
    }

    /// The text that this id completes. Ids that a model has beyond those of its tokenizer have none. A negative id is an
    /// `Error::Value`, and is as if never given.
    pub fn push(&mut self, token: i32) -> Result<String> {
        if usize::try_from(token).map_or(true, |id| id < self.tokenizer.vocab_size()) {
            self.tokenizer.decode(&[token])?;
            self.held.push(token);
        }
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
