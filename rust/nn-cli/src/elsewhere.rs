//! What only `nncuda` has, the command of the Python package: commands, and options of commands that both have.

use clap::error::{ContextKind, ErrorKind};

const COMMANDS: [&str; 10] =
    ["convert", "data", "demo", "doctor", "dump", "eval", "quantize", "tokenizer", "verify", "verify-run"];
const OPTIONS: [(&str, &[&str]); 2] = [("generate", &["--expert-parallel"]), ("inspect", &["--ternary"])];

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
