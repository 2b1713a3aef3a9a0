// Generated from bindings.h by `make generate`. Do not edit.

//! Every kernel as a function. Inputs and outputs are tensors, in the order of bindings.h; the sizes and strides
//! follow from their shapes, which are checked against each other before anything runs, and only what no tensor
//! tells is passed as a number.
//!
//! How a tensor's shape meets the one in the documentation: a shape of one dimension takes a dense tensor of any
//! shape, flattened; leading dimensions beyond those of the documented shape are folded into the first, where the
//! tensor is dense; and only where the shape reads `[rows:ld, ...]` may rows lie further apart than they are long.
//! Tensors that have the same documented shape must have the same shape, and those that share a dimension must fold
//! the same sizes into it: `add` refuses (2, 3) with (3, 2), although both have six elements. Outputs may be inputs
//! where their line says so, and are written by the time the context is next synchronised. A call of sizes that are
//! zero does nothing.
//!
//! Each function returns [`Error::Shape`](crate::Error::Shape) when shapes or dtypes disagree, and
//! [`Error::Call`](crate::Error::Call) with the library's status and sentence when the library refuses.

mod activation;
mod attention;
mod decode;
mod digest;
mod elementwise;
mod embedding;
mod gemm;
mod kvcache;
mod lora;
mod loss;
mod moe;
mod optimizer;
mod quant;
mod random;
mod rmsnorm;
mod rope;
mod softmax;
mod ternary;

pub use activation::*;
pub use attention::*;
pub use decode::*;
pub use digest::*;
pub use elementwise::*;
pub use embedding::*;
pub use gemm::*;
pub use kvcache::*;
pub use lora::*;
pub use loss::*;
pub use moe::*;
pub use optimizer::*;
pub use quant::*;
pub use random::*;
pub use rmsnorm::*;
pub use rope::*;
pub use softmax::*;
pub use ternary::*;
