//! Digests of the state of a training: `cuda_digest` of every tensor that a step depends on.

use std::collections::HashMap;
use std::fmt::Write;

use nn_ffi::{DType, Tensor, kernels};

use super::config::TrainConfig;
use super::moments;
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::model::{ParameterLayout, Precision, overlap};

/// Digits of a digest.
const DIGITS: usize = 32;

/// The tensors that a step depends on, in the order of their digests: parameters and moments as checkpoints name them, the
/// number of updates, and the loss scaling of f16.
pub(super) fn names(layout: &ParameterLayout, config: &TrainConfig) -> Vec<String> {
    let mut names: Vec<String> = layout.specs().iter().map(|spec| spec.name.clone()).collect();
    names.extend(moments::names(layout, config.moments));
    names.push("updates".into());
    if config.precision == Precision::F16 {
        names.extend(["loss_scale", "good_steps", "skipped_steps"].map(String::from));
    }
    names
}

/// The digests of the state of a trainer, 32 digits each, the same with any number of ranks; all of them call it.
pub(super) fn of(trainer: &Trainer) -> Result<String> {
    trainer.replicas().aborting(sums(trainer))
}

fn sums(trainer: &Trainer) -> Result<String> {
    let names = names(trainer.model().layout(), trainer.config());
    let places: HashMap<_, _> = names.iter().map(String::as_str).zip(0..).collect();
    let comm = trainer.replicas().comm();
    let (rank, ranks) = comm.map_or((0, 1), |comm| (comm.rank(), comm.ranks()));
    let numbers = 2 * names.len();
    let sums = trainer.model().context().zeros(&[ranks * numbers], DType::I64)?;
    each_part(trainer, rank == 0, |name, first, part| {
        let at = places.get(name).ok_or_else(|| Error::value(format!("{name} is no tensor of the state")))?;
        let place = sums.narrow(0, rank * numbers + 2 * at, 2)?;
        Ok(kernels::digest(&part.view(&[part.len()])?.as_bytes()?, &place, first as i64)?)
    })?;
    if let Some(comm) = comm {
        comm.all_gather(&sums, numbers)?;
    }
    let values = sums.to_vec::<i64>()?;
    Ok((0..numbers).fold(String::new(), |mut text, at| {
        let total = values[at..].iter().step_by(numbers).fold(0u64, |sum, part| sum.wrapping_add(part.cast_unsigned()));
        let _ = write!(text, "{total:016x}");
        text
    }))
}

/// Calls `visit` with what this rank has of the state, and, where `small` says so, with the numbers that all have: a name,
/// the first of its elements, and those from there on.
fn each_part(trainer: &Trainer, small: bool, mut visit: impl FnMut(&str, usize, &Tensor) -> Result<()>) -> Result<()> {
    let (layout, parameters) = (trainer.model().layout(), trainer.model().parameters().data());
    for own in trainer.device_moments().own() {
        for spec in layout.specs() {
            let elements = overlap(own, spec.offset, spec.shape.iter().product());
            if !elements.is_empty() {
                let part = parameters.narrow(0, spec.offset + elements.start, elements.len())?;
                visit(&spec.name, elements.start, &part)?;
            }
        }
    }
    moments::each(trainer, &mut visit)?;
    if small {
        for (name, number) in trainer.counters() {
            visit(name, 0, number)?;
        }
    }
    Ok(())
}

/// The tensors whose digests differ; one that either side lacks differs.
pub(super) fn different<'a>(names: &'a [String], expected: &str, found: &str) -> Vec<&'a str> {
    fn part(digests: &str, at: usize) -> Option<&str> {
        digests.get(DIGITS * at..DIGITS * (at + 1))
    }
    let same = |at: usize| part(found, at).is_some() && part(found, at) == part(expected, at);
    (0..names.len()).filter(|at| !same(*at)).map(|at| names[at].as_str()).collect()
}
