//! The plan of a run on several ranks.

use std::ops::Range;

use nn_ffi::{Machine, expert_schedule, shard};

use super::seats::seats;
use super::{MemoryPlan, Work, plan_steps, work_of_rank};
use crate::error::Result;
use crate::layer::check_expert_parallel;
use crate::model::MoEConfig;
use crate::train::{Rank, TrainConfig, check_ranks};

/// Which rank of how many a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// From 0.
    pub rank: usize,
    /// In all.
    pub ranks: usize,
    /// How many of them share the experts out.
    pub expert_parallel: usize,
}

impl Seat {
    /// That of a run on one rank.
    pub const ALONE: Self = Self { rank: 0, ranks: 1, expert_parallel: 1 };

    /// That of a rank that trains.
    pub fn of(rank: Rank<'_>) -> Self {
        let (number, ranks) = rank.comm().map_or((0, 1), |comm| (comm.rank(), comm.ranks()));
        Self { rank: number, ranks, expert_parallel: rank.expert_parallel() }
    }

    /// Memory of the sums of experts' gradients that an update needs beyond one of `measured` sequences: with more
    /// micro-batches more of them may wait at once.
    pub(super) fn later_sums(self, config: &MoEConfig, train: &TrainConfig, measured: usize) -> Result<usize> {
        let group = self.expert_parallel;
        if group == 1 {
            return Ok(0);
        }
        let slots = |sequences: usize| {
            let count = sequences.div_ceil(train.micro_batch(train.batch_size));
            Ok(expert_schedule(train.replicas, self.ranks, self.rank / group * group, group, count, None)?.1)
        };
        let own = config.num_layers * config.num_experts / group * 3 * config.hidden_size * config.ffn_size;
        slots(train.batch_size).and_then(|all| Ok(4 * own * all.saturating_sub(slots(measured)?)))
    }

    /// The replicas of the rank, of so many.
    pub(super) fn replicas(self, count: usize) -> Result<Range<usize>> {
        Ok(shard(count, 1, self.ranks, self.rank)?)
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

/// The plan of a run, with evaluation, on so many ranks, `expert_parallel` of which share the experts out. `Error::Value`
/// when there are more ranks than replicas, or the experts cannot be shared out so.
pub fn plan_ranks(
    config: &MoEConfig,
    train: &TrainConfig,
    machine: Machine,
    ranks: usize,
    expert_parallel: usize,
) -> Result<RanksPlan> {
    check_ranks(ranks, train.replicas)?;
    check_expert_parallel(expert_parallel, ranks, config.num_experts)?;
    let seats = seats(config, train, machine, ranks, expert_parallel)?;
    let seat = Seat { rank: 0, ranks, expert_parallel };
    let mut found = RanksPlan { seat, memory: MemoryPlan::default(), work: Work::default(), sent: 0 };
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

/// `most`, and before it the plans of the powers of two of ranks below its own, from 1 on. Of each, the experts are shared
/// out by the largest divisor of ranks and experts that is no more than that of `most`. `Error::Value` as of `plan_ranks`.
pub fn plan_growth(
    config: &MoEConfig,
    train: &TrainConfig,
    machine: Machine,
    most: RanksPlan,
) -> Result<Vec<RanksPlan>> {
    let (mut plans, mut ranks) = (Vec::new(), 1);
    while ranks < most.seat.ranks {
        let mut size = most.seat.expert_parallel.min(ranks);
        while !ranks.is_multiple_of(size) || !config.num_experts.is_multiple_of(size) {
            size -= 1;
        }
        plans.push(plan_ranks(config, train, machine, ranks, size)?);
        ranks *= 2;
    }
    plans.push(most);
    Ok(plans)
}
