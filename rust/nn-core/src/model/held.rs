//! Which elements of the arenas a rank holds that shares the experts out with others.

use std::ops::Range;
use std::sync::Arc;

use nn_ffi::shard;

use super::arena::overlap;
use super::parameters::ParameterLayout;
use crate::error::Result;
use crate::layer::ExpertParallel;
use crate::train::GRAIN;

/// The elements of an arena that are memory on a rank, and why the others are not.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Ascending and apart.
    ranges: Vec<Range<usize>>,
    experts: Arc<ExpertParallel>,
}

impl Held {
    /// Of weights and gradients: what every rank needs, the rank's experts, and its shard of the updates.
    pub(crate) fn to_compute(layout: &ParameterLayout, experts: &Arc<ExpertParallel>) -> Result<Self> {
        let own = layout.experts_of(experts.group().rank(), experts.group().ranks()).flatten();
        let ranges = layout.dense().into_iter().chain(own).chain([Self::shard(layout, experts)?]);
        Ok(Self::of(ranges.collect(), experts))
    }

    /// Of f32 parameters behind weights of 16 bits: the rank's shard of the updates.
    pub(crate) fn to_update(layout: &ParameterLayout, experts: &Arc<ExpertParallel>) -> Result<Self> {
        Ok(Self::of(vec![Self::shard(layout, experts)?], experts))
    }

    fn shard(layout: &ParameterLayout, experts: &ExpertParallel) -> Result<Range<usize>> {
        let comm = experts.comm();
        Ok(shard(layout.size(), GRAIN, comm.ranks(), comm.rank())?)
    }

    fn of(mut ranges: Vec<Range<usize>>, experts: &Arc<ExpertParallel>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let mut apart: Vec<Range<usize>> = Vec::new();
        for range in ranges {
            match apart.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => apart.push(range),
            }
        }
        Self { ranges: apart, experts: Arc::clone(experts) }
    }

    /// They, ascending and apart.
    pub(crate) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// How many they are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.iter().map(Range::len).sum()
    }

    /// Refuses `count` elements from `first` on unless all of them are held.
    pub(crate) fn require(&self, first: usize, count: usize) -> Result<()> {
        let all = count == 0 || self.ranges.iter().any(|range| overlap(range, first, count).len() == count);
        if all { Ok(()) } else { Err(self.experts.refusal()) }
    }
}
