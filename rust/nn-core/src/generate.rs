//! Generation of tokens: prefill of each prompt, then decode of all sequences together over a cache.

use nn_ffi::{DType, Tensor};

use crate::error::{Error, Result};
use crate::infer::{Drawing, RowSampler};
use crate::layer::KVCache;
use crate::model::MoETransformer;
use crate::replay::{Replay, Run};

pub use crate::infer::Sampling;

/// A batch of sequences on the device: their cache, the logits of their last tokens, the ids drawn from them.
///
/// The calls of a step are captured once and replayed; from step to step nothing but the ids comes back.
#[derive(Debug)]
struct Sequences<'m> {
    model: &'m MoETransformer,
    cache: KVCache,
    logits: Tensor,
    ids: Tensor,
    sampler: RowSampler,
    replay: Replay,
}

impl<'m> Sequences<'m> {
    fn new(
        model: &'m MoETransformer,
        prompts: &[Vec<i32>],
        capacity: usize,
        sampling: &Sampling,
        capture: bool,
    ) -> Result<Self> {
        let (ctx, rows, vocab) = (model.context(), prompts.len(), model.config().vocab_size);
        let drawing = |(row, prompt): (usize, &Vec<i32>)| {
            let sampling = Sampling { seed: sampling.seed.wrapping_add(row as i64), ..sampling.clone() };
            Drawing::new(sampling, prompt, capacity.saturating_add(1).saturating_sub(prompt.len()))
        };
        let drawings: Vec<Drawing> = prompts.iter().enumerate().map(drawing).collect();
        let mut sequences = Self {
            model,
            cache: model.cache(rows, capacity)?,
            logits: ctx.empty(&[rows, vocab], DType::F32)?,
            ids: ctx.empty(&[rows], DType::I32)?,
            sampler: RowSampler::new(ctx, rows, vocab)?,
            replay: Replay::new(ctx, capture),
        };
        sequences.sampler.assign(&drawings.iter().collect::<Vec<_>>())?;
        for (row, prompt) in prompts.iter().enumerate() {
            model.prefill(prompt, &mut sequences.cache, row, &sequences.logits.narrow(0, row, 1)?)?;
        }
        sequences.sampler.draw(&sequences.logits, &sequences.ids)?;
        Ok(sequences)
    }

    /// Runs the last tokens through the model and draws the next.
    fn step(&mut self, last: bool) -> Result<()> {
        self.cache.require_room(1, None)?;
        let Self { model, cache, logits, ids, sampler, replay } = self;
        let run = replay.run(last, || {
            model.decode(ids, cache, logits)?;
            sampler.draw(logits, ids)
        })?;
        if run == Run::Graph {
            cache.count(1, None);
        }
        Ok(())
    }
}

/// Tokens of several sequences, step by step; see `generate_batch`.
#[derive(Debug)]
pub struct BatchGeneration<'m> {
    sequences: Option<Sequences<'m>>,
    ended: Vec<bool>,
    end_id: Option<i32>,
    /// Steps that may still come.
    remaining: usize,
    started: bool,
}

impl Iterator for BatchGeneration<'_> {
    type Item = Result<Vec<Option<i32>>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining == 0 || self.ended.iter().all(|ended| *ended) {
            return None;
        }
        let tokens = self.advance();
        if tokens.is_err() {
            self.remaining = 0; // what failed once is not tried again
        }
        Some(tokens)
    }
}

impl BatchGeneration<'_> {
    fn advance(&mut self) -> Result<Vec<Option<i32>>> {
        let Some(sequences) = &mut self.sequences else { return Ok(Vec::new()) };
        if self.started {
            sequences.step(self.remaining == 1)?;
        }
        self.started = true;
        self.remaining -= 1;
        let ids: Vec<i32> = sequences.ids.to_vec()?;
        let tokens = ids.iter().zip(&self.ended).map(|(id, ended)| (!ended).then_some(*id)).collect();
        for (ended, id) in self.ended.iter_mut().zip(ids) {
            *ended |= Some(id) == self.end_id;
        }
        Ok(tokens)
    }
}

/// How many tokens a model can write after a prompt of that many; 0 when the prompt alone is too long.
pub fn room(model: &MoETransformer, prompt: usize) -> usize {
    // The last token written is not read again, so it needs no room.
    (model.config().extended_context + 1).saturating_sub(prompt)
}

/// Continues several prompts of any lengths at once; gives the next token of each, none after its `end_id`.
///
/// The calls of a token are captured as a graph once and replayed, unless `capture` is off: the tokens are the same.
/// Ends when all sequences have ended, or after `max_new_tokens`. `Error::Value` when a prompt is empty or the model
/// does not reach that far, or an option of `sampling` is out of its range, `Error::OutOfRange` when it biases an id outside
/// the vocabulary, and a device error of status out-of-range when a prompt holds one. Sequence r draws with seed + r, modulo
/// 2^64. A sequence's tokens do not depend on the others of the batch, except through the last bits of products over other
/// numbers of rows.
pub fn generate_batch<'m>(
    model: &'m MoETransformer,
    prompts: &[Vec<i32>],
    max_new_tokens: usize,
    sampling: &Sampling,
    end_id: Option<i32>,
    capture: bool,
) -> Result<BatchGeneration<'m>> {
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err(Error::value("a prompt must have at least one token; the one that begins a text is enough"));
    }
    sampling.check()?;
    sampling.check_ids(model.config().vocab_size)?;
    let sequences = if max_new_tokens == 0 {
        None
    } else {
        // The last token drawn is never run through the model.
        let capacity = longest.saturating_add(max_new_tokens - 1);
        Some(Sequences::new(model, prompts, capacity, sampling, capture)?)
    };
    Ok(BatchGeneration {
        sequences,
        ended: vec![false; prompts.len()],
        end_id,
        remaining: max_new_tokens,
        started: false,
    })
}

/// Continues one prompt, token by token, up to and including `end_id`; see `generate_batch`.
pub fn generate<'m>(
    model: &'m MoETransformer,
    prompt: &[i32],
    max_new_tokens: usize,
    sampling: &Sampling,
    end_id: Option<i32>,
) -> Result<impl Iterator<Item = Result<i32>> + use<'m>> {
    let steps = generate_batch(model, &[prompt.to_vec()], max_new_tokens, sampling, end_id, true)?;
    // A batch of one ends with its only sequence.
    Ok(steps.filter_map(|tokens| tokens.map(|tokens| tokens.first().copied().flatten()).transpose()))
}
