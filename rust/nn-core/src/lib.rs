//! Mixture-of-experts language models on `libnncuda`: layers with hand-written backwards, the model, its training,
//! checkpoints and generation.
//!
//! What decides a bit lies below the ABI, and this crate makes the calls that Python's and Go's packages make, in their
//! order and with their numbers: after the same steps from the same seed the tensors of the three are the same, and a
//! run that was begun in one language goes on in another.
//!
//! Everything that computes borrows a [`nn_ffi::Context`], which decides the device.
#![forbid(unsafe_code)]

pub mod error;
pub mod format;
pub mod generate;
pub mod layer;
pub mod model;
pub mod options;
mod sum;
pub mod text;
pub mod tokenizer;
pub mod train;

pub use error::{Error, Result};
