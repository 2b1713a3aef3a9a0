//! The memory of a run before there is one: every allocation of a step and its end, walked through without any memory.
//!
//! The plan follows the trainer, the model and the layers call by call, so what is kept, what is transient and when the
//! most is in use comes out of the shapes; nothing is fitted to measurements. Bytes are those that
//! [`nn_ffi::Context::bytes_peak`] counts: memory of tensors as it was asked for, and the chunks of scratch.
//!
//! A captured step keeps each piece of memory that it ever took, and takes it again only for what has the same size, so
//! it needs more than the same calls one by one.
//!
//! Python's `nncuda.train.plan` and Go's package `plan` come to the same bytes; what changes here changes there.

mod fit;
mod memory;
mod product;
mod scratch;
mod walk;

pub use fit::{Way, ways_to_fit};
pub use memory::{KINDS, Kind, MemoryPlan};
pub use scratch::Machine;

use crate::error::{Error, Result};
use crate::model::{MoEConfig, PREFILL_PART, Precision};
use crate::train::{MomentsKind, TrainConfig};
use memory::Ledger;
use walk::{Walk, Watched, pieces, width};

/// What a run needs on one device, `held_out` with evaluation. `Error::Value` for what cannot be trained.
pub fn plan_training(config: &MoEConfig, train: &TrainConfig, machine: &Machine, held_out: bool) -> Result<MemoryPlan> {
    plan_steps(config, train, machine, held_out, true)
}

/// The same of a trainer that captures its steps or does not.
pub fn plan_steps(
    config: &MoEConfig,
    train: &TrainConfig,
    machine: &Machine,
    held_out: bool,
    capture: bool,
) -> Result<MemoryPlan> {
    let (batch, length, every) = (train.batch_size, train.sequence_length, train.activation_checkpointing);
    if length > config.context {
        let context = config.context;
        return Err(Error::value(format!("sequence_length is {length}; this model's context is {context}")));
    }
    if every > config.num_layers {
        let layers = config.num_layers;
        return Err(Error::value(format!("activation_checkpointing is {every}; this model has {layers} blocks")));
    }
    let micro = train.micro_batch_size.unwrap_or(batch).min(batch);
    check_size(config, micro as f64 * length as f64, batch as f64 * length as f64)?;
    let (mut memory, count) = (Ledger::new(machine), parameters(config));
    if train.precision == Precision::F32 {
        memory.take(4 * count, Kind::Weights);
    } else {
        memory.take(2 * count, Kind::Weights);
        memory.take(4 * count, Kind::Master);
    }
    memory.take(4 * count, Kind::Gradients);
    for _ in 0..2 {
        match train.moments {
            MomentsKind::F32 => _ = memory.take(4 * count, Kind::Moments),
            MomentsKind::BF16 => _ = memory.take(2 * count, Kind::Moments),
            MomentsKind::F8 => {
                memory.take(count, Kind::Moments);
                memory.take(4 * count.div_ceil(256), Kind::Moments); // a scale for each block
            }
        }
    }
    let walks: Vec<Walk<'_>> = pieces(batch, micro)
        .into_iter()
        .map(|size| Walk::new(config, train.precision, size, size * length, 0))
        .collect();
    // Ids, targets; losses, factors, counters. Cosines and sines, head_dim / 2 each. Positions.
    memory.take(2 * 4 * batch * length + 16 * batch.div_ceil(micro) + 64, Kind::Fixed);
    memory.take(4 * length * config.head_dim, Kind::Fixed);
    memory.take(4 * micro * length, Kind::Fixed);
    let mut watched: Watched = vec![Vec::new(); config.num_layers];
    for captured in [false, capture] {
        if captured {
            memory.begin_capture();
        }
        for (at, walk) in walks.iter().enumerate() {
            walk.forward_backward(&mut memory, train, &mut watched, at == 0);
        }
        memory.call(scratch::squares(count));
    }
    if capture {
        memory.end_capture();
    }
    if held_out {
        walks[0].evaluate(&mut memory, &mut watched);
    }
    Ok(memory.plan())
}

/// What generation needs: `batch` sequences of up to `capacity` tokens, prompts of up to `prompt` of them.
///
/// `Error::Value` when the model does not reach that far.
pub fn plan_inference(
    config: &MoEConfig,
    precision: Precision,
    machine: &Machine,
    batch: usize,
    capacity: i64,
    prompt: usize,
) -> Result<MemoryPlan> {
    let reach = config.extended_context;
    if capacity > reach as i64 {
        return Err(Error::value(format!("{capacity} tokens are more than this model takes ({reach})")));
    }
    let Some(capacity) = usize::try_from(capacity).ok().filter(|capacity| *capacity > 0) else {
        return Err(Error::value(format!("context is {capacity}; it must be a whole number, at least 1")));
    };
    if !(1..=capacity).contains(&prompt) {
        let problem = format!("a prompt has {prompt} tokens; it must have 1 to {capacity}, the tokens of a sequence");
        return Err(Error::value(problem));
    }
    let (rows, words) = (batch as f64, (capacity + config.vocab_size) as f64);
    check_size(config, rows * capacity as f64, rows * words)?;
    let (mut memory, width) = (Ledger::new(machine), width(precision));
    memory.take(width * parameters(config), Kind::Weights);
    for _ in 0..2 * config.num_layers {
        memory.take(width * batch * capacity * config.num_kv_heads * config.head_dim, Kind::Cache);
    }
    memory.take(4 * capacity * config.head_dim, Kind::Fixed); // cosines and sines
    memory.take(4 * capacity, Kind::Fixed); // positions
    memory.take(4 * batch * config.vocab_size, Kind::Logits);
    memory.take(64 * batch, Kind::Fixed); // lengths, ids, what sampling counts: less than this
    let mut watched: Watched = vec![Vec::new(); config.num_layers];
    // A prompt after the other, then all sequences together: a token call by call, and one captured.
    for (rows, tokens, seen, captured) in
        [(1, prompt.min(PREFILL_PART), 0, false), (batch, batch, capacity, false), (batch, batch, capacity, true)]
    {
        if captured {
            memory.begin_capture();
        }
        let mut walk = Walk::new(config, precision, rows, tokens, seen);
        if seen == 0 {
            walk.look_at(prompt); // a part of a prompt looks at those before it
        }
        let mut x = memory.take(walk.stream, Kind::Transient);
        for layer in &mut watched {
            let out = walk.forward(&mut memory, layer, false, Kind::Transient);
            memory.give([x]);
            x = out;
        }
        let normed = memory.take(width * batch * config.hidden_size, Kind::Transient);
        memory.give([normed, x]);
        walk.linear(&mut memory, config.hidden_size, config.vocab_size, rows, true);
    }
    memory.end_capture();
    Ok(memory.plan())
}

/// Bounds on what is planned, far above any model that fits into a machine.
const MAX_TENSORS: u32 = 1 << 18;
const MAX_PARAMETERS: u128 = 1 << 50;

/// Refuses sizes whose bytes leave what the arithmetic of sizes can hold: `together` tokens go through the layers at
/// once, `all` wait on the device.
fn check_size(config: &MoEConfig, together: f64, all: f64) -> Result<()> {
    let tensors = config.num_layers as f64 * (7.0 + 3.0 * config.num_experts as f64);
    if tensors > f64::from(MAX_TENSORS) {
        let problem =
            format!("num_layers and num_experts make {tensors} tensors; a model may have at most {MAX_TENSORS}");
        return Err(Error::value(problem));
    }
    if config.num_parameters() > MAX_PARAMETERS {
        return Err(Error::value("the sizes make a model of more parameters than any machine holds"));
    }
    let heads = ((config.num_heads + config.num_kv_heads) * (config.head_dim + 1)) as f64;
    let (hidden, experts) = (config.hidden_size as f64, config.num_experts as f64);
    let chosen = config.experts_per_token as f64 * (8.0 + 4.0 * hidden + 8.0 * config.ffn_size as f64);
    let token = 8.0 * hidden + 8.0 * heads + 8.0 * experts + chosen;
    if 4.0 * together * token * (config.num_layers + 2) as f64 + 16.0 * all > (1u64 << 60) as f64 {
        return Err(Error::value("the sizes make a run of more memory than any machine has"));
    }
    Ok(())
}

/// Parameters of a configuration, which holds at most 2^50 of them.
fn parameters(config: &MoEConfig) -> usize {
    config.num_parameters() as usize
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
