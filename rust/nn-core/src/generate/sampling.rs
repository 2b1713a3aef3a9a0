//! Drawing tokens on the device.

use nn_ffi::{Context, DType, Tensor, kernels};

use crate::error::{Error, Result};

/// How the next token is chosen from the logits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum DecodingStrategy {
    /// The most likely token.
    #[default]
    Greedy,
    /// A draw from softmax(logits / temperature).
    Sample {
        /// Divides the logits; 0 takes the most likely token.
        temperature: f32,
    },
    /// A draw among the most likely tokens.
    TopK {
        /// Divides the logits; 0 takes the most likely token.
        temperature: f32,
        /// Among how many, at least 1.
        k: i32,
    },
    /// A draw among the shortest run of most likely tokens that reaches a probability.
    TopP {
        /// Divides the logits; 0 takes the most likely token.
        temperature: f32,
        /// The probability, above 0 and at most 1.
        p: f32,
        /// Among how many tokens at most, where there is such a limit.
        k: Option<i32>,
    },
}

impl DecodingStrategy {
    /// The strategy of the three numbers that users give: a temperature, how many of the likeliest tokens, which share of
    /// probability. Without the last two it draws among all; a temperature of 0 is greedy whatever they are.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when one is out of its range.
    pub fn new(temperature: f64, top_k: Option<i64>, top_p: Option<f64>) -> Result<Self> {
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(Error::value(format!("temperature is {temperature}; it must be a finite number, at least 0")));
        }
        if let Some(k) = top_k.filter(|k| !(1..1 << 31).contains(k)) {
            return Err(Error::value(format!("top_k is {k}; it must be at least 1")));
        }
        if let Some(p) = top_p.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
            return Err(Error::value(format!("top_p is {p}; it must be above 0, at most 1")));
        }
        if temperature == 0.0 {
            return Ok(Self::Greedy);
        }
        let temperature = temperature as f32;
        let k = top_k.and_then(|k| i32::try_from(k).ok());
        Ok(match (top_p, k) {
            (Some(p), k) => Self::TopP { temperature, p: p as f32, k },
            (None, Some(k)) => Self::TopK { temperature, k },
            (None, None) => Self::Sample { temperature },
        })
    }

    /// What divides the logits; 0 for greedy.
    pub fn temperature(&self) -> f32 {
        match self {
            Self::Greedy => 0.0,
            Self::Sample { temperature } | Self::TopK { temperature, .. } | Self::TopP { temperature, .. } => {
                *temperature
            }
        }
    }

    fn limits(&self) -> (Option<i32>, Option<f32>) {
        match self {
            Self::Greedy | Self::Sample { .. } => (None, None),
            Self::TopK { k, .. } => (Some(*k), None),
            Self::TopP { p, k, .. } => (*k, Some(*p)),
        }
    }
}

/// Draws tokens for a batch of sequences on the device, one draw after the other, which are counted there too: captured
/// calls draw again at each launch.
#[derive(Debug)]
pub struct Sampler {
    strategy: DecodingStrategy,
    temperature: Tensor,
    seeds: Tensor,
    steps: Tensor,
    top_k: Option<Tensor>,
    top_p: Option<Tensor>,
}

impl Sampler {
    /// A sampler for `rows` sequences. The same seed gives the same tokens; sequence r uses `seed + r`, modulo 2^64.
    ///
    /// # Errors
    ///
    /// As [`Context::empty`].
    pub fn new(context: &Context, strategy: DecodingStrategy, seed: i64, rows: usize) -> Result<Self> {
        let (top_k, top_p) = strategy.limits();
        let seeds: Vec<i64> = (0..rows).map(|row| seed.wrapping_add(row as i64)).collect();
        Ok(Self {
            strategy,
            temperature: context.tensor(&vec![strategy.temperature(); rows], &[rows])?,
            seeds: context.tensor(&seeds, &[rows])?,
            steps: context.zeros(&[rows], DType::I32)?,
            top_k: top_k.map(|k| context.tensor(&vec![k; rows], &[rows])).transpose()?,
            top_p: top_p.map(|p| context.tensor(&vec![p; rows], &[rows])).transpose()?,
        })
    }

    /// How it draws.
    pub fn strategy(&self) -> DecodingStrategy {
        self.strategy
    }

    /// The next draw of each row of logits `[rows, vocab]` of f32, f16 or bf16, into ids i32 `[rows]`.
    ///
    /// # Errors
    ///
    /// [`Error`] when the shapes are others, or the library refuses.
    pub fn draw(&self, logits: &Tensor, ids: &Tensor) -> Result<()> {
        if self.strategy.temperature() == 0.0 {
            return Ok(kernels::argmax(logits, ids)?);
        }
        let (temperature, seeds, steps) = (&self.temperature, &self.seeds, &self.steps);
        match (&self.top_p, &self.top_k) {
            (Some(top_p), top_k) => {
                kernels::topp_sample(logits, temperature, top_k.as_ref(), top_p, seeds, steps, ids)?;
            }
            (None, Some(top_k)) => kernels::topk_sample(logits, temperature, top_k, seeds, steps, ids)?,
            (None, None) => kernels::sample(logits, temperature, seeds, steps, ids)?,
        }
        Ok(kernels::increment(&self.steps, 1)?)
    }
}
