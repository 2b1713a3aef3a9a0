//! What can go wrong, each kind with the exit code that the commands end with.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::format::limits::PROBLEM_CHARACTERS;

/// An error of this crate. The text is one sentence that names what was wrong and what would be right; `Debug` gives the
/// same, so that a `main` that returns the error prints it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is corrupt, truncated, or of another kind.
    #[error("{}: {problem}", .path.display())]
    Format {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What the system said, where it could not be read: `NotFound` for a file that is missing.
        source: Option<io::Error>,
    },
    /// A value, an option or a shape is not one that may be.
    #[error("{0}")]
    Value(String),
    /// Sizes whose plan is beyond all addresses.
    #[error("the sizes make a run of more memory than any machine has")]
    TooLarge,
    /// A token id is outside the vocabulary.
    #[error("{0}")]
    OutOfRange(String),
    /// What was asked for takes more memory than the machine has.
    #[error("{0}")]
    OutOfMemory(String),
    /// A cache of keys and values has no page left. It stays usable: pages come back when sequences end.
    #[error("{0}")]
    CacheFull(String),
    /// What ended a step of an engine, and with it everything that it was generating.
    #[error(transparent)]
    Step(Arc<Error>),
    /// Something that would have been overwritten is there already.
    #[error("{0}")]
    Exists(String),
    /// The system could not read or write a file.
    #[error("{}: {}", .path.display(), system_text(.source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The loss is not a finite number any more.
    #[error("{0}")]
    Diverged(String),
    /// The library, the device or its memory failed.
    #[error(transparent)]
    Device(#[from] nn_ffi::Error),
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A file that is not what it should be. The problem is cut where it is long, and freed of escape sequences that a
    /// text of the file may have.
    pub fn format(path: impl AsRef<Path>, problem: impl Into<String>) -> Self {
        Error::Format { path: path.as_ref().to_owned(), problem: fit_for_a_terminal(&problem.into()), source: None }
    }

    /// A file or folder that should hold something which is not there.
    pub fn missing(path: impl AsRef<Path>, problem: impl Into<String>) -> Self {
        let source = Some(io::ErrorKind::NotFound.into());
        Error::Format { path: path.as_ref().to_owned(), problem: fit_for_a_terminal(&problem.into()), source }
    }

    /// A value that is not one that may be.
    pub fn value(problem: impl Into<String>) -> Self {
        Error::Value(problem.into())
    }

    /// What the system said about a file.
    pub fn io(path: impl AsRef<Path>, source: io::Error) -> Self {
        Error::Io { path: path.as_ref().to_owned(), source }
    }

    /// A file that the system does not let us read.
    pub fn unreadable(path: impl AsRef<Path>, source: io::Error) -> Self {
        let problem = format!("cannot be read: {}", system_text(&source));
        Error::Format { path: path.as_ref().to_owned(), problem, source: Some(source) }
    }

    /// The same fault as one of the file that the wrong value came from.
    #[must_use]
    pub fn in_file(self, path: impl AsRef<Path>) -> Self {
        match self {
            Error::Value(problem) => Error::format(path, problem),
            other => other,
        }
    }

    /// What a command ends with: 1 diverged, 3 a wrong file or value, 4 the library, the device or its memory.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Diverged(_) => 1,
            Error::Format { .. } | Error::Value(_) | Error::OutOfRange(_) => 3,
            Error::TooLarge | Error::Exists(_) | Error::Io { .. } => 3,
            Error::Device(nn_ffi::Error::Value(_)) => 3,
            Error::Step(error) => error.exit_code(),
            Error::OutOfMemory(_) | Error::CacheFull(_) | Error::Device(_) => 4,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn fit_for_a_terminal(problem: &str) -> String {
    let length = problem.chars().count();
    let mut text = String::with_capacity(problem.len().min(4 * PROBLEM_CHARACTERS));
    for (at, letter) in problem.chars().enumerate() {
        match letter {
            _ if length > PROBLEM_CHARACTERS && at == PROBLEM_CHARACTERS / 2 => text.push_str(" … "),
            _ if length > PROBLEM_CHARACTERS
                && (PROBLEM_CHARACTERS / 2..length - PROBLEM_CHARACTERS / 2).contains(&at) => {}
            _ if letter.is_control() => text.extend(letter.escape_default()),
            _ => text.push(letter),
        }
    }
    text
}

/// What the system said, without the number that the standard library adds.
fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::train::Checkpoint;

    #[test]
    fn a_main_that_returns_an_error_prints_its_sentence() {
        let device = nn_ffi::Error::Value("no such thing".into());
        for error in [Error::format("x.json", "is not JSON"), Error::value("seed is 1.5"), device.into()] {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
        let missing = Error::from(nn_ffi::Error::from(nn_ffi::LoadError::NotTheLibrary { path: "x.so".into() }));
        assert_eq!(format!("{missing:?}"), "x.so is no libnncuda: it has no nncuda_abi_version");
    }

    #[test]
    fn what_the_system_said_is_the_source() {
        let kind = |path: &str| {
            let error = Checkpoint::open(Path::new(path)).expect_err("it is no checkpoint");
            error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind)
        };
        assert_eq!(kind("/no/such/folder"), Some(io::ErrorKind::NotFound));
        assert_eq!(kind(env!("CARGO_MANIFEST_DIR")), Some(io::ErrorKind::NotFound), "it has no config.json");
        assert_eq!(kind(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")), None, "a file is no folder");
    }
}
