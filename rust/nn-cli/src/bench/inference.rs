//! `nncuda-rs bench inference`: generation by a model with random weights, as Python's `nncuda.bench.inference` does it,
//! without its probe of the memory.

use std::time::Instant;

use clap::Args;
use nn_core::format::Table;
use nn_core::generate::{Sampling, generate};
use nn_core::model::{MoEConfig, MoETransformer, Precision};
use nn_core::{Error, Result};
use nn_ffi::Context;

use super::{draw, print};
use crate::failure::Failure;
use crate::flags::{ConfigFlags, ConfigSource, DeviceFlags, precision};

/// The first token ends the prefill, the second runs call by call, with the third the step is captured.
const FIRST_TOKENS: usize = 3;

/// Time generation by a model with random weights: to the first token, and each token after it.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: ConfigSource,
    /// What the model computes in.
    #[arg(long, value_name = "NAME", default_value = "bf16", value_parser = precision())]
    precision: Precision,
    /// Tokens of the prompt.
    #[arg(long, value_name = "INTEGER", default_value = "128", value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Timed tokens.
    #[arg(long, value_name = "INTEGER", default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Write JSON, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceFlags,
}

pub(crate) fn run(arguments: &Arguments) -> std::result::Result<(), Failure> {
    let file = arguments.source.file()?;
    let vocab = arguments.source.preset_vocabulary(&file)?;
    let (config, _) = file.options(arguments.source.preset.as_deref(), &ConfigFlags::default(), vocab)?;
    let ctx = arguments.device.open()?;
    print(measure(&ctx, config, arguments)?, arguments.json)
}

fn measure(ctx: &Context, config: MoEConfig, arguments: &Arguments) -> Result<Table> {
    let (prompt, count) = (arguments.prompt as usize, arguments.tokens as usize);
    let needed = bytes_a_token(&config, arguments.precision, prompt + FIRST_TOKENS - 1 + count / 2);
    let began = Instant::now();
    let model = MoETransformer::random_in(ctx, config.clone(), 0, false, arguments.precision)?;
    ctx.synchronize()?;
    let made = began.elapsed().as_secs_f64();
    let ids: Vec<i32> = (0..prompt).map(|at| (at % config.vocab_size) as i32).collect();
    let began = Instant::now();
    let mut tokens = generate(&model, &ids, FIRST_TOKENS + count, &Sampling::default(), None)?;
    draw(&mut tokens, 1)?;
    let first = began.elapsed().as_secs_f64();
    draw(&mut tokens, FIRST_TOKENS - 1)?;
    let in_use = || Ok::<_, Error>(ctx.bytes_used()? + ctx.bytes_arena()?);
    let before = in_use()?;
    let began = Instant::now();
    draw(&mut tokens, count)?;
    let seconds = began.elapsed().as_secs_f64();
    let grown = in_use()? as i64 - before as i64;
    Ok(Table::from([
        ("language", "rust".into()),
        ("parameters", (config.num_parameters() as u64).into()),
        ("active_parameters", (config.num_active_parameters() as u64).into()),
        ("precision", arguments.precision.name().into()),
        ("threads", ctx.threads()?.into()),
        ("prompt", prompt.into()),
        ("tokens", count.into()),
        ("seconds_to_make", made.into()),
        ("seconds_to_first_token", first.into()),
        ("tokens_per_second", (count as f64 / seconds).into()),
        ("bytes_a_token", needed.into()),
        ("bytes_per_second", (needed as f64 * count as f64 / seconds).into()),
        ("bytes_peak", ctx.bytes_peak()?.into()),
        ("bytes_grown", grown.into()),
    ]))
}

/// Bytes that decoding one token reads when `position` tokens were before it: the weights that it meets, of the embedding
/// its own row, and keys and values of the tokens before it and its own.
fn bytes_a_token(config: &MoEConfig, precision: Precision, position: usize) -> u64 {
    let met = config.num_active_parameters() as u64 - ((config.vocab_size - 1) * config.hidden_size) as u64;
    let cached = 2 * config.num_layers * config.num_kv_heads * config.head_dim * (position + 1);
    precision.dtype().size() as u64 * (met + cached as u64)
}
