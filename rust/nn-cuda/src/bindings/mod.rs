// Generated from bindings.h by `python -m nncuda.binding.rust rust`. Do not edit.

//! The contract in Rust: constants, the functions' types, and the table of pointers to them.

mod constants;
pub mod functions;
mod table;

pub use constants::*;
pub use functions::{nncuda_ctx, nncuda_event, nncuda_graph, nncuda_stream};
pub use table::{Address, Functions};

/// SHA-256 of the bindings.h that these files were made from, in hexadecimal digits.
pub const HEADER_SHA256: &str = "64a1bad0a82354ebfa3f8089f0073a672ecbf829a7c3a6c457eb410654b8fb30";
