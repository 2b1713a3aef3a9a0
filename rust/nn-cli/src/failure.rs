//! Errors as one sentence and an exit code.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::elsewhere;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const WRONG_FILE: u8 = 3;
const INTERRUPTED: u8 = 130;

/// Why a command could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// It was asked in a wrong way.
    #[error("{0}")]
    Usage(String),
    /// Somebody ended it before it was done.
    #[error("interrupted")]
    Interrupted,
    /// What was checked is not as it should be.
    #[error("{0}")]
    Check(String),
    /// Something failed on the way.
    #[error(transparent)]
    Core(#[from] nn_core::Error),
    /// The standard input or output failed.
    #[error("{0}")]
    Stream(#[from] io::Error),
}

impl From<nn_ffi::Error> for Failure {
    fn from(error: nn_ffi::Error) -> Self {
        nn_core::Error::from(error).into()
    }
}

impl Failure {
    /// Says it on the standard error, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let code = match &self {
            // The reader of our output went away (`nncuda-rs inspect | head`).
            Self::Stream(error) | Self::Core(nn_core::Error::Io { source: error, .. })
                if error.kind() == io::ErrorKind::BrokenPipe =>
            {
                return ExitCode::SUCCESS;
            }
            Self::Interrupted => {
                eprintln!("{self}");
                return ExitCode::from(INTERRUPTED);
            }
            Self::Usage(_) => USAGE,
            Self::Check(_) => FAILED,
            Self::Stream(_) => WRONG_FILE,
            Self::Core(error) => error.exit_code(),
        };
        eprintln!("Error: {self}");
        ExitCode::from(code)
    }
}

/// What is wrong with the arguments, in the words of their parser; or the help that was asked for.
pub(crate) fn usage(error: &clap::Error, arguments: &[String]) -> ExitCode {
    if let Some(sentence) = elsewhere::of_arguments(error, arguments) {
        return Failure::Usage(sentence).report();
    }
    let text = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Who closes our output does not want to read on.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => eprint!("{text}"),
        _ => {
            let text = text.to_string();
            eprint!("Error: {}", text.strip_prefix("error: ").unwrap_or(&text));
        }
    }
    ExitCode::from(USAGE)
}
