//! A run that has diverged: where it began, and the sentence that says so.

use nn_ffi::{NonFinite, Place};

use super::data::Batch;
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::format::value::significant;
use crate::model::{ParameterArena, host_values};

const ADVICE: &str = "the last checkpoint is from before that. A lower learning rate or a longer warm-up usually helps";

/// A rank that ran a batch alone would wait for the experts of the others.
const NOT_SEARCHED: &str = "is not searched for while experts are on several ranks";

const PARTITIONED: &str = "the largest gradient is not searched for while each rank keeps some of them";

/// The error of a loss or gradients that are not finite, with where that began: found by running the batch of that step
/// again, under a trace. `reported` stands for the loss when the search itself fails.
pub(super) fn not_finite(trainer: &mut Trainer, batch: Result<Batch>, step: usize, reported: f64) -> Error {
    let told = |loss, origin: &str| {
        Error::Diverged(format!("the loss is {:?} at step {step}: {origin}; {ADVICE}", significant(loss, 4)))
    };
    if trainer.model().experts().is_some() {
        return told(reported, &format!("the place where it began {NOT_SEARCHED}"));
    }
    let ctx = trainer.model().context().clone();
    let found = batch.and_then(|batch| {
        let (loss, found) = ctx.trace_nonfinite(|| trainer.gradients_again(&batch))?;
        Ok((loss, origin(trainer, found)?))
    });
    let (loss, origin) =
        found.unwrap_or_else(|error| (reported, format!("where it began could not be found ({error:#})")));
    told(loss, &origin)
}

/// The error of a reported loss that is finite and above the limit. Looks at the gradients of the last step.
pub(super) fn too_large(trainer: &Trainer, loss: f64, step: usize, limit: f64) -> Result<Error> {
    let largest = if trainer.model().experts().is_some() {
        format!("the largest gradient {NOT_SEARCHED}")
    } else {
        if trainer.model().gradients()?.is_whole() {
            trainer.gather_gradients()?;
        }
        largest_gradient(trainer)?
    };
    let (loss, limit) = (significant(loss, 4), significant(limit, 4));
    Ok(Error::Diverged(format!("the loss is {loss:?} at step {step}, above max_loss ({limit:?}): {largest}; {ADVICE}")))
}

/// What was found, by the name of a parameter or its gradient, else by the call that made it.
fn origin(trainer: &Trainer, found: Option<NonFinite>) -> Result<String> {
    let Some(NonFinite { place, address, value, .. }) = found else { return largest_gradient(trainer) };
    let model = trainer.model();
    let named = |arena: &ParameterArena| arena.find(address).map(|(spec, index)| (spec.name.clone(), index));
    let (what, index) = if let Some((name, index)) = named(model.weights()) {
        (name, index)
    } else if let Some((name, index)) = named(model.gradients()?) {
        (format!("the gradient of {name}"), index)
    } else {
        let Place { label, kernel, argument, index, .. } = place;
        let part = label.map_or(String::new(), |label| format!(" in {label}"));
        (format!("{argument} of {kernel}{part}"), index)
    };
    Ok(format!("{what} is not finite, first at {index:?} ({value})"))
}

/// The parameter whose gradient has the largest norm, the loss scale divided out; of equals the first in the arena. Nothing is
/// found where this rank keeps some gradients alone.
fn largest_gradient(trainer: &Trainer) -> Result<String> {
    let gradients = trainer.model().gradients()?;
    if !gradients.is_whole() {
        return Ok(PARTITIONED.into());
    }
    let mut largest: Option<(&str, f64)> = None;
    for spec in trainer.model().layout().specs() {
        let values = host_values(&gradients.get(&spec.name)?)?;
        let norm = values.into_iter().map(|value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt();
        if largest.is_none_or(|(_, most)| norm > most) {
            largest = Some((&spec.name, norm));
        }
    }
    let (name, norm) = largest.unwrap_or_default();
    let norm = significant(norm / trainer.last_loss_scale()?.unwrap_or(1.0), 2);
    Ok(format!("the largest gradient is that of {name} (norm {norm:?})"))
}
