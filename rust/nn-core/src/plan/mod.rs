//! The plan of a run before there is one: its own model and trainer, run on a context that measures.
//!
//! Such a context gives addresses and runs nothing, so what is planned is what is then called. Bytes are those that
//! [`Context::bytes_peak`] counts: memory of tensors as it was asked for, and the chunks of scratch. A captured step keeps
//! each piece of memory that it ever took, and needs more than the same calls one by one.

mod devices;
mod fit;
mod ranks;
mod seats;
mod work;

use std::time::Duration;

use nn_ffi::{Comm, Context, DType, Machine, Status, Transport};

use crate::error::{Error, Result};
use crate::infer::RowSampler;
use crate::model::{MoEConfig, MoETransformer, ParameterLayout, Precision};
use crate::replay::Replay;
use crate::train::{Batch, Rank, TrainConfig, Trainer};

pub use devices::{DEVICES, Gpu};
pub use fit::{Way, ways_to_fit};
pub use ranks::{RanksPlan, Seat, plan_growth, plan_ranks};
pub use work::{Work, inference_work, training_work, work_of_rank};

/// What memory is for, each kind with its name for programs and what people read, in the order of a report.
pub const KINDS: [(&str, &str); 10] = [
    ("weights", "weights that the model computes with"),
    ("master", "f32 parameters behind 16-bit weights"),
    ("gradients", "gradients"),
    ("moments", "moments of AdamW"),
    ("cache", "cache of keys and values"),
    ("fixed", "inputs, tables and counters"),
    ("kept", "activations kept for backward"),
    ("transient", "activations, the largest transient"),
    ("evaluation", "what evaluation needs more"),
    ("scratch", "scratch of kernels"),
];

/// The peak in bytes, and what it is for.
///
/// Where a step is captured, memory that it keeps for itself counts as transient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// In the order of `KINDS`; they add up to `peak`.
    pub bytes: [usize; KINDS.len()],
    /// The most bytes in use.
    pub peak: usize,
    /// What the device gives for them: a GPU gives whole pages.
    pub held: usize,
}

impl MemoryPlan {
    /// A plan all of whose bytes are transient.
    fn new(peak: usize, held: usize) -> Self {
        let mut plan = Self { bytes: [0; KINDS.len()], peak, held };
        plan.bytes[place("transient")] = peak;
        plan
    }

    /// The plan when so many of its transient bytes, or all, are of these kinds.
    fn with(mut self, known: &[(&str, usize)]) -> Self {
        for (kind, bytes) in known {
            let bytes = *bytes.min(&self.bytes[place("transient")]);
            self.bytes[place(kind)] += bytes;
            self.bytes[place("transient")] -= bytes;
        }
        self
    }

    /// Bytes of a kind by its name; 0 of none.
    pub fn of(&self, kind: &str) -> usize {
        self.bytes.get(place(kind)).copied().unwrap_or(0)
    }
}

fn place(kind: &str) -> usize {
    KINDS.iter().position(|(name, _)| *name == kind).unwrap_or(KINDS.len())
}

/// What a run needs on one device, `held_out` with evaluation. `Error::Value` for what cannot be trained.
pub fn plan_training(config: &MoEConfig, train: &TrainConfig, machine: Machine, held_out: bool) -> Result<MemoryPlan> {
    plan_steps(config, train, machine, Seat::ALONE, held_out, true)
}

/// The same of a rank, and of a trainer that captures its steps or does not.
pub fn plan_steps(
    config: &MoEConfig,
    train: &TrainConfig,
    machine: Machine,
    seat: Seat,
    held_out: bool,
    capture: bool,
) -> Result<MemoryPlan> {
    let (cut, length) = (Cut::of(train, seat)?, train.sequence_length);
    sized(|| {
        let ctx = Context::measuring(machine)?;
        let mut trainer = trainer(&ctx, config, train, cut.measured, seat, capture)?;
        let model = trainer.model();
        let (weights, parameters) = (model.weights().bytes(), model.parameters().bytes());
        let (kind, own) = (train.moments, trainer.device_moments().data()[0].len());
        let mut arenas = [
            ("weights", weights),
            ("master", if train.precision == Precision::F32 { 0 } else { parameters }),
            ("gradients", trainer.bytes_of_gradients()?),
            ("moments", 2 * (kind.dtype().size() * own + 4 * kind.scales(own))),
        ];
        let batch = zeros(trainer.rows().count(), length);
        trainer.train_step(&batch)?;
        // Of the sequences that are left out: ids, targets, and the losses and factors of their micro-batches.
        let factors = if train.precision == Precision::F16 { 16 } else { 12 };
        let pieces = trainer.model().loss_pieces(cut.micro * length);
        let own = cut.skipped / train.replicas * seat.replicas(train.replicas)?.len();
        let more = 8 * own * length + cut.skipped / cut.micro * (4 * pieces + factors);
        let fixed = ctx.bytes_used()? - arenas.iter().map(|(_, bytes)| bytes).sum::<usize>() + more;
        let sums = seat.later_sums(config, train, cut.measured)?;
        arenas[2].1 += sums;
        trainer.train_step(&batch)?;
        let (peak, scratch) = (ctx.bytes_peak()?, ctx.bytes_arena()?);
        let (model, ids) = (trainer.model(), ctx.empty(&[cut.micro, length], DType::I32)?);
        model.begin_evaluation(cut.micro * length, |_| true);
        if held_out {
            model.evaluate(&ids, &ctx.empty(&[cut.micro, length], DType::I32)?)?;
        }
        let plan = MemoryPlan::new(ctx.bytes_peak()? + more + sums, ctx.bytes_held()? + more + sums);
        let evaluation = ctx.bytes_peak()? - peak;
        let kept = model.bytes_kept(&ids)?;
        Ok(plan.with(&arenas).with(&[
            ("fixed", fixed),
            ("evaluation", evaluation),
            ("scratch", scratch),
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
    let reach = config.extended_context;
    if capacity > reach {
        return Err(Error::value(format!("{capacity} tokens are more than this model takes ({reach})")));
    }
    check_tokens(batch, capacity)?;
    sized(|| {
        let ctx = Context::measuring(machine)?;
        let model = model((&ctx).into(), config, precision, false)?;
        let weights = ctx.bytes_used()?;
        let elements = 2 * config.num_layers * batch * capacity * config.num_kv_heads * config.head_dim;
        let (mut cache, ids) = (model.cache(batch, capacity)?, ctx.empty(&[batch], DType::I32)?);
        let logits = ctx.empty(&[batch, config.vocab_size], DType::F32)?;
        let sampler = RowSampler::new(&ctx, batch, config.vocab_size)?;
        // A prompt, a token call by call and one captured, so far as there is room for them. Prompts come one after the
        // other: one of them is as long as it may be.
        let prompt = prompt.min(capacity.saturating_sub(2)).max(1);
        model.prefill(&vec![0; prompt], &mut cache, 0, &logits.narrow(0, 0, 1)?)?;
        let mut replay = Replay::new(&ctx, true);
        for _ in 0..2.min(capacity - prompt) {
            replay.run(false, || {
                model.decode(&ids, &mut cache, &logits)?;
                sampler.draw(&logits, &ids)
            })?;
        }
        let plan = MemoryPlan::new(ctx.bytes_peak()?, ctx.bytes_held()?);
        let cache = precision.dtype().size() * elements;
        Ok(plan.with(&[("weights", weights), ("cache", cache), ("scratch", ctx.bytes_arena()?)]))
    })
}

/// How many micro-batches of a step are looked at for what it needs, unless there are more replicas: those between the second
/// and the last find all in place.
const MEASURED: usize = 3;

/// The sequences of a batch: those of a micro-batch, those that are looked at and those that are left out.
struct Cut {
    micro: usize,
    measured: usize,
    skipped: usize,
}

impl Cut {
    fn of(train: &TrainConfig, seat: Seat) -> Result<Self> {
        let batch = train.batch_size;
        let micro = train.micro_batch(batch);
        check_tokens(micro, train.sequence_length)?;
        // Of experts' gradients fewer sums wait at once where each replica has one micro-batch.
        let rounds = if seat.expert_parallel == 1 { 1 } else { 2 };
        let left_out = batch.div_ceil(micro).saturating_sub(MEASURED.max(rounds * train.replicas));
        // Whole rounds of replicas, so that the last one still ends with the same micro-batch.
        let skipped = left_out / train.replicas * train.replicas * micro;
        Ok(Self { micro, measured: batch - skipped, skipped })
    }
}

/// The tokens that may go through the layers at once, and the tensors of a model, each of which takes some memory here.
const MOST_TOKENS: usize = 1 << 31;
const MOST_TENSORS: usize = 1 << 18;

fn check_tokens(rows: usize, length: usize) -> Result<()> {
    if rows.saturating_mul(length) > MOST_TOKENS { Err(Error::TooLarge) } else { Ok(()) }
}

/// What `plan` gives; sizes that are beyond all addresses are `Error::TooLarge`.
fn sized<T>(plan: impl FnOnce() -> Result<T>) -> Result<T> {
    plan().map_err(|error| match error {
        Error::Device(nn_ffi::Error::Shape { .. }) => Error::TooLarge,
        Error::Device(inner) if inner.status() == Some(Status::OutOfMemory) => Error::TooLarge,
        other => other,
    })
}

fn model(rank: Rank<'_>, config: &MoEConfig, precision: Precision, training: bool) -> Result<MoETransformer> {
    let tensors = ParameterLayout::count(config);
    if tensors > MOST_TENSORS {
        return Err(Error::value(format!(
            "num_layers and num_experts make {tensors} tensors; a model may have at most {MOST_TENSORS}"
        )));
    }
    MoETransformer::random_with(rank, config.clone(), 0, training, precision)
}

/// That of a rank, for updates of so many sequences.
fn trainer(
    ctx: &Context,
    config: &MoEConfig,
    train: &TrainConfig,
    batch_size: usize,
    seat: Seat,
    capture: bool,
) -> Result<Trainer> {
    let comm = Comm::new(ctx, Transport::Alone, "", Some((seat.rank, seat.ranks)), Duration::ZERO)?;
    let rank = Rank::from(&comm).with_expert_parallel(seat.expert_parallel).for_run(config, train)?;
    let train = TrainConfig { batch_size, ..train.clone() };
    let model = model(rank, config, train.precision, true)?;
    let mut trainer = Trainer::with_comm(model, train, capture, Some(&comm))?;
    trainer.run_each_kind();
    Ok(trainer)
}

/// A batch of zeros: a context that measures looks at none of them.
fn zeros(rows: usize, length: usize) -> Batch {
    Batch { rows, length, inputs: vec![0; rows * length], targets: vec![0; rows * length], document_ends: None }
}

/// Parameters of each kind of layer: its name, those in all, and those that one token meets.
pub fn parameters_by_kind(config: &MoEConfig) -> [(&'static str, usize, usize); 6] {
    let (hidden, layers) = (config.hidden_size, config.num_layers);
    let (expert, vocabulary) = (3 * hidden * config.ffn_size, config.vocab_size * hidden);
    let products = hidden * config.head_dim * (2 * config.num_heads + 2 * config.num_kv_heads);
    let biases = if config.qkv_bias { config.head_dim * (config.num_heads + 2 * config.num_kv_heads) } else { 0 };
    let attention = layers * (products + biases);
    let head = if config.tie_embeddings { 0 } else { vocabulary };
    let feed_forward = if config.num_experts == 0 {
        ("feed-forward", layers * expert, layers * expert)
    } else {
        ("experts", layers * config.num_experts * expert, layers * config.experts_per_token * expert)
    };
    let of_heads = if config.qk_norm { 2 * layers * config.head_dim } else { 0 };
    let of_subs = if config.ternary { layers * (config.num_heads * config.head_dim + config.ffn_size) } else { 0 };
    let (routers, norms) = (layers * config.num_experts * hidden, (2 * layers + 1) * hidden + of_heads + of_subs);
    [
        ("embedding", vocabulary, vocabulary),
        ("attention", attention, attention),
        ("routers", routers, routers),
        ("norms", norms, norms),
        ("head", head, head),
        feed_forward,
    ]
}
