//! Drawing tokens on the device, each row by its own options.

use nn_ffi::{Context, DType, Tensor, kernels};

use crate::error::Result;
use crate::generate::{DecodingStrategy, Sampling};

/// Draws a token a row on the device, each row by its own options.
///
/// One kernel serves them all: with the largest top_k and a top_p of 1 it draws as those without do, and with a temperature of
/// 0 it takes the most likely token.
#[derive(Debug)]
pub(super) struct RowSampler {
    counts: Tensor,
    top_k: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    seeds: Tensor,
    /// All rows: then no numbers are drawn at all.
    greedy: bool,
}

impl RowSampler {
    pub(super) fn new(ctx: &Context, rows: usize) -> Result<Self> {
        Ok(Self {
            counts: ctx.zeros(&[rows], DType::I32)?,
            top_k: ctx.zeros(&[rows], DType::I32)?,
            temperature: ctx.zeros(&[rows], DType::F32)?,
            top_p: ctx.zeros(&[rows], DType::F32)?,
            seeds: ctx.zeros(&[rows], DType::I64)?,
            greedy: true,
        })
    }

    /// Whether all rows take the most likely token.
    pub(super) fn greedy(&self) -> bool {
        self.greedy
    }

    /// Sets the options of the first rows, and how many draws each has had.
    pub(super) fn assign(&mut self, rows: &[(Sampling, i32)]) -> Result<()> {
        let first = |target: &Tensor| target.narrow(0, 0, rows.len());
        let limits = |strategy: DecodingStrategy| match strategy {
            DecodingStrategy::Greedy | DecodingStrategy::Sample { .. } => (i32::MAX, 1.0),
            DecodingStrategy::TopK { k, .. } => (k, 1.0),
            DecodingStrategy::TopP { p, k, .. } => (k.unwrap_or(i32::MAX), p),
        };
        let of_rows = || rows.iter().map(|(sampling, _)| *sampling);
        self.greedy = of_rows().all(|sampling| sampling.strategy.temperature() == 0.0);
        first(&self.counts)?.copy_from_slice(&rows.iter().map(|(_, draws)| *draws).collect::<Vec<_>>())?;
        first(&self.top_k)?.copy_from_slice(&of_rows().map(|row| limits(row.strategy).0).collect::<Vec<_>>())?;
        let temperatures: Vec<f32> = of_rows().map(|row| row.strategy.temperature()).collect();
        first(&self.temperature)?.copy_from_slice(&temperatures)?;
        first(&self.top_p)?.copy_from_slice(&of_rows().map(|row| limits(row.strategy).1).collect::<Vec<f32>>())?;
        first(&self.seeds)?.copy_from_slice(&of_rows().map(|row| row.seed).collect::<Vec<_>>())?;
        Ok(())
    }

    /// The next token of each row of logits `[rows, vocab]`, into ids i32 `[rows]`.
    pub(super) fn draw(&self, logits: &Tensor, ids: &Tensor) -> Result<()> {
        if self.greedy {
            return Ok(kernels::argmax(logits, ids)?);
        }
        let first = |tensor: &Tensor| tensor.narrow(0, 0, logits.shape()[0]);
        let (counts, top_k, seeds) = (first(&self.counts)?, first(&self.top_k)?, first(&self.seeds)?);
        let (temperature, top_p) = (first(&self.temperature)?, first(&self.top_p)?);
        kernels::topp_sample(logits, &temperature, Some(&top_k), &top_p, &seeds, &counts, ids)?;
        Ok(kernels::increment(&counts, 1)?)
    }
}
