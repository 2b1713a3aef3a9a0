//! What a rank does for the others that share a model out with it, and has of it.

use std::sync::Arc;

use nn_ffi::{Comm, ExpertEvent};

use super::arena::ParameterArena;
use super::held::Held;
use super::partitioned::PartitionedGradients;
use super::transformer::MoETransformer;
use super::updates::Updates;
use crate::error::Result;
use crate::layer::{Round, TransformerBlock};

impl MoETransformer {
    /// Refuses what takes all experts where this rank has a part of them.
    pub(crate) fn require_all(&self) -> Result<()> {
        self.experts.as_ref().map_or(Ok(()), |experts| Err(experts.refusal()))
    }

    /// The ranks of a job that have the rest of what this one holds a part of.
    pub(crate) fn job(&self) -> Option<&Comm> {
        self.job.as_ref()
    }

    /// Where a backward pass puts gradients that this rank does not keep; `None` where it keeps all, or its experts'.
    pub(crate) fn partitioned(&self) -> Option<&PartitionedGradients> {
        self.partitioned.as_ref()
    }

    /// Memory of the gradients, and of the buffers that a pass puts them into.
    pub(crate) fn bytes_of_gradients(&self) -> Result<usize> {
        Ok(self.gradients()?.bytes() + self.partitioned().map_or(0, PartitionedGradients::bytes))
    }

    /// An arena for all f32 parameters with those in it that this rank has, for the ranks to gather the others.
    pub(crate) fn begin_gathering(&mut self) -> Result<ParameterArena> {
        self.gathered = None; // before there is another
        self.parameters.widened()
    }

    /// Makes them the `parameters`.
    pub(crate) fn end_gathering(&mut self, all: ParameterArena) {
        self.gathered = Some(all).filter(|_| !self.parameters.is_whole());
    }

    /// Lets them go, since an update on one of several ranks makes those of the others old; also where the model was made
    /// with room for all.
    pub(crate) fn outdate(&mut self, updates: &Updates) {
        self.gathered = None;
        if self.rounded.is_some() {
            self.parameters.keep(|| Held::to_update(updates, None));
        }
    }

    /// The part of a guest in the `forward_backward` of the other ranks that share the experts out.
    pub(crate) fn serve(&self, completed: impl Fn(usize) -> Result<()>) -> Result<()> {
        let kept = self.blocks.iter().map(TransformerBlock::serve_forward).collect::<Result<Vec<_>>>()?;
        completed(0)?;
        for ((block, kept), piece) in self.blocks.iter().zip(kept).rev().zip(1..) {
            block.serve_backward(kept)?;
            completed(piece)?;
        }
        (1..=2).try_for_each(|behind| completed(self.blocks.len() + behind))
    }

    /// Carries out by itself what becomes, in a round, of sums of the gradients of experts that ranks share out.
    pub(crate) fn add_up(&self, round: &Round, event: &ExpertEvent) -> Result<()> {
        self.blocks.iter().rev().try_for_each(|block| block.feed_forward.add_up(round, event))
    }

    /// Begins a round of `evaluate` of at most so many tokens, on the ranks that have some; no matter where each rank has
    /// all experts.
    pub(crate) fn begin_evaluation(&self, tokens: usize, has: impl Fn(usize) -> bool) {
        let Some(experts) = &self.experts else { return };
        let sources = (experts.first()..experts.first() + experts.ranks()).map(has).collect();
        experts.begin(Some(&Arc::new(Round::forward(self.config.experts_per_token * tokens, sources))));
    }

    /// Ends the last round.
    pub(crate) fn end_evaluation(&self) {
        if let Some(experts) = &self.experts {
            experts.begin(None);
        }
    }

    /// The part of a guest in the `evaluate` of the others.
    pub(crate) fn serve_evaluation(&self) -> Result<()> {
        self.blocks.iter().try_for_each(|block| block.feed_forward.serve_forward(false).map(|_| ()))
    }
}
