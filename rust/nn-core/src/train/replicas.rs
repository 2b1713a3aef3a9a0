//! The replicas of a job: whose micro-batches a rank runs, and the order in which their gradients are added.

use std::iter::{self, StepBy};
use std::ops::Range;
use std::sync::Arc;

use nn_ffi::{Comm, Context, DType, Device, Piece, Shard, Tensor, kernels, replica_merges, shard};

use super::backward_sums::BackwardSums;
use super::config::TrainConfig;
use super::expert_gradients::ExpertGradients;
use crate::error::{Error, Result};
use crate::model::{MoEConfig, MoETransformer, ParameterLayout, PartitionedGradients, Updates};

/// Those of the replicas of a job that this rank computes, and how their gradients are added up. Micro-batch m of an update
/// belongs to replica m mod V.
///
/// Ranks share the V replicas out in runs of neighbours. Each replica's gradient comes to stand in the model's arena, as that
/// of a training without replicas does. Sums that wait for later replicas lie aside, so that which sum is added to which is a
/// function of V alone: the tree of bindings.h, section comm. What the sum of its root is made of is rounded, as soon as it
/// is complete, to what sums travel in.
#[derive(Clone, Debug)]
pub(super) struct Replicas {
    total: usize,
    own: Range<usize>,
    /// How many sums wait before each own replica, and how many of them are added to its own.
    merges: Vec<(usize, usize)>,
    /// f32 `[the most at once, parameters]`; `None` where no sum ever waits.
    aside: Option<Tensor>,
    /// Sums aside after the last replica.
    left: usize,
    parameters: usize,
    updates: Updates,
    /// Those whose gradients are added here: all, or all that are no expert's.
    dense: Vec<Range<usize>>,
    /// The rank of each of them.
    shards: Vec<Shard>,
    /// Of updated parameters, to the other ranks, where each computes with all of them.
    moves: Vec<Piece>,
    /// What sums travel in.
    wire: DType,
    /// The gradients of experts that ranks share out.
    experts: Option<Arc<ExpertGradients>>,
    /// The gradients that go to the ranks that update them during the backward pass: of several ranks that each have all
    /// experts.
    sums: Option<Arc<BackwardSums>>,
    /// The ranks, where there are several.
    comm: Option<Comm>,
}

impl Replicas {
    /// Those of a rank of a communicator, for updates of so many `micro_batches` of a model; makes room for the sums of
    /// gradients.
    pub(super) fn of_model(
        model: &MoETransformer,
        config: &TrainConfig,
        micro_batches: usize,
        comm: Option<&Comm>,
    ) -> Result<Self> {
        let (ctx, layout, total, wire) =
            (model.context(), model.layout(), config.replicas, config.reduce_dtype.dtype());
        let (rank, ranks) = comm.map_or((0, 1), |comm| (comm.rank(), comm.ranks()));
        check_ranks(ranks, total)?;
        let group = model.experts().map_or(1, |parallel| parallel.ranks());
        let updates = Updates::new(layout, ranks, rank, group)?;
        let Some(parallel) = model.experts() else {
            let dense = iter::once(0..layout.size()).collect();
            return Self::over(ctx, total, layout.size(), updates, dense, wire, comm, None)?.sending(model);
        };
        let experts = ExpertGradients::new(ctx, parallel, model.config(), layout, &updates, config, micro_batches)?;
        let experts = Some(Arc::new(experts));
        let replicas = Self::over(ctx, total, layout.size(), updates, layout.dense(), wire, comm, experts)?;
        // Rows of experts travel beside these sums, and two communicators of NCCL that are busy at a time may wait for each
        // other's place on a GPU: there the sums are made after the last pass.
        if ctx.device() == Device::Cpu { replicas.sending(model) } else { Ok(replicas) }
    }

    /// With sums that travel while a backward pass goes on, where there are several ranks.
    fn sending(mut self, model: &MoETransformer) -> Result<Self> {
        if let Some(comm) = self.comm() {
            let (partials, total, wire) = (self.partials()?, self.total, self.wire);
            let sums = BackwardSums::new(comm, model, &self.updates, &self.dense, partials, total, wire)?;
            self.sums = Some(Arc::new(sums));
        }
        Ok(self)
    }

    /// The one replica of a rank alone, of so many parameters.
    pub(super) fn alone(ctx: &Context, parameters: usize) -> Result<Self> {
        let all = iter::once(0..parameters).collect();
        Self::over(ctx, 1, parameters, Updates::alone(parameters), all, DType::F32, None, None)
    }

    #[expect(clippy::too_many_arguments, reason = "two functions call it")]
    fn over(
        ctx: &Context,
        total: usize,
        parameters: usize,
        updates: Updates,
        dense: Vec<Range<usize>>,
        wire: DType,
        comm: Option<&Comm>,
        experts: Option<Arc<ExpertGradients>>,
    ) -> Result<Self> {
        let (rank, ranks) = comm.map_or((0, 1), |comm| (comm.rank(), comm.ranks()));
        let own = shard(total, 1, ranks, rank)?;
        let (mut merges, mut waiting, mut most) = (Vec::with_capacity(own.len()), 0, 0);
        for replica in own.clone() {
            let merged = replica_merges(total, own.start, replica)?;
            merges.push((waiting, merged));
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
        let shards = dense.iter().flat_map(|range| updates.within(range)).collect();
        let moves = match (&comm, &experts) {
            (Some(_), None) => {
                updates.shards().iter().flat_map(|one| moves(one, rank, (0..ranks).step_by(1))).collect()
            }
            _ => Vec::new(),
        };
        Ok(Self {
            total,
            own,
            merges,
            aside,
            left: waiting,
            parameters,
            updates,
            dense,
            shards,
            moves,
            wire,
            experts,
            sums: None,
            comm,
        })
    }

    /// The ranks, where there are several.
    pub(super) fn comm(&self) -> Option<&Comm> {
        self.comm.as_ref()
    }

    /// Which rank updates which parameters.
    pub(super) fn updates(&self) -> &Updates {
        &self.updates
    }

    /// What becomes of the gradients of experts that ranks share out.
    pub(super) fn experts(&self) -> Option<&ExpertGradients> {
        self.experts.as_deref()
    }

    /// Bytes that this rank gave the transport for other ranks so far, but for the exchange of rows.
    pub(super) fn bytes_sent(&self) -> Result<u64> {
        let of_sums = self.sums.as_ref().map_or(Ok(0), |sums| sums.bytes_sent())?;
        Ok(of_sums + self.comm().map_or(Ok(0), Comm::bytes_sent)?)
    }

    /// Memory of the sums that wait, and of those that arrive.
    pub(crate) fn bytes(&self) -> usize {
        let each: usize = self.dense.iter().map(Range::len).sum();
        let aside = self.aside.as_ref().map_or(0, |aside| aside.shape()[0] * each * aside.dtype().size());
        let arriving = self.sums.as_ref().map_or(0, |sums| sums.bytes());
        aside + arriving + self.experts().map_or(0, ExpertGradients::bytes)
    }

    /// Whether this rank runs a micro-batch of an update.
    pub(super) fn runs(&self, micro_batch: usize) -> bool {
        self.own.contains(&(micro_batch % self.total))
    }

    /// This rank's micro-batches among `count`, replica by replica.
    pub(super) fn micro_batches(&self, count: usize) -> impl Iterator<Item = usize> {
        let total = self.total;
        self.own.clone().flat_map(move |replica| (replica..count).step_by(total))
    }

    /// Whether the gradient of a micro-batch is added to that of one before it.
    pub(super) fn accumulates(&self, micro_batch: usize) -> bool {
        micro_batch >= self.total
    }

    /// Where a micro-batch, of so many in all, is the last of its replica: adds to the complete gradients f32 `[parameters]`
    /// what waits for them, and sets the sum aside for a later replica; unless this rank sends them, which does that.
    pub(super) fn add(&self, micro_batch: usize, count: usize, gradients: &Tensor) -> Result<()> {
        let last = micro_batch % self.total + 1 == self.own.end;
        if micro_batch + self.total < count || (last && self.sums.is_some()) {
            return Ok(());
        }
        self.add_within(&self.dense, micro_batch % self.total, gradients)
    }

    /// Whether the gradients go to other ranks as the last backward pass completes them.
    pub(super) fn sends(&self) -> bool {
        self.sums.is_some()
    }

    /// Sends the piece of this number, which is complete, of the gradients.
    pub(super) fn send(&self, number: usize) -> Result<()> {
        let Some(sums) = &self.sums else { return Ok(()) };
        let (elements, gradients) = sums.piece(number);
        self.add_within(elements, self.own.end - 1, gradients)?;
        sums.send(number)
    }

    /// Adds what waits for the gradients of a replica to these elements of them, and sets the sum aside for a later one.
    fn add_within(&self, elements: &[Range<usize>], replica: usize, gradients: &Tensor) -> Result<()> {
        let ((waiting, merges), last) = (self.merges[replica - self.own.start], replica + 1 == self.own.end);
        self.round(elements, gradients, self.total == 1)?;
        let Some(aside) = &self.aside else { return Ok(()) };
        for place in (waiting - merges..waiting).rev() {
            for [older, sum] in self.beside(elements, aside, place, gradients)? {
                kernels::add(&older, &sum, &sum)?;
            }
            self.round(elements, gradients, place == 0 && last && self.own.len() == self.total)?;
        }
        if !last {
            for [place, sum] in self.beside(elements, aside, waiting - merges, gradients)? {
                place.copy_from(&sum)?;
            }
        }
        Ok(())
    }

    /// Rounds elements of a sum, unless it is that of the `root` of the tree.
    fn round(&self, elements: &[Range<usize>], gradients: &Tensor, root: bool) -> Result<()> {
        if self.wire == DType::F32 || root {
            return Ok(());
        }
        for range in elements {
            let sum = gradients.narrow(0, range.start, range.len())?;
            kernels::round(&sum, &sum, self.wire)?;
        }
        Ok(())
    }

    /// These elements of a sum that lies aside, and of the gradients.
    fn beside(
        &self,
        elements: &[Range<usize>],
        aside: &Tensor,
        number: usize,
        gradients: &Tensor,
    ) -> Result<Vec<[Tensor; 2]>> {
        let row = aside.narrow(0, number, 1)?.view(&[self.parameters])?;
        let part = |tensor: &Tensor, range: &Range<usize>| tensor.narrow(0, range.start, range.len());
        elements.iter().map(|range| Ok([part(&row, range)?, part(gradients, range)?])).collect()
    }

    /// The sums aside after the last replica, f32 `[left, parameters]`.
    fn partials(&self) -> Result<Option<Tensor>> {
        let aside = self.aside.as_ref().filter(|_| self.left > 0);
        Ok(aside.map(|aside| aside.narrow(0, 0, self.left)).transpose()?)
    }

    /// Completes the sums of gradients, on this rank those of its shards, and gives the norm f32 `[1]` of all.
    pub(super) fn sum_up(&self, gradients: &Tensor, norm: &Tensor) -> Result<()> {
        let Some(comm) = &self.comm else { return Ok(kernels::grad_norm(gradients, norm)?) };
        match &self.sums {
            Some(sums) => sums.finish()?,
            None => comm.reduce_scatter(self.partials()?.as_ref(), gradients, self.total, &self.shards, self.wire)?,
        }
        if let Some(experts) = self.experts() {
            experts.sum_up(gradients)?;
            experts.send_gradients(gradients)?;
        }
        Ok(comm.grad_norm(gradients, norm, self.updates.shards())?)
    }

    /// Tells all ranks the updated shards `[parameters]` of each; of experts that are shared out, the ranks that have them.
    pub(super) fn gather(&self, tensor: &Tensor) -> Result<()> {
        match (&self.comm, self.experts()) {
            (_, Some(experts)) => experts.send_weights(tensor),
            (Some(comm), None) => Ok(comm.move_pieces(tensor, &self.moves)?),
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

/// Of a shard of updated parameters to ranks that compute with it: the moves that rank `me` is an end of.
pub(super) fn moves(shard: &Shard, me: usize, receivers: StepBy<Range<usize>>) -> Vec<Piece> {
    let from = shard.rank;
    let receivers = receivers.filter(|to| *to != from && (from == me || *to == me));
    receivers.map(|to| Piece { elements: shard.elements.clone(), from, to }).collect()
}

/// A range in another row.
fn moved(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// How many sums of gradients some replicas that are neighbours leave.
pub(crate) fn sums_left(total: usize, replicas: Range<usize>) -> Result<usize> {
    let first = replicas.start;
    replicas.into_iter().try_fold(0, |left, replica| Ok(left + 1 - replica_merges(total, first, replica)?))
}

/// Refuses more ranks than there are replicas.
pub(crate) fn check_ranks(ranks: usize, replicas: usize) -> Result<()> {
    if ranks <= replicas {
        return Ok(());
    }
    Err(Error::value(format!("{ranks} ranks share out replicas: replicas must be at least {ranks}, and is {replicas}")))
}

/// Whether each of so many ranks runs one micro-batch of an update, and so needs a layer's gradients only until others have them.
pub(super) fn one_micro_batch_each(config: &TrainConfig, ranks: usize) -> bool {
    ranks == config.replicas && ranks == config.micro_batches()
}

/// Whether the models of so many ranks are to partition their gradients: where they can, and it is less memory. Ranks that share
/// the experts out have parts of most of them anyway; a tied head's are needed from the first layer to the last; and it has not
/// been tried on a GPU.
pub(crate) fn partitions_gradients(
    model: &MoEConfig,
    config: &TrainConfig,
    device: Device,
    ranks: usize,
    expert_parallel: usize,
) -> Result<bool> {
    let can = device == Device::Cpu && ranks > 1 && expert_parallel == 1 && !model.tie_embeddings;
    if !can || !one_micro_batch_each(config, ranks) {
        return Ok(false);
    }
    Ok(PartitionedGradients::saves(&ParameterLayout::new(model)?, ranks))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_partitioned_where_that_is_less() {
        let deep = MoEConfig::preset("demo").unwrap();
        let shallow = MoEConfig { num_layers: 2, ..deep.clone() };
        let options = |batch_size, replicas| TrainConfig {
            batch_size,
            replicas,
            micro_batch_size: Some(1),
            ..TrainConfig::default()
        };
        for (model, options, device, ranks, expert_parallel, wanted) in [
            (&deep, options(4, 4), Device::Cpu, 4, 1, true),
            (&shallow, options(4, 4), Device::Cpu, 4, 1, false),
            (&deep, options(8, 4), Device::Cpu, 4, 1, false),
            (&deep, options(8, 8), Device::Cpu, 4, 1, false),
            (&deep, options(4, 4), Device::Cuda(0), 4, 1, false),
            (&deep, options(4, 4), Device::Cpu, 4, 2, false),
            (&deep, options(1, 1), Device::Cpu, 1, 1, false),
        ] {
            let found = partitions_gradients(model, &options, device, ranks, expert_parallel).unwrap();
            assert_eq!(found, wanted, "{options:?} on {ranks} ranks");
        }
    }
}
