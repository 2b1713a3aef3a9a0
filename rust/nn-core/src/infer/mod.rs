//! Inference: tokens and text from stored models, for one prompt or many at once.
//!
//! [`LanguageModel`] runs GGUF files and Hugging Face folders, checkpoints among them, on the engine: weights as the files have
//! them, keys and values in pages that prompts with the same beginning share, prompts that come and go while others are
//! decoded. The tokens are those of Python's engine, to the bit. [`generate`](crate::generate) runs a
//! [`MoETransformer`](crate::model::MoETransformer) by the layers that train.

mod batch;
mod biased_experts;
mod constraint;
mod conversation;
mod drawing;
mod engine;
mod events;
#[cfg(feature = "grammar")]
mod grammar;
mod language_model;
mod low_rank;
mod paged_cache;
mod pooling;
mod recent;
mod sampling;
mod scheduler;
#[cfg(feature = "grammar")]
mod schema_cost;
mod scores;
mod stored_layers;
mod ternary_layers;
mod ternary_weights;
mod text;
mod transfers;
mod weight_reader;
mod weights;
mod worker;

pub use constraint::Constraint;
pub use conversation::{Answer, Conversation, Message};
pub(crate) use drawing::{Drawing, RowSampler};
pub use engine::{Engine, EngineOptions, USUAL_CONTEXT};
pub use events::{Admission, Canceller, Event, EventStream, Finish, Generation};
#[cfg(feature = "grammar")]
pub use grammar::{Grammar, GrammarConstraint, Grammars, NO_FORCING, SPACES, check_grammar, schema_text};
pub use language_model::{GenerateOptions, LanguageModel, PLAIN_STOPS, Prompt};
pub use paged_cache::{CacheFormat, CacheSizes, CachedSequence, PAGE, PagedCache};
pub use sampling::Sampling;
pub use scheduler::{Occupancy, Progress, Request, RequestId, Scheduler, Statistics};
pub use scores::{MOST_ALTERNATIVES, TokenLogprobs};
pub use text::StopStrings;
pub use weight_reader::{Experts, Place, Weight};
pub use weights::Weights;
