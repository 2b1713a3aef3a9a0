//! `nncuda-rs chat`: a conversation with a model in the terminal.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use nn_core::infer::{Canceller, Conversation, EngineOptions, LanguageModel, Sampling};
use nn_core::model::{Adapter, StoredModel};
use nn_core::train::resolve_checkpoint;
use signal_hook::low_level;

use crate::failure::Failure;
use crate::flags::DeviceFlags;
use crate::generate::output::{speak, write_statistics};
use crate::generate::{AdapterFlag, EngineFlags, LogitFlags, at_least_zero, most_likely, share};
use crate::interrupt::Interrupts;
use crate::paths;

const HELP: &str = "\
/clear   forget the conversation, but not the system message
/system  show the system message, or set it: /system TEXT
/stats   show what the conversation has taken so far
/exit    exit, as Ctrl-D does
Ctrl-C stops an answer; pressed twice at the prompt, it exits.";

/// Talk with MODEL: a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint or a run.
///
/// Each line is a message; messages are formatted with the model's chat template. /help lists the commands. Ctrl-C stops
/// an answer; at the prompt, Ctrl-D or a second Ctrl-C exits.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The model, unless given with --model.
    #[arg(value_name = "MODEL", conflicts_with = "named")]
    model: Option<String>,
    /// The model.
    #[arg(long = "model", id = "named", value_name = "PATH")]
    named: Option<String>,
    /// The system message.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Maximum number of tokens of an answer.  [default: what the context leaves]
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// Sampling temperature; 0 always picks the most likely token.
    #[arg(long, value_name = "FLOAT", default_value = "0.7", value_parser = at_least_zero)]
    #[arg(allow_negative_numbers = true)]
    temperature: f64,
    /// Sample only from the K most likely tokens.
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(i64).range(1..))]
    #[arg(allow_negative_numbers = true)]
    top_k: Option<i64>,
    /// Sample only from the most likely tokens that make up this share of the probability.
    #[arg(long, value_name = "FLOAT", default_value = "0.95", value_parser = share, allow_negative_numbers = true)]
    top_p: f64,
    #[command(flatten)]
    logits: LogitFlags,
    /// The same seed gives the same answers.
    #[arg(long, value_name = "INTEGER", default_value = "0", allow_negative_numbers = true)]
    seed: i64,
    #[command(flatten)]
    engine: EngineFlags,
    #[command(flatten)]
    adapter: AdapterFlag,
    #[command(flatten)]
    device: DeviceFlags,
}

pub(crate) fn run(arguments: Arguments, interrupts: &Interrupts) -> Result<(), Failure> {
    let Arguments { engine, .. } = arguments;
    let model = arguments.named.or(arguments.model);
    let model = model.ok_or_else(|| Failure::Usage("name one MODEL, as the argument or with --model".into()))?;
    let path = paths::file_or_folder(&model).map_err(|problem| Failure::Usage(format!("MODEL: {problem}")))?;
    let path = if path.is_dir() { resolve_checkpoint(&path, false)? } else { path };
    let sampling = arguments.logits.sampling(Sampling {
        temperature: arguments.temperature,
        top_k: arguments.top_k.map(most_likely),
        top_p: Some(arguments.top_p),
        seed: arguments.seed,
        ..Sampling::default()
    })?;
    let adapter = arguments.adapter.path()?;
    let start = Instant::now();
    let stored = StoredModel::open(&path)?;
    let adapter = adapter.map(|path| Adapter::open(&path, stored.config())).transpose()?;
    let options = EngineOptions {
        context: engine.context.map(|context| context as usize),
        cache_format: engine.cache_format,
        max_batch: 1,
        weights: engine.weights,
        adapter: adapter.map(Arc::new),
        ..EngineOptions::default()
    };
    let model = LanguageModel::new(stored, &arguments.device.open()?, &options)?;
    let loaded = start.elapsed();
    // A model has no more tokens than memory, whose addresses are those of a usize.
    let most = arguments.max_tokens.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    let conversation = Conversation::new(model.clone(), arguments.system, sampling, most);
    conversation.check()?;
    if model.chat_template()?.is_plain() {
        eprintln!("The model has no chat template: it is given lines that begin with User: and Assistant:");
    }
    let now = Arc::new(Mutex::new(Now::default()));
    let heard = Arc::clone(&now);
    interrupts.act(move |_| interrupted(&heard));
    let mut session = Session { conversation, now, loaded, first: None };
    session.run()?;
    if engine.stats {
        session.write_statistics()?;
    }
    Ok(())
}

/// What Ctrl-C is about.
#[derive(Debug, Default)]
struct Now {
    /// The answer that is being written.
    answer: Option<Canceller>,
    /// Whether it was pressed at this prompt before.
    asked: bool,
}

fn interrupted(now: &Mutex<Now>) {
    let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(answer) = &now.answer {
        answer.cancel();
    } else if now.asked {
        println!();
        low_level::exit(0);
    } else {
        now.asked = true;
        eprintln!("\nPress Ctrl-C again, or Ctrl-D, to exit.");
        prompt();
    }
}

/// Asks for a line where somebody is there to be asked.
fn prompt() {
    if io::stdin().is_terminal() {
        print!("> ");
        // A terminal that is gone shows in what is written next.
        let _ = io::stdout().flush();
    }
}

/// The terminal's side of a conversation.
struct Session {
    conversation: Conversation,
    now: Arc<Mutex<Now>>,
    loaded: Duration,
    first: Option<Duration>,
}

impl Session {
    /// Reads messages and writes answers until the user leaves.
    fn run(&mut self) -> Result<(), Failure> {
        let terminal = io::stdin().is_terminal();
        loop {
            prompt();
            let mut line = String::new();
            if io::stdin().lock().read_line(&mut line)? == 0 {
                if terminal {
                    println!();
                }
                return Ok(());
            }
            self.set(|now| now.asked = false);
            let line = line.trim_end_matches(['\r', '\n']);
            match line.trim() {
                "" => {}
                "/exit" | "/quit" => return Ok(()),
                _ if line.starts_with('/') => self.command(line)?,
                _ => self.answer(line)?,
            }
        }
    }

    fn command(&mut self, line: &str) -> Result<(), Failure> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "/clear" => self.conversation.clear(),
            "/system" if rest.trim().is_empty() => {
                println!("{}", self.conversation.system.as_deref().unwrap_or("there is none"));
            }
            "/system" => self.conversation.system = Some(rest.trim().to_owned()),
            "/stats" => self.write_statistics()?,
            "/help" => println!("{HELP}"),
            _ => eprintln!("There is no command {name}. {HELP}"),
        }
        Ok(())
    }

    fn answer(&mut self, text: &str) -> Result<(), Failure> {
        let left_out = self.conversation.left_out();
        let start = Instant::now();
        let answer = match self.conversation.answer(text) {
            Ok(answer) => answer,
            // Of what was said, or of what the template makes of it: the conversation goes on without.
            Err(error @ (nn_core::Error::Value(_) | nn_core::Error::Format { .. })) => {
                eprintln!("Error: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        set(&self.now, |now| now.answer = Some(answer.canceller()));
        let mut written = Ok(());
        let mut first = true;
        for piece in answer {
            written = piece.map_err(Failure::from).and_then(|piece| {
                if first {
                    self.first.get_or_insert_with(|| start.elapsed());
                }
                // Templates end before the space that many models begin an answer with.
                let piece = if first { piece.trim_start() } else { &piece };
                first = false;
                Ok(speak(piece)?)
            });
            if written.is_err() {
                break;
            }
        }
        self.set(|now| now.answer = None);
        written?;
        println!();
        if self.conversation.left_out() > left_out {
            eprintln!(
                "(The conversation no longer fits in {} tokens: its first {} messages were dropped.)",
                self.conversation.model().context(),
                self.conversation.left_out()
            );
        }
        Ok(())
    }

    fn write_statistics(&self) -> Result<(), Failure> {
        write_statistics(self.conversation.model(), self.loaded, self.first.unwrap_or_default())
    }

    fn set(&self, change: impl FnOnce(&mut Now)) {
        set(&self.now, change);
    }
}

fn set(now: &Mutex<Now>, change: impl FnOnce(&mut Now)) {
    change(&mut now.lock().unwrap_or_else(PoisonError::into_inner));
}
