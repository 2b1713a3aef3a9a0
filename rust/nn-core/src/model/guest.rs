//! What a rank does for the others that share a model out with it.

use std::sync::Arc;

use nn_ffi::{Comm, ExpertEvent};

use super::transformer::MoETransformer;
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

    /// Room for all f32 parameters with those in it that this rank holds, where that is a part, for the ranks to gather; they
    /// then are the `parameters`.
    pub(crate) fn begin_gathering(&mut self) -> Result<()> {
        if !self.parameters.is_whole() {
            self.gathered = None; // before there is another
            self.gathered = Some(self.parameters.widened()?);
        }
        Ok(())
    }

    /// Gives that room back, since what is in it gets old.
    pub(crate) fn end_gathering(&mut self) {
        self.gathered = None;
    }

    /// The part of a guest in the `forward_backward` of the other ranks that share the experts out.
    pub(crate) fn serve(&self) -> Result<()> {
        let kept = self.blocks.iter().map(TransformerBlock::serve_forward).collect::<Result<Vec<_>>>()?;
        self.blocks.iter().zip(kept).rev().try_for_each(|(block, kept)| block.serve_backward(kept))
    }

    /// Carries out by itself what becomes, in a round, of sums of the gradients of experts that ranks share out.
    pub(crate) fn add_up(&self, round: &Round, event: &ExpertEvent) -> Result<()> {
        self.blocks.iter().rev().try_for_each(|block| block.moe.add_up(round, event))
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
        self.blocks.iter().try_for_each(|block| block.moe.serve_forward(false).map(|_| ()))
    }
}
