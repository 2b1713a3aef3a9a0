//! The drawing of tokens on the device: what changes a row's logits first, and the samplers.
//!
//! What a row does not use costs nothing: memory is there once a row wants it, and calls are made while one does.

use std::collections::BTreeMap;

use nn_ffi::{Context, DType, Tensor, kernels};

use super::sampling::Sampling;
use crate::error::Result;

/// Tokens that may be drawn for a row beyond those that anybody asked for: a batch may run a step ahead.
const DRAWN_AHEAD: usize = 2;

/// How tokens of a sequence are drawn, and what was drawn so far.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(super) sampling: Sampling,
    /// How many were drawn.
    pub(super) draws: i32,
    /// How often each token was, with those of the prompt that were not, where the options count them.
    seen: Option<BTreeMap<i32, i32>>,
    /// The most tokens that `seen` may come to have.
    room: usize,
    /// The tokens that are allowed next, a bit each; `None` for all.
    pub(super) mask: Option<Vec<i32>>,
}

impl Drawing {
    /// For at most `most` tokens after a prompt.
    pub(crate) fn new(sampling: Sampling, prompt: &[i32], most: usize) -> Self {
        let seen = sampling.penalizes().then(|| match sampling.repetition_penalty {
            1.0 => BTreeMap::new(),
            _ => prompt.iter().map(|token| (*token, 0)).collect(),
        });
        let room = seen.as_ref().map_or(0, |seen| seen.len().saturating_add(most).saturating_add(DRAWN_AHEAD));
        Self { sampling, draws: 0, seen, room, mask: None }
    }

    /// Counts a token that was drawn.
    pub(super) fn drawn(&mut self, token: i32) {
        self.draws += 1;
        if let Some(seen) = &mut self.seen {
            *seen.entry(token).or_default() += 1;
        }
    }
}

/// Which calls a draw makes: a graph holds those of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    /// All rows: then no numbers are drawn at all.
    greedy: bool,
    min_p: bool,
    penalized: bool,
    biased: bool,
    pub(super) masked: bool,
}

impl Kind {
    /// Whether logits are changed in place.
    pub(super) fn adjusts(self) -> bool {
        self.penalized || self.biased || self.masked
    }
}

/// Draws a token a row on the device, each row by its own options.
///
/// One kernel serves them all, or another where one has a min_p: with the largest top_k, a top_p of 1 and a min_p of 0 it
/// draws as those without do, and with a temperature of 0 it takes the most likely token.
#[derive(Debug)]
pub(crate) struct RowSampler {
    ctx: Context,
    rows: usize,
    vocab: usize,
    counts: Tensor,
    top_k: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    penalties: Option<Penalties>,
    biases: Option<Biases>,
    masks: Option<Masks>,
    /// What the rows need.
    pub(super) kind: Kind,
    /// How often graphs of earlier calls have become invalid, since memory was made anew.
    pub(super) generation: usize,
}

impl RowSampler {
    pub(crate) fn new(ctx: &Context, rows: usize, vocab: usize) -> Result<Self> {
        let zeros = |dtype| ctx.zeros(&[rows], dtype);
        Ok(Self {
            ctx: ctx.clone(),
            rows,
            vocab,
            counts: zeros(DType::I32)?,
            top_k: zeros(DType::I32)?,
            temperature: zeros(DType::F32)?,
            top_p: zeros(DType::F32)?,
            min_p: zeros(DType::F32)?,
            seeds: zeros(DType::I64)?,
            penalties: None,
            biases: None,
            masks: None,
            kind: Kind { greedy: true, min_p: false, penalized: false, biased: false, masked: false },
            generation: 0,
        })
    }

    /// Sets the first rows.
    pub(crate) fn assign(&mut self, rows: &[&Drawing]) -> Result<()> {
        let options = || rows.iter().map(|row| &row.sampling);
        let floats = |target: &Tensor, of: &dyn Fn(&Sampling) -> f64| {
            set(target, &options().map(|row| of(row) as f32).collect::<Vec<_>>())
        };
        set(&self.counts, &rows.iter().map(|row| row.draws).collect::<Vec<_>>())?;
        set(&self.top_k, &options().map(|row| row.top_k.unwrap_or(i32::MAX)).collect::<Vec<_>>())?;
        floats(&self.temperature, &|row| row.temperature)?;
        floats(&self.top_p, &|row| row.top_p.unwrap_or(1.0))?;
        floats(&self.min_p, &|row| row.min_p.unwrap_or(0.0))?;
        set(&self.seeds, &options().map(|row| row.seed).collect::<Vec<_>>())?;
        self.kind = Kind {
            greedy: options().all(|row| row.temperature == 0.0),
            min_p: options().any(|row| row.min_p.is_some_and(|p| p != 0.0)),
            penalized: rows.iter().any(|row| row.seen.is_some()),
            biased: options().any(|row| !row.logit_bias.is_empty()),
            masked: rows.iter().any(|row| row.mask.is_some()),
        };
        if self.kind.penalized {
            let room = rows.iter().map(|row| row.room).max().unwrap_or(0).min(self.vocab);
            if self.penalties.as_ref().is_none_or(|penalties| penalties.capacity < room) {
                let capacity = room.next_power_of_two().min(self.vocab);
                self.penalties = Some(Penalties::new(&self.ctx, self.rows, capacity)?);
                self.generation += 1;
            }
        }
        if self.kind.biased {
            let count = options().map(|row| row.logit_bias.len()).sum();
            if self.biases.as_ref().is_none_or(|biases| biases.capacity < count) {
                self.biases = Some(Biases::new(&self.ctx, self.rows, count.next_power_of_two())?);
                self.generation += 1;
            }
        }
        if self.kind.masked && self.masks.is_none() {
            self.masks = Some(Masks::new(&self.ctx, self.rows, self.vocab)?);
        }
        if let Some(penalties) = self.penalties.as_ref().filter(|_| self.kind.penalized) {
            penalties.assign(rows)?;
        }
        if let Some(biases) = self.biases.as_ref().filter(|_| self.kind.biased) {
            biases.assign(rows)?;
        }
        if let Some(masks) = self.masks.as_ref().filter(|_| self.kind.masked) {
            masks.assign(rows)?;
        }
        Ok(())
    }

    /// Sets the masks of rows that have been assigned, for their next tokens.
    pub(super) fn renew_masks(&self, rows: &[&Drawing]) -> Result<()> {
        self.masks.as_ref().map_or(Ok(()), |masks| masks.renew(rows))
    }

    /// The next token of each row of logits `[rows, vocab]`, which it may change, into ids i32 `[rows]`.
    pub(crate) fn draw(&self, logits: &Tensor, ids: &Tensor) -> Result<()> {
        let (rows, kind) = (logits.shape()[0], self.kind);
        let penalties = self.penalties.as_ref().filter(|_| kind.penalized);
        if let Some(penalties) = penalties {
            penalties.apply(logits)?;
        }
        if let Some(biases) = self.biases.as_ref().filter(|_| kind.biased) {
            biases.apply(logits)?;
        }
        if let Some(masks) = self.masks.as_ref().filter(|_| kind.masked) {
            masks.apply(logits)?;
        }
        if kind.greedy {
            kernels::argmax(logits, ids)?;
        } else {
            let first = |tensor: &Tensor| tensor.narrow(0, 0, rows);
            let (counts, top_k, seeds) = (first(&self.counts)?, first(&self.top_k)?, first(&self.seeds)?);
            let (temperature, top_p, min_p) = (first(&self.temperature)?, first(&self.top_p)?, first(&self.min_p)?);
            if kind.min_p {
                let (top_k, top_p) = (Some(&top_k), Some(&top_p));
                kernels::minp_sample(logits, &temperature, top_k, top_p, &min_p, &seeds, &counts, ids)?;
            } else {
                kernels::topp_sample(logits, &temperature, Some(&top_k), &top_p, &seeds, &counts, ids)?;
            }
            kernels::increment(&counts, 1)?;
        }
        penalties.map_or(Ok(()), |penalties| penalties.count(ids, self.vocab))
    }
}

/// Sets the first elements.
fn set<T: nn_ffi::Element>(target: &Tensor, values: &[T]) -> Result<()> {
    Ok(target.narrow(0, 0, values.len())?.copy_from_slice(values)?)
}

/// Lists of tokens, a row each: 8 bytes for each token that a sequence may come to have, and as many to read a step as it
/// has. Counts of the whole vocabulary would be 4 bytes of each of its tokens, all of them read in every step.
#[derive(Debug)]
struct Penalties {
    capacity: usize,
    presence: Tensor,
    frequency: Tensor,
    repetition: Tensor,
    ids: Tensor,
    counts: Tensor,
    lengths: Tensor,
}

impl Penalties {
    fn new(ctx: &Context, rows: usize, capacity: usize) -> Result<Self> {
        Ok(Self {
            capacity,
            presence: ctx.zeros(&[rows], DType::F32)?,
            frequency: ctx.zeros(&[rows], DType::F32)?,
            repetition: ctx.zeros(&[rows], DType::F32)?,
            ids: ctx.zeros(&[rows, capacity], DType::I32)?,
            counts: ctx.zeros(&[rows, capacity], DType::I32)?,
            lengths: ctx.zeros(&[rows], DType::I32)?,
        })
    }

    fn assign(&self, rows: &[&Drawing]) -> Result<()> {
        let of = |number: fn(&Sampling) -> f64| rows.iter().map(|row| number(&row.sampling) as f32).collect::<Vec<_>>();
        set(&self.presence, &of(|row| row.presence_penalty))?;
        set(&self.frequency, &of(|row| row.frequency_penalty))?;
        set(&self.repetition, &of(|row| row.repetition_penalty))?;
        let lengths = rows.iter().map(|row| row.seen.as_ref().map_or(-1, |seen| seen.len() as i32));
        set(&self.lengths, &lengths.collect::<Vec<_>>())?;
        for (at, seen) in rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.seen.as_ref()?))) {
            let place = |target: &Tensor| target.narrow(0, at, 1)?.narrow(1, 0, seen.len());
            if !seen.is_empty() {
                place(&self.ids)?.copy_from_slice(&seen.keys().copied().collect::<Vec<i32>>())?;
                place(&self.counts)?.copy_from_slice(&seen.values().copied().collect::<Vec<i32>>())?;
            }
        }
        Ok(())
    }

    fn apply(&self, logits: &Tensor) -> Result<()> {
        let first = |tensor: &Tensor| tensor.narrow(0, 0, logits.shape()[0]);
        let (presence, frequency, repetition) =
            (first(&self.presence)?, first(&self.frequency)?, first(&self.repetition)?);
        let (ids, counts, lengths) = (first(&self.ids)?, first(&self.counts)?, first(&self.lengths)?);
        Ok(kernels::penalize_logits(logits, &presence, &frequency, &repetition, &ids, &counts, &lengths)?)
    }

    fn count(&self, drawn: &Tensor, vocab: usize) -> Result<()> {
        let first = |tensor: &Tensor| tensor.narrow(0, 0, drawn.shape()[0]);
        let (ids, counts, lengths) = (first(&self.ids)?, first(&self.counts)?, first(&self.lengths)?);
        Ok(kernels::count_tokens(drawn, &ids, &counts, &lengths, vocab)?)
    }
}

#[derive(Debug)]
struct Biases {
    capacity: usize,
    offsets: Tensor,
    ids: Tensor,
    bias: Tensor,
}

impl Biases {
    fn new(ctx: &Context, rows: usize, capacity: usize) -> Result<Self> {
        Ok(Self {
            capacity,
            offsets: ctx.zeros(&[rows + 1], DType::I32)?,
            ids: ctx.zeros(&[capacity], DType::I32)?,
            bias: ctx.zeros(&[capacity], DType::F32)?,
        })
    }

    fn assign(&self, rows: &[&Drawing]) -> Result<()> {
        let (mut offsets, mut ids, mut bias) = (vec![0], Vec::new(), Vec::new());
        for row in rows {
            ids.extend(row.sampling.logit_bias.keys().copied());
            bias.extend(row.sampling.logit_bias.values().map(|bias| *bias as f32));
            offsets.push(ids.len() as i32);
        }
        set(&self.offsets, &offsets)?;
        set(&self.ids, &ids)?;
        set(&self.bias, &bias)
    }

    fn apply(&self, logits: &Tensor) -> Result<()> {
        let offsets = self.offsets.narrow(0, 0, logits.shape()[0] + 1)?;
        Ok(kernels::bias_logits(logits, &offsets, &self.ids, &self.bias)?)
    }
}

/// A mask a row; those of rows that have none are not sent.
#[derive(Debug)]
struct Masks {
    masks: Tensor,
    of: Tensor,
}

impl Masks {
    fn new(ctx: &Context, rows: usize, vocab: usize) -> Result<Self> {
        let masks = ctx.zeros(&[rows, mask_words(vocab)], DType::I32)?;
        Ok(Self { masks, of: ctx.zeros(&[rows], DType::I32)? })
    }

    fn assign(&self, rows: &[&Drawing]) -> Result<()> {
        let of = rows.iter().enumerate().map(|(at, row)| if row.mask.is_some() { at as i32 } else { -1 });
        set(&self.of, &of.collect::<Vec<_>>())?;
        self.renew(rows)
    }

    fn renew(&self, rows: &[&Drawing]) -> Result<()> {
        for (at, mask) in rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.mask.as_ref()?))) {
            self.masks.narrow(0, at, 1)?.copy_from_slice(mask)?;
        }
        Ok(())
    }

    fn apply(&self, logits: &Tensor) -> Result<()> {
        Ok(kernels::mask_logits(logits, &self.masks, &self.of.narrow(0, 0, logits.shape()[0])?)?)
    }
}

/// Words of 32 bits that a mask of the vocabulary has.
pub(super) fn mask_words(vocab: usize) -> usize {
    vocab.div_ceil(32)
}
