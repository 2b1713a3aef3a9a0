//! What only `nncuda` has, the command of the Python package: commands, options of commands that both have, and models.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::error::{ContextKind, ErrorKind};
use nn_core::format::{Value, read_json};
use nn_core::train::Checkpoint;
use nn_core::{Error, Result};

const COMMANDS: [&str; 10] =
    ["chat", "convert", "data", "demo", "doctor", "dump", "quantize", "serve", "tokenizer", "verify"];
const OPTIONS: [(&str, &[&str]); 2] = [
    ("generate", &["--cache-format", "--context", "--contiguous", "--stats", "--weights"]),
    ("inspect", &["--ternary"]),
];
/// By the `model_type` of their config.json.
const MODELS: [&str; 2] = ["bitnet", "llama"];

/// What there is to say of arguments that would be right for the Python package's command.
pub(crate) fn of_arguments(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let what = |kind| Some(error.get(kind)?.to_string());
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = what(ContextKind::InvalidSubcommand).filter(|name| COMMANDS.contains(&name.as_str()))?;
            Some(format!("nncuda-rs has no command '{name}'; the Python package has it: nncuda {name}"))
        }
        ErrorKind::UnknownArgument => {
            let (command, options) =
                OPTIONS.into_iter().find(|(command, _)| arguments.iter().any(|it| it == command))?;
            let name = what(ContextKind::InvalidArg).filter(|name| options.contains(&name.as_str()))?;
            Some(format!("nncuda-rs has no option '{name}'; the Python package has it: nncuda {command} {name}"))
        }
        _ => None,
    }
}

/// Opens a folder for a command; a model that this program does not run is an error that says which does.
pub(crate) fn open_checkpoint(folder: &Path, command: &str) -> Result<Checkpoint> {
    Checkpoint::open(folder).map_err(|error| {
        let path = folder.join("config.json");
        let config = read_json(&path).unwrap_or_default();
        let kind = config.get("model_type").and_then(Value::as_text).filter(|kind| MODELS.contains(kind));
        kind.map_or(error, |kind| {
            let instead = instead_of(command, folder);
            let rule = "nncuda-rs runs 'mixtral' alone, the checkpoints of the MoE model";
            Error::format(&path, format!("model_type is '{kind}'; {rule}{instead}"))
        })
    })
}

/// `Error::Format` when a path is that of a GGUF file.
pub(crate) fn refuse_gguf(path: &Path, command: &str) -> Result<()> {
    let mut head = Vec::new();
    let read = path.is_file() && File::open(path).and_then(|file| file.take(4).read_to_end(&mut head)).is_ok();
    if read && head == b"GGUF" {
        let problem = format!("is a GGUF file, which nncuda-rs does not read{}", instead_of(command, path));
        return Err(Error::format(path, problem));
    }
    Ok(())
}

/// How the Python package does with a path what a command cannot.
fn instead_of(command: &str, path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "_@%+=:,./-".contains(character);
    let path = if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) };
    let prompt = if command == "generate" { " PROMPT" } else { "" };
    format!("; the Python package does: nncuda {command} {path}{prompt}")
}
