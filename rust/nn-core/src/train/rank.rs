//! The rank that something is trained on.

use std::sync::Arc;

use nn_ffi::{Comm, Context};

use super::config::TrainConfig;
use super::replicas::partitions_gradients;
use crate::error::Result;
use crate::layer::{ExpertParallel, check_expert_parallel};
use crate::model::MoEConfig;

/// Where something is trained: on a context, by a rank alone, or on one of the ranks of a communicator, with its context.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    context: &'a Context,
    comm: Option<&'a Comm>,
    expert_parallel: usize,
    partitions_gradients: bool,
}

impl<'a> Rank<'a> {
    /// The device.
    pub fn context(&self) -> &'a Context {
        self.context
    }

    /// The same rank in groups of so many neighbours, each of which has a part of the experts of every layer. It changes no
    /// bit of what is trained.
    #[must_use]
    pub fn with_expert_parallel(self, ranks: usize) -> Self {
        Self { expert_parallel: ranks, ..self }
    }

    /// The same rank, whose model keeps, or does not keep, the gradients of the parameters that it updates alone; it then runs
    /// one micro-batch of an update, and so do all others. It changes no bit of what is trained.
    #[must_use]
    pub fn with_partitioned_gradients(self, partitions: bool) -> Self {
        Self { partitions_gradients: partitions, ..self }
    }

    /// The same rank, whose model partitions its gradients where that is possible in a run with these options, and less memory.
    pub(crate) fn for_run(self, model: &MoEConfig, config: &TrainConfig) -> Result<Self> {
        let (device, ranks) = (self.context.device(), self.comm.map_or(1, Comm::ranks));
        let partitions = partitions_gradients(model, config, device, ranks, self.expert_parallel)?;
        Ok(self.with_partitioned_gradients(partitions))
    }

    /// Whether its model keeps the gradients of the parameters that it updates alone.
    pub fn partitions_gradients(&self) -> bool {
        self.partitions_gradients
    }

    /// How many ranks share the experts out.
    pub fn expert_parallel(&self) -> usize {
        self.expert_parallel
    }

    /// What it shares out of a model with so many experts, `None` where it has all of them. `Error::Value` unless the
    /// ranks that share them out divide both them and all ranks.
    pub fn experts(&self, experts: usize) -> Result<Option<Arc<ExpertParallel>>> {
        check_expert_parallel(self.expert_parallel, self.comm.map_or(1, Comm::ranks), experts)?;
        let comm = self.comm.filter(|_| self.expert_parallel > 1);
        comm.map(|comm| ExpertParallel::new(comm, self.expert_parallel, experts).map(Arc::new)).transpose()
    }

    /// The communicator.
    pub fn comm(&self) -> Option<&'a Comm> {
        self.comm
    }
}

impl<'a> From<&'a Context> for Rank<'a> {
    fn from(context: &'a Context) -> Self {
        Self { context, comm: None, expert_parallel: 1, partitions_gradients: false }
    }
}

impl<'a> From<&'a Comm> for Rank<'a> {
    fn from(comm: &'a Comm) -> Self {
        Self { context: comm.context(), comm: Some(comm), expert_parallel: 1, partitions_gradients: false }
    }
}
