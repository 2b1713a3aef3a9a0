//! `nncuda-rs serve`: a model over HTTP, in the words of OpenAI's API.
//!
//! `api` has the fields, errors and limits, as data that the servers of all languages share. `requests` makes texts of bodies,
//! `texts` runs them on the engine, `answers` writes them; `app` puts the routes together, and `server` runs them on a socket.

mod answers;
mod api;
mod app;
mod bodies;
mod call_grammars;
mod calling;
mod connection;
mod constraints;
mod embeddings;
mod exchange;
mod fields;
mod guard;
mod items;
mod json_follower;
mod log;
mod logprobs;
mod messages;
mod metrics;
mod names;
mod output_items;
mod requests;
mod responses;
mod server;
mod texts;
mod tool_calls;
mod tools;
mod wire;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use nn_core::Error;
use nn_core::format::read_regular;
use nn_core::infer::{CacheFormat, EngineOptions, LanguageModel, PAGE, Place};
use nn_core::model::{Adapter, StoredModel};
use nn_core::train::resolve_checkpoint;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::flags::DeviceFlags;
use crate::interrupt::Interrupts;
use crate::paths;
use crate::terminal::{bytes_text, grouped_text};

const KEY_FILE_BYTES: u64 = 1 << 16;

/// Serve MODEL over HTTP, in the words of OpenAI's API: a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint
/// or a run.
///
/// With --adapter, requests choose by their model: NAME is MODEL with that adapter, and all are decoded together.
///
/// Requests of many clients are decoded together, and each gets the bytes that it would get alone. SIGTERM ends the server when
/// running requests have ended. Without an API key it answers on this machine only, unless --no-auth.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "this is the command's help, where brackets are brackets")]
pub(crate) struct Arguments {
    /// The model.
    #[arg(value_name = "MODEL")]
    model: String,
    /// The address to listen on.
    #[arg(long, value_name = "TEXT", default_value = "127.0.0.1")]
    host: String,
    /// The port; 0 takes a free one.
    #[arg(long, value_name = "INTEGER", default_value = "8000")]
    port: u16,
    /// A key that requests must have; repeatable.
    #[arg(long = "api-key", value_name = "KEY")]
    api_keys: Vec<String>,
    /// A file of such keys, one a line; # begins a comment.
    #[arg(long, value_name = "FILE", value_parser = paths::file)]
    api_key_file: Option<PathBuf>,
    /// Serve on an address that others can reach, without a key.
    #[arg(long)]
    no_auth: bool,
    /// The name that requests have for the model.  [default: that of its file]
    #[arg(long, value_name = "TEXT")]
    model_name: Option<String>,
    /// A LoRA adapter of MODEL, a folder of PEFT or a GGUF file, and the name that requests have for the model with it;
    /// repeatable.
    #[arg(long = "adapter", value_name = "NAME=PATH", value_parser = named_path)]
    adapters: Vec<(String, PathBuf)>,
    /// Texts that are written at once.
    #[arg(long, value_name = "INTEGER", default_value = "32", value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_batch: u32,
    /// Texts that may wait beside them; a further one is refused (429).
    #[arg(long, value_name = "INTEGER", default_value = "256", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    max_queue: u32,
    /// Room of the cache for all texts together, at least the context.  [default: four times the context]
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u32).range(1..))]
    cache_tokens: Option<u32>,
    /// The longest that a request may take.
    #[arg(long, value_name = "SECONDS", default_value = "600.0", value_parser = above_zero)]
    timeout: f64,
    /// How long running requests may go on after SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value = "30.0", value_parser = crate::generate::at_least_zero)]
    drain_seconds: f64,
    /// How the line that each request has in the log (standard error) is written.
    #[arg(long, value_name = "NAME", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// Show no page with a chat at /.
    #[arg(long)]
    no_page: bool,
    /// Memory nodes (NUMA) over which threads, and the weights that they read, are spread.
    #[arg(long, value_name = "INTEGER", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// The context length.  [default: the model's, at most 8192]
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Format of the cached keys and values.
    #[arg(long, value_name = "NAME", default_value = "f16")]
    #[arg(value_parser = PossibleValuesParser::new(CacheFormat::NAMES).try_map(|name| name.parse::<CacheFormat>()))]
    cache_format: CacheFormat,
    /// On a CPU: copy the weights into memory, which is faster to read, or use the mapped file; auto: copy if memory allows.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = PossibleValuesParser::new(Place::NAMES).try_map(|name| name.parse::<Place>()))]
    weights: Place,
    #[command(flatten)]
    device: DeviceFlags,
}

/// The name of an adapter, and where it is.
fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    let named = |(name, path): &(&str, &str)| {
        (1..=256).contains(&name.chars().count()) && !path.is_empty() && !name.chars().any(char::is_control)
    };
    let (name, path) = text
        .split_once('=')
        .filter(named)
        .ok_or_else(|| format!("'{text}' is not NAME=PATH, such as sql=adapters/sql"))?;
    Ok((name.to_owned(), paths::file_or_folder(path)?))
}

/// Refuses a name that two adapters have, or an adapter and the model.
fn check_names(model: &str, adapters: &[(String, PathBuf)]) -> Result<(), Failure> {
    let names: Vec<&str> = adapters.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        return Err(Failure::Usage(format!("--adapter: '{}' is the name of two adapters", names[at])));
    }
    if names.contains(&model) {
        let instead = "choose another, or a --model-name";
        return Err(Failure::Usage(format!("--adapter {model} has the name of the model; {instead}")));
    }
    Ok(())
}

fn above_zero(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a number above 0");
    text.parse().ok().filter(|number| *number > 0.0).ok_or_else(wrong)
}

pub(crate) fn run(arguments: Arguments, interrupts: &Interrupts) -> Result<(), Failure> {
    let path =
        paths::file_or_folder(&arguments.model).map_err(|problem| Failure::Usage(format!("MODEL: {problem}")))?;
    let mut keys = arguments.api_keys;
    if let Some(file) = &arguments.api_key_file {
        keys.extend(keys_of(file)?);
    }
    let (host, anyone) = (&arguments.host, arguments.no_auth);
    let usage = |problem: String| Err(Failure::Usage(problem));
    if keys.iter().any(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        return usage("an API key must be of visible ASCII characters, at least one".into());
    }
    if anyone && !keys.is_empty() {
        return usage("--no-auth and API keys exclude each other".into());
    }
    if keys.is_empty() && !anyone && !guard::is_loopback(host) {
        let instead = "give an --api-key or --api-key-file, or --no-auth to serve them without";
        return usage(format!("others can reach {host}: {instead}"));
    }
    let name = arguments.model_name.map_or_else(|| name_of(&path), Ok)?;
    check_names(&name, &arguments.adapters)?;
    let socket = server::bound(host, arguments.port)?;
    let start = Instant::now();
    eprintln!("loading {}", path.display());
    let checkpoint = if path.is_dir() { resolve_checkpoint(&path, false)? } else { path };
    let stored = StoredModel::open(&checkpoint)?;
    let adapters = arguments
        .adapters
        .into_iter()
        .map(|(name, path)| Ok::<_, Error>((name, Arc::new(Adapter::open(&path, stored.config())?))));
    let options = EngineOptions {
        context: arguments.context.map(|context| context as usize),
        cache_format: arguments.cache_format,
        cache_tokens: arguments.cache_tokens.map(|tokens| tokens as usize),
        max_batch: arguments.max_batch as usize,
        weights: arguments.weights,
        adapters: adapters.collect::<Result<_, _>>()?,
        ..EngineOptions::default()
    };
    let ctx = arguments.device.open()?;
    if arguments.nodes != 1 {
        ctx.set_nodes(arguments.nodes as usize)?;
    }
    let model = LanguageModel::new(stored, &ctx, &options)?;
    let (room, (_, _, bytes)) = (model.occupancy()?.pages * PAGE, model.statistics()?);
    if room < model.context() {
        return Err(Failure::Core(Error::value(format!(
            "cache_tokens is {room}, less than the context of {} tokens; make it larger, or the context smaller",
            model.context()
        ))));
    }
    eprintln!(
        "loaded in {:.1} s: {} parameters, context {}, cache {} for {room} tokens, {}",
        start.elapsed().as_secs_f64(),
        grouped_text(model.stored().num_parameters() as f64),
        model.context(),
        bytes_text(bytes as u64),
        model.ctx().device(),
    );
    log::set_json(arguments.log_format == "json");
    let served = app::Options {
        name: name.clone(),
        keys,
        anyone,
        places: options.max_batch + arguments.max_queue as usize,
        timeout: seconds(arguments.timeout),
        page: !arguments.no_page,
    };
    let app = Arc::new(app::App::new(model, served, seed()?));
    let (asked, ends) = watch::channel(0);
    interrupts.end(move |_| asked.send_modify(|count| *count += 1))?;
    let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("nncuda-http").enable_all().build()?;
    let drain = seconds(arguments.drain_seconds);
    runtime.block_on(server::run(Arc::clone(&app), socket, drain, ends, |at| {
        eprintln!("serving {name} on http://{at}")
    }))?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    app.failure().map_or(Ok(()), |error| Err(error.into()))
}

/// Seconds; those beyond the clock's reach are as long as it reaches.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX).min(Duration::from_secs(86400 * 365 * 30))
}

/// The name of a model by that of its file or folder.
fn name_of(path: &Path) -> io::Result<String> {
    let whole = path.canonicalize()?;
    Ok(whole.file_stem().map_or("model".into(), |stem| stem.to_string_lossy().into_owned()))
}

/// The keys of a file.
fn keys_of(path: &Path) -> Result<Vec<String>, Failure> {
    let shown = path.display();
    let text = read_regular(path, KEY_FILE_BYTES)?;
    let text = String::from_utf8(text).ok().filter(|text| text.is_ascii());
    let text = text.ok_or_else(|| Failure::Usage(format!("{shown} must hold API keys in ASCII, one a line")))?;
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::trim).filter(|line| !line.is_empty());
    let keys: Vec<String> = lines.map(str::to_owned).collect();
    if keys.is_empty() {
        return Err(Failure::Usage(format!("{shown} holds no API key")));
    }
    Ok(keys)
}

/// What numbers of answers come from, so that no other server has them.
fn seed() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
