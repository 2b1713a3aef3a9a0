//! The `nncuda-rs` command: the same subcommands, flags, files and exit codes as Python's `nncuda`.
//!
//! Exit codes: 0 success; 1 training diverged, or a check failed; 2 wrong use of the command; 3 a file or its content is wrong; 4 the
//! library, the device or its memory fails; 130 interrupted, though not where a run is trained, which stops and saves.
#![forbid(unsafe_code)]

mod adapter;
mod bench;
mod chat;
mod elsewhere;
mod failure;
mod flags;
mod generate;
mod inspect;
mod interrupt;
mod merge;
mod paths;
mod plan;
mod ranks;
mod report;
mod serve;
mod shadow;
mod terminal;
mod train;

use std::env;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nn_core::tokenizer::{answer_template, render_templates_apart};

use failure::Failure;
use interrupt::Interrupts;

/// Train and run mixture-of-experts language models on the CPU or a GPU.
///
/// The Python package's command, nncuda, does what this one does not: it makes tokenizers and token shards (`nncuda
/// tokenizer train`, `nncuda data encode`), and converts and quantizes models.
#[derive(Debug, Parser)]
// A flag that is given twice has its last value, as in the other languages.
#[command(name = "nncuda-rs", version, max_term_width = 100, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(Box<train::Arguments>),
    Plan(Box<plan::Arguments>),
    Generate(generate::Arguments),
    Chat(chat::Arguments),
    Inspect(inspect::Arguments),
    Report(report::Arguments),
    Serve(Box<serve::Arguments>),
    Shadow(Box<shadow::Arguments>),
    Merge(merge::Arguments),
    Adapter(adapter::Arguments),
    Bench(bench::Arguments),
}

/// The only argument of a process that renders one chat template, for this command itself.
const RENDER: &str = "render-template";

fn main() -> ExitCode {
    if env::args_os().skip(1).eq([RENDER]) {
        return answer_template().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if let Ok(program) = env::current_exe() {
        render_templates_apart(program, vec![RENDER.into()]);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let given: Vec<_> = env::args().collect();
            if error.use_stderr() && given.get(1).is_some_and(|command| command == "train") {
                ranks::cannot_begin(error.to_string().lines().next().unwrap_or_default());
            }
            return failure::usage(&error, &given);
        }
    };
    let done = Interrupts::install().map_err(Failure::from).and_then(|interrupts| match cli.command {
        Command::Train(arguments) => train::run(*arguments, &interrupts),
        Command::Plan(arguments) => plan::run(*arguments),
        Command::Generate(arguments) => generate::run(arguments),
        Command::Chat(arguments) => chat::run(arguments, &interrupts),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Serve(arguments) => serve::run(*arguments, &interrupts),
        Command::Shadow(arguments) => shadow::run(*arguments),
        Command::Merge(arguments) => merge::run(&arguments, &interrupts),
        Command::Adapter(arguments) => adapter::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    });
    done.map_or_else(Failure::report, |()| ExitCode::SUCCESS)
}
