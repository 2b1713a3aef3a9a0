//! The gradients of the experts that ranks share out, and where what a rank has of gradients and weights is needed.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use nn_ffi::{Context, DType, ExpertEvent, Piece, Tensor, expert_schedule, replica_merges, shard};

use super::replicas::GRAIN;
use crate::error::Result;
use crate::layer::{ExpertParallel, Round};
use crate::model::{MoEConfig, ParameterLayout, overlap};

/// How the gradients of a rank's experts come to be sums over all replicas, in the order of one rank alone.
///
/// They come from all ranks of its group, a micro-batch of each in a round, and lie in slots beside the arena. What is left
/// of them after all rounds is added to what the other owners have; then each rank is sent what it updates.
#[derive(Debug)]
pub(super) struct ExpertGradients {
    parallel: Arc<ExpertParallel>,
    rounds: Vec<Planned>,
    copies: Vec<[usize; 2]>,
    /// Sums after the copies, in the first slots.
    left: usize,
    /// f32 `[slots, parameters of the own experts]`.
    slots: Tensor,
    /// Where these lie in the arena, in their order.
    own: Vec<Range<usize>>,
    replicas: usize,
    /// Of gradients, to the ranks that update them.
    to_update: Vec<Piece>,
    /// Of updated parameters, to the ranks that compute with them.
    to_compute: Vec<Piece>,
    config: MoEConfig,
}

/// A round of the group.
#[derive(Debug, Default)]
struct Planned {
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
        replicas: usize,
        micro_batches: usize,
    ) -> Result<Self> {
        let (ranks, group, first) = (parallel.comm().ranks(), parallel.ranks(), parallel.first());
        let (events, slots) = expert_schedule(replicas, ranks, first, group, micro_batches)?;
        let (mut rounds, mut copies) = (Vec::<Planned>::new(), Vec::new());
        for event in events {
            match event {
                ExpertEvent::Run { round, .. } | ExpertEvent::Add { round, .. } => {
                    rounds.resize_with(rounds.len().max(round + 1), Planned::default);
                    rounds[round].events.push(event);
                    if let ExpertEvent::Run { micro_batch, .. } = event {
                        rounds[round].micro_batches.push(micro_batch);
                    }
                }
                ExpertEvent::Copy { from, to } => copies.push([from, to]),
            }
        }
        let of_first = shard(replicas, 1, ranks, first)?;
        let end = shard(replicas, 1, ranks, first + group - 1)?.end;
        let mut left = 0;
        for replica in of_first.start..end {
            left = left + 1 - replica_merges(replicas, of_first.start, replica)?;
        }
        let own: Vec<_> = layout.experts_of(parallel.position(), group).flatten().collect();
        let slots = ctx.empty(&[slots, own.iter().map(Range::len).sum()], DType::F32)?;
        let [to_update, to_compute] = moves(layout, ranks, group)?;
        Ok(Self {
            parallel: Arc::clone(parallel),
            rounds,
            copies,
            left,
            slots,
            own,
            replicas,
            to_update,
            to_compute,
            config: config.clone(),
        })
    }

    /// Memory of the slots.
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * self.slots.dtype().size()
    }

    /// The rounds of a step whose micro-batches have so many tokens.
    pub(super) fn rounds(&self, tokens: impl Fn(usize) -> usize) -> Vec<Arc<Round>> {
        let round = |Planned { micro_batches, events }: &Planned| {
            let most = micro_batches.iter().map(|number| tokens(*number)).max().unwrap_or(0);
            let rows = self.parallel.most_rows(self.config.experts_per_token, most, self.config.capacity(most));
            Arc::new(Round::new(rows, self.parallel.ranks(), events, &self.slots))
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

    /// Completes the sums, behind the rounds of a step: the gradients f32 `[parameters]` of own experts become those of all
    /// replicas.
    pub(super) fn sum_up(&self, gradients: &Tensor) -> Result<()> {
        for [from, to] in &self.copies {
            self.slot(*to)?.copy_from(&self.slot(*from)?)?;
        }
        let sum = self.slot(self.left - 1)?;
        if let Some(owners) = self.parallel.owners()? {
            let older = (self.left > 1).then(|| self.slots.narrow(0, 0, self.left - 1)).transpose()?;
            owners.reduce_scatter(older.as_ref(), &sum, GRAIN, self.replicas, 0..sum.len())?;
            owners.all_gather(&sum, GRAIN)?;
        }
        let mut first = 0;
        for range in &self.own {
            let target = gradients.narrow(0, range.start, range.len())?;
            target.copy_from(&sum.narrow(0, first, range.len())?)?;
            first += range.len();
        }
        Ok(())
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

/// Which elements go from which rank to which: of gradients, and of updated parameters. All ranks of a job, in whichever
/// language, have the same lists.
fn moves(layout: &ParameterLayout, ranks: usize, group: usize) -> Result<[Vec<Piece>; 2]> {
    let shards = (0..ranks).map(|rank| shard(layout.size(), GRAIN, ranks, rank)).collect::<nn_ffi::Result<Vec<_>>>()?;
    // The elements of a range that each rank updates.
    let cut = |range: &Range<usize>| -> Vec<(usize, Range<usize>)> {
        let part = |shard: &Range<usize>| {
            let part = overlap(shard, range.start, range.len());
            range.start + part.start..range.start + part.end
        };
        shards.iter().map(part).enumerate().filter(|(_, part)| !part.is_empty()).collect()
    };
    let (mut to_update, mut to_compute) = (Vec::new(), Vec::new());
    for (rank, elements) in layout.dense().iter().flat_map(cut) {
        let others = (0..ranks).filter(|to| *to != rank);
        to_compute.extend(others.map(|to| Piece { elements: elements.clone(), from: rank, to }));
    }
    let of_positions: Vec<Vec<_>> = (0..group).map(|position| layout.experts_of(position, group).collect()).collect();
    let layers = of_positions.first().map_or(0, Vec::len);
    for (layer, part) in (0..layers).flat_map(|layer| iter::repeat(layer).zip(0..2)) {
        for (position, of_position) in of_positions.iter().enumerate() {
            for (rank, elements) in cut(&of_position[layer][part]) {
                let owner = rank / group * group + position;
                if owner != rank {
                    to_update.push(Piece { elements: elements.clone(), from: owner, to: rank });
                }
                let others = (position..ranks).step_by(group).filter(|to| *to != rank);
                to_compute.extend(others.map(|to| Piece { elements: elements.clone(), from: rank, to }));
            }
        }
    }
    Ok([to_update, to_compute])
}
