//! Models: configurations, parameters in one arena, forward and backward.

mod arena;
mod arenas;
mod bitnet;
mod config;
mod gguf_names;
mod guest;
mod held;
mod llama;
mod llama_files;
mod mean;
mod mixtral;
mod parameters;
mod partitioned;
mod precision;
mod stored;
mod transformer;
mod updates;
mod views;

pub use crate::layer::{ExpertParallel, ExpertUse};
pub use arena::ParameterArena;
pub(crate) use arena::{host_values, overlap};
pub use config::{MoEConfig, PRESETS, USUAL_PRESET, preset};
pub(crate) use held::Held;
pub use llama::{GateActivation, LlamaConfig, Rope, RopeOptions, Scaling};
pub(crate) use mean::mean;
pub(crate) use mixtral::check_names;
pub use mixtral::{MixtralWeights, config_from_mixtral, config_to_mixtral};
pub use parameters::{ParameterLayout, ParameterSpec};
pub(crate) use partitioned::PartitionedGradients;
pub use precision::Precision;
pub use stored::{StoredModel, StoredTensors};
pub use transformer::{Gradients, IGNORE_INDEX, MoETransformer};
pub(crate) use updates::Updates;
