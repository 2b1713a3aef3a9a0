//! What can go wrong: the library refuses a call, shapes disagree before one, or there is no library.

use std::fmt;

use crate::Status;

/// The result of everything that may fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. Each is one sentence that names what was wrong and what would be right. That of a failed call
/// ends with its status in parentheses; `{:#}` leaves that out. `Debug` gives the same, so that a `main` that returns
/// the error prints it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library refused a call, or the device failed in it.
    #[error(fmt = call_text)]
    Call {
        /// The kind of failure.
        status: Status,
        /// The function's name in bindings.h.
        function: &'static str,
        /// The library's sentence: which argument was wrong, what it was and what it may be.
        message: String,
    },
    /// Shapes, dtypes or contexts of tensors disagree with each other or with what is asked of them. Nothing ran.
    #[error("{operation}: {message}")]
    Shape {
        /// The kernel, or what else was to be done with the tensors.
        operation: &'static str,
        /// Which tensor, its shape, and what was expected.
        message: String,
    },
    /// A value that is not the library's to judge, such as the name of a device.
    #[error("{0}")]
    Value(String),
    /// There is no libnncuda, or none that this program can use.
    #[error(transparent)]
    Load(#[from] nn_cuda::LoadError),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn call_text(status: &Status, _: &&str, message: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(message)?;
    if f.alternate() { Ok(()) } else { write!(f, " ({status})") }
}

impl Error {
    /// The status of a call that failed; `None` when nothing was called.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Call { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(crate) fn shape(operation: &'static str, message: String) -> Self {
        Self::Shape { operation, message }
    }
}
