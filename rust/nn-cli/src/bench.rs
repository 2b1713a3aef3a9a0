//! `nncuda-rs bench`: the worker of the language benchmark. It does the work of Python's, `tools/language_worker.py`:
//!
//! - 3 steps of training to warm up, then `--steps` timed ones, each on the batch of a run; nothing is read back;
//! - the ids 1 to 16 and 4 greedy tokens to warm up, then `--decode` timed ones, each read back;
//! - 1000 calls of `cuda_add` on one element to warm up, then 10000 timed ones.

mod engine;
mod inference;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use nn_core::format::{Table, Value};
use nn_core::generate::{Sampling, generate};
use nn_core::model::MoETransformer;
use nn_core::train::{TokenWindows, Trainer, open_shards};
use nn_core::{Error, Result};
use nn_ffi::{Context, DType, Device, kernels};

use crate::failure::Failure;
use crate::flags::{ConfigFile, ConfigFlags};
use crate::paths;
use crate::terminal::grouped_text;

const WARM_STEPS: usize = 3;
const PROMPT: std::ops::RangeInclusive<i32> = 1..=16;
const WARM_TOKENS: usize = 4;
const WARM_CALLS: usize = 1000;
const CALLS: usize = 10000;

/// Time a training step, a decoded token and a call from Rust.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    /// A TOML file.
    #[arg(long, value_name = "FILE", required = true, value_parser = paths::file)]
    config: Option<PathBuf>,
    /// A token shard, or a folder of them.
    #[arg(long, value_name = "PATH", required = true, value_parser = paths::file_or_folder)]
    data: Option<PathBuf>,
    /// Timed steps.
    #[arg(long, value_name = "INTEGER", default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Timed tokens.
    #[arg(long, value_name = "INTEGER", default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    decode: u32,
    /// Worker threads.
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Write JSON, for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Other {
    #[command(hide = true)]
    Engine(engine::Arguments),
    Inference(inference::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> std::result::Result<(), Failure> {
    match &arguments.other {
        Some(Other::Engine(arguments)) => return engine::run(arguments),
        Some(Other::Inference(arguments)) => return inference::run(arguments),
        None => {}
    }
    // Required where there is no subcommand.
    let [Some(config), Some(data)] = [&arguments.config, &arguments.data] else { return Ok(()) };
    let shards = open_shards(data)?;
    let file = ConfigFile::read(config)?;
    let (model, train) = file.options(None, &ConfigFlags::default(), shards[0].vocab_size())?;
    let windows = TokenWindows::new(shards, train.sequence_length)?;
    let ctx = Context::open(Device::Cpu, arguments.threads.map(usize::from), None)?;
    let model = MoETransformer::random_in(&ctx, model, train.seed, true, train.precision)?;
    let mut trainer = Trainer::new(model, train, true)?;
    let result = Table::from([
        ("language", "rust".into()),
        ("train_tokens_per_second", train_speed(&mut trainer, &windows, arguments.steps as usize)?.into()),
        ("decode_tokens_per_second", decode_speed(trainer.model(), arguments.decode as usize)?.into()),
        ("call_nanoseconds", call_time(&ctx)?.into()),
        ("threads", ctx.threads()?.into()),
    ]);
    print(result, arguments.json)
}

/// Shows what was measured: one line for programs, or one a figure.
fn print(result: Table, json: bool) -> std::result::Result<(), Failure> {
    let text = if json {
        Value::Table(result).to_json() + "\n"
    } else {
        let line = |(name, value): (&str, &Value)| match value {
            Value::Float(number) => format!("{name}: {}\n", grouped_text(*number)),
            other => format!("{name}: {}\n", other.as_text().map_or_else(|| other.shown(), str::to_owned)),
        };
        result.iter().map(line).collect()
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Tokens a second over so many steps.
fn train_speed(trainer: &mut Trainer, windows: &TokenWindows, steps: usize) -> Result<f64> {
    let (config, ctx) = (trainer.config().clone(), trainer.model().context().clone());
    let mut began = Instant::now();
    for step in 0..WARM_STEPS + steps {
        if step == WARM_STEPS {
            ctx.synchronize()?;
            began = Instant::now();
        }
        let batch = windows.batch(&ctx, config.seed, (step * config.batch_size) as u64, config.batch_size)?;
        trainer.train_step(&batch)?;
    }
    ctx.synchronize()?;
    Ok((steps * config.batch_size * config.sequence_length) as f64 / began.elapsed().as_secs_f64())
}

/// Tokens a second of a sequence that continues greedily.
fn decode_speed(model: &MoETransformer, count: usize) -> Result<f64> {
    let prompt: Vec<i32> = PROMPT.collect();
    let mut tokens = generate(model, &prompt, WARM_TOKENS + count, &Sampling::default(), None)?;
    draw(&mut tokens, WARM_TOKENS)?;
    let began = Instant::now();
    draw(&mut tokens, count)?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Makes so many more tokens.
fn draw(tokens: &mut impl Iterator<Item = Result<i32>>, count: usize) -> Result<()> {
    for _ in 0..count {
        tokens.next().ok_or_else(|| Error::value("the sequence ended early"))??;
    }
    Ok(())
}

/// Nanoseconds of a call that has next to nothing to do.
fn call_time(ctx: &Context) -> Result<f64> {
    let [a, b, y] = [ctx.zeros(&[1], DType::F32)?, ctx.zeros(&[1], DType::F32)?, ctx.zeros(&[1], DType::F32)?];
    let mut began = Instant::now();
    for call in 0..WARM_CALLS + CALLS {
        if call == WARM_CALLS {
            ctx.synchronize()?;
            began = Instant::now();
        }
        kernels::add(&a, &b, &y)?;
    }
    ctx.synchronize()?;
    Ok(began.elapsed().as_secs_f64() * 1e9 / CALLS as f64)
}
