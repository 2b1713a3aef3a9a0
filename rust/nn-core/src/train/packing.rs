//! Documents of token shards, packed into sequences for training.
//!
//! A document of n tokens gives n - 1 pairs of a token and the one that it should say next. One of more pairs than a
//! sequence has is cut into pieces of as many, where the last token of a piece, which is its last target, is the first of
//! the next. Pieces fill sequences in their order; the first that does not fit into what is left of one begins another,
//! and what is left stays empty. A sequence in which no target counts is left out: it would teach nothing. (Next fit,
//! Johnson 1974, "Fast algorithms for bin packing".)

use super::data::Batch;
use crate::error::{Error, Result};
use crate::format::TokenShard;
use crate::model::IGNORE_INDEX;

/// A sequence of documents: tokens `start ..= stop` of their shard, the last of which is only a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    start: u64,
    stop: u64,
}

/// The sequences of `length` pairs of a shard with documents. `Error::Format` when its bits make none.
pub(super) fn pack(shard: &TokenShard, length: usize) -> Result<Vec<Packed>> {
    let (length, mut sequences) = (length as u64, Vec::new());
    // The sequence that is being filled, its pairs, and whether a target counts in it.
    let (mut open, mut used, mut teaches) = (Packed { start: 0, stop: 0 }, 0, false);
    // The first token of the piece that is being read, and whether a target counts in that.
    let (mut begin, mut piece_teaches) = (0, false);
    shard.documents(|at, bits| {
        let pairs = at - begin;
        piece_teaches |= bits.target;
        if !bits.ends && pairs < length {
            return Ok(());
        }
        if used + pairs > length {
            sequences.extend(teaches.then_some(open));
            (used, teaches) = (0, false);
        }
        open = Packed { start: if used == 0 { begin } else { open.start }, stop: at };
        (used, teaches) = (used + pairs, teaches | piece_teaches);
        (begin, piece_teaches) = (at + u64::from(bits.ends), false);
        Ok(())
    })?;
    sequences.extend(teaches.then_some(open));
    Ok(sequences)
}

/// Appends a sequence to a batch of documents of its length. What it leaves empty has the token 0, targets that do not
/// count, and ends no document.
pub(super) fn append(batch: &mut Batch, shard: &TokenShard, Packed { start, stop }: Packed) -> Result<()> {
    let mut ids = vec![0; (stop + 1 - start) as usize];
    shard.read(start, &mut ids)?;
    let bits = shard.bits(start, stop + 1)?;
    let (mut used, whole) = (0, batch.inputs.len() + batch.length);
    let ends = batch.document_ends.get_or_insert_default();
    for (pair, marks) in ids.windows(2).zip(bits.windows(2)).filter(|(_, marks)| !marks[0].ends) {
        batch.inputs.push(pair[0]);
        batch.targets.push(if marks[1].target { pair[1] } else { IGNORE_INDEX });
        ends.push(i32::from(marks[1].ends));
        used += 1;
    }
    if used == 0 || used > batch.length {
        let problem = format!("was changed while it was in use: {used} tokens of a sequence of {}", batch.length);
        return Err(Error::format(shard.path(), problem));
    }
    if let Some(last) = ends.last_mut() {
        *last = 1; // of a piece that continues elsewhere, too
    }
    batch.inputs.resize(whole, 0);
    batch.targets.resize(whole, IGNORE_INDEX);
    ends.resize(whole, 0);
    Ok(())
}
