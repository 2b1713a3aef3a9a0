//! The plan of a run on several ranks.

use std::collections::HashSet;
use std::ops::Range;

use nn_ffi::{Machine, replica_merges, shard};

use super::{MemoryPlan, Work, plan_steps, work_of_rank};
use crate::error::Result;
use crate::model::MoEConfig;
use crate::train::{GRAIN, Rank, TrainConfig, check_ranks};

/// Which rank of how many a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// From 0.
    pub rank: usize,
    /// In all.
    pub ranks: usize,
}

impl Seat {
    /// That of a run on one rank.
    pub const ALONE: Self = Self { rank: 0, ranks: 1 };

    /// That of a rank that trains.
    pub fn of(rank: Rank<'_>) -> Self {
        rank.comm().map_or(Self::ALONE, |comm| Self { rank: comm.rank(), ranks: comm.ranks() })
    }

    /// The replicas of the rank, of so many.
    pub(super) fn replicas(self, count: usize) -> Result<Range<usize>> {
        Ok(shard(count, 1, self.ranks, self.rank)?)
    }

    /// The parameters that it updates, of so many.
    pub(super) fn parameters(self, count: usize) -> Result<Range<usize>> {
        Ok(shard(count, GRAIN, self.ranks, self.rank)?)
    }

    /// What it has to do; ranks whose shares are equal need the same.
    fn share(self, config: &MoEConfig, train: &TrainConfig) -> Result<(usize, Vec<usize>, usize, bool)> {
        let own = self.replicas(train.replicas)?;
        let merges: std::result::Result<_, _> =
            own.clone().map(|replica| replica_merges(train.replicas, own.start, replica)).collect();
        let count = train.batch_size.div_ceil(train.micro_batch(train.batch_size));
        let more = own.clone().filter(|replica| *replica < count % train.replicas).count();
        let parameters = usize::try_from(config.num_parameters()).unwrap_or(usize::MAX >> 1);
        Ok((self.parameters(parameters)?.len(), merges?, more, own.contains(&((count - 1) % train.replicas))))
    }
}

/// What ranks need that train together.
#[derive(Clone, Debug)]
pub struct RanksPlan {
    /// The rank that needs the most memory.
    pub seat: Seat,
    /// Its memory.
    pub memory: MemoryPlan,
    /// The work of the rank that computes the most.
    pub work: Work,
    /// Bytes of a step of the rank that sends the most.
    pub sent: u64,
}

/// The plan of a run, with evaluation, on so many ranks. `Error::Value` when there are more than replicas.
pub fn plan_ranks(config: &MoEConfig, train: &TrainConfig, machine: Machine, ranks: usize) -> Result<RanksPlan> {
    check_ranks(ranks, train.replicas)?;
    let (mut seats, mut known) = (Vec::new(), HashSet::new()); // the first of those that need the same
    for seat in (0..ranks).map(|rank| Seat { rank, ranks }) {
        if known.insert(seat.share(config, train)?) {
            seats.push(seat);
        }
    }
    let mut found =
        RanksPlan { seat: Seat { rank: 0, ranks }, memory: MemoryPlan::default(), work: Work::default(), sent: 0 };
    for seat in &seats {
        let memory = plan_steps(config, train, machine, *seat, true, true)?;
        if memory.held > found.memory.held {
            (found.seat, found.memory) = (*seat, memory);
        }
    }
    for seat in seats {
        let (work, sent) = work_of_rank(config, train, machine, seat)?;
        if work.flops() > found.work.flops() {
            found.work = work;
        }
        found.sent = found.sent.max(sent);
    }
    Ok(found)
}
