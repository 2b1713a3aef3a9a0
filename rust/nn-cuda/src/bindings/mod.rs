// Generated from bindings.h by `make generate`. Do not edit.

//! The contract in Rust: constants, the functions' types, and the table of pointers to them.

mod constants;
pub mod functions;
mod table;

pub use constants::*;
pub use functions::{nncuda_comm, nncuda_ctx, nncuda_event, nncuda_graph, nncuda_stream};
pub use table::{Address, Functions};

/// SHA-256 of the bindings.h that these files were made from, in hexadecimal digits.
pub const HEADER_SHA256: &str = "71b611206cd3a44c9f7c1538d45dd614eb33352149ea67f13520d9f8ca3a4ac3";
