//! The replicas of a job: whose micro-batches a rank runs, and the order in which their gradients are added.

use std::ops::Range;
use std::sync::Arc;

use nn_ffi::{Comm, Context, DType, Tensor, kernels, replica_merges, shard};

use super::expert_gradients::ExpertGradients;
use crate::error::{Error, Result};
use crate::model::MoETransformer;

/// Parameters that lie on one rank together: whole chunks of the norm's sum, and whole blocks of 8-bit moments.
pub(crate) const GRAIN: usize = 32768;

/// Those of the replicas of a job that this rank computes, and how their gradients are added up. Micro-batch m of an update
/// belongs to replica m mod V.
///
/// Ranks share the V replicas out in runs of neighbours. Each replica's gradient comes to stand in the model's arena, as that
/// of a training without replicas does. Sums that wait for later replicas lie aside, so that which sum is added to which is a
/// function of V alone: the tree of bindings.h, section comm.
#[derive(Clone, Debug)]
pub(super) struct Replicas {
    total: usize,
    own: Range<usize>,
    /// How many sums are added to that of each own replica.
    merges: Vec<usize>,
    /// f32 `[the most at once, parameters]`; `None` where no sum ever waits.
    aside: Option<Tensor>,
    /// Sums aside after the last replica.
    left: usize,
    parameters: usize,
    /// Those whose gradients are added here: all, or all that are no expert's.
    dense: Vec<Range<usize>>,
    /// The gradients of experts that ranks share out.
    experts: Option<Arc<ExpertGradients>>,
    /// The ranks, where there are several.
    comm: Option<Comm>,
}

impl Replicas {
    /// Those of the rank of a communicator, of `total` in all; makes room for the sums of gradients of `parameters`.
    pub(super) fn new(ctx: &Context, total: usize, parameters: usize, comm: Option<&Comm>) -> Result<Self> {
        Self::over(ctx, total, parameters, vec![0..parameters], comm, None)
    }

    /// The same for a model whose experts are shared out, for updates of so many `micro_batches`.
    pub(super) fn of_model(
        model: &MoETransformer,
        total: usize,
        micro_batches: usize,
        comm: Option<&Comm>,
    ) -> Result<Self> {
        let (ctx, layout) = (model.context(), model.layout());
        let Some(parallel) = model.experts() else { return Self::new(ctx, total, layout.size(), comm) };
        check_ranks(parallel.comm().ranks(), total)?;
        let experts = ExpertGradients::new(ctx, parallel, model.config(), layout, total, micro_batches)?;
        Self::over(ctx, total, layout.size(), layout.dense(), comm, Some(Arc::new(experts)))
    }

    fn over(
        ctx: &Context,
        total: usize,
        parameters: usize,
        dense: Vec<Range<usize>>,
        comm: Option<&Comm>,
        experts: Option<Arc<ExpertGradients>>,
    ) -> Result<Self> {
        let (rank, ranks) = comm.map_or((0, 1), |comm| (comm.rank(), comm.ranks()));
        check_ranks(ranks, total)?;
        let own = shard(total, 1, ranks, rank)?;
        let (mut merges, mut waiting, mut most) = (Vec::with_capacity(own.len()), 0, 0);
        for replica in own.clone() {
            let merged = replica_merges(total, own.start, replica)?;
            merges.push(merged);
            waiting -= merged;
            if replica + 1 < own.end {
                waiting += 1;
                most = most.max(waiting);
            }
        }
        let shape = [most, parameters];
        let room = || match experts {
            None => ctx.empty(&shape, DType::F32),
            Some(_) => {
                let held = (0..most).flat_map(|row| dense.iter().map(move |range| moved(range, row * parameters)));
                ctx.zeros_parts(&shape, DType::F32, &held.collect::<Vec<_>>())
            }
        };
        let aside = (most > 0).then(room).transpose()?;
        let comm = comm.filter(|_| ranks > 1).cloned();
        Ok(Self { total, own, merges, aside, left: waiting, parameters, dense, experts, comm })
    }

    /// The one replica of a rank alone.
    pub(super) fn alone(ctx: &Context, parameters: usize) -> Result<Self> {
        Self::new(ctx, 1, parameters, None)
    }

    /// The ranks, where there are several.
    pub(super) fn comm(&self) -> Option<&Comm> {
        self.comm.as_ref()
    }

    /// Parameters that this rank updates, and has the moments of.
    pub(super) fn shard(&self) -> Result<Range<usize>> {
        let (rank, ranks) = self.comm.as_ref().map_or((0, 1), |comm| (comm.rank(), comm.ranks()));
        Ok(shard(self.parameters, GRAIN, ranks, rank)?)
    }

    /// What becomes of the gradients of experts that ranks share out.
    pub(super) fn experts(&self) -> Option<&ExpertGradients> {
        self.experts.as_deref()
    }

    /// Memory of the sums that wait.
    pub(crate) fn bytes(&self) -> usize {
        let each: usize = self.dense.iter().map(Range::len).sum();
        let aside = self.aside.as_ref().map_or(0, |aside| aside.shape()[0] * each * aside.dtype().size());
        aside + self.experts().map_or(0, ExpertGradients::bytes)
    }

    /// Whether this rank runs a micro-batch of an update.
    pub(super) fn runs(&self, micro_batch: usize) -> bool {
        self.own.contains(&(micro_batch % self.total))
    }

    /// Calls `gradient` for this rank's micro-batches among `count`, replica by replica, telling whether the gradient is
    /// added to that of the micro-batch before; and adds up the gradients f32 `[parameters]` of the replicas.
    pub(super) fn run(
        &self,
        count: usize,
        gradients: &Tensor,
        mut gradient: impl FnMut(usize, bool) -> Result<()>,
    ) -> Result<()> {
        let mut waiting = 0;
        for (replica, merges) in self.own.clone().zip(&self.merges) {
            for micro_batch in (replica..count).step_by(self.total) {
                gradient(micro_batch, micro_batch != replica)?;
            }
            let Some(aside) = &self.aside else { continue };
            for _ in 0..*merges {
                waiting -= 1;
                for [older, sum] in self.beside(aside, waiting, gradients)? {
                    kernels::add(&older, &sum, &sum)?;
                }
            }
            if replica + 1 < self.own.end {
                for [place, sum] in self.beside(aside, waiting, gradients)? {
                    place.copy_from(&sum)?;
                }
                waiting += 1;
            }
        }
        Ok(())
    }

    /// The parts of a sum that lies aside that are added, and of the gradients.
    fn beside(&self, aside: &Tensor, number: usize, gradients: &Tensor) -> Result<Vec<[Tensor; 2]>> {
        let row = aside.narrow(0, number, 1)?.view(&[self.parameters])?;
        let part = |tensor: &Tensor, range: &Range<usize>| tensor.narrow(0, range.start, range.len());
        self.dense.iter().map(|range| Ok([part(&row, range)?, part(gradients, range)?])).collect()
    }

    /// Completes the sums of gradients, on this rank those of its shard, and gives the norm f32 `[1]` of all.
    pub(super) fn sum_up(&self, gradients: &Tensor, norm: &Tensor) -> Result<()> {
        let Some(comm) = &self.comm else { return Ok(kernels::grad_norm(gradients, norm)?) };
        self.reduce(gradients)?;
        Ok(comm.grad_norm(gradients, norm, GRAIN)?)
    }

    /// Completes the sums of gradients, on this rank those of its shard.
    pub(super) fn reduce(&self, gradients: &Tensor) -> Result<()> {
        let Some(comm) = &self.comm else { return Ok(()) };
        let left =
            self.aside.as_ref().filter(|_| self.left > 0).map(|aside| aside.narrow(0, 0, self.left)).transpose()?;
        self.experts().map_or(Ok(()), |experts| experts.sum_up(gradients))?;
        for range in &self.dense {
            comm.reduce_scatter(left.as_ref(), gradients, GRAIN, self.total, range.clone())?;
        }
        self.experts().map_or(Ok(()), |experts| experts.send_gradients(gradients))
    }

    /// Tells all ranks the updated shards `[parameters]` of each; of experts that are shared out, the ranks that have them.
    pub(super) fn gather(&self, tensor: &Tensor) -> Result<()> {
        match (&self.comm, self.experts()) {
            (_, Some(experts)) => experts.send_weights(tensor),
            (Some(comm), None) => Ok(comm.all_gather(tensor, GRAIN)?),
            (None, None) => Ok(()),
        }
    }

    /// Tells all ranks numbers f32, each of which one rank has and on all others is 0.
    pub(super) fn share(&self, numbers: &Tensor) -> Result<()> {
        self.comm.as_ref().map_or(Ok(()), |comm| Ok(comm.all_reduce(numbers)?))
    }

    /// The sum of a count over all ranks.
    pub(super) fn count(&self, own: usize) -> Result<usize> {
        let Some(comm) = &self.comm else { return Ok(own) };
        Ok(usize::try_from(comm.sum(i64::try_from(own).unwrap_or(i64::MAX))?).unwrap_or(0))
    }

    /// Whether this rank is the first, which writes what one rank alone would.
    pub(super) fn is_first(&self) -> bool {
        self.comm.as_ref().is_none_or(|comm| comm.rank() == 0)
    }

    /// [`aborting`] for these ranks.
    pub(super) fn aborting<T>(&self, done: Result<T>) -> Result<T> {
        aborting(self.comm(), done)
    }

    /// What ranks did, each for itself: it has succeeded on all of them, or it fails on all of them, and not before each has
    /// come to its end, so that none takes away what another still works on.
    pub(super) fn together(&self, done: Result<()>) -> Result<()> {
        let failed = self.count(usize::from(done.is_err()));
        self.aborting(done)?; // also where the others cannot be asked any more
        if let (Some(comm), 1..) = (&self.comm, failed?) {
            comm.barrier()?; // which fails as that rank says
        }
        Ok(())
    }
}

/// A range in another row.
fn moved(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// Refuses more ranks than there are replicas.
pub(crate) fn check_ranks(ranks: usize, replicas: usize) -> Result<()> {
    if ranks <= replicas {
        return Ok(());
    }
    Err(Error::value(format!("{ranks} ranks share out replicas: replicas must be at least {ranks}, and is {replicas}")))
}

/// Tells the other ranks why this one cannot go on, when it cannot: they fail with its sentence. Divergence is none of this,
/// which all ranks find, each for itself.
pub(super) fn aborting<T>(comm: Option<&Comm>, done: Result<T>) -> Result<T> {
    if let (Some(comm), Err(error)) = (comm, &done)
        && !matches!(error, Error::Diverged(_))
    {
        let _ = comm.abort(&format!("{error:#}")); // the error itself is the one to tell
    }
    done
}
