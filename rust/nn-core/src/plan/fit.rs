//! What would make a run fit that does not: other options, each with the memory that it needs.

use super::{Seat, plan_steps};
use nn_ffi::Machine;

use crate::error::{Error, Result};
use crate::format::Value;
use crate::model::{MoEConfig, Precision};
use crate::train::{MomentsKind, TrainConfig};

/// Options to change, and the memory that the run then needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Options by name, in order.
    pub changes: Vec<(&'static str, Value)>,
    /// The memory that the device then gives.
    pub held: usize,
}

type Changes = Vec<(&'static str, Value)>;

/// Up to three ways to need at most `free` bytes, the cheapest in time first; and, when none does, what needs least.
///
/// One option of each kind is tried alone, with as little of it as will do, then they are tried together; none of these
/// changes what is trained, up to rounding and what micro-batches balance. Shorter sequences, which do, come last.
pub fn ways_to_fit(
    config: &MoEConfig,
    train: &TrainConfig,
    machine: Machine,
    seat: Seat,
    free: usize,
    held_out: bool,
) -> Result<(Vec<Way>, Option<Way>)> {
    let (mut found, mut least) = (Vec::<Way>::new(), None::<Way>);
    for kind in to_try(config, train) {
        for changes in kind {
            if found.iter().any(|way| way.changes.iter().all(|change| changes.contains(change))) {
                continue; // less is enough
            }
            let held = match plan_steps(config, &changed(train, &changes)?, machine, seat, held_out, true) {
                Err(Error::TooLarge) => continue,
                planned => planned?.held,
            };
            let way = Way { changes, held };
            if least.as_ref().is_none_or(|least| held < least.held) {
                least = Some(way.clone());
            }
            if held <= free {
                found.push(way);
                break;
            }
        }
        if found.len() == 3 {
            break;
        }
    }
    Ok((found, least))
}

/// The options with changes of those that ways are made of.
fn changed(train: &TrainConfig, changes: &Changes) -> Result<TrainConfig> {
    let mut options = train.clone();
    for (name, value) in changes {
        match (*name, value) {
            ("recompute_experts", Value::Bool(recompute)) => options.recompute_experts = *recompute,
            ("keep_experts", value) => options.keep_experts = whole(value)?,
            ("moments", value) => {
                let kind = SMALLER_MOMENTS.into_iter().find(|(name, _)| value.as_text() == Some(name));
                options.moments = kind.map_or(options.moments, |(_, kind)| kind);
            }
            ("precision", _) => options.precision = Precision::BF16,
            ("micro_batch_size", value) => options.micro_batch_size = value.as_integer(),
            ("activation_checkpointing", value) => options.activation_checkpointing = whole(value)?,
            (_, value) => options.sequence_length = whole(value)?,
        }
    }
    Ok(options)
}

fn whole(value: &Value) -> Result<usize> {
    value.as_integer().ok_or_else(|| Error::value(format!("{} is no size", value.shown())))
}

/// Options of one kind after the other, and of a kind what costs less first: each alone, combinations of them, then
/// those with smaller moments, then shorter sequences.
fn to_try(config: &MoEConfig, train: &TrainConfig) -> Vec<Vec<Changes>> {
    let (every, experts, f32) =
        (train.activation_checkpointing, train.recompute_experts, train.precision == Precision::F32 && !config.ternary);
    let micro = smaller_micro_batches(train);
    // Where every block is computed again, none has experts of its own to keep.
    let mut none = vec![("recompute_experts", Value::Bool(false))];
    if train.keep_experts > 0 {
        none.push(("keep_experts", Value::from(0usize)));
    }
    let again = [vec![("activation_checkpointing", Value::from(1usize))], none.clone()].concat();
    let bf16 = vec![("precision", Value::from("bf16"))];
    let mut tries = vec![micro.clone()];
    if every != 1 && !experts {
        tries.push(vec![vec![("recompute_experts", Value::Bool(true))]]);
    }
    if every != 1 {
        let counts =
            [3usize, 2, 1].into_iter().filter(|count| *count <= config.num_layers && (every == 0 || *count < every));
        let changes = |count: usize| {
            let rest = if count > 1 { vec![("recompute_experts", Value::Bool(experts))] } else { none.clone() };
            [vec![("activation_checkpointing", Value::from(count))], rest].concat()
        };
        tries.push(counts.map(changes).collect());
    }
    if f32 {
        tries.push(vec![bf16.clone()]);
    }
    let smaller = smaller_moments(train);
    tries.extend([smaller.clone(), each(&micro, &again)]);
    let mut most = [vec![("micro_batch_size", Value::from(1usize))], again.clone()].concat();
    let mut rests = vec![again.clone()];
    if f32 {
        let together = [again, bf16.clone()].concat();
        tries.extend([vec![together.clone()], each(&micro, &bf16), each(&micro, &together)]);
        rests.push(together); // beside `again` alone, since bf16 keeps a second copy of the weights
        most.extend(bf16);
    }
    for moments in &smaller {
        for rest in &rests {
            let all = [rest.clone(), moments.clone()].concat();
            tries.extend([vec![all.clone()], each(&micro, &all)]);
        }
    }
    most.extend(smaller.into_iter().next_back().unwrap_or_default());
    let lengths: Vec<Changes> = std::iter::successors(Some(train.sequence_length / 2), |length| Some(length / 2))
        .take_while(|length| *length > 0)
        .map(|length| vec![("sequence_length", Value::from(length))])
        .collect();
    let together = lengths.iter().map(|shorter| [most.clone(), shorter.clone()].concat()).collect();
    tries.extend([lengths, together]);
    tries
}

/// Moments of fewer bits than f32 has, from the largest to the smallest.
const SMALLER_MOMENTS: [(&str, MomentsKind); 2] = [("bf16", MomentsKind::BF16), ("f8", MomentsKind::F8)];

/// Moments of fewer bits.
fn smaller_moments(train: &TrainConfig) -> Vec<Changes> {
    let at = SMALLER_MOMENTS.iter().position(|(_, kind)| *kind == train.moments).map_or(0, |at| at + 1);
    SMALLER_MOMENTS[at..].iter().map(|(name, _)| vec![("moments", Value::from(*name))]).collect()
}

/// The same changes beside each of some.
fn each(some: &[Changes], more: &Changes) -> Vec<Changes> {
    some.iter().map(|changes| [changes.clone(), more.clone()].concat()).collect()
}

/// Half the micro-batch, half of that, and so on.
fn smaller_micro_batches(train: &TrainConfig) -> Vec<Changes> {
    let mut size = train.micro_batch_size.unwrap_or(train.batch_size).min(train.batch_size);
    let mut sizes = Vec::new();
    while size > 1 {
        size = size.div_ceil(2);
        sizes.push(vec![("micro_batch_size", Value::from(size))]);
    }
    sizes
}
