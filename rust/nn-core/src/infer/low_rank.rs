//! The adapters of an engine on its device, and what they add to the products of the layers.
//!
//! y = x W^T + (x A^T) (scale B)^T: the product with the weights as they are stored, and two with A and scale * B as stored
//! matrices in f32, the last of them added to y. All give a row the same bits in any company, and so does their sum. So the
//! rows of a call may have several adapters: each run of neighbouring rows with one gets two products of its own, and rows
//! without one are left as they are.
//! (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use nn_ffi::{Activation, Context, Format, RopeLayout, Tensor, kernels};

use crate::error::{Error, Result};
use crate::model::{Adapter, LlamaConfig, interleaved_order, is_rotated};

/// Rows of f32 as bytes: A `[rank, 4 * in]` and, with the scale in it, B `[out, 4 * rank]`.
#[derive(Clone, Debug)]
pub(super) struct LowRank {
    a: Tensor,
    b: Tensor,
}

impl LowRank {
    /// Bytes of both.
    pub(super) fn bytes(&self) -> usize {
        self.a.layout().bytes() + self.b.layout().bytes()
    }

    /// y += the product of x f32 `[tokens, in]`; `room` f32, at least tokens * rank of it, is for its first half.
    pub(super) fn add(&self, x: &Tensor, room: &Tensor, y: &Tensor) -> Result<()> {
        let (tokens, rank) = (x.shape()[0], self.a.shape()[0]);
        let inner = room.narrow(0, 0, tokens * rank)?.view(&[tokens, rank])?;
        kernels::gemm_quant(x, &self.a, None, None, None, &inner, Activation::None, Format::F32)?;
        Ok(kernels::gemm_quant(&inner, &self.b, None, None, Some(y), y, Activation::None, Format::F32)?)
    }
}

/// Neighbouring rows of a call with one adapter, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) adapter: usize,
}

/// The runs of a call's sequences, of which each has an adapter and so many rows.
pub(super) fn runs_of(sequences: impl IntoIterator<Item = (usize, usize)>) -> Vec<Run> {
    let (mut found, mut first) = (Vec::<Run>::new(), 0);
    for (adapter, rows) in sequences {
        match found.last_mut() {
            Some(run) if run.adapter == adapter => run.rows += rows,
            _ => found.push(Run { first, rows, adapter }),
        }
        first += rows;
    }
    found
}

/// What `factors`, those of a matrix by adapter, add to so many rows of a call, from one on: the runs of these, counted from that
/// one, and what is added to each.
pub(super) fn adapted_rows<'w>(
    runs: &'w [Run],
    factors: &'w [Option<LowRank>],
    first: usize,
    rows: usize,
) -> impl Iterator<Item = (Run, &'w LowRank)> {
    runs.iter().filter_map(move |run| {
        let pair = factors.get(run.adapter)?.as_ref()?;
        let (begin, end) = (run.first.max(first), (run.first + run.rows).min(first + rows));
        (begin < end).then(|| (Run { first: begin - first, rows: end - begin, adapter: run.adapter }, pair))
    })
}

/// y += what is added to these runs of x; `room` is as of [`LowRank::add`].
pub(super) fn add_to<'w>(
    adapted: impl IntoIterator<Item = (Run, &'w LowRank)>,
    x: &Tensor,
    room: &Tensor,
    y: &Tensor,
) -> Result<()> {
    adapted.into_iter().try_for_each(|(run, pair)| {
        let of_run = |rows: &Tensor| rows.narrow(0, run.first, run.rows);
        pair.add(&of_run(x)?, room, &of_run(y)?)
    })
}

/// Those of an engine, each with a number: 0 is that of sequences that name none.
#[derive(Debug)]
pub(super) struct Adapters {
    names: Vec<String>,
    factors: Vec<HashMap<String, LowRank>>,
    rank: usize,
    bytes: Vec<usize>,
}

impl Adapters {
    /// `unnamed` is for sequences that name none: with `None` they have none. `order` is that of the rows of a head in which
    /// queries and keys are read, `None` for the order of the folders that adapters are of.
    ///
    /// `Error::Value` for a model beside whose weights this engine runs none, and for a name that two have.
    pub(super) fn new(
        ctx: &Context,
        config: &LlamaConfig,
        order: Option<&[usize]>,
        unnamed: Option<&Adapter>,
        named: &[(String, Arc<Adapter>)],
    ) -> Result<Self> {
        let names: Vec<String> = named.iter().map(|(name, _)| name.clone()).collect();
        if let Some(twice) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            return Err(Error::value(format!("'{}' is the name of two adapters", names[twice])));
        }
        let each = || std::iter::once(unnamed).chain(named.iter().map(|(_, adapter)| Some(adapter.as_ref())));
        let factors = each().map(|one| one.map_or_else(|| Ok(HashMap::new()), |one| factors(ctx, one, config, order)));
        let factors: Vec<HashMap<String, LowRank>> = factors.collect::<Result<_>>()?;
        let rank = each().flatten().map(Adapter::rank).max().unwrap_or(0);
        let bytes = factors.iter().map(|one| one.values().map(LowRank::bytes).sum()).collect();
        Ok(Self { names, factors, rank, bytes })
    }

    /// The names, in the order of the numbers from 1 on.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The largest rank, 0 without adapters.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// The number of an adapter by its name. `Error::Value` for a name that there is not.
    pub(super) fn number(&self, name: Option<&str>) -> Result<usize> {
        number_of(&self.names, name)
    }

    /// What each adds to a matrix, by number; nothing at all where none does.
    pub(super) fn of(&self, matrix: &str) -> Vec<Option<LowRank>> {
        let found: Vec<Option<LowRank>> = self.factors.iter().map(|factors| factors.get(matrix).cloned()).collect();
        if found.iter().any(Option::is_some) { found } else { Vec::new() }
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.iter().sum()
    }

    /// Bytes of those with these numbers, of each once.
    pub(super) fn bytes_of(&self, numbers: impl IntoIterator<Item = usize>) -> usize {
        numbers.into_iter().collect::<BTreeSet<_>>().into_iter().map(|number| self.bytes[number]).sum()
    }
}

/// The number of an adapter by its name, where these have one each. `Error::Value` for a name that there is not.
pub(super) fn number_of(names: &[String], name: Option<&str>) -> Result<usize> {
    let Some(name) = name else { return Ok(0) };
    names.iter().position(|one| one == name).map(|at| at + 1).ok_or_else(|| {
        let there: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Error::value(format!("adapter is '{name}'; of those with names the model has {there}"))
    })
}

/// An adapter's factors by the names of their matrices.
fn factors(
    ctx: &Context,
    adapter: &Adapter,
    config: &LlamaConfig,
    order: Option<&[usize]>,
) -> Result<HashMap<String, LowRank>> {
    let interleaved = config.rope.layout == RopeLayout::Interleaved;
    if interleaved && config.rope.rotated > 0 {
        let problem = "a part of each head is rotated, in neighbouring pairs, where this engine runs no adapter";
        return Err(Error::value(problem));
    }
    let pairs = interleaved.then(|| interleaved_order(config.head_dim));
    let order = pairs.as_deref().or(order);
    let scale = adapter.scale() as f32;
    let factors = adapter.factors().iter().map(|(name, pair)| {
        let b = match order.filter(|_| is_rotated(name)) {
            Some(order) => Cow::Owned(pair.b.rows_in_order(order)?),
            None => Cow::Borrowed(&pair.b),
        };
        let a = ctx.tensor(&pair.a.f32()?, &pair.a.shape)?;
        let b = ctx.tensor(&b.f32()?, &b.shape)?;
        kernels::scale(&b, &b, scale)?;
        Ok::<_, Error>((name.clone(), LowRank { a: a.as_bytes()?, b: b.as_bytes()? }))
    });
    factors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_one_adapter_are_a_run() {
        let run = |first, rows, adapter| Run { first, rows, adapter };
        assert_eq!(runs_of([(0, 3), (0, 1), (2, 1), (1, 4), (1, 4)]), [run(0, 4, 0), run(4, 1, 2), run(5, 8, 1)]);
        assert_eq!(runs_of([(1, 1), (0, 2), (1, 1)]), [run(0, 1, 1), run(1, 2, 0), run(3, 1, 1)]);
        assert!(runs_of([]).is_empty());
    }
}
