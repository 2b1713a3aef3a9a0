//! Which rank of a job updates which parameters.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use nn_ffi::{Shard, expert_shards};

use super::parameters::ParameterLayout;
use crate::error::Result;

/// Parameters that lie on one rank together: whole chunks of the norm's sum, and whole blocks of 8-bit moments.
const GRAIN: usize = 32768;

/// The parameters that each rank of a job updates, and has the moments of.
#[derive(Clone, Debug)]
pub(crate) struct Updates {
    /// Ascending, without gaps, and the same on all ranks.
    shards: Arc<[Shard]>,
    /// Those of this rank, ascending and apart.
    own: Vec<Range<usize>>,
}

impl Updates {
    /// Those of a layout, of whose `ranks` so many neighbours as `group` share the experts out.
    pub(crate) fn new(layout: &ParameterLayout, ranks: usize, rank: usize, group: usize) -> Result<Self> {
        let shards = expert_shards(layout.size(), GRAIN, ranks, group, &layout.stacks())?;
        Ok(Self::of(shards.into(), rank))
    }

    /// Those of a rank alone, of so many parameters.
    pub(crate) fn alone(parameters: usize) -> Self {
        Self::of(Arc::new([Shard { elements: 0..parameters, rank: 0 }]), 0)
    }

    /// The same, seen by another rank of the job.
    pub(crate) fn of_rank(&self, rank: usize) -> Self {
        Self::of(Arc::clone(&self.shards), rank)
    }

    fn of(shards: Arc<[Shard]>, rank: usize) -> Self {
        let own =
            joined(shards.iter().filter(|shard| shard.rank == rank).map(|shard| shard.elements.clone()).collect());
        Self { shards, own }
    }

    /// Those of all ranks.
    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Those of this rank.
    pub(crate) fn own(&self) -> &[Range<usize>] {
        &self.own
    }

    /// The parts of shards, and the position in its `group` of the ranks that hold them, where they are experts': first all
    /// others, which every rank holds.
    pub(crate) fn by_position(
        &self,
        layout: &ParameterLayout,
        group: usize,
    ) -> impl Iterator<Item = (Option<usize>, Shard)> {
        let dense = layout.dense().into_iter().map(|range| (None, range));
        let of_positions: Vec<Vec<_>> =
            (0..group).map(|position| layout.experts_of(position, group).collect()).collect();
        let layers = of_positions.first().map_or(0, Vec::len);
        let experts = (0..layers).flat_map(|layer| iter::repeat(layer).zip(0..2)).flat_map(move |(layer, part)| {
            let of_layer =
                |(position, stacks): (usize, &Vec<[Range<usize>; 2]>)| (Some(position), stacks[layer][part].clone());
            of_positions.iter().enumerate().map(of_layer).collect::<Vec<_>>()
        });
        dense.chain(experts).flat_map(|(position, range)| self.within(&range).map(move |shard| (position, shard)))
    }

    /// The parts of shards that lie in a range.
    pub(crate) fn within<'a>(&'a self, range: &Range<usize>) -> impl Iterator<Item = Shard> + use<'a> {
        let Range { start, end } = *range;
        let first = self.shards.partition_point(|shard| shard.elements.end <= start);
        let there = self.shards[first..].iter().take_while(move |shard| shard.elements.start < end);
        there.map(move |Shard { elements, rank }| Shard {
            elements: elements.start.max(start)..elements.end.min(end),
            rank: *rank,
        })
    }
}

/// The elements of all ranges, as ranges in ascending order with others between.
pub(super) fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut apart: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}
