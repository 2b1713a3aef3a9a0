//! `nncuda-rs plan`: the memory of a run or of generation, before there is any.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use nn_core::format::{Table, Value};
use nn_core::model::{MoEConfig, USUAL_PRESET};
use nn_core::plan::{
    DEVICES, Gpu, KINDS, MemoryPlan, RanksPlan, Seat, Way, Work, inference_work, parameters_by_kind, plan_growth,
    plan_inference, plan_ranks, plan_steps, plan_training, training_work, ways_to_fit,
};
use nn_core::train::{Origin, Rank, TrainConfig};
use nn_core::{Error, Result};
use nn_ffi::Machine;

use crate::failure::Failure;
use crate::flags::{ConfigFlags, ConfigSource, DeviceFlags};
use crate::paths;
use crate::terminal::{bytes_text, columns, count_text};

/// Show how much memory training or generation will need on a device, whether the device has it, and how many operations
/// and bytes a step or the next token takes. Of a GPU that is named, also the least time.
///
/// Options are those of `nncuda-rs train`, from the same sources. No part of the model is created.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: ConfigSource,
    /// A token shard, whose vocabulary size the model gets.
    #[arg(long, value_name = "PATH", value_parser = paths::file_or_folder)]
    data: Option<PathBuf>,
    /// The model that training begins with, as of train --from, in place of preset and data: it is planned for, its weights
    /// are not read.
    #[arg(long, value_name = "PATH", value_parser = paths::file_or_folder)]
    from: Option<PathBuf>,
    /// Plan generation: --batch-size sequences of --context tokens.
    #[arg(long)]
    inference: bool,
    /// With --inference, the longest prompt.  [default: --context]
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u64).range(1..))]
    prompt: Option<u64>,
    /// cpu, cuda, cuda:INDEX, or auto: a GPU if there is one. Or the name of a GPU that need not be here: t4, v100, a100,
    /// l4, l40s, h100, h200.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Number of worker threads; each needs scratch memory of its own.  [default: all cores]
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Plan for a device with this much free memory; a GPU need not be present.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    available: Option<usize>,
    /// Plan training on so many ranks, up to --replicas, for the rank that needs the most memory.
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u32).range(1..=65536))]
    ranks: Option<u32>,
    /// With --ranks, so many neighbouring ranks share the experts out, each holding as many; it must divide both numbers.
    #[arg(long, value_name = "INTEGER", default_value_t = 1)]
    expert_parallel: usize,
    /// With --ranks, also a table of what changes with the number of ranks.
    #[arg(long)]
    growth: bool,
    /// With --ranks and a GPU by its name, bytes a second that a rank sends, such as 50GB, for the time of a step.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    link: Option<usize>,
    /// Write JSON, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: ConfigFlags,
}

/// A number of bytes: "141GB" (10^9), "24GiB" (2^30), "5e9".
fn size(text: &str) -> std::result::Result<usize, String> {
    bytes(&text.to_lowercase())
        .ok_or_else(|| format!("{} is not a number of bytes, such as 141GB or 24GiB", Value::from(text).shown()))
}

fn bytes(text: &str) -> Option<usize> {
    let unit_at = text.rfind(|letter: char| !letter.is_ascii_lowercase()).map_or(0, |at| at + 1);
    let (number, unit) = text.split_at_checked(unit_at)?;
    let number = number.strip_suffix(' ').unwrap_or(number);
    let unit = match unit {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        "tib" => 1_099_511_627_776.0,
        _ => return None,
    };
    let (digits, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|letter| letter.is_ascii_digit());
    if whole.is_empty()
        || exponent.is_empty()
        || exponent.len() > 2
        || ![whole, fraction, exponent].map(all_digits).iter().all(|good| *good)
    {
        return None;
    }
    let size = number.parse::<f64>().ok()? * unit;
    (size < 9_223_372_036_854_775_808.0).then_some(size as usize)
}

/// Compute capability of the GPU that is planned for where none is here: H100.
const USUAL_CAPABILITY: u32 = 90;

/// What was planned, for what, and what would make it fit.
struct Planned {
    model: MoEConfig,
    memory: MemoryPlan,
    work: Work,
    /// The least time of that work, where a GPU was named.
    seconds: Option<f64>,
    /// Whose work it is.
    what: &'static str,
    device: String,
    free: usize,
    ways: Vec<Way>,
    /// With --ranks what is planned is the last one; those before it are there with --growth.
    jobs: Vec<Job>,
    growth: bool,
}

/// What is told of ranks that train together.
struct Job {
    plan: RanksPlan,
    /// Seconds of a step, and the efficiency against one rank, where device and link are known.
    times: Option<(f64, f64)>,
}

fn check_ranks(arguments: &Arguments) -> std::result::Result<(), Failure> {
    let problem = if arguments.ranks.is_some() && arguments.inference {
        "--ranks is for training, not for --inference"
    } else if arguments.expert_parallel != 1 && arguments.ranks.is_none() {
        "--expert-parallel is for --ranks"
    } else if arguments.growth && arguments.ranks.is_none() {
        "--growth is for --ranks"
    } else if arguments.link.is_some() && (arguments.ranks.is_none() || named(&arguments.device).is_none()) {
        "--link is for --ranks and a GPU by its name"
    } else if arguments.link == Some(0) {
        "--link is 0; it must be at least 1"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(problem.into()))
}

pub(crate) fn run(mut arguments: Arguments) -> std::result::Result<(), Failure> {
    if arguments.prompt.is_some() && !arguments.inference {
        return Err(Failure::Usage("--prompt is for --inference".into()));
    }
    check_ranks(&arguments)?;
    if arguments.from.is_some() && (arguments.source.preset.is_some() || arguments.data.is_some()) {
        return Err(Failure::Usage("--from gives the sizes of the model; leave out --preset and --data".into()));
    }
    let file = arguments.source.file()?;
    let reach = if arguments.inference { arguments.options.take("context") } else { None };
    if arguments.inference && !file.has("train", "batch_size") {
        arguments.options.set_default("train", "batch_size", Value::from(1usize));
    }
    let (model, train) = if let Some(from) = &arguments.from {
        let (origin, train) = file.options_from(Origin::described(from)?, &arguments.options)?;
        (origin.config().clone(), train)
    } else {
        let vocab_size = arguments.source.vocabulary(arguments.data.as_deref(), &file)?;
        file.options(arguments.source.preset.as_deref(), &arguments.options, vocab_size)?
    };
    if train.lora_rank > 0 {
        let problem = format!("lora_rank is {}; runs that train an adapter are not planned", train.lora_rank);
        return Err(Error::value(problem).into());
    }
    let capacity = match reach {
        None => model.context as i64,
        Some(reach) => reach.as_integer::<i64>().ok_or_else(|| {
            Error::value(format!("context is {}; it must be a whole number of 64 bits", reach.shown()))
        })?,
    };
    let (machine, free) = machine(&arguments)?;
    let (mut ways, mut jobs) = (Vec::new(), Vec::new());
    let (memory, work) = if arguments.inference {
        let (batch, room) = (train.batch_size, capacity.max(0) as usize);
        let prompt = arguments.prompt.map_or(room, |prompt| prompt as usize);
        let memory = plan_inference(&model, train.precision, machine, batch, capacity, prompt)?;
        (memory, inference_work(&model, train.precision, machine, batch, room)?)
    } else {
        let count = arguments.ranks.map_or(1, |ranks| ranks as usize);
        let shared = plan_ranks(&model, &train, machine, count, arguments.expert_parallel)?;
        if shared.memory.held > free {
            ways = ways_to_fit(&model, &train, machine, shared.seat, free, true)?.0;
        }
        let planned = (shared.memory, shared.work.clone());
        if arguments.ranks.is_some() {
            jobs = plan_jobs(&arguments, &model, &train, machine, shared)?;
        }
        planned
    };
    let seconds = named(&arguments.device).map(|gpu| work.seconds(gpu, train.precision));
    let what = if arguments.inference { "The next token" } else { "A step" };
    let (device, growth) = (arguments.device, arguments.growth);
    let planned = Planned { model, memory, work, seconds, what, device, free, ways, jobs, growth };
    let text = if arguments.json { planned.table().to_json_lines() } else { planned.text() };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// What is told of the ranks that are planned, and with --growth before it of fewer.
fn plan_jobs(
    arguments: &Arguments,
    model: &MoEConfig,
    train: &TrainConfig,
    machine: Machine,
    most: RanksPlan,
) -> Result<Vec<Job>> {
    let plans = if arguments.growth { plan_growth(model, train, machine, most)? } else { vec![most] };
    let timing = match (named(&arguments.device), arguments.link) {
        (Some(gpu), Some(link)) => {
            let alone = if arguments.growth {
                plans[0].work.seconds(gpu, train.precision)
            } else {
                training_work(model, train, machine)?.seconds(gpu, train.precision)
            };
            Some((gpu, link as f64, alone))
        }
        _ => None,
    };
    let told = |plan: RanksPlan| {
        let times = timing.map(|(gpu, link, alone)| {
            let together = plan.work.seconds(gpu, train.precision) + plan.sent as f64 / link;
            (together, alone / (plan.seat.ranks as f64 * together))
        });
        Job { plan, times }
    };
    Ok(plans.into_iter().map(told).collect())
}

/// The GPU of a name.
fn named(device: &str) -> Option<&'static Gpu> {
    DEVICES.iter().find(|gpu| gpu.name == device)
}

/// What to plan for, and the bytes that it has free.
fn machine(arguments: &Arguments) -> Result<(Machine, usize)> {
    if let Some(gpu) = named(&arguments.device) {
        let machine = Machine::Cuda { capability: Some(gpu.capability), multiprocessors: Some(gpu.multiprocessors) };
        return Ok((machine, arguments.available.unwrap_or(gpu.memory)));
    }
    let index = arguments.device.strip_prefix("cuda");
    let gpu = index.is_some_and(|rest| {
        rest.is_empty()
            || rest
                .strip_prefix(':')
                .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
    });
    if let (Some(available), true) = (arguments.available, gpu) {
        return Ok((Machine::Cuda { capability: Some(USUAL_CAPABILITY), multiprocessors: None }, available));
    }
    let ctx = DeviceFlags::new(&arguments.device, arguments.threads).open()?;
    let free = match arguments.available {
        Some(available) => available,
        None => ctx.memory_info()?.0,
    };
    Ok((ctx.machine()?, free))
}

/// `Error::OutOfMemory`, with up to three computed ways out, when a rank of a run needs more than its device has free.
pub(crate) fn require_fit(rank: Rank<'_>, model: &MoEConfig, train: &TrainConfig, held_out: bool) -> Result<()> {
    if train.lora_rank > 0 {
        return Ok(()); // of a run that trains an adapter that is not known
    }
    require_fit_in(rank.context().memory_info()?.0, rank, model, train, held_out)
}

fn require_fit_in(free: usize, rank: Rank<'_>, model: &MoEConfig, train: &TrainConfig, held_out: bool) -> Result<()> {
    let (ctx, seat) = (rank.context(), Seat::of(rank));
    let machine = ctx.machine()?;
    let needed = match plan_steps(model, train, machine, seat, held_out, true) {
        Err(Error::TooLarge) => "more memory than any machine has".to_owned(),
        planned => match planned?.held {
            held if held <= free => return Ok(()),
            held => bytes_text(held as u64),
        },
    };
    let (ways, least) = ways_to_fit(model, train, machine, seat, free, held_out)?;
    let there = bytes_text(free as u64);
    let mut problem = format!("this run needs {needed}; {} has {there} free. ", ctx.device());
    if !ways.is_empty() {
        let ways: Vec<String> = ways.iter().map(way_text).collect();
        problem += &format!("It fits with {}.", ways.join("; or with "));
    } else if let Some(least) = least {
        problem += &format!("The least that options can reach is {}: the model itself is too large.", way_text(&least));
        let (smaller, options) = (MoEConfig::preset(USUAL_PRESET)?, TrainConfig::preset(USUAL_PRESET)?);
        let smaller = plan_training(&smaller, &options, machine, true)?.held;
        if smaller <= free {
            let size = bytes_text(smaller as u64);
            problem += &format!(" A model that fits is --preset {USUAL_PRESET} ({size}).");
        }
    }
    Err(Error::OutOfMemory(problem + " --start-anyway starts it nevertheless"))
}

fn way_text(way: &Way) -> String {
    let flags = way.changes.iter().filter_map(|(name, value)| {
        let flag = name.replace('_', "-");
        match value {
            Value::Bool(true) => Some(format!("--{flag}")),
            Value::Bool(false) => None,
            Value::Text(word) => Some(format!("--{flag} {word}")),
            other => Some(format!("--{flag} {}", other.shown())),
        }
    });
    format!("{} ({})", flags.collect::<Vec<_>>().join(" "), bytes_text(way.held as u64))
}

fn time_text(seconds: f64) -> String {
    if seconds < 0.1 { format!("{:.3} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

impl Job {
    /// For programs.
    fn table(&self) -> Value {
        let Seat { rank, ranks, expert_parallel } = self.plan.seat;
        Value::Table(Table::from([
            ("count", ranks.into()),
            ("expert_parallel", expert_parallel.into()),
            ("rank", rank.into()),
            ("held", self.plan.memory.held.into()),
            ("sent", self.plan.sent.into()),
            ("seconds", self.times.map(|(seconds, _)| seconds).into()),
            ("efficiency", self.times.map(|(_, efficiency)| efficiency).into()),
        ]))
    }

    /// Cells of a row of the table for people.
    fn row(&self) -> Vec<String> {
        let Seat { ranks, expert_parallel, .. } = self.plan.seat;
        let sizes = [self.plan.memory.held as u64, self.plan.sent].map(bytes_text);
        let times = self.times.map(|(seconds, share)| [time_text(seconds), format!("{:.0} %", 100.0 * share)]);
        let counts = [ranks, expert_parallel].map(|count| count.to_string());
        counts.into_iter().chain(sizes).chain(times.into_iter().flatten()).collect()
    }
}

impl Planned {
    /// The plan for programs.
    fn table(self) -> Value {
        let kinds: Table = parameters_by_kind(&self.model)
            .into_iter()
            .map(|(name, total, active)| {
                let counts = Table::from([("total", total.into()), ("active", active.into())]);
                (name.to_owned(), Value::Table(counts))
            })
            .collect();
        let [total, active] =
            [self.model.num_parameters(), self.model.num_active_parameters()].map(|count| Value::from(count as u64));
        let parameters = Table::from([("total", total), ("active", active), ("kinds", Value::Table(kinds))]);
        let bytes: Table =
            KINDS.iter().zip(self.memory.bytes).map(|((name, _), bytes)| ((*name).to_owned(), bytes.into())).collect();
        let ways = self.ways.into_iter().map(|way| {
            let options: Table = way.changes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            Value::Table(Table::from([("options", Value::Table(options)), ("bytes", way.held.into())]))
        });
        let [flops, moved] = [self.work.flops(), self.work.bytes()].map(Value::Integer);
        let work = Table::from([("flops", flops), ("bytes", moved), ("seconds", self.seconds.into())]);
        let mut table = Table::from([
            ("parameters", Value::Table(parameters)),
            ("device", self.device.into()),
            ("bytes", Value::Table(bytes)),
            ("peak", self.memory.peak.into()),
            ("held", self.memory.held.into()),
            ("free", self.free.into()),
            ("fits", (self.memory.held <= self.free).into()),
            ("ways", Value::List(ways.collect())),
            ("work", Value::Table(work)),
        ]);
        if let Some(job) = self.jobs.last() {
            table.set("ranks", job.table());
        }
        if self.growth {
            table.set("growth", Value::List(self.jobs.iter().map(Job::table).collect()));
        }
        Value::Table(table)
    }

    /// The plan for people.
    fn text(&self) -> String {
        let size = |bytes: usize| bytes_text(bytes as u64);
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let mut counts = vec![row(&["parameters", "total", "active per token"])];
        for (name, total, active) in parameters_by_kind(&self.model) {
            counts.push(row(&[name, &count_text(total as u128), &count_text(active as u128)]));
        }
        let [total, active] = [self.model.num_parameters(), self.model.num_active_parameters()].map(count_text);
        counts.push(row(&["all", &total, &active]));
        let mut table = vec![row(&[&format!("memory of {} at the peak", self.device), "size"])];
        for ((_, text), bytes) in KINDS.iter().zip(self.memory.bytes) {
            if bytes > 0 {
                table.push(row(&[text, &size(bytes)]));
            }
        }
        let MemoryPlan { peak, held, .. } = self.memory;
        table.push(row(&["peak", &size(peak)]));
        if held != peak {
            table.push(row(&["peak, in the pages of the device", &size(held)]));
        }
        table.push(row(&["free", &size(self.free)]));
        let mut text = format!("{}\n{}\n", columns(&counts), columns(&table));
        if held <= self.free {
            text += &format!("It fits, with {} to spare.\n", size(self.free - held));
        } else {
            text += &format!("It does not fit: {} more are needed.\n", size(held - self.free));
        }
        for way in &self.ways {
            text += &format!("It fits with {}.\n", way_text(way));
        }
        let (flops, moved) = (self.work.flops() as f64, bytes_text(self.work.bytes() as u64));
        text += &format!("{} takes {flops:.2e} operations and moves {moved}", self.what);
        if let Some(seconds) = self.seconds {
            text += &format!(": at the peak of {}, {}", self.device, time_text(seconds));
        }
        text += ".\n";
        if let Some(Job { plan, times }) = self.jobs.last() {
            let (Seat { rank, ranks, .. }, sent) = (plan.seat, bytes_text(plan.sent));
            text += &format!(
                "Of {ranks} ranks, rank {rank} needs the most memory, this. A rank sends up to {sent} in a step"
            );
            if let Some((seconds, efficiency)) = times {
                text += &format!(
                    ", which then takes {} if nothing is computed meanwhile: an efficiency of {:.0} % against one rank",
                    time_text(*seconds),
                    100.0 * efficiency
                );
            }
            text += ".\n";
        }
        if self.growth {
            let mut heads = vec!["ranks", "expert-parallel", "memory", "sent in a step"];
            if self.jobs[0].times.is_some() {
                heads.extend(["a step", "efficiency"]);
            }
            let rows: Vec<_> = [row(&heads)].into_iter().chain(self.jobs.iter().map(Job::row)).collect();
            text += &format!("\n{}", columns(&rows));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use nn_ffi::Context;

    use super::*;

    #[test]
    fn sizes() {
        let good =
            [("141GB", 141_000_000_000), ("24GiB", 24 << 30), ("5e9", 5_000_000_000), ("1.5 kib", 1536), ("7.b", 7)];
        for (text, bytes) in good {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "much", "GB", "1e", "1e100", "-1", "1e99", "9e18GB", ".5GB", "1 2", "1  GB", "1ZB", "inf", "1e+3"]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_that_cannot_fit_is_told_what_would() {
        let ctx = Context::open(nn_ffi::Device::Cpu, Some(2), None).unwrap();
        let (model, train) = (MoEConfig::preset("small").unwrap(), TrainConfig::default());
        require_fit_in(1 << 40, (&ctx).into(), &model, &train, true).unwrap();
        let error = require_fit_in(300 << 20, (&ctx).into(), &model, &train, true).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("cpu has 300.0 MiB free. It fits with --micro-batch-size "), "{text}");
        assert!(text.ends_with(". --start-anyway starts it nevertheless") && text.matches("; or with --").count() == 2);
        assert_eq!(error.exit_code(), 4);
        let text = require_fit_in(1 << 16, (&ctx).into(), &model, &train, true).unwrap_err().to_string();
        assert!(
            text.contains("The least that options can reach is --")
                && text.contains(": the model itself is too large. ")
        );
    }
}
