// Generated from bindings.h by `make generate`. Do not edit.

//! The contract in Rust: constants, the functions' types, and the table of pointers to them.

mod constants;
pub mod functions;
mod table;

pub use constants::*;
pub use functions::{nncuda_comm, nncuda_ctx, nncuda_event, nncuda_graph, nncuda_stream};
pub use table::{Address, Functions};

/// SHA-256 of the bindings.h that these files were made from, in hexadecimal digits.
pub const HEADER_SHA256: &str = "41c8c0ef5f9a8136379dcd3a0ab44ab7b7f3298777f29f67ef31f234a5f744d6";
