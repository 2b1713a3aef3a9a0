//! Layers with a forward and a hand-written backward.
//!
//! A layer holds views of its weights and of their gradients (none: inference only). What a backward needs of its
//! forward is a value that `forward_keeping` gives and `backward` takes, so that memory is released as early as can be.
//! The input is not part of it: the caller hands it in again, kept or recomputed.
//!
//! `backward` gives the gradient of the input; the gradients of weight matrices become `beta` times what they were plus
//! what this call finds, so that beta 0 spares the first micro-batch a pass to set them to zero. Gradients of norms'
//! gains are always added to what is there.
//!
//! Activations have the dtype of the weights, f32, bf16 or f16; gradients of weights are f32 always, and so are the
//! router's logits and probabilities.

mod attention;
mod block;
mod cache;
mod dense;
mod embedding;
mod expert_parallel;
mod expert_products;
mod gated;
mod linear;
mod low_rank;
mod moe;
mod norm;
mod projection;
mod rope;
mod ternary;

pub use attention::{MQAttention, MQAttentionKept};
pub use block::{BlockKept, TransformerBlock};
pub use cache::KVCache;
pub use dense::{AllRows, DenseInside, DenseLayer, DenseNetwork, FeedForward, FeedForwardKept};
pub use embedding::Embedding;
pub use expert_parallel::{ExpertExchange, ExpertParallel, Served};
pub(crate) use expert_parallel::{Round, check_expert_parallel};
pub use expert_products::SwiGLU;
pub use gated::GatedNetwork;
pub use linear::Linear;
pub use low_rank::LowRank;
pub use moe::{ExpertUse, MoEKept, MoELayer, Router, Routing};
pub use norm::RMSNorm;
pub use projection::{HeadNorms, Product, Projection};
pub use rope::{RopeTables, Rotation};
pub use ternary::{TernaryLinear, TernaryNetwork};

use nn_ffi::Tensor;

use crate::error::{Error, Result};

/// The sizes of a tensor that must have that many dimensions.
fn sizes<const N: usize>(what: &str, tensor: &Tensor) -> Result<[usize; N]> {
    tensor.shape().try_into().map_err(|_| {
        let shape = tensor.shape();
        Error::value(format!("{what} has shape {shape:?}; it must have {N} dimensions"))
    })
}

/// A parameter and its gradient, views of the arenas; without a gradient, for inference only.
#[derive(Debug)]
pub struct Weight {
    /// The values.
    pub value: Tensor,
    grad: Option<Tensor>,
}

impl Weight {
    /// A parameter of a layer.
    pub fn new(value: Tensor, grad: Option<Tensor>) -> Self {
        Self { value, grad }
    }

    /// The gradient. `Error::Value` when the layer was made for inference.
    pub fn grad(&self) -> Result<&Tensor> {
        self.grad.as_ref().ok_or_else(|| Error::value("this layer was made for inference: it has no gradients"))
    }
}
