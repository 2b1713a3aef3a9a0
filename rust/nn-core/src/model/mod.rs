//! Models: configurations, parameters in one arena, forward and backward.

mod adapter;
mod adapter_gguf;
mod arena;
mod arenas;
mod bitnet;
mod config;
mod families;
mod frozen;
mod gguf_names;
mod given;
mod gpt_oss;
mod guest;
mod held;
mod llama;
mod llama_folder;
mod llama_gguf;
mod low_rank;
mod mean;
mod mixtral;
mod packed;
mod parameters;
mod partitioned;
mod precision;
mod rope_scaling;
mod stored;
mod tensor_names;
mod transformer;
mod updates;
mod views;

pub use crate::layer::{ExpertParallel, ExpertUse};
pub(crate) use adapter::check_no_adapter;
pub use adapter::is_adapter;
pub use adapter::{Adapter, LowRank};
pub(crate) use adapter::{
    CONFIG as ADAPTER_CONFIG, PREFIX as FACTOR_PREFIX, WEIGHTS as ADAPTER_WEIGHTS, adapter_values,
};
pub(crate) use adapter_gguf::{interleaved_order, is_rotated};
pub use arena::ParameterArena;
pub(crate) use arena::{host_values, overlap};
pub use config::{MoEConfig, PRESETS, USUAL_PRESET, preset};
pub use frozen::FrozenBase;
pub(crate) use held::Held;
pub(crate) use llama::is_norm;
pub use llama::{Divided, GateActivation, LlamaConfig, QkNorm, Rope, RopeOptions, Scaling};
pub use low_rank::{LORA_TARGETS, LowRankOptions};
pub(crate) use mean::mean;
pub(crate) use mixtral::check_names;
pub use mixtral::{MixtralWeights, config_from_mixtral, config_to_mixtral};
pub(crate) use packed::{Decoded, decode, packed};
pub use parameters::{ParameterLayout, ParameterSpec};
pub(crate) use partitioned::PartitionedGradients;
pub use precision::Precision;
pub use stored::{StoredModel, StoredTensors};
pub use transformer::{Gradients, IGNORE_INDEX, MoETransformer};
pub(crate) use updates::Updates;
