//! A model that trains in milliseconds, and data for it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};

use nn_core::Result;
use nn_core::format::shards::write_shard;
use nn_core::model::{MoEConfig, MoETransformer, ParameterArena};
use nn_core::train::{Batch, Rank, TrainConfig, Trainer, TrainingRun};
use nn_ffi::{Context, Device};

/// A context; without the library nothing here can be tested, and its error says what to do.
pub(crate) fn context() -> Context {
    Context::new(Device::Cpu).unwrap_or_else(|error| panic!("{error}"))
}

/// Sizes that are multiples of nothing, and weights large enough for attention and routing to be far from uniform.
pub(crate) fn model() -> MoEConfig {
    MoEConfig {
        vocab_size: 48,
        hidden_size: 24,
        num_layers: 2,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 8,
        num_experts: 4,
        experts_per_token: 2,
        ffn_size: 20,
        context: 32,
        extended_context: 64,
        capacity_factor: Some(1.0),
        init_std: 0.2,
        ..MoEConfig::default()
    }
}

/// Three micro-batches an update, the last one shorter, and gradients that are clipped.
pub(crate) fn options() -> TrainConfig {
    TrainConfig {
        steps: 12,
        batch_size: 5,
        micro_batch_size: Some(2),
        sequence_length: 13,
        learning_rate: 3e-3,
        warmup_steps: Some(3),
        clip_norm: Some(0.5),
        seed: 7,
        save_every: 4,
        eval_every: 4,
        ..TrainConfig::default()
    }
}

/// A trainer of a new model.
pub(crate) fn trainer(ctx: &Context, model: MoEConfig, options: TrainConfig, capture: bool) -> Trainer {
    let model = MoETransformer::random_in(ctx, model, options.seed, true, options.precision).unwrap();
    Trainer::new(model, options, capture).unwrap()
}

/// A folder with data, for runs.
pub(crate) struct Workshop {
    root: tempfile::TempDir,
    evaluates: bool,
}

impl Workshop {
    /// With held-out data if its runs shall evaluate.
    pub(crate) fn new(evaluates: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        shard(&root.path().join("data.tokens"), 3000, 1);
        shard(&root.path().join("held-out.tokens"), 300, 2);
        Self { root, evaluates }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn start(&self, ctx: &Context, name: &str, options: TrainConfig) -> TrainingRun {
        self.begin(ctx, name, model(), options).unwrap()
    }

    /// The same of a model on some rank.
    pub(crate) fn begin<'a>(
        &self,
        rank: impl Into<Rank<'a>>,
        name: &str,
        model: MoEConfig,
        options: TrainConfig,
    ) -> Result<TrainingRun> {
        let [folder, data, held_out] = [name, "data.tokens", "held-out.tokens"].map(|name| self.path(name));
        let held_out = self.evaluates.then_some(held_out.as_path());
        TrainingRun::start(&folder, rank, model, options, &data, held_out, None)
    }
}

/// Ids that look random and are the same in every run.
pub(crate) fn ids(count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % 48
    };
    (0..count).map(|_| next()).collect()
}

/// A batch of random ids; every fifth target counts for nothing.
pub(crate) fn batch(rows: usize, length: usize, seed: u64) -> Batch {
    let random = |seed| -> Vec<i32> { ids(rows * length, seed).into_iter().map(|id| id as i32).collect() };
    let mut targets = random(seed + 1000);
    targets.iter_mut().step_by(5).for_each(|target| *target = -100);
    Batch { rows, length, inputs: random(seed), targets }
}

/// A shard of random ids.
pub(crate) fn shard(path: &Path, count: usize, seed: u64) {
    write_shard(path, &ids(count, seed), 48, &[0; 32]).unwrap();
}

/// The bits of an arena, as f32.
pub(crate) fn bits(arena: &ParameterArena) -> Vec<u32> {
    arena.to_vec().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The bits of all that a trainer keeps: parameters and both moments.
pub(crate) fn state(trainer: &Trainer) -> [Vec<u32>; 3] {
    let [first, second] = trainer.moments().unwrap();
    [trainer.model().parameters(), first, second].map(bits)
}
