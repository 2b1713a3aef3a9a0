//! Training: options, data, steps, checkpoints, runs.

mod adapter;
mod backward_sums;
mod chain;
mod checkpoint;
mod config;
mod data;
mod digest;
mod divergence;
mod expert_gradients;
mod extension;
mod memory;
mod metrics;
mod moments;
mod optimizer;
mod origin;
mod packing;
mod rank;
mod reduce_dtype;
mod replicas;
mod run;
mod scaling;
mod sha256;
mod sources;
mod trainer;

pub use checkpoint::{
    Base, Checkpoint, TrainingState, best_checkpoint, list_checkpoints, prune_checkpoints, read_training_state,
    resolve_checkpoint, save_checkpoint,
};
pub use config::{TrainConfig, preset};
pub use data::{Batch, TokenWindows, open_shards, unigram_entropy};
pub use metrics::{MetricsLog, read_metrics};
pub use moments::{Moments, MomentsKind};
pub use optimizer::{Optimizer, UpdateOptions};
pub use origin::Origin;
pub use rank::Rank;
pub use reduce_dtype::ReduceDtype;
pub(crate) use replicas::{check_ranks, partitions_gradients, sums_left};
pub use run::{Event, Progress, TrainingRun};
pub use scaling::{LossScalingOptions, LossScalingState};
pub use sources::Sources;
pub use trainer::{StepResult, Trainer};
