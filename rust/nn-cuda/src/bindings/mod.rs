// Generated from bindings.h by `make generate`. Do not edit.

//! The contract in Rust: constants, the functions' types, and the table of pointers to them.

mod constants;
pub mod functions;
mod table;

pub use constants::*;
pub use functions::{nncuda_comm, nncuda_ctx, nncuda_event, nncuda_graph, nncuda_stream};
pub use table::{Address, Functions};

/// SHA-256 of the bindings.h that these files were made from, in hexadecimal digits.
pub const HEADER_SHA256: &str = "ad77b241334545a4a7bda3e36080d73d4360a1ecbc9dd7888442f1848373816c";
