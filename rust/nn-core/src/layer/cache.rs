//! Keys and values of past tokens.

use nn_ffi::{DType, Tensor, kernels};

use super::rope::{RopeTables, Rotation, positions};
use crate::error::{Error, Result};

/// Keys and values of past tokens, one layer after the other, with room for `capacity` tokens per sequence, and all
/// else that running a model over them needs from step to step.
///
/// The rotary embedding's tables are the cache's own, so that sequences of any length can be run in turns.
#[derive(Debug)]
pub struct KVCache {
    /// Of each layer, `[batch, capacity, kv_heads, head_dim]`.
    keys: Vec<Tensor>,
    values: Vec<Tensor>,
    /// i32 `[batch]` on the device: the tokens of each sequence, which is the position of its next one.
    pub starts: Tensor,
    /// i32 `[batch]` on the device: starts + 1, what the next token looks at, itself included.
    pub lengths: Tensor,
    capacity: usize,
    /// The tokens of each sequence as the host knows them, so that it need not read them back.
    used: Vec<usize>,
    counters: Tensor,
    cosine: Tensor,
    sine: Tensor,
    positions: Tensor,
}

impl KVCache {
    /// An empty cache for `batch` sequences, whose keys and values have a dtype.
    pub fn new(
        rope: &RopeTables,
        layers: usize,
        batch: usize,
        capacity: usize,
        kv_heads: usize,
        dtype: DType,
    ) -> Result<Self> {
        if i32::try_from(capacity).is_err() {
            return Err(Error::value(format!("a cache for {capacity} tokens: positions are numbers below 2^31")));
        }
        let (ctx, shape) = (rope.context(), [batch, capacity, kv_heads, rope.head_dim]);
        let empty = || (0..layers).map(|_| ctx.empty(&shape, dtype)).collect::<nn_ffi::Result<Vec<_>>>();
        let (keys, values) = (empty()?, empty()?);
        let counters: Vec<i32> = (0..2 * batch).map(|at| i32::from(at >= batch)).collect();
        let counters = ctx.tensor(&counters, &[2, batch])?;
        let row = |row| counters.narrow(0, row, 1)?.view(&[batch]);
        let (cosine, sine) = rope.tables(capacity)?;
        Ok(Self {
            keys,
            values,
            starts: row(0)?,
            lengths: row(1)?,
            capacity,
            used: vec![0; batch],
            counters,
            cosine,
            sine,
            positions: positions(ctx, 1, capacity)?.view(&[capacity])?,
        })
    }

    /// Keys and values of a layer, `[batch, capacity, kv_heads, head_dim]`. `Error::Value` when there is no such layer.
    pub fn layer(&self, layer: usize) -> Result<(&Tensor, &Tensor)> {
        let found = self.keys.get(layer).zip(self.values.get(layer));
        found.ok_or_else(|| Error::value(format!("layer {layer} of a cache of {} layers", self.keys.len())))
    }

    /// Tokens of a sequence. `Error::Value` when there is no such sequence.
    pub fn used(&self, row: usize) -> Result<usize> {
        let found = self.used.get(row).copied();
        found.ok_or_else(|| Error::value(format!("sequence {row} of a cache for {} sequences", self.used.len())))
    }

    /// `Error::Value` when so many more tokens of one sequence, or of each, do not fit.
    pub fn require_room(&self, tokens: usize, row: Option<usize>) -> Result<()> {
        for (at, used) in self.used.iter().enumerate().filter(|(at, _)| row.is_none_or(|row| row == *at)) {
            if used + tokens > self.capacity {
                let (needed, room) = (used + tokens, self.capacity);
                let problem = format!("sequence {at} would have {needed} tokens; the cache has room for {room}");
                return Err(Error::value(problem));
            }
        }
        Ok(())
    }

    /// Counts tokens that are in the cache now: on the device, where a graph can capture it, and on the host.
    pub fn advance(&mut self, tokens: usize, row: Option<usize>) -> Result<()> {
        let by = tokens as i32;
        match row {
            None => kernels::increment(&self.counters, by)?,
            Some(row) => {
                for counter in [&self.starts, &self.lengths] {
                    kernels::increment(&counter.narrow(0, row, 1)?, by)?;
                }
            }
        }
        self.count(tokens, row);
        Ok(())
    }

    /// The host's part of `advance`, for when a graph did the device's.
    pub fn count(&mut self, tokens: usize, row: Option<usize>) {
        for (at, used) in self.used.iter_mut().enumerate() {
            if row.is_none_or(|row| row == at) {
                *used += tokens;
            }
        }
    }

    /// What rotates `length` tokens of a sequence behind its first `before`.
    pub fn prompt_rotation(&self, before: usize, length: usize) -> Result<Rotation> {
        let positions = self.positions.narrow(0, before, length)?;
        Ok(Rotation { cosine: self.cosine.clone(), sine: self.sine.clone(), positions, starts: None })
    }

    /// What rotates the next token of each sequence.
    pub fn next_rotation(&self) -> Rotation {
        let (cosine, sine) = (self.cosine.clone(), self.sine.clone());
        Rotation { cosine, sine, positions: self.starts.clone(), starts: None }
    }
}
