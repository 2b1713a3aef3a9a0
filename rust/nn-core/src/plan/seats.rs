//! Which ranks of a job a plan has to look at.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use nn_ffi::{Device, ExpertEvent, Machine, expert_schedule, replica_merges, shard};

use super::Seat;
use crate::error::Result;
use crate::model::{Held, MoEConfig, ParameterLayout, Precision, Updates};
use crate::train::{TrainConfig, partitions_gradients, sums_left};

/// Bytes of a page, in which a device gives memory in parts.
fn page_of(machine: Machine) -> usize {
    if matches!(machine, Machine::Cpu { .. }) { 4096 } else { 2 << 20 }
}

/// Of whose squares the norm of the gradients has one sum: `NN_GRAD_CHUNK_CPU` and `NN_GRAD_CHUNK_GPU` of the library.
fn chunk(machine: Machine) -> usize {
    match machine {
        Machine::Cpu { .. } => 16384,
        Machine::Cuda { .. } => 32768,
    }
}

/// Some, of which none needs, computes or sends less than one that is left out.
pub(super) fn seats(
    config: &MoEConfig,
    train: &TrainConfig,
    machine: Machine,
    ranks: usize,
    expert_parallel: usize,
) -> Result<Vec<Seat>> {
    let (held, sent) = of_parameters(config, train, machine, ranks, expert_parallel)?;
    let mut alike = Alike::default();
    let mut group = Rounds { own: vec![Vec::new()], ..Rounds::default() }; // none where each rank has all experts
    for seat in (0..ranks).map(|rank| Seat { rank, ranks, expert_parallel }) {
        let position = seat.rank % expert_parallel;
        if position == 0 && expert_parallel > 1 {
            group = Rounds::new(train, ranks, expert_parallel, seat.rank)?;
        }
        let done = (share(train, seat)?, group.happens.clone(), group.own[position].clone());
        alike.enter((false, done.clone()), seat, held[seat.rank]);
        alike.enter((true, done), seat, sent[seat.rank]);
    }
    Ok(alike.most())
}

/// Of ranks that do the same, the one with the most of a number; of equals the first.
struct Alike<K> {
    places: HashMap<K, usize>,
    best: Vec<(Seat, i64)>,
}

impl<K> Default for Alike<K> {
    fn default() -> Self {
        Self { places: HashMap::new(), best: Vec::new() }
    }
}

impl<K: Hash + Eq> Alike<K> {
    fn enter(&mut self, done: K, seat: Seat, number: i64) {
        let place = *self.places.entry(done).or_insert(self.best.len());
        match self.best.get_mut(place) {
            Some(best) if number > best.1 => *best = (seat, number),
            Some(_) => {}
            None => self.best.push((seat, number)),
        }
    }

    /// Each once.
    fn most(self) -> Vec<Seat> {
        let mut found = Vec::new();
        for (seat, _) in self.best {
            if !found.contains(&seat) {
                found.push(seat);
            }
        }
        found
    }
}

/// By how much the ranks of which so many share the experts out differ: bytes of what each holds, in pages of the CPU, and
/// of what it sends, in each with something left out that all have alike which do the same.
fn of_parameters(
    config: &MoEConfig,
    train: &TrainConfig,
    machine: Machine,
    ranks: usize,
    group: usize,
) -> Result<(Vec<i64>, Vec<i64>)> {
    let layout = ParameterLayout::new(config)?;
    let updates = Updates::new(&layout, ranks, 0, group)?;
    let (weight, wire) = (train.precision.dtype().size(), train.reduce_dtype.dtype().size());
    let bytes = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let left = |first: usize, end: usize| {
        let (first, end) =
            (shard(train.replicas, 1, ranks, first)?.start, shard(train.replicas, 1, ranks, end - 1)?.end);
        sums_left(train.replicas, first..end)
    };
    let (mut sent, mut dense, mut of_own) = (vec![0; ranks], vec![0; ranks], vec![0; ranks]);
    for (position, shard) in updates.by_position(&layout, group) {
        let (count, rank) = (shard.elements.len(), shard.rank);
        let readers = position.map_or(ranks - 1, |position| ranks / group - usize::from(rank % group == position));
        sent[rank] += bytes(weight * count * readers);
        let Some(position) = position else {
            dense[rank] += count;
            continue;
        };
        let owner = rank / group * group + position;
        of_own[owner] += count;
        if owner != rank {
            sent[owner] += bytes(4 * count);
        }
    }
    for shard in updates.shards() {
        sent[shard.rank] += bytes(8 * (ranks - 1) * shard.elements.len().div_ceil(chunk(machine)));
    }
    let device = if matches!(machine, Machine::Cpu { .. }) { Device::Cpu } else { Device::Cuda(0) };
    let partitions = partitions_gradients(config, train, device, ranks, group)?;
    let page = page_of(machine);
    let mut held = Vec::with_capacity(ranks);
    for (rank, sent) in sent.iter_mut().enumerate() {
        let updates = updates.of_rank(rank);
        let own: usize = updates.own().iter().map(Range::len).sum();
        let computes = Held::computed(&layout, &updates, rank % group, group);
        let pages = |ranges: &[Range<usize>], size: usize| -> usize {
            let count = |range: &Range<usize>| (size * range.end).div_ceil(page) - size * range.start / page;
            ranges.iter().map(count).sum()
        };
        let master = if train.precision == Precision::F32 { 0 } else { pages(updates.own(), 4) };
        let gradients =
            if partitions { pages(Held::to_keep(&layout, &updates).ranges(), 4) } else { pages(&computes, 4) };
        let arenas = page * (pages(&computes, weight) + gradients + master);
        let kind = train.moments;
        held.push(bytes(arenas + 2 * (kind.dtype().size() * own + 4 * kind.scales(own))));
        // Of the sums that it has at the end, it keeps those that it updates, and of its experts those that its group does,
        // and sends all others to other ranks, where there are some.
        let first = rank - rank % group;
        let sums = if ranks > group { left(first, first + group)? } else { 0 };
        *sent -= bytes(wire * (left(rank, rank + 1)? * dense[rank] + sums * of_own[rank]));
    }
    Ok((held, sent))
}

/// What a group does.
#[derive(Default)]
struct Rounds {
    /// What happens in its rounds, whichever micro-batches these are, and how many sums are merged into each replica's.
    happens: (Vec<ExpertEvent>, Vec<usize>),
    /// In which rounds each of its ranks runs a micro-batch.
    own: Vec<Vec<usize>>,
}

impl Rounds {
    /// Of the group that begins with a rank.
    fn new(train: &TrainConfig, ranks: usize, group: usize, first: usize) -> Result<Self> {
        let (mut events, _) = expert_schedule(train.replicas, ranks, first, group, train.micro_batches(), None)?;
        let mut own = vec![Vec::new(); group];
        for event in &mut events {
            if let ExpertEvent::Run { round, source, micro_batch, .. } = event {
                own[*source].push(*round);
                *micro_batch = 0;
            }
        }
        let replicas = shard(train.replicas, 1, ranks / group, first / group)?;
        let merges = replicas.clone().map(|replica| replica_merges(train.replicas, replicas.start, replica));
        Ok(Self { happens: (events, merges.collect::<nn_ffi::Result<_>>()?), own })
    }
}

/// What a rank does of each kind: how many sums it merges into each replica's, how many of its replicas have a micro-batch
/// more, and whether the last one is shorter and its own.
fn share(train: &TrainConfig, seat: Seat) -> Result<(Vec<usize>, usize, bool)> {
    let own = seat.replicas(train.replicas)?;
    let merges = own.clone().map(|replica| replica_merges(train.replicas, own.start, replica));
    let (micro, count) = (train.micro_batch(train.batch_size), train.micro_batches());
    let more = own.clone().filter(|replica| *replica < count % train.replicas).count();
    let ragged = !train.batch_size.is_multiple_of(micro) && own.contains(&((count - 1) % train.replicas));
    Ok((merges.collect::<nn_ffi::Result<_>>()?, more, ragged))
}
