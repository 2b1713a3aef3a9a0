//! The gradients of the experts that ranks share out, and where what a rank has of gradients and weights is needed.

use std::ops::Range;
use std::sync::Arc;

use nn_ffi::{Context, DType, ExpertEvent, Piece, Shard, Tensor, expert_schedule, shard};

use super::config::TrainConfig;
use super::replicas::{self, sums_left};
use crate::error::Result;
use crate::layer::{ExpertParallel, Round};
use crate::model::{MoEConfig, ParameterLayout, Updates};

/// How the gradients of a rank's experts come to be sums over all replicas, in the order of one rank alone.
///
/// They come from all ranks of its group, a micro-batch of each in a round, and lie in slots beside the arena. What is left
/// of them after all rounds is added to what the other owners have, on the one in whose group they are updated: nearly all by
/// this owner itself, the rest by ranks that are sent it.
#[derive(Debug)]
pub(super) struct ExpertGradients {
    parallel: Arc<ExpertParallel>,
    rounds: Vec<Planned>,
    copies: Vec<[usize; 2]>,
    /// Sums after the copies, in the first slots.
    left: usize,
    /// f32 `[slots, parameters of the own experts]`.
    slots: Tensor,
    /// The owner of each of these.
    shards: Vec<Shard>,
    /// Those of this one, and their places in the arena.
    own: Vec<(Range<usize>, Range<usize>)>,
    replicas: usize,
    /// What sums travel in.
    wire: DType,
    /// Of gradients, to the ranks that update them.
    to_update: Vec<Piece>,
    /// Of updated parameters, to the ranks that compute with them.
    to_compute: Vec<Piece>,
    config: MoEConfig,
}

/// A round of the group.
#[derive(Debug, Default)]
struct Planned {
    /// That of this rank; `None` where it is a guest.
    own: Option<usize>,
    micro_batches: Vec<usize>,
    events: Vec<ExpertEvent>,
}

impl ExpertGradients {
    /// Those of updates of so many `micro_batches`, of `replicas`.
    pub(super) fn new(
        ctx: &Context,
        parallel: &Arc<ExpertParallel>,
        config: &MoEConfig,
        layout: &ParameterLayout,
        updates: &Updates,
        train: &TrainConfig,
        micro_batches: usize,
    ) -> Result<Self> {
        let (replicas, wire) = (train.replicas, train.reduce_dtype.dtype());
        let (ranks, group, first) = (parallel.comm().ranks(), parallel.ranks(), parallel.first());
        let (events, slots) = expert_schedule(replicas, ranks, first, group, micro_batches, Some(parallel.position()))?;
        let (mut rounds, mut copies) = (Vec::<Planned>::new(), Vec::new());
        for event in events {
            match event {
                ExpertEvent::Round { .. } if wire == DType::F32 => {}
                ExpertEvent::Run { round, .. } | ExpertEvent::Add { round, .. } | ExpertEvent::Round { round, .. } => {
                    rounds.resize_with(rounds.len().max(round + 1), Planned::default);
                    rounds[round].events.push(event);
                    if let ExpertEvent::Run { source, micro_batch, .. } = event {
                        rounds[round].micro_batches.push(micro_batch);
                        if source == parallel.position() {
                            rounds[round].own = Some(micro_batch);
                        }
                    }
                }
                ExpertEvent::Copy { from, to } => copies.push([from, to]),
            }
        }
        let begin = shard(replicas, 1, ranks, first)?.start;
        let left = sums_left(replicas, begin..shard(replicas, 1, ranks, first + group - 1)?.end)?;
        let (mut count, mut shards, mut own) = (0, Vec::new(), Vec::new());
        for range in layout.experts_of(parallel.position(), group).flatten() {
            for Shard { elements: there, rank } in updates.within(&range) {
                let here = count + there.start - range.start..count + there.end - range.start;
                if rank / group == first / group {
                    own.push((here.clone(), there));
                }
                shards.push(Shard { elements: here, rank: rank / group });
            }
            count += range.len();
        }
        let slots = ctx.empty(&[slots, count], DType::F32)?;
        let [to_update, to_compute] = moves(layout, updates, parallel);
        Ok(Self {
            parallel: Arc::clone(parallel),
            rounds,
            copies,
            left,
            slots,
            shards,
            own,
            replicas,
            wire,
            to_update,
            to_compute,
            config: config.clone(),
        })
    }

    /// Memory of the slots.
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * self.slots.dtype().size()
    }

    /// The rounds of a step whose micro-batches have so many tokens, each with that of this rank where it is no guest.
    pub(super) fn rounds(&self, tokens: impl Fn(usize) -> usize) -> Vec<(Option<usize>, Arc<Round>)> {
        let round = |Planned { own, micro_batches, events }: &Planned| {
            let most = micro_batches.iter().map(|number| tokens(*number)).max().unwrap_or(0);
            let rows = self.parallel.most_rows(self.config.experts_per_token, most, self.config.capacity(most));
            (*own, Arc::new(Round::new(rows, self.parallel.ranks(), events, &self.slots, self.wire)))
        };
        self.rounds.iter().map(round).collect()
    }

    /// Begins a round of the group; `None` ends the last one.
    pub(super) fn begin(&self, round: Option<&Arc<Round>>) {
        self.parallel.begin(round);
    }

    fn slot(&self, number: usize) -> Result<Tensor> {
        Ok(self.slots.narrow(0, number, 1)?.view(&self.slots.shape()[1..])?)
    }

    /// Completes the sums, behind the rounds of a step: the gradients f32 `[parameters]` of own experts that this group
    /// updates become those of all replicas.
    pub(super) fn sum_up(&self, gradients: &Tensor) -> Result<()> {
        for [from, to] in &self.copies {
            self.slot(*to)?.copy_from(&self.slot(*from)?)?;
        }
        let sum = self.slot(self.left - 1)?;
        if let Some(owners) = self.parallel.owners()? {
            let older = (self.left > 1).then(|| self.slots.narrow(0, 0, self.left - 1)).transpose()?;
            owners.reduce_scatter(older.as_ref(), &sum, self.replicas, &self.shards, self.wire)?;
        }
        let part = |tensor: &Tensor, range: &Range<usize>| tensor.narrow(0, range.start, range.len());
        self.own.iter().try_for_each(|(here, there)| Ok(part(gradients, there)?.copy_from(&part(&sum, here)?)?))
    }

    /// Sends gradients to the ranks that update them.
    pub(super) fn send_gradients(&self, gradients: &Tensor) -> Result<()> {
        Ok(self.parallel.comm().move_pieces(gradients, &self.to_update)?)
    }

    /// Sends updated parameters to the ranks that compute with them.
    pub(super) fn send_weights(&self, weights: &Tensor) -> Result<()> {
        Ok(self.parallel.comm().move_pieces(weights, &self.to_compute)?)
    }
}

/// Which elements go from which rank to which: of gradients, and of updated parameters. Of the latter, which are as many as
/// shards times ranks, those that this rank is an end of.
fn moves(layout: &ParameterLayout, updates: &Updates, parallel: &ExpertParallel) -> [Vec<Piece>; 2] {
    let (me, ranks, group) = (parallel.comm().rank(), parallel.comm().ranks(), parallel.ranks());
    let (mut to_update, mut to_compute) = (Vec::new(), Vec::new());
    for (position, shard) in updates.by_position(layout, group) {
        let (first, step) = position.map_or((0, 1), |position| (position, group));
        let owner = position.map_or(shard.rank, |position| shard.rank / group * group + position);
        if owner != shard.rank {
            to_update.push(Piece { elements: shard.elements.clone(), from: owner, to: shard.rank });
        }
        to_compute.extend(replicas::moves(&shard, me, (first..ranks).step_by(step)));
    }
    [to_update, to_compute]
}
