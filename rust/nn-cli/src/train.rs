//! `nncuda-rs train`: start a training run, or continue one.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nn_core::Error;
use nn_core::format::{Tokenizer, Value};
use nn_core::model::MoEConfig;
use nn_core::tokenizer::CarriedTokenizer;
use nn_core::train::{Event, Origin, Rank, Sources, TrainConfig, TrainingRun, open_shards};

use crate::failure::Failure;
use crate::flags::{ConfigFlags, ConfigSource, DeviceFlags};
use crate::interrupt::Interrupts;
use crate::paths;
use crate::plan::require_fit;
use crate::ranks::{self, RankFlags};
use crate::terminal::{count_text, grouped_text};

/// What `run.json` says of this program.
const PROGRAM: &str = concat!("nncuda-rs ", env!("CARGO_PKG_VERSION"));

/// Train a model in the folder RUN.
///
/// Options come from --preset (with the vocabulary of the data), overridden by a TOML file with the tables [model]
/// (also `preset`), [train] and [data] (`data`, `held_out`, `tokenizer`), overridden by the flags. A run may be
/// interrupted or even killed: --resume continues from the last checkpoint, to the same bits as a run that never
/// stopped. SIGINT or SIGTERM ends it after the current step, with a checkpoint; a second one ends it at once.
///
/// --extend --steps N makes a run longer; the other options of its learning rate may change, too. The cosine is then
/// stretched to the new end, so that the rate jumps; a line on standard error says how.
///
/// --from MODEL begins with trained weights instead of random ones. The sizes of the model are those there; other
/// values of its options are refused, but for --capacity-factor and --aux-alpha. Options of training begin at their
/// defaults, not at a preset's, with 1000 steps and a rate of 5e-5. Checkpoints are folders, whatever MODEL is.
///
/// --from MODEL --lora-rank R trains an adapter (LoRA) and leaves the model as it is stored: a dense Llama, Mistral or
/// Qwen, a folder or a GGUF file in any format. Checkpoints are folders of PEFT, which --adapter of other commands
/// takes, as it takes RUN. The rate is 2e-4 by default.
///
/// A run that needs more memory than the device has free (`nncuda-rs plan`) is not started.
///
/// Several ranks share out a run with --replicas: `mpiexec -n 4 nncuda-rs train RUN ...`. The first one talks. With
/// --expert-parallel each holds only some of the experts. How many there are changes no bit; --resume may have others.
///
/// If standard output is not a terminal, the lines of RUN/metrics.jsonl are written to it as they come, and nothing
/// else.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "this is the command's help, where brackets are brackets")]
pub(crate) struct Arguments {
    /// The folder of the run.
    #[arg(value_name = "RUN", value_parser = paths::new_folder)]
    run: PathBuf,
    #[command(flatten)]
    source: ConfigSource,
    /// A token shard, or a folder of them.
    #[arg(long, value_name = "PATH", value_parser = paths::file_or_folder)]
    data: Option<PathBuf>,
    /// The same, for evaluation.
    #[arg(long, value_name = "PATH", value_parser = paths::file_or_folder)]
    held_out: Option<PathBuf>,
    /// The tokenizer of the data, which is saved with the checkpoints.
    #[arg(long, value_name = "FILE", value_parser = paths::file)]
    tokenizer: Option<PathBuf>,
    /// Begin with weights and tokenizer of a checkpoint, a run, a Mixtral, Llama, Mistral or Qwen of Hugging Face, or a GGUF
    /// file of one in f32, f16 or bf16; with --lora-rank, train beside any of these.
    #[arg(long, value_name = "PATH", value_parser = paths::file_or_folder)]
    from: Option<PathBuf>,
    /// With --from: also with the moments, the step and the loss scale of that checkpoint.
    #[arg(long)]
    with_optimizer: bool,
    /// Resume the run from its last checkpoint, with its original options.
    #[arg(long)]
    resume: bool,
    /// Continue the run, finished or not, up to a larger number of --steps; run.json records it.
    #[arg(long)]
    extend: bool,
    #[command(flatten)]
    device: DeviceFlags,
    #[command(flatten)]
    ranks: RankFlags,
    /// Start even if the device has less free memory than the run needs.
    #[arg(long)]
    start_anyway: bool,
    #[command(flatten)]
    options: ConfigFlags,
}

pub(crate) fn run(arguments: Arguments, interrupts: &Interrupts) -> Result<(), Failure> {
    let ctx = arguments.device.open_local().inspect_err(|failure| ranks::cannot_begin(&failure.to_string()))?;
    let comm = arguments.ranks.open(&ctx)?;
    let rank = Rank::from(&comm).with_expert_parallel(arguments.ranks.expert_parallel);
    let opened = if arguments.resume || arguments.extend { reopen(&arguments, rank) } else { start(&arguments, rank) };
    if let Err(failure) = &opened {
        let _ = comm.abort(&failure.to_string()); // the failure itself is told below
    }
    let mut training = opened?;
    if let Some(notice) = training.notice().filter(|_| training.is_first()) {
        eprintln!("{notice}");
    }
    interrupts.stop(training.stop_flag())?;
    if !training.is_first() {
        run_aside(&mut training, comm.rank(), arguments.ranks.log_ranks)?;
    } else if io::stdout().is_terminal() {
        run_with_progress(&mut training)?;
    } else {
        run_with_records(&mut training)?;
    }
    let (step, steps) = (training.trainer().step(), training.trainer().config().steps);
    if step < steps && training.is_first() {
        eprintln!("stopped after step {step} of {steps}; --resume continues from there");
    }
    Ok(())
}

fn start(arguments: &Arguments, rank: Rank<'_>) -> Result<TrainingRun, Failure> {
    let file = arguments.source.file()?;
    let flags = [&arguments.data, &arguments.held_out, &arguments.tokenizer];
    let [data, held_out, tokenizer] = file.data()?;
    let chosen = [data, held_out, tokenizer].into_iter().zip(flags).map(|(of_file, flag)| flag.clone().or(of_file));
    let chosen: Vec<Option<PathBuf>> = chosen.collect();
    let [Some(data), held_out, tokenizer] = &chosen[..] else {
        let problem = "say what to train on: --data, or `data` under [data] in the --config file";
        return Err(Failure::Usage(problem.into()));
    };
    let load = || tokenizer.as_ref().map(Tokenizer::load).transpose();
    let admit = |model: &MoEConfig, options: &TrainConfig| {
        if arguments.start_anyway { Ok(()) } else { require_fit(rank, model, options, held_out.is_some()) }
    };
    let (run, held_out) = (&arguments.run, held_out.as_deref());
    let training =
        if let Some(origin) = origin(arguments, tokenizer.as_deref(), file.trains_adapter(&arguments.options))? {
            let (origin, options) = file.options_from(origin, &arguments.options)?;
            admit(origin.config(), &options)?;
            TrainingRun::start_from(run, rank, &origin, options, data, held_out, load()?)?
        } else {
            let vocab_size = open_shards(data)?[0].vocab_size();
            let (model, options) = file.options(arguments.source.preset.as_deref(), &arguments.options, vocab_size)?;
            admit(&model, &options)?;
            TrainingRun::start(run, rank, model, options, data, held_out, load()?)?
        };
    if training.is_first() {
        Sources::new(data, held_out.map(PathBuf::from)).write(run, &training, PROGRAM)?;
    }
    Ok(training)
}

/// Where a run begins that has --from. Refuses what does not go with it, or needs it.
fn origin(arguments: &Arguments, tokenizer: Option<&Path>, adapter: bool) -> Result<Option<Origin>, Failure> {
    let refused = |problem: String| Err(Failure::Usage(problem));
    let Some(folder) = &arguments.from else {
        if adapter {
            return refused("--lora-rank needs --from, the model beside which an adapter is trained".into());
        }
        if arguments.with_optimizer {
            return refused("--with-optimizer needs --from, the checkpoint that has its state".into());
        }
        return Ok(None);
    };
    if arguments.source.preset.is_some() {
        return refused("--from gives the sizes of the model; leave out --preset".into());
    }
    if adapter {
        if arguments.with_optimizer {
            return refused("--lora-rank begins with an optimizer of its own; leave out --with-optimizer".into());
        }
        if tokenizer.is_some() {
            return refused("the tokenizer stays with the model of --from; leave out --tokenizer".into());
        }
        return Ok(Some(Origin::beside(folder)?));
    }
    let origin = Origin::open(folder, arguments.with_optimizer)?;
    if tokenizer.is_some() && origin.tokenizer().is_some_and(CarriedTokenizer::has_tokenizer) {
        return refused(format!("the tokenizer of {} comes along; leave out --tokenizer", folder.display()));
    }
    Ok(Some(origin))
}

/// Refuses flags that a resumed run does not take.
fn check_flags(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.resume && arguments.extend {
        let problem = "--resume continues a run as it is, --extend makes it longer; give one of them";
        return Err(Failure::Usage(problem.into()));
    }
    let (verb, schedule) =
        if arguments.extend { ("extend", TrainConfig::SCHEDULE.as_slice()) } else { ("resume", [].as_slice()) };
    let changeable = [schedule, &TrainConfig::CHANGEABLE].concat();
    let others = [
        (arguments.source.config.is_some(), "config"),
        (arguments.source.preset.is_some(), "preset"),
        (arguments.tokenizer.is_some(), "tokenizer"),
        (arguments.from.is_some(), "from"),
        (arguments.with_optimizer, "with_optimizer"),
    ];
    let other = others.into_iter().find(|(given, _)| *given).map(|(_, name)| name);
    if let Some(given) = arguments.options.names().find(|name| !changeable.contains(name)).or(other) {
        let flag = |name: &str| format!("--{}", name.replace('_', "-"));
        let mut taken: Vec<_> = changeable.into_iter().chain(["device", "threads"]).map(flag).collect();
        taken.push("--data and --held-out".into());
        return Err(Failure::Usage(format!(
            "--{verb} keeps the options of the run; leave out {}. It takes {}",
            flag(given),
            taken.join(", ")
        )));
    }
    if arguments.extend && !arguments.options.names().any(|name| name == "steps") {
        return Err(Failure::Usage("--extend needs --steps, the new total".into()));
    }
    Ok(())
}

fn reopen(arguments: &Arguments, rank: Rank<'_>) -> Result<TrainingRun, Failure> {
    check_flags(arguments)?;
    let mut sources = Sources::read(&arguments.run)?;
    sources.data = arguments.data.clone().unwrap_or(sources.data);
    sources.held_out = arguments.held_out.clone().or(sources.held_out);
    let changes = arguments.options.of_training();
    let admit = |model: &MoEConfig, options: &TrainConfig| {
        let held_out = sources.held_out.is_some();
        if arguments.start_anyway { Ok(()) } else { require_fit(rank, model, options, held_out) }
    };
    Ok(if arguments.extend {
        TrainingRun::extend(&arguments.run, rank, &sources, &changes, &admit)?
    } else {
        TrainingRun::resume_admitted(&arguments.run, rank, &sources, &changes, &admit)?
    })
}

/// Runs to the end with a progress bar; an interrupt makes it save and stop.
fn run_with_progress(training: &mut TrainingRun) -> Result<(), Failure> {
    let mut terminal = io::stdout();
    let (model, steps) = (training.trainer().model(), training.trainer().config().steps);
    let config = model.config();
    let tokens = u128::from(training.data().windows()) * training.data().length() as u128;
    if model.low_rank().is_some() {
        write!(terminal, "an adapter of {} beside ", count_text(model.layout().size() as u128))?;
    }
    writeln!(
        terminal,
        "{} parameters, {} active per token; {} tokens to train on; {}",
        count_text(config.num_parameters()),
        count_text(config.num_active_parameters()),
        count_text(tokens),
        model.context().device_text(),
    )?;
    let style = ProgressStyle::with_template("training {wide_bar} {pos}/{len} {msg} {eta_precise}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stdout()).with_style(style);
    bar.set_position(training.trainer().step() as u64);
    bar.reset_eta();
    let done = training.run(|event| {
        if let Event::Step(progress) = event {
            let held_out = progress.held_out_loss.map_or(String::new(), |loss| format!(", held-out {loss:.3}"));
            let speed = grouped_text(progress.tokens_per_second);
            let skipped = match progress.skipped_steps {
                0 => String::new(),
                steps => format!(", {steps} steps skipped"),
            };
            bar.set_message(format!("loss {:.3}{held_out}{skipped} · {speed} tokens/s", progress.loss));
            bar.set_position(progress.step as u64);
        }
        Ok(())
    });
    bar.abandon();
    done?;
    let (step, folder) = (training.trainer().step(), training.checkpoints());
    writeln!(terminal, "{step} of {steps} steps; checkpoints in {}", folder.display())?;
    Ok(())
}

/// The same for programs: the standard output gets the lines of metrics.jsonl, each as soon as it is there.
fn run_with_records(training: &mut TrainingRun) -> Result<(), Failure> {
    let mut output = io::stdout();
    training.run(|event| {
        if let Event::Record(record) = event {
            let line = Value::Table(record.clone()).to_json() + "\n";
            output
                .write_all(line.as_bytes())
                .and_then(|()| output.flush())
                .map_err(|error| Error::io("standard output", error))?;
        }
        Ok(())
    })?;
    Ok(())
}

/// The same on another rank than the first: nothing is told, or with `told` a line a step on standard error.
fn run_aside(training: &mut TrainingRun, rank: usize, told: bool) -> Result<(), Failure> {
    training.run(|event| {
        if let Event::Step(progress) = event
            && told
        {
            let speed = grouped_text(progress.tokens_per_second);
            eprintln!("rank {rank}: step {}, loss {:.3} · {speed} tokens/s of all ranks", progress.step, progress.loss);
        }
        Ok(())
    })?;
    Ok(())
}
