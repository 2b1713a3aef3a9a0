//! A model that trains in milliseconds, and data for it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nn_core::format::Table;
use nn_core::format::shards::write_shard;
use nn_core::model::{MoEConfig, MoETransformer, ParameterArena};
use nn_core::train::{Batch, Rank, TrainConfig, Trainer, TrainingRun, list_checkpoints, read_metrics};
use nn_core::{Error, Result};
use nn_ffi::{Comm, Context, Device, Status, Transport};

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
    Batch { rows, length, inputs: random(seed), targets, document_ends: None }
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

/// What `work` gives on each rank. One rank has no communicator.
pub(crate) fn job<T: Send>(ranks: usize, work: impl Fn(Rank<'_>) -> T + Sync) -> Vec<T> {
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("job {}", JOBS.fetch_add(1, Ordering::Relaxed));
    let (work, name) = (&work, name.as_str());
    thread::scope(|scope| {
        let of_rank = |rank: usize| {
            scope.spawn(move || {
                let ctx = context();
                ctx.set_threads(1).unwrap();
                if ranks == 1 {
                    return work((&ctx).into());
                }
                let seat = Some((rank, ranks));
                let comm = Comm::new(&ctx, Transport::Threads, name, seat, Duration::from_secs(60)).unwrap();
                work((&comm).into())
            })
        };
        let threads: Vec<_> = (0..ranks).map(of_rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(crate) fn number_of(rank: Rank<'_>) -> usize {
    rank.comm().map_or(0, Comm::rank)
}

/// Files by their path in a run's folder.
pub(crate) type Files = Vec<(PathBuf, Vec<u8>)>;

/// All that a run leaves, without its times: bytes of the files of its checkpoints, and its metrics.
pub(crate) fn left(workshop: &Workshop, name: &str) -> (Files, Vec<Table>) {
    let mut files = Vec::new();
    for folder in list_checkpoints(&workshop.path(name).join("checkpoints")).unwrap() {
        let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in names {
            let mut bytes = std::fs::read(&path).unwrap();
            if path.ends_with("training.json") {
                let text = String::from_utf8(bytes).unwrap();
                bytes = text.lines().filter(|line| !line.contains("\"seconds\"")).collect::<String>().into();
            }
            files.push((path.strip_prefix(workshop.path(name)).unwrap().to_owned(), bytes));
        }
    }
    let mut metrics = read_metrics(&workshop.path(name).join("metrics.jsonl")).unwrap();
    for record in &mut metrics {
        for name in ["seconds", "tokens_per_second", "bytes_peak"] {
            record.remove(name);
        }
    }
    (files, metrics)
}

/// The sentence with which a rank lost the others; empty where something else ended it.
pub(crate) fn peer_text(error: &Error) -> String {
    match error {
        Error::Device(inner) if inner.status() == Some(Status::Peer) => format!("{error:#}"),
        _ => String::new(),
    }
}
