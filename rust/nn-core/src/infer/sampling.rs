//! How the next token is chosen.

use std::collections::BTreeMap;

use super::engine::check_ids;
use crate::error::{Error, Result};

/// How the next token is chosen. The default takes the most likely one.
///
/// What is under "penalties" changes the logits first, in the order in which it stands here, and holds at a temperature of
/// 0, too.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always picks the most likely token.
    pub temperature: f64,
    /// Samples only from this many of the most likely tokens; `None` from all.
    pub top_k: Option<i32>,
    /// Samples only from the shortest run of most likely tokens that reaches this probability; `None` from all.
    pub top_p: Option<f64>,
    /// Samples only from tokens at least this many times as likely as the most likely one, of those that `top_k` and `top_p`
    /// leave; `None` or 0 from all. (Nguyen et al. 2024)
    pub min_p: Option<f64>,
    /// The same seed gives the same tokens; sequence r of several uses seed + r, modulo 2^64.
    pub seed: i64,
    /// Penalties: logits of tokens in the prompt and the text so far are divided by it where they are above 0, else
    /// multiplied; 1 for none. (Keskar et al. 2019, as in transformers and vLLM)
    pub repetition_penalty: f64,
    /// Is subtracted from a token's logit for each time it was drawn so far, as OpenAI defines it.
    pub frequency_penalty: f64,
    /// Is subtracted once if it was drawn at all.
    pub presence_penalty: f64,
    /// What is added to the logits of some ids.
    pub logit_bias: BTreeMap<i32, f64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: None,
            min_p: None,
            seed: 0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: BTreeMap::new(),
        }
    }
}

impl Sampling {
    /// Refuses options that have values which they may not have.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] names the option.
    pub fn check(&self) -> Result<()> {
        let wrong =
            |name: &str, value: f64, rule: &str| Err(Error::value(format!("{name} is {value:?}; it must be {rule}")));
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return wrong("temperature", self.temperature, "a finite number, at least 0");
        }
        if let Some(k) = self.top_k.filter(|k| *k < 1) {
            return Err(Error::value(format!("top_k is {k}; it must be a whole number, at least 1")));
        }
        if let Some(p) = self.top_p.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
            return wrong("top_p", p, "above 0, at most 1");
        }
        if let Some(p) = self.min_p.filter(|p| !(0.0..=1.0).contains(p)) {
            return wrong("min_p", p, "0 to 1");
        }
        let penalties = [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)];
        if let Some((name, value)) = penalties.into_iter().find(|(_, value)| !is_finite(*value)) {
            return wrong(name, value, "a finite number");
        }
        let repetition = self.repetition_penalty;
        if !(is_finite(repetition) && repetition as f32 > 0.0) {
            return wrong("repetition_penalty", repetition, "a finite number above 0");
        }
        for (token, bias) in &self.logit_bias {
            if *token < 0 {
                return Err(Error::value(format!("logit_bias has the key {token}; it must be a token id")));
            }
            if !is_finite(*bias) {
                return wrong(&format!("logit_bias of token {token}"), *bias, "a finite number");
            }
        }
        Ok(())
    }

    /// Refuses a `logit_bias` of an id outside the vocabulary: `Error::OutOfRange`.
    pub(crate) fn check_ids(&self, vocab: usize) -> Result<()> {
        check_ids(&self.logit_bias.keys().copied().collect::<Vec<_>>(), vocab, "logit_bias")
    }

    /// Whether tokens are counted.
    pub(super) fn penalizes(&self) -> bool {
        self.presence_penalty != 0.0 || self.frequency_penalty != 0.0 || self.repetition_penalty != 1.0
    }
}

/// Whether a number is finite as f32, which kernels take.
fn is_finite(value: f64) -> bool {
    value.abs() <= f64::from(f32::MAX)
}
