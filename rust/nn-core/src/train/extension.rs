//! Runs that become longer than they were begun: `extensions` in their run.json, and what that does to their schedule.
//!
//! ```json
//! "extensions": [{"from_step": 1000, "steps": 3000, "learning_rate": 0.002, "min_rate_share": 0.1,
//!                 "warmup_steps": 50}]
//! ```
//!
//! An entry is the schedule that holds behind a step. Checkpoints behind it have it in their options; the one of that
//! step does not, so a run that is taken up there is given it again. What a kill leaves is therefore an extended run.

use std::path::Path;

use nn_ffi::{Context, kernels};

use super::checkpoint::TrainingState;
use super::config::TrainConfig;
use super::sources::RECORD_FILE;
use crate::error::{Error, Result};
use crate::format::limits::COUNT;
use crate::format::{Table, Value, atomic, present, read_json};

/// The options of a run whose last checkpoint has this state: with an extension from its step, if any. `Error::Format`
/// for a run.json whose extensions are none.
pub(super) fn extended(folder: &Path, state: &TrainingState) -> Result<TrainConfig> {
    let path = folder.join(RECORD_FILE);
    let mut found = state.train.clone();
    if !present(&path) {
        return Ok(found);
    }
    for mut entry in entries(&read_json(&path)?).map_err(|error| error.in_file(&path))? {
        let from = entry.remove("from_step");
        let wrong = |error: Error| Error::format(&path, format!("extensions: {error}"));
        let options = state.train.extended(&entry).map_err(wrong)?;
        if from == Some(state.step.into()) {
            found = options;
        }
    }
    Ok(found)
}

/// The entries of a record.
fn entries(record: &Table) -> Result<Vec<Table>> {
    let list = match record.get("extensions") {
        None => return Ok(Vec::new()),
        Some(Value::List(list)) => list,
        Some(other) => return Err(Error::value(format!("extensions is {}; it must be a list", other.shown()))),
    };
    let mut wanted = vec!["from_step"];
    wanted.extend(TrainConfig::SCHEDULE);
    wanted.sort_unstable();
    let entry = |value: &Value| {
        let table = value.as_table().filter(|table| {
            let mut names: Vec<_> = table.names().collect();
            names.sort_unstable();
            names == wanted
        });
        let Some(table) = table else {
            let names = TrainConfig::SCHEDULE.join(", ");
            return Err(Error::value(format!(
                "extensions has {}; an entry must have from_step, {names}",
                value.shown()
            )));
        };
        let step = table.get("from_step").unwrap_or(&Value::None);
        if step.as_integer::<usize>().is_none_or(|step| step > COUNT) {
            let step = step.shown();
            let problem = format!("extensions: from_step is {step}; it must be a whole number, from 0 to {COUNT}");
            return Err(Error::value(problem));
        }
        Ok(table.clone())
    };
    list.iter().map(entry).collect()
}

/// Refuses options that are not longer than those before, or than their own warm-up.
pub(super) fn check(before: &TrainConfig, after: &TrainConfig) -> Result<()> {
    if after.steps <= before.steps {
        let (steps, there) = (after.steps, before.steps);
        return Err(Error::value(format!("steps is {steps}; this run has {there} already: extend it to more")));
    }
    after.check_schedule()
}

/// Adds to a run's record that `options` hold behind `step`.
pub(super) fn record(folder: &Path, step: usize, options: &TrainConfig) -> Result<()> {
    let path = folder.join(RECORD_FILE);
    if !present(&path) {
        return Err(Error::missing(path, "is not there, where an extension is recorded"));
    }
    let mut record = read_json(&path)?;
    let mut list = entries(&record).map_err(|error| error.in_file(&path))?;
    let (values, mut entry) = (options.to_table(), Table::from([("from_step", step.into())]));
    for name in TrainConfig::SCHEDULE {
        entry.set(name, values.get(name).cloned().unwrap_or(Value::None));
    }
    list.push(entry);
    record.set("extensions", Value::List(list.into_iter().map(Value::Table).collect()));
    atomic::write_file(&path, Value::Table(record).to_json_lines().as_bytes())
}

/// What an extension does to the schedule of a run that stands here, in words.
pub(super) fn text(ctx: &Context, state: &TrainingState, before: &TrainConfig, after: &TrainConfig) -> Result<String> {
    let skipped = state.loss_scaling.map_or(0, |scaling| scaling.skipped);
    let updates = i32::try_from(state.step).unwrap_or(i32::MAX) - skipped;
    let [from, to] = [before, after].map(|options| Ok::<_, Error>(format!("{:.2e}", rate(ctx, options, updates)?)));
    let (step, there, steps) = (state.step, before.steps, after.steps);
    Ok(format!(
        "extended at step {step} from {there} to {steps} steps: the cosine is stretched to the new end, and the rate at \
         step {step} changes from {} to {}",
        from?, to?
    ))
}

/// The rate of an update.
fn rate(ctx: &Context, options: &TrainConfig, update: i32) -> Result<f32> {
    let (step, rate) = (ctx.tensor(&[update.max(1) - 1], &[1])?, ctx.tensor(&[0f32], &[1])?);
    let (warmup, total, highest, lowest) = options.rates();
    kernels::lr_schedule(None, &step, &rate, warmup, total, highest, lowest)?;
    Ok(rate.item()?)
}
