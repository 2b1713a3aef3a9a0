//! The memory of a run before there is one: the model and the trainer themselves make their calls once on a context that
//! measures, which counts bytes as the device would and runs nothing.
//!
//! A captured step keeps each piece of memory that it ever took, and takes it again only for what has the same size, so
//! it needs more than the same calls one by one.

mod fit;

use nn_ffi::{Context, DType, Machine, Status};

use crate::error::{Error, Result};
use crate::generate::{DecodingStrategy, Sampler};
use crate::model::{MoEConfig, MoETransformer, Precision};
use crate::replay::Replay;
use crate::train::{TrainConfig, Trainer};

pub use fit::{Way, ways_to_fit};

/// What memory is for, each kind with its name for programs and what people read, in the order of a report.
pub const KINDS: [(&str, &str); 8] = [
    ("weights", "weights that the model computes with"),
    ("master", "f32 parameters behind 16-bit weights"),
    ("gradients", "gradients"),
    ("moments", "moments of AdamW"),
    ("cache", "cache of keys and values"),
    ("kept", "activations kept for backward"),
    ("transient", "other activations, inputs and tables"),
    ("scratch", "scratch of kernels"),
];

/// Bytes by kind at the moment when the most is in use, which add up to `peak`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// In the order of `KINDS`.
    pub bytes: [usize; KINDS.len()],
    /// The most bytes in use.
    pub peak: usize,
    /// What the device gives for them: a GPU gives whole pages.
    pub held: usize,
}

impl MemoryPlan {
    /// What a context measured so far: scratch, and transient all else.
    fn measured(ctx: &Context) -> Result<Self> {
        let (peak, held, scratch) = (ctx.bytes_peak()?, ctx.bytes_peak()?, ctx.bytes_arena()?);
        let mut plan = Self { bytes: [0; KINDS.len()], peak, held };
        plan.bytes[place("transient")] = peak;
        Ok(plan.with(&[("scratch", scratch)]))
    }

    /// The plan when so many of its transient bytes are of these kinds.
    fn with(mut self, known: &[(&str, usize)]) -> Self {
        for (kind, bytes) in known {
            let bytes = *bytes.min(&self.bytes[place("transient")]);
            self.bytes[place(kind)] += bytes;
            self.bytes[place("transient")] -= bytes;
        }
        self
    }

    /// Bytes of a kind by its name.
    pub fn of(&self, kind: &str) -> usize {
        self.bytes[place(kind)]
    }
}

fn place(kind: &str) -> usize {
    KINDS.iter().position(|(name, _)| *name == kind).unwrap_or(KINDS.len())
}

/// What a run needs on one device, `held_out` with evaluation. `Error::Value` for what cannot be trained.
pub fn plan_training(config: &MoEConfig, train: &TrainConfig, machine: Machine, held_out: bool) -> Result<MemoryPlan> {
    plan_steps(config, train, machine, held_out, true)
}

/// The same of a trainer that captures its steps or does not.
pub fn plan_steps(
    config: &MoEConfig,
    train: &TrainConfig,
    machine: Machine,
    held_out: bool,
    capture: bool,
) -> Result<MemoryPlan> {
    sized(|| {
        check_tensors(config)?;
        let ctx = Context::measuring(machine)?;
        let model = MoETransformer::random_in(&ctx, config.clone(), 0, true, train.precision)?;
        let (count, length) = (model.layout().size(), train.sequence_length);
        let before = ctx.bytes_used()?;
        let mut trainer = Trainer::new(model, train.clone(), capture)?;
        let moments = ctx.bytes_used()? - before;
        // From the second on micro-batches are alike, but for the last, which may be smaller: so many are run, and the
        // ids of the others are only there.
        let micro = train.micro_batch_size.unwrap_or(train.batch_size).min(train.batch_size);
        let rows = if train.batch_size > 3 * micro { 2 * micro + train.batch_size % micro } else { train.batch_size };
        let _others = ctx.empty(&[2, train.batch_size - rows, length], DType::I32)?;
        for _ in 0..2 {
            trainer.rehearse(rows, length)?;
        }
        if held_out {
            let [ids, targets] = [(); 2].map(|()| ctx.empty(&[micro, length], DType::I32));
            trainer.model().evaluate(&ids?, &targets?)?;
        }
        let plan = MemoryPlan::measured(&ctx)?; // before anything else is run
        let kept = trainer.model().bytes_kept(&ctx.empty(&[micro, length], DType::I32)?)?;
        let (weights, master) = if train.precision == Precision::F32 { (4, 0) } else { (2, 4) };
        Ok(plan.with(&[
            ("weights", weights * count),
            ("master", master * count),
            ("gradients", 4 * count),
            ("moments", moments),
            ("kept", kept),
        ]))
    })
}

/// What generation needs: `batch` sequences of up to `capacity` tokens, prompts of up to `prompt` of them.
///
/// `Error::Value` when the model does not reach that far.
pub fn plan_inference(
    config: &MoEConfig,
    precision: Precision,
    machine: Machine,
    batch: usize,
    capacity: i64,
    prompt: usize,
) -> Result<MemoryPlan> {
    let Some(capacity) = usize::try_from(capacity).ok().filter(|capacity| *capacity > 0) else {
        return Err(Error::value(format!("context is {capacity}; it must be a whole number, at least 1")));
    };
    if !(1..=capacity).contains(&prompt) {
        let problem = format!("a prompt has {prompt} tokens; it must have 1 to {capacity}, the tokens of a sequence");
        return Err(Error::value(problem));
    }
    if capacity > MOST_TOKENS {
        return Err(too_large());
    }
    sized(|| {
        check_tensors(config)?;
        let ctx = Context::measuring(machine)?;
        let model = MoETransformer::zeros(&ctx, config.clone(), false, precision)?;
        let weights = ctx.bytes_used()?;
        let mut cache = model.cache(batch, capacity)?;
        let cached = ctx.bytes_used()? - weights;
        let logits = ctx.empty(&[batch, config.vocab_size], DType::F32)?;
        let ids = ctx.empty(&[batch], DType::I32)?;
        let sampler = Sampler::new(&ctx, DecodingStrategy::Sample { temperature: 1.0 }, 0, batch)?;
        // Prompts come one after the other and take the same; then all sequences together, call by call and captured.
        model.prefill(&vec![0; prompt], &mut cache, 0, &logits.narrow(0, 0, 1)?)?;
        let mut replay = Replay::new(&ctx, true);
        for _ in 0..2 {
            cache.rewind();
            replay.run(false, || {
                model.decode(&ids, &mut cache, &logits)?;
                sampler.draw(&logits, &ids)
            })?;
        }
        Ok(MemoryPlan::measured(&ctx)?.with(&[("weights", weights), ("cache", cached)]))
    })
}

/// The longest sequence that is planned: a prompt is run part by part.
const MOST_TOKENS: usize = 1 << 25;
/// More tensors than a model may have: each takes some memory of the host.
const MAX_TENSORS: usize = 1 << 18;

fn check_tensors(config: &MoEConfig) -> Result<()> {
    let tensors = config.num_layers.saturating_mul(config.num_experts.saturating_mul(3).saturating_add(7));
    if tensors <= MAX_TENSORS {
        return Ok(());
    }
    let problem = format!("num_layers and num_experts make {tensors} tensors; a model may have at most {MAX_TENSORS}");
    Err(Error::value(problem))
}

fn too_large() -> Error {
    Error::value("the sizes make a run of more memory than any machine has")
}

/// What `plan` gives; sizes that are beyond all addresses are a wrong value.
fn sized(plan: impl FnOnce() -> Result<MemoryPlan>) -> Result<MemoryPlan> {
    plan().map_err(|error| match error {
        Error::Device(nn_ffi::Error::Shape { .. }) => too_large(),
        Error::Device(inner) if inner.status() == Some(Status::OutOfMemory) => too_large(),
        other => other,
    })
}

/// Parameters of each kind of layer: its name, those in all, and those that one token meets.
pub fn parameters_by_kind(config: &MoEConfig) -> [(&'static str, usize, usize); 6] {
    let (hidden, layers) = (config.hidden_size, config.num_layers);
    let (expert, vocabulary) = (3 * hidden * config.ffn_size, config.vocab_size * hidden);
    let attention = layers * hidden * config.head_dim * (2 * config.num_heads + 2 * config.num_kv_heads);
    let (routers, norms) = (layers * config.num_experts * hidden, (2 * layers + 1) * hidden);
    [
        ("embedding", vocabulary, vocabulary),
        ("attention", attention, attention),
        ("routers", routers, routers),
        ("norms", norms, norms),
        ("head", vocabulary, vocabulary),
        ("experts", layers * config.num_experts * expert, layers * config.experts_per_token * expert),
    ]
}
