// Generated from bindings.h by `make generate`. Do not edit.

//! The contract in Rust: constants, the functions' types, and the table of pointers to them.

mod constants;
pub mod functions;
mod table;

pub use constants::*;
pub use functions::{nncuda_comm, nncuda_ctx, nncuda_event, nncuda_graph, nncuda_stream};
pub use table::{Address, Functions};

/// SHA-256 of the bindings.h that these files were made from, in hexadecimal digits.
pub const HEADER_SHA256: &str = "540d3dbc7566b0259d64960b5e8376dc3eb3746c4a4c3897ac7b9d39685cbbb5";
