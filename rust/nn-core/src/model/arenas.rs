//! The arenas of a model, of which a rank of a job may hold parts.

use std::sync::Arc;

use nn_ffi::{Comm, DType, Tensor};

use super::arena::ParameterArena;
use super::held::Held;
use super::parameters::ParameterLayout;
use super::partitioned::PartitionedGradients;
use super::precision::Precision;
use super::updates::Updates;
use crate::error::{Error, Result};
use crate::layer::ExpertParallel;
use crate::train::Rank;

/// What a model computes with and trains, and the gradients of that.
pub(super) struct Arenas {
    /// What is trained and saved.
    pub(super) parameters: ParameterArena,
    /// Of a model that trains.
    pub(super) gradients: Option<ParameterArena>,
    /// Where a pass puts gradients of which `gradients` are a part.
    pub(super) partitioned: Option<PartitionedGradients>,
    /// Where `parameters` are not what it computes with.
    pub(super) rounded: Option<ParameterArena>,
    /// The ranks of a job that have the rest, where this one holds a part.
    pub(super) job: Option<Comm>,
}

impl Arenas {
    /// Arenas of zeros on a rank, with what it shares out of the experts. `Error::Value` where it cannot partition gradients.
    pub(super) fn zeros(
        rank: Rank<'_>,
        layout: &Arc<ParameterLayout>,
        training: bool,
        precision: Precision,
        experts: Option<&Arc<ExpertParallel>>,
    ) -> Result<Self> {
        let arena = |dtype, held: Option<&Held>| match held {
            None => ParameterArena::zeros(rank.context(), layout, dtype),
            Some(held) => ParameterArena::in_parts(rank.context(), layout, dtype, held.clone()),
        };
        let comm = rank.comm().filter(|comm| comm.ranks() > 1);
        let updates = comm.map(|comm| Updates::new(layout, comm.ranks(), comm.rank(), rank.expert_parallel()));
        let updates = updates.transpose()?;
        let partitions = rank.partitions_gradients();
        if partitions && (!training || experts.is_some() || updates.is_none()) {
            let problem = "gradients are partitioned among the ranks of a comm, which train all experts each";
            return Err(Error::value(problem));
        }
        let computes = updates.as_ref().zip(experts).map(|(updates, of)| Held::to_compute(layout, updates, of));
        let kept = updates.as_ref().filter(|_| partitions).map(|updates| Held::to_keep(layout, updates));
        let rounds = training && precision != Precision::F32;
        let updated = updates.as_ref().filter(|_| rounds).map(|updates| Held::to_update(updates, experts));
        let job = comm.filter(|_| computes.is_some() || kept.is_some() || updated.is_some()).cloned();
        let (computes, kept, updated) = (computes.as_ref(), kept.as_ref(), updated.as_ref());
        let dtype = if training { DType::F32 } else { precision.dtype() };
        Ok(Self {
            parameters: arena(dtype, updated.or(computes))?,
            gradients: training.then(|| arena(DType::F32, kept.or(computes))).transpose()?,
            partitioned: kept.map(|_| PartitionedGradients::new(rank.context(), layout)).transpose()?,
            rounded: rounds.then(|| arena(precision.dtype(), computes)).transpose()?,
            job,
        })
    }

    /// What the model computes with.
    pub(super) fn weights(&self) -> &ParameterArena {
        self.rounded.as_ref().unwrap_or(&self.parameters)
    }

    /// Where a backward pass puts the gradients of neighbouring parameters, from parameter `first` on; `None` of a model that
    /// only infers.
    pub(super) fn gradient(&self, first: &str, shape: &[usize]) -> Result<Option<Tensor>> {
        let Some(arena) = &self.gradients else { return Ok(None) };
        if let (Some(partitioned), Some(spec)) = (&self.partitioned, arena.layout().get(first))
            && let Some(elsewhere) = partitioned.in_pass(spec.offset, shape.iter().product())?
        {
            return Ok(Some(elsewhere.view(shape)?));
        }
        arena.fused(first, shape).map(Some)
    }
}
