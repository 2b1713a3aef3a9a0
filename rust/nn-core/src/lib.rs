//! Mixture-of-experts language models on `libnncuda`: layers with hand-written backwards, the model, its training,
//! checkpoints and generation.
//!
//! What decides a bit lies below the ABI, and this crate makes the calls that Python's and Go's packages make, in their
//! order and with their numbers: after the same steps from the same seed the tensors of the three are the same, and a
//! run that was begun in one language goes on in another.
//!
//! Everything that computes holds a [`nn_ffi::Context`], which decides the device. Threads may share models and trainers:
//! `examples/share_model.rs` does.
//!
//! ```
//! use nn_core::generate::{Sampling, generate};
//! use nn_core::model::{MoEConfig, MoETransformer};
//! use nn_core::train::{Batch, TrainConfig, Trainer};
//! use nn_ffi::{Context, Device};
//!
//! # fn main() -> nn_core::Result<()> {
//! let ctx = Context::new(Device::Cpu)?;
//! let sizes = MoEConfig { vocab_size: 64, hidden_size: 32, num_layers: 2, ffn_size: 48, ..MoEConfig::default() };
//! let options = TrainConfig { sequence_length: 16, warmup_steps: Some(0), ..TrainConfig::default() };
//! let mut trainer = Trainer::new(MoETransformer::random(&ctx, sizes, options.seed)?, options, true)?;
//!
//! // Two sequences that count upwards: what follows an id is the next one.
//! let inputs: Vec<i32> = (0..16).chain(30..46).collect();
//! let targets = inputs.iter().map(|id| id + 1).collect();
//! let batch = Batch { rows: 2, length: 16, inputs, targets, document_ends: None };
//! for _ in 0..20 {
//!     let result = trainer.train_step(&batch)?;
//!     println!("step {}: loss {:.3}", result.step, result.loss()?);
//! }
//!
//! for token in generate(trainer.model(), &[0, 1, 2], 5, &Sampling::default(), None)? {
//!     println!("{}", token?);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod convert;
pub mod error;
pub mod format;
pub mod generate;
pub mod infer;
pub mod layer;
pub mod model;
pub mod options;
pub mod plan;
pub mod replay;
pub mod report;
pub mod text;
pub mod tokenizer;
pub mod train;

pub use error::{Error, Result};
