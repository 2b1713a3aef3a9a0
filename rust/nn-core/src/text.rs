//! Text from a model and its tokenizer.

use crate::error::{Error, Result};
use crate::generate::{Sampling, generate, room};
use crate::model::MoETransformer;
use crate::tokenizer::{StreamDecoder, Tokenizer};

/// Continues texts. Every text begins with the tokenizer's begin id, as in training.
#[derive(Clone, Copy, Debug)]
pub struct TextGenerator<'m> {
    model: &'m MoETransformer,
    tokenizer: &'m Tokenizer,
}

impl<'m> TextGenerator<'m> {
    /// A generator. `Error::Value` when the tokenizer is of another vocabulary.
    pub fn new(model: &'m MoETransformer, tokenizer: &'m Tokenizer) -> Result<Self> {
        let (pieces, vocab) = (tokenizer.vocab_size(), model.config().vocab_size);
        if pieces != vocab {
            return Err(Error::value(format!("the tokenizer has {pieces} pieces, the model's vocabulary {vocab}")));
        }
        Ok(Self { model, tokenizer })
    }

    /// The continuation, piece by piece, as soon as a piece is final.
    pub fn stream(
        &self,
        prompt: &str,
        max_new_tokens: usize,
        sampling: &Sampling,
    ) -> Result<impl Iterator<Item = Result<String>> + use<'m>> {
        let ids = self.tokenizer.encode(prompt, true);
        let end_id = self.tokenizer.end_id();
        let mut decoder = StreamDecoder::new(self.tokenizer)?;
        let mut tokens = Some(generate(self.model, &ids, max_new_tokens, sampling, end_id)?);
        let pieces = std::iter::from_fn(move || {
            let next = tokens.as_mut()?.next();
            Some(match next {
                Some(Err(error)) => {
                    tokens = None;
                    Err(error)
                }
                Some(Ok(token)) if Some(token) != end_id => decoder.push(token),
                _ => {
                    tokens = None;
                    decoder.flush()
                }
            })
        });
        Ok(pieces.filter(|piece| piece.as_ref().map_or(true, |text| !text.is_empty())))
    }

    /// How many tokens the model can write after a prompt; 0 when the prompt alone is too long.
    pub fn room(&self, prompt: &str) -> usize {
        room(self.model, self.tokenizer.encode(prompt, true).len())
    }

    /// The continuation as a whole.
    pub fn complete(&self, prompt: &str, max_new_tokens: usize, sampling: &Sampling) -> Result<String> {
        self.stream(prompt, max_new_tokens, sampling)?.collect()
    }
}
