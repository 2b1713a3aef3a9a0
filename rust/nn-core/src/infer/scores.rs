//! Log-probabilities of tokens, by the logits that the model gave: before penalties, biases, masks and temperature.

use nn_ffi::{Context, DType, Tensor, kernels};

use crate::error::{Error, Result};

/// Alternatives that a request may ask for, as in OpenAI's protocol.
pub const MOST_ALTERNATIVES: usize = 20;

/// The log-probability of a token, and the most likely tokens in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Of the token.
    pub logprob: f32,
    /// Ids and their log-probabilities, the most likely first and of equal ones that with the lower id.
    pub top: Vec<(i32, f32)>,
}

/// Refuses a number of alternatives that cannot be had.
pub(super) fn check_alternatives(name: &str, count: Option<usize>) -> Result<()> {
    match count.filter(|count| *count > MOST_ALTERNATIVES) {
        None => Ok(()),
        Some(count) => Err(Error::value(format!("{name} is {count}; it must be 0 to {MOST_ALTERNATIVES}, or none"))),
    }
}

/// Places on the device for the log-probabilities of some rows.
#[derive(Debug)]
pub(super) struct Scores {
    logprobs: Tensor,
    top_ids: Tensor,
    top_logprobs: Tensor,
}

impl Scores {
    pub(super) fn new(ctx: &Context, rows: usize) -> Result<Self> {
        Ok(Self {
            logprobs: ctx.zeros(&[rows], DType::F32)?,
            top_ids: ctx.zeros(&[rows, MOST_ALTERNATIVES], DType::I32)?,
            top_logprobs: ctx.zeros(&[rows, MOST_ALTERNATIVES], DType::F32)?,
        })
    }

    /// Those of a token of each row of logits.
    pub(super) fn take(&self, logits: &Tensor, ids: &Tensor) -> Result<()> {
        let first = |tensor: &Tensor| tensor.narrow(0, 0, logits.shape()[0]);
        let (logprobs, top_ids, top_logprobs) =
            (first(&self.logprobs)?, first(&self.top_ids)?, first(&self.top_logprobs)?);
        Ok(kernels::logprobs(logits, ids, &logprobs, Some(&top_ids), Some(&top_logprobs))?)
    }

    /// Those of the first rows, each with so many alternatives.
    pub(super) fn read(&self, alternatives: &[usize]) -> Result<Vec<TokenLogprobs>> {
        let first = |tensor: &Tensor| tensor.narrow(0, 0, alternatives.len());
        let logprobs: Vec<f32> = first(&self.logprobs)?.to_vec()?;
        let (ids, numbers): (Vec<i32>, Vec<f32>) =
            (first(&self.top_ids)?.to_vec()?, first(&self.top_logprobs)?.to_vec()?);
        let rows = ids.chunks(MOST_ALTERNATIVES).zip(numbers.chunks(MOST_ALTERNATIVES)).zip(alternatives);
        let found = logprobs.into_iter().zip(rows).map(|(logprob, ((ids, numbers), count))| {
            let pairs = ids.iter().copied().zip(numbers.iter().copied()).take(*count);
            TokenLogprobs { logprob, top: pairs.filter(|(id, _)| *id >= 0).collect() }
        });
        Ok(found.collect())
    }
}
