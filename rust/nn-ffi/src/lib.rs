//! Safe device API over `libnncuda`: contexts, tensors, streams, graphs, and every kernel as a function.
//!
//! ```
//! use nn_ffi::{Context, DType, Device, kernels};
//!
//! # fn main() -> nn_ffi::Result<()> {
//! let context = Context::new(Device::Auto)?; // a GPU where there is one, else the CPU
//!
//! // A linear layer, y = x * W^T, and its activation. Weights are [out, in].
//! let x = context.tensor(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
//! let weight = context.empty(&[4, 3], DType::F32)?;
//! kernels::normal(&weight, 0.0, 0.02, 42, 0, 0)?; // mean, standard deviation, seed, stream, offset
//! let y = context.empty(&[2, 4], DType::F32)?;
//! kernels::gemm(&x, &weight, &y, false, true)?;
//! kernels::silu(&y, &y)?;
//! println!("{:?}", y.to_vec::<f32>()?);
//!
//! // The same calls as a graph, which runs again and again without the host.
//! let graph = context.capture(|| {
//!     kernels::gemm(&x, &weight, &y, false, true)?;
//!     kernels::silu(&y, &y)
//! })?;
//! x.copy_from_slice(&[0.0_f32; 6])?;
//! graph.launch()?;
//! assert_eq!(y.to_vec::<f32>()?, [0.0; 8]);
//! # Ok(()) }
//! ```
//!
//! | what | for what |
//! |---|---|
//! | [`Context`] | a device: its memory, workers, attributes, profile and traces; or one that [measures](Context::measuring) |
//! | [`Tensor`], [`DeviceBuffer`] | memory with a shape and a dtype; memory with a type of Rust |
//! | [`kernels`] | every kernel, its sizes derived from its tensors |
//! | [`Graph`] | calls that are recorded once and run again |
//! | [`Stream`], [`Event`], [`PinnedBuffer`], [`Relay`] | copies beside the kernels |
//! | [`HostBytes`] | mapped files, which tensors may look at without a copy |
//! | [`Comm`] | several ranks on one job: collectives, and how work is shared out |
//! | [`catalogue`] | the kernels as data, for tests that call them by name |
//!
//! The same call with the same inputs gives the same bits, in every language that makes it and with any number of threads.
//!
//! # Errors
//!
//! Every function that calls the library may return [`Error::Call`] because the device has failed, and one that makes a
//! context or needs none [`Error::Load`] because there is no library. What else can go wrong stands at each.
//!
//! # Unsafe code
//!
//! All of the workspace's stands in this crate and in `nn-cuda`, each block with its reason. What is here turns on four
//! things. A tensor keeps its memory and its context, so that no call gets a pointer that is gone. A context makes one call
//! at a time, whichever threads ask, since only who has its turn gets at its handle. A kernel's function checks all shapes
//! and dtypes against each other, so that no call gets a size that is not there; what lies in memory (indices, offsets) the
//! library checks. And device memory is never seen through a Rust reference: values cross by copies, which borrow the
//! host's side for as long as they take, and while a stream copies a tensor, nothing else may use it.
//!
//! The parts that need no library run under Miri, on a stand-in behind the same table of functions:
//! `cargo +nightly miri test -p nn-ffi --lib`.
#![allow(unsafe_code)]

mod buffer;
mod call;
pub mod catalogue;
mod comm;
mod context;
mod device;
mod dtype;
mod error;
mod experts;
#[cfg(test)]
mod fake;
mod generated;
mod graph;
mod handle;
mod host;
pub mod kernels;
mod layout;
pub mod library;
mod measuring;
mod memory;
mod profile;
mod relay;
mod shards;
mod stream;
mod sums;
mod tensor;
mod trace;

pub use buffer::{DeviceBuffer, PinnedBuffer};
pub use comm::{Comm, Piece};
pub use context::Context;
pub use device::{Device, InstructionSet};
pub use dtype::{Bf16, DType, Element, F16};
pub use error::{Error, Result};
pub use experts::{ExpertEvent, expert_schedule};
pub use generated::options::{Activation, Format, RopeLayout, Transport};
pub use generated::status::Status;
pub use graph::Graph;
pub use host::HostBytes;
pub use layout::{Layout, MAX_RANK};
pub use measuring::Machine;
pub use nn_cuda::{LoadError, suggest};
pub use profile::Profile;
pub use relay::Relay;
pub use shards::{Shard, expert_shards, replica_merges, shard};
pub use stream::{Copies, Event, Stream};
pub use tensor::Tensor;
pub use trace::{Difference, NonFinite, Place, Shadow, ShadowedKernel, Use};
