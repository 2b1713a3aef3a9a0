//! Safe device API over `libnncuda`: contexts, tensors, streams, graphs and every kernel.
#![allow(unsafe_code)]

mod call;
pub mod catalogue;
mod context;
mod dtype;
mod error;
mod generated;
mod graph;
pub mod kernels;
mod layout;
mod memory;
mod tensor;

pub use context::{Context, Device, InstructionSet};
pub use dtype::{Bf16, DType, Element, F16};
pub use error::{Error, Result};
pub use generated::options::{Activation, RopeLayout};
pub use generated::status::Status;
pub use graph::CudaGraph;
pub use layout::{Layout, MAX_RANK};
pub use nn_cuda::LoadError;
pub use tensor::GpuTensor;
