//! Generation of tokens: prefill of each prompt, then decode of all sequences together over a cache.

use nn_ffi::{CudaGraph, DType, GpuTensor, kernels};

use crate::error::{Error, Result};
use crate::format::value::number_text;
use crate::layer::KVCache;
use crate::model::MoETransformer;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// Draws among the so many likeliest; none draws among all.
    pub top_k: Option<usize>,
    /// Draws among the shortest run of likeliest tokens that reaches this probability; none: no such limit.
    pub top_p: Option<f64>,
    /// The same seed gives the same tokens; sequence r of a batch uses seed + r.
    pub seed: i128,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: None, seed: 0 }
    }
}

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: None, top_p: None, seed: 0 };

    /// `Error::Value` names an option that has a value it may not have.
    pub fn validate(&self) -> Result<()> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            let given = number_text(self.temperature);
            return Err(Error::value(format!("temperature is {given}; it must be a finite number, at least 0")));
        }
        if let Some(top_k) = self.top_k.filter(|top_k| i32::try_from(*top_k).map_or(true, |top_k| top_k < 1)) {
            return Err(Error::value(format!("top_k is {top_k}; it must be at least 1")));
        }
        if let Some(top_p) = self.top_p.filter(|top_p| !(*top_p > 0.0 && *top_p <= 1.0)) {
            return Err(Error::value(format!("top_p is {}; it must be above 0, at most 1", number_text(top_p))));
        }
        Ok(())
    }
}

/// Draws on the device, one number after the other, which are counted there too.
#[derive(Debug)]
struct Sampler<'ctx> {
    greedy: bool,
    temperature: GpuTensor<'ctx>,
    seeds: GpuTensor<'ctx>,
    steps: GpuTensor<'ctx>,
    top_k: Option<GpuTensor<'ctx>>,
    top_p: Option<GpuTensor<'ctx>>,
}

impl<'ctx> Sampler<'ctx> {
    fn new(ctx: &'ctx nn_ffi::Context, sampling: &Sampling, rows: usize) -> Result<Self> {
        // Seeds count modulo 2^64, as keys of the generator do.
        let first = sampling.seed as i64;
        let seeds: Vec<i64> = (0..rows as i64).map(|row| first.wrapping_add(row)).collect();
        let top_k = sampling.top_k.map(|top_k| vec![top_k as i32; rows]);
        let top_p = sampling.top_p.map(|top_p| vec![top_p as f32; rows]);
        Ok(Self {
            greedy: sampling.temperature == 0.0,
            temperature: ctx.tensor(&vec![sampling.temperature as f32; rows], &[rows])?,
            seeds: ctx.tensor(&seeds, &[rows])?,
            steps: ctx.zeros(&[rows], DType::I32)?,
            top_k: top_k.map(|values| ctx.tensor(&values, &[rows])).transpose()?,
            top_p: top_p.map(|values| ctx.tensor(&values, &[rows])).transpose()?,
        })
    }

    /// The next draw of each row of logits `[rows, vocab]`, into ids i32 `[rows]`.
    fn draw(&self, logits: &GpuTensor<'ctx>, ids: &GpuTensor<'ctx>) -> Result<()> {
        let Self { temperature, seeds, steps, top_k, top_p, .. } = self;
        if self.greedy {
            return Ok(kernels::argmax(logits, ids)?);
        }
        match (top_k, top_p) {
            (top_k, Some(top_p)) => {
                kernels::topp_sample(logits, temperature, top_k.as_ref(), top_p, seeds, steps, ids)?;
            }
            (Some(top_k), None) => kernels::topk_sample(logits, temperature, top_k, seeds, steps, ids)?,
            (None, None) => kernels::sample(logits, temperature, seeds, steps, ids)?,
        }
        Ok(kernels::increment(steps, 1)?)
    }
}

/// A batch of sequences on the device: their cache, the logits of their last tokens, the ids drawn from them.
///
/// A first step runs call by call. The second is captured, unless it is the last, and replayed from then on with the
/// same bits: between its calls the host has nothing to do, and from step to step nothing but the ids comes back.
#[derive(Debug)]
struct Sequences<'m, 'ctx> {
    model: &'m MoETransformer<'ctx>,
    capture: bool,
    cache: KVCache<'ctx>,
    logits: GpuTensor<'ctx>,
    ids: GpuTensor<'ctx>,
    sampler: Sampler<'ctx>,
    steps: usize,
    graph: Option<CudaGraph<'ctx>>,
}

impl<'m, 'ctx> Sequences<'m, 'ctx> {
    fn new(
        model: &'m MoETransformer<'ctx>,
        prompts: &[Vec<i32>],
        capacity: usize,
        sampling: &Sampling,
        capture: bool,
    ) -> Result<Self> {
        let (ctx, rows) = (model.context(), prompts.len());
        let mut sequences = Self {
            model,
            capture,
            cache: model.cache(rows, capacity)?,
            logits: ctx.empty(&[rows, model.config().vocab_size], DType::F32)?,
            ids: ctx.empty(&[rows], DType::I32)?,
            sampler: Sampler::new(ctx, sampling, rows)?,
            steps: 0,
            graph: None,
        };
        for (row, prompt) in prompts.iter().enumerate() {
            model.prefill(prompt, &mut sequences.cache, row, &sequences.logits.narrow(0, row, 1)?)?;
        }
        sequences.sampler.draw(&sequences.logits, &sequences.ids)?;
        Ok(sequences)
    }

    /// Runs the last tokens through the model and draws the next.
    fn step(&mut self, last: bool) -> Result<()> {
        self.steps += 1;
        if let Some(graph) = &self.graph {
            self.cache.require_room(1, None)?;
            graph.launch()?;
            self.cache.count(1, None);
            return Ok(());
        }
        if self.steps == 1 || last || !self.capture {
            return self.calls();
        }
        let graph = self.model.context().capture(|| self.calls())?;
        graph.launch()?;
        self.graph = Some(graph);
        Ok(())
    }

    fn calls(&mut self) -> Result<()> {
        self.model.decode(&self.ids, &mut self.cache, &self.logits)?;
        self.sampler.draw(&self.logits, &self.ids)
    }
}

/// Tokens of several sequences, step by step; see `generate_batch`.
#[derive(Debug)]
pub struct BatchGeneration<'m, 'ctx> {
    sequences: Option<Sequences<'m, 'ctx>>,
    ended: Vec<bool>,
    end_id: Option<i32>,
    /// Steps that may still come.
    left: usize,
    started: bool,
}

impl Iterator for BatchGeneration<'_, '_> {
    type Item = Result<Vec<Option<i32>>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 || self.ended.iter().all(|ended| *ended) {
            return None;
        }
        let tokens = self.advance();
        if tokens.is_err() {
            self.left = 0; // what failed once is not tried again
        }
        Some(tokens)
    }
}

impl BatchGeneration<'_, '_> {
    fn advance(&mut self) -> Result<Vec<Option<i32>>> {
        let Some(sequences) = &mut self.sequences else { return Ok(Vec::new()) };
        if self.started {
            sequences.step(self.left == 1)?;
        }
        self.started = true;
        self.left -= 1;
        let ids: Vec<i32> = sequences.ids.to_vec()?;
        let tokens = ids.iter().zip(&self.ended).map(|(id, ended)| (!ended).then_some(*id)).collect();
        for (ended, id) in self.ended.iter_mut().zip(ids) {
            *ended |= Some(id) == self.end_id;
        }
        Ok(tokens)
    }
}

/// Continues several prompts of any lengths at once; gives the next token of each, none behind its `end_id`.
///
/// The calls of a token are captured as a graph once and replayed, unless `capture` is off: the tokens are the same.
/// Ends when all sequences have ended, or after `max_new_tokens`. `Error::Value` when a prompt is empty or the model does
/// not reach that far, and a device error of status out-of-range when it holds an id outside the vocabulary. A sequence's
/// tokens do not depend on the others of the batch, except through the last bits of products over other numbers of rows.
pub fn generate_batch<'m, 'ctx>(
    model: &'m MoETransformer<'ctx>,
    prompts: &[Vec<i32>],
    max_new_tokens: usize,
    sampling: &Sampling,
    end_id: Option<i32>,
    capture: bool,
) -> Result<BatchGeneration<'m, 'ctx>> {
    sampling.validate()?;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err(Error::value("a prompt must have at least one token: that which begins a text will do"));
    }
    let sequences = if max_new_tokens == 0 {
        None
    } else {
        // The last token drawn is never run through the model.
        let capacity = longest.saturating_add(max_new_tokens - 1);
        Some(Sequences::new(model, prompts, capacity, sampling, capture)?)
    };
    Ok(BatchGeneration { sequences, ended: vec![false; prompts.len()], end_id, left: max_new_tokens, started: false })
}

/// Continues one prompt, token by token, up to and including `end_id`; see `generate_batch`.
pub fn generate<'m, 'ctx>(
    model: &'m MoETransformer<'ctx>,
    prompt: &[i32],
    max_new_tokens: usize,
    sampling: &Sampling,
    end_id: Option<i32>,
) -> Result<impl Iterator<Item = Result<i32>> + use<'m, 'ctx>> {
    let steps = generate_batch(model, &[prompt.to_vec()], max_new_tokens, sampling, end_id, true)?;
    // A batch of one ends with its only sequence.
    Ok(steps.filter_map(|tokens| tokens.map(|tokens| tokens.first().copied().flatten()).transpose()))
}
