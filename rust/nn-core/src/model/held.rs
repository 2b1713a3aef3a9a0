//! Which elements of the arenas a rank holds that holds not all of them.

use std::ops::Range;
use std::sync::Arc;

use super::arena::overlap;
use super::parameters::ParameterLayout;
use super::updates::{Updates, joined};
use crate::error::{Error, Result};
use crate::layer::ExpertParallel;

/// The elements of an arena that are memory on a rank, and why the others are not.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Ascending and apart.
    ranges: Vec<Range<usize>>,
    /// Where ranks share them out.
    experts: Option<Arc<ExpertParallel>>,
}

impl Held {
    /// Of weights and gradients where ranks share the experts out: what every rank needs, the rank's experts, and what it
    /// updates.
    pub(crate) fn to_compute(layout: &ParameterLayout, updates: &Updates, experts: &Arc<ExpertParallel>) -> Self {
        let ranges = Self::computed(layout, updates, experts.position(), experts.ranks());
        Self { ranges, experts: Some(Arc::clone(experts)) }
    }

    /// These elements of the rank at a position of its group.
    pub(crate) fn computed(
        layout: &ParameterLayout,
        updates: &Updates,
        position: usize,
        group: usize,
    ) -> Vec<Range<usize>> {
        let own = layout.experts_of(position, group).flatten();
        joined(layout.dense().into_iter().chain(own).chain(updates.own().iter().cloned()).collect())
    }

    /// Of f32 parameters behind weights of 16 bits: what the rank updates.
    pub(crate) fn to_update(updates: &Updates, experts: Option<&Arc<ExpertParallel>>) -> Self {
        Self { ranges: updates.own().to_vec(), experts: experts.cloned() }
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
        if count == 0 || self.ranges.iter().any(|range| overlap(range, first, count).len() == count) {
            return Ok(());
        }
        Err(self.experts.as_ref().map_or_else(
            || {
                let problem =
                    "this rank has a part of the f32 parameters alone; gather_parameters of its trainer brings all";
                Error::value(problem)
            },
            |experts| experts.refusal(),
        ))
    }
}
