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
    others: Others,
}

/// What the elements are that other ranks hold alone.
#[derive(Clone, Debug)]
enum Others {
    /// Those of experts that ranks share out, among others.
    Experts(Arc<ExpertParallel>),
    /// f32 parameters that they update.
    Parameters,
    /// Gradients of these.
    Gradients,
}

impl Held {
    /// Of weights and gradients where ranks share the experts out: what every rank needs, the rank's experts, and what it
    /// updates.
    pub(crate) fn to_compute(layout: &ParameterLayout, updates: &Updates, experts: &Arc<ExpertParallel>) -> Self {
        let ranges = Self::computed(layout, updates, experts.position(), experts.ranks());
        Self { ranges, others: Others::Experts(Arc::clone(experts)) }
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
        let others = experts.map_or(Others::Parameters, |experts| Others::Experts(Arc::clone(experts)));
        Self { ranges: updates.own().to_vec(), others }
    }

    /// Of gradients that ranks partition: what the rank updates, and all gains'.
    pub(crate) fn to_keep(layout: &ParameterLayout, updates: &Updates) -> Self {
        let gains = layout.num_decayed()..layout.size();
        let ranges = joined(updates.own().iter().cloned().chain([gains]).collect());
        Self { ranges, others: Others::Gradients }
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
        let problem = match &self.others {
            Others::Experts(experts) => return Err(experts.refusal()),
            Others::Parameters => {
                "this rank has a part of the f32 parameters alone; gather_parameters of its trainer brings all"
            }
            Others::Gradients => "this rank keeps the gradients of the parameters that it updates alone",
        };
        Err(Error::value(problem))
    }
}
