//! `nncuda-rs shadow`: a training step, or generation, with every kernel call a second time on another engine.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use nn_core::Result;
use nn_core::format::atomic;
use nn_core::generate::{Sampling, generate_batch};
use nn_core::model::{MoETransformer, Precision};
use nn_core::train::{Batch, Checkpoint, Trainer, resolve_checkpoint};
use nn_ffi::{Context, Device, InstructionSet, Shadow};
use serde::Serialize;

use crate::failure::Failure;
use crate::flags::{ConfigFlags, ConfigSource, DeviceFlags};
use crate::generate::checkpoint_ids;
use crate::paths;
use crate::terminal::{columns, short_text};

/// What a shadow run compares with.
const BASELINE: &str = "baseline";
const CPU: &str = "cpu";
/// Only Python has this one.
const F64: &str = "f64";

/// Run every kernel call of a training step a second time on another engine, and compare what they wrote.
///
/// The step is that of a new model, whose options come from the same sources as those of `nncuda-rs train`; of MODEL, a
/// checkpoint or the folder of a run, the next one of its trainer; its token ids are made up. With --prompt, MODEL
/// continues a text instead.
///
/// An element may differ by as much as the roundings of its call explain. The exit code is 1 if any differs by more,
/// or if nothing could be compared.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "this is the command's help, where brackets are brackets")]
pub(crate) struct Arguments {
    /// A checkpoint or the folder of a run.
    #[arg(value_name = "MODEL", value_parser = paths::file_or_folder)]
    model: Option<PathBuf>,
    /// What to compare with: the CPU engine with its plainest instruction set (baseline), or with the widest (cpu).
    /// [default: cpu for a GPU, else baseline]
    #[arg(long, value_name = "NAME", value_parser = [BASELINE, CPU, F64], hide_possible_values = true)]
    reference: Option<String>,
    /// With MODEL: continue this text instead of training.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// TEXT is token ids; no tokenizer is needed.
    #[arg(long)]
    ids: bool,
    /// With --prompt: tokens to write.
    #[arg(long, value_name = "INTEGER", default_value = "16", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Of a run, take the checkpoint with the lowest held-out loss, not the last.
    #[arg(long)]
    best: bool,
    #[command(flatten)]
    source: ConfigSource,
    #[command(flatten)]
    device: DeviceFlags,
    /// Instruction set to check.  [default: the widest]
    #[arg(long, value_name = "NAME", value_parser = instruction_set())]
    isa: Option<InstructionSet>,
    /// Also write what was found to this file.
    #[arg(long, value_name = "FILE", value_parser = paths::new_file)]
    json: Option<PathBuf>,
    #[command(flatten)]
    options: ConfigFlags,
}

fn instruction_set() -> impl TypedValueParser<Value = InstructionSet> {
    PossibleValuesParser::new(InstructionSet::ALL.map(InstructionSet::name)).try_map(|name| name.parse())
}

/// What was compared with what, and what was found, as --json has it.
#[derive(Serialize)]
struct Report {
    device: String,
    isa: Option<&'static str>,
    reference: String,
    #[serde(flatten)]
    found: Shadow,
}

pub(crate) fn run(arguments: Arguments) -> std::result::Result<(), Failure> {
    check_flags(&arguments)?;
    let opened = arguments.model.as_deref().map(|path| Checkpoint::open(&resolve_checkpoint(path, arguments.best)?));
    let checkpoint = opened.transpose()?;
    let prompt = match (&checkpoint, &arguments.prompt) {
        (Some(checkpoint), Some(prompt)) => Some(checkpoint_ids(checkpoint, prompt, arguments.ids)?),
        _ => None,
    };
    let ctx = arguments.device.open()?;
    if let Some(isa) = arguments.isa {
        if ctx.device() != Device::Cpu {
            return Err(Failure::Usage("--isa is for --device cpu".into()));
        }
        ctx.set_isa(isa)?;
    }
    let usual = if ctx.device() == Device::Cpu { BASELINE } else { CPU };
    let reference = arguments.reference.clone().unwrap_or_else(|| usual.to_owned());
    let plainest = (reference == BASELINE).then_some(InstructionSet::Baseline);
    let other = arguments.device.open_cpu(plainest)?;
    let found = match (checkpoint, prompt) {
        (None, _) => step(&ctx, &other, new_trainer(&ctx, &arguments)?)?,
        (Some(checkpoint), None) => step(&ctx, &other, checkpoint.trainer(&ctx)?)?,
        (Some(checkpoint), Some(ids)) => {
            let model = checkpoint.model(&ctx, false, Precision::F32)?;
            generation(&ctx, &other, &model, ids, arguments.max_tokens as usize)?
        }
    };
    let isa = ctx.isa()?.map(InstructionSet::name);
    let report = Report { device: ctx.device().to_string(), isa, reference, found };
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"; // nothing in it can fail
        atomic::write_file(path, text.as_bytes())?;
    }
    io::stdout().write_all(report.text().as_bytes())?;
    verdict(report.found.over, report.found.compared)
}

/// What is wrong with what was found.
fn verdict(over: u64, compared: u64) -> std::result::Result<(), Failure> {
    match (over, compared) {
        (0, 0) => Err(Failure::Check("no call could be compared".into())),
        (0, _) => Ok(()),
        _ => Err(Failure::Check(format!("{over} of {compared} calls are beyond their bound"))),
    }
}

/// Refuses flags that do not go together.
fn check_flags(arguments: &Arguments) -> std::result::Result<(), Failure> {
    let given = [(arguments.source.config.is_some(), "config"), (arguments.source.preset.is_some(), "preset")];
    let given = given.into_iter().filter_map(|(given, name)| given.then_some(name)).chain(arguments.options.names());
    let problem = match given.map(|name| name.replace('_', "-")).next() {
        _ if arguments.reference.as_deref() == Some(F64) => {
            format!("nncuda-rs has no reference '{F64}'; the Python package has it: nncuda shadow --reference {F64}")
        }
        _ if arguments.model.is_none() && (arguments.prompt.is_some() || arguments.best) => {
            "--prompt and --best need MODEL, a checkpoint or the folder of a run".into()
        }
        Some(name) if arguments.model.is_some() => format!("MODEL has its own options; leave out --{name}"),
        _ => return Ok(()),
    };
    Err(Failure::Usage(problem))
}

fn new_trainer(ctx: &Context, arguments: &Arguments) -> Result<Trainer> {
    let (source, file) = (&arguments.source, arguments.source.file()?);
    let vocab_size = source.preset_vocabulary(&file)?;
    let (model, train) = file.options(source.preset.as_deref(), &arguments.options, vocab_size)?;
    let model = MoETransformer::random_in(ctx, model, train.seed, true, train.precision)?;
    Trainer::new(model, train, false)
}

/// A training step on made-up ids, the same in every language.
fn step(ctx: &Context, other: &Context, mut trainer: Trainer) -> Result<Shadow> {
    let (rows, length) = (trainer.config().batch_size, trainer.config().sequence_length);
    let vocab = trainer.model().config().vocab_size as i64;
    let id = |at: usize| {
        let at = at as i64;
        (31_i64.wrapping_mul(at).wrapping_mul(at)).wrapping_add(17 * at).rem_euclid(vocab) as i32
    };
    let ids = |shift: usize| {
        (0..rows).flat_map(move |row| (0..length).map(move |column| id(row * (length + 1) + column + shift))).collect()
    };
    let batch = Batch { rows, length, inputs: ids(0), targets: ids(1), document_ends: None };
    let (_, found) = ctx.shadow(other, || trainer.train_step(&batch).map(|_| ()))?;
    Ok(found)
}

fn generation(ctx: &Context, other: &Context, model: &MoETransformer, ids: Vec<i32>, most: usize) -> Result<Shadow> {
    let (_, found) = ctx.shadow(other, || {
        let mut steps = generate_batch(model, &[ids], most, &Sampling::default(), None, false)?;
        steps.try_for_each(|tokens| tokens.map(|_| ()))
    })?;
    Ok(found)
}

impl Report {
    fn text(&self) -> String {
        let found = &self.found;
        let mut rows = vec![["kernel", "calls", "compared", "over", "largest share"].map(String::from).to_vec()];
        rows.extend(found.kernels.iter().map(|kernel| {
            let share =
                kernel.largest.as_ref().map_or("-".into(), |largest| largest.share.map_or("beyond".into(), short_text));
            let [calls, compared, over] = [kernel.calls, kernel.compared, kernel.over].map(|count| count.to_string());
            vec![kernel.kernel.clone(), calls, compared, over, share]
        }));
        let mut text = columns(&rows);
        let (calls, compared, moves) = (found.calls, found.compared, found.moves);
        text += &format!("\n{calls} calls, {compared} compared with {}, {moves} moves of bytes.\n", self.reference);
        for kernel in &found.kernels {
            if let Some(why) = &kernel.why {
                text += &format!("{} was not compared: {why}\n", kernel.kernel);
            }
        }
        if let Some(first) = &found.first {
            let place = &first.place;
            let part = place.label.as_ref().map_or(String::new(), |label| format!(" in {label}"));
            text += &format!(
                "First beyond its bound: call {}, {}{part}: {} {:?} at {:?} is {}, the reference has {}; bound {}.\n",
                place.call,
                place.kernel,
                place.argument,
                place.shape,
                place.index,
                first.value,
                first.reference,
                short_text(first.bound),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_of_a_run() {
        let said = |over, compared| verdict(over, compared).err().map(|failure| failure.to_string());
        assert_eq!(said(0, 8), None);
        assert_eq!(said(1, 8).as_deref(), Some("1 of 8 calls are beyond their bound"));
        assert_eq!(said(0, 0).as_deref(), Some("no call could be compared"));
    }
}
