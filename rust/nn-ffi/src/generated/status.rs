// Generated from bindings.h by `make generate`. Do not edit.

//! The codes that a call may end with.

use core::fmt;

/// Why a call failed, by the groups of bindings.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// the context, stream, event or graph is null or not one of this library
    InvalidContext,
    /// a pointer that must not be null is
    NullPointer,
    /// negative, too large for its product to fit, or at odds with another size
    InvalidSize,
    /// unknown dtype, or one that this function does not take
    InvalidDtype,
    /// an option, flag or enum out of its range
    InvalidValue,
    /// a pointer is not a multiple of its element's size
    Misaligned,
    /// a pointer or handle belongs to another device or context
    WrongDevice,
    /// an output overlaps an argument in a way that is not allowed
    Aliased,
    /// a token id, target, expert index or position is outside its range
    OutOfRange,
    /// the device or the host has no more; the context stays usable
    OutOfMemory,
    /// valid, but this engine cannot do it
    Unsupported,
    /// no such device on this machine, or no driver for it
    NoDevice,
    /// not allowed while the context captures a graph
    Capturing,
    /// begin without end, end without begin, or the like
    State,
    /// another thread is inside a call on this context
    Busy,
    /// the device reported a fault; the context is lost
    Device,
    /// another rank failed, left, hung or does not match this one; the communicator is lost
    Peer,
    /// a defect of this library: please report it
    Internal,
    /// A code that a newer library has added.
    Other(i32),
}

impl Status {
    /// The status of a code; `None` for success.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            nn_cuda::NNCUDA_SUCCESS => return None,
            nn_cuda::NNCUDA_ERROR_INVALID_CONTEXT => Self::InvalidContext,
            nn_cuda::NNCUDA_ERROR_NULL_POINTER => Self::NullPointer,
            nn_cuda::NNCUDA_ERROR_INVALID_SIZE => Self::InvalidSize,
            nn_cuda::NNCUDA_ERROR_INVALID_DTYPE => Self::InvalidDtype,
            nn_cuda::NNCUDA_ERROR_INVALID_VALUE => Self::InvalidValue,
            nn_cuda::NNCUDA_ERROR_MISALIGNED => Self::Misaligned,
            nn_cuda::NNCUDA_ERROR_WRONG_DEVICE => Self::WrongDevice,
            nn_cuda::NNCUDA_ERROR_ALIASED => Self::Aliased,
            nn_cuda::NNCUDA_ERROR_OUT_OF_RANGE => Self::OutOfRange,
            nn_cuda::NNCUDA_ERROR_OUT_OF_MEMORY => Self::OutOfMemory,
            nn_cuda::NNCUDA_ERROR_UNSUPPORTED => Self::Unsupported,
            nn_cuda::NNCUDA_ERROR_NO_DEVICE => Self::NoDevice,
            nn_cuda::NNCUDA_ERROR_CAPTURING => Self::Capturing,
            nn_cuda::NNCUDA_ERROR_STATE => Self::State,
            nn_cuda::NNCUDA_ERROR_BUSY => Self::Busy,
            nn_cuda::NNCUDA_ERROR_DEVICE => Self::Device,
            nn_cuda::NNCUDA_ERROR_PEER => Self::Peer,
            nn_cuda::NNCUDA_ERROR_INTERNAL => Self::Internal,
            other => Self::Other(other),
        })
    }

    /// The code in the contract.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::InvalidContext => nn_cuda::NNCUDA_ERROR_INVALID_CONTEXT,
            Self::NullPointer => nn_cuda::NNCUDA_ERROR_NULL_POINTER,
            Self::InvalidSize => nn_cuda::NNCUDA_ERROR_INVALID_SIZE,
            Self::InvalidDtype => nn_cuda::NNCUDA_ERROR_INVALID_DTYPE,
            Self::InvalidValue => nn_cuda::NNCUDA_ERROR_INVALID_VALUE,
            Self::Misaligned => nn_cuda::NNCUDA_ERROR_MISALIGNED,
            Self::WrongDevice => nn_cuda::NNCUDA_ERROR_WRONG_DEVICE,
            Self::Aliased => nn_cuda::NNCUDA_ERROR_ALIASED,
            Self::OutOfRange => nn_cuda::NNCUDA_ERROR_OUT_OF_RANGE,
            Self::OutOfMemory => nn_cuda::NNCUDA_ERROR_OUT_OF_MEMORY,
            Self::Unsupported => nn_cuda::NNCUDA_ERROR_UNSUPPORTED,
            Self::NoDevice => nn_cuda::NNCUDA_ERROR_NO_DEVICE,
            Self::Capturing => nn_cuda::NNCUDA_ERROR_CAPTURING,
            Self::State => nn_cuda::NNCUDA_ERROR_STATE,
            Self::Busy => nn_cuda::NNCUDA_ERROR_BUSY,
            Self::Device => nn_cuda::NNCUDA_ERROR_DEVICE,
            Self::Peer => nn_cuda::NNCUDA_ERROR_PEER,
            Self::Internal => nn_cuda::NNCUDA_ERROR_INTERNAL,
            Self::Other(code) => code,
        }
    }

    /// The code's name in bindings.h.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidContext => "NNCUDA_ERROR_INVALID_CONTEXT",
            Self::NullPointer => "NNCUDA_ERROR_NULL_POINTER",
            Self::InvalidSize => "NNCUDA_ERROR_INVALID_SIZE",
            Self::InvalidDtype => "NNCUDA_ERROR_INVALID_DTYPE",
            Self::InvalidValue => "NNCUDA_ERROR_INVALID_VALUE",
            Self::Misaligned => "NNCUDA_ERROR_MISALIGNED",
            Self::WrongDevice => "NNCUDA_ERROR_WRONG_DEVICE",
            Self::Aliased => "NNCUDA_ERROR_ALIASED",
            Self::OutOfRange => "NNCUDA_ERROR_OUT_OF_RANGE",
            Self::OutOfMemory => "NNCUDA_ERROR_OUT_OF_MEMORY",
            Self::Unsupported => "NNCUDA_ERROR_UNSUPPORTED",
            Self::NoDevice => "NNCUDA_ERROR_NO_DEVICE",
            Self::Capturing => "NNCUDA_ERROR_CAPTURING",
            Self::State => "NNCUDA_ERROR_STATE",
            Self::Busy => "NNCUDA_ERROR_BUSY",
            Self::Device => "NNCUDA_ERROR_DEVICE",
            Self::Peer => "NNCUDA_ERROR_PEER",
            Self::Internal => "NNCUDA_ERROR_INTERNAL",
            Self::Other(_) => "unknown status",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
