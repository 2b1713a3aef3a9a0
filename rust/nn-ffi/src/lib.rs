//! Safe device API over `libnncuda`: contexts, tensors, streams, graphs and every kernel.
#![allow(unsafe_code)]

mod buffer;
mod call;
pub mod catalogue;
mod context;
mod decode;
mod device;
mod dtype;
mod error;
mod generated;
mod graph;
pub mod kernels;
mod layout;
pub mod library;
mod memory;
mod profile;
mod replay;
mod stream;
mod tensor;
mod train;

pub use buffer::{DeviceBuffer, PinnedBuffer};
pub use context::Context;
pub use decode::{DecodingStrategy, Sampler};
pub use device::{Device, InstructionSet};
pub use dtype::{Bf16, DType, Element, F16};
pub use error::{Error, Result};
pub use generated::options::{Activation, RopeLayout};
pub use generated::status::Status;
pub use graph::CudaGraph;
pub use layout::{Layout, MAX_RANK};
pub use nn_cuda::LoadError;
pub use profile::Profile;
pub use replay::{Replay, Run};
pub use stream::{Copies, Event, Stream};
pub use tensor::GpuTensor;
pub use train::{GpuTrainer, UpdateOptions};
