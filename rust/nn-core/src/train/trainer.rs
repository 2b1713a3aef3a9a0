//! One training step: gradients over micro-batches, clipping, schedule, AdamW.

use nn_ffi::{Comm, DType, Tensor};

use super::config::{TrainConfig, canonical};
use super::data::Batch;
use super::memory::StepMemory;
use super::moments::Moments;
use super::optimizer::{Optimizer, UpdateOptions};
use super::replicas::{Replicas, one_micro_batch_each};
use super::scaling::{LossScalingOptions, LossScalingState};
use crate::error::{Error, Result};
use crate::model::{IGNORE_INDEX, MoETransformer, ParameterArena, Precision};

/// Trains a model with AdamW.
///
/// The state beside the model's parameters: first and second moments in what the option says, the step, and the loss
/// scale of a model in f16.
///
/// The ranks of a communicator train together: each makes a trainer of the same model and options, and calls the same
/// functions. A rank runs the micro-batches of its part of the replicas, and has the moments of its part of the parameters;
/// what they train has the bits of one rank alone. With a precision of 16 bits, of the model's f32 `parameters` a rank has, or
/// keeps up to date in a model that was made whole, its part alone, see [`Trainer::gather_parameters`]; the weights are whole
/// on all.
#[derive(Debug)]
pub struct Trainer {
    model: MoETransformer,
    config: TrainConfig,
    moments: Option<[ParameterArena; 2]>,
    replicas: Replicas,
    device: Optimizer,
    memory: Option<StepMemory>,
    /// Whether of micro-batches that make the same calls the first alone is run.
    each_kind: bool,
}

/// What a step did. Values stay on the device until they are asked for; they last until the next step, which the borrow
/// of the trainer sees to.
#[derive(Debug)]
pub struct StepResult<'a> {
    device: &'a Optimizer,
    memory: &'a StepMemory,
    replicas: &'a Replicas,
    /// Steps done, this one included.
    pub step: usize,
    /// Targets that counted.
    pub tokens: usize,
}

impl StepResult<'_> {
    /// Mean cross-entropy over the targets of the whole batch, in nats.
    pub fn loss(&self) -> Result<f64> {
        self.memory.loss()
    }

    /// Load-balancing loss, the mean over the micro-batches by their tokens.
    pub fn aux_loss(&self) -> Result<f64> {
        self.memory.aux_loss()
    }

    /// Global norm of the gradients before clipping, the loss scale divided out; not finite in a skipped step.
    pub fn grad_norm(&self) -> Result<f64> {
        Ok(f64::from(self.device.norm().item::<f32>()?) / self.loss_scale()?.unwrap_or(1.0))
    }

    /// Rate of this update; NaN in a skipped step, which makes none.
    pub fn learning_rate(&self) -> Result<f64> {
        Ok(if self.skipped()? { f64::NAN } else { f64::from(self.device.rate().item::<f32>()?) })
    }

    /// What the losses of this step were multiplied by; `None` in another precision than f16.
    pub fn loss_scale(&self) -> Result<Option<f64>> {
        self.device.loss_scale().map(|scale| Ok(f64::from(scale.item::<f32>()?))).transpose()
    }

    /// Whether the gradients were not finite, so that nothing was updated. In another precision than f16 no step behind
    /// such a one updates anything, and all of them are skipped.
    pub fn skipped(&self) -> Result<bool> {
        Ok(self.device.skip().item::<i32>()? != 0)
    }

    /// Steps skipped so far, this one included.
    pub fn skipped_steps(&self) -> Result<usize> {
        let state = self.device.loss_scaling()?;
        Ok(state.map_or(0, |state| usize::try_from(state.skipped).unwrap_or(0)))
    }

    /// Slots that chose each expert in the last micro-batch of the last replica, layer by layer. Of several ranks all call it.
    pub fn expert_counts(&self) -> Result<Vec<Vec<i32>>> {
        let uses = &self.memory.uses;
        let Some(comm) = self.replicas.comm() else {
            return uses.iter().map(|layer| Ok(layer.counts.to_vec()?)).collect();
        };
        if uses.is_empty() {
            return Ok(Vec::new()); // a dense model
        }
        let experts = uses.first().map_or(0, |layer| layer.counts.len());
        let counts = comm.context().empty(&[uses.len(), experts], DType::I32)?;
        for (number, layer) in uses.iter().enumerate() {
            counts.narrow(0, number, 1)?.view(&[experts])?.copy_from(&layer.counts)?;
        }
        comm.broadcast(&counts, comm.ranks() - 1)?;
        Ok(counts.to_vec::<i32>()?.chunks(experts.max(1)).map(<[i32]>::to_vec).collect())
    }

    /// Experts of each token of the last micro-batch of this rank, likeliest first, `[tokens * experts_per_token]` a layer.
    pub fn expert_choices(&self) -> Result<Vec<Vec<i32>>> {
        self.memory.uses.iter().map(|layer| Ok(layer.choices.to_vec()?)).collect()
    }
}

impl Trainer {
    /// A trainer at step 0. `Error::Value` when the model was made for inference, computes in another precision, has
    /// fewer blocks than `activation_checkpointing`, or does not take sequences this long.
    ///
    /// Steps of one shape of batch are captured as a graph and replayed; without `capture` they are not: the same bits,
    /// later.
    pub fn new(model: MoETransformer, config: TrainConfig, capture: bool) -> Result<Self> {
        Self::with_comm(model, config, capture, None)
    }

    /// The same on one of the ranks of a communicator, whose context is the model's. `Error::Value` when there are more
    /// ranks than `replicas`.
    pub fn with_comm(
        mut model: MoETransformer,
        config: TrainConfig,
        capture: bool,
        comm: Option<&Comm>,
    ) -> Result<Self> {
        config.validate()?;
        let (length, context) = (config.sequence_length, model.config().context);
        if length > context {
            return Err(Error::value(format!("sequence_length is {length}; this model's context is {context}")));
        }
        let (every, blocks) = (config.activation_checkpointing, model.config().num_layers);
        if every > blocks {
            return Err(Error::value(format!("activation_checkpointing is {every}; this model has {blocks} blocks")));
        }
        if config.keep_experts > blocks {
            return Err(Error::value(format!(
                "keep_experts is {}; this model has {blocks} blocks",
                config.keep_experts
            )));
        }
        let (precision, of_model) = (config.precision, model.precision());
        if precision != of_model {
            return Err(Error::value(format!("precision is {precision}; this model computes in {of_model}")));
        }
        let rank = model.low_rank().map_or(0, |adapter| adapter.rank);
        if rank != config.lora_rank {
            let trained = if rank > 0 { format!("an adapter of rank {rank}") } else { "all weights".to_owned() };
            return Err(Error::value(format!("lora_rank is {}; this model trains {trained}", config.lora_rank)));
        }
        if let Some(ranks) = comm.map(Comm::ranks).filter(|ranks| *ranks > 1 && rank > 0) {
            return Err(Error::value(format!("an adapter is trained by one rank; there are {ranks}")));
        }
        model.mask_documents(config.document_mask)?;
        model.recompute(every, config.recompute_experts, config.keep_experts);
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (warmup, total, max_rate, min_rate) = config.rates();
        let options = UpdateOptions {
            max_rate,
            min_rate,
            warmup,
            total,
            beta1: config.beta1 as f32,
            beta2: config.beta2 as f32,
            eps: config.eps as f32,
            weight_decay: config.weight_decay as f32,
            moments: config.moments,
            decayed: whole(model.layout().num_decayed()),
            clip_norm: config.clip_norm.map(|limit| limit as f32),
            loss_scaling: (precision == Precision::F16).then(|| LossScalingOptions {
                scale: config.loss_scale,
                growth: config.loss_scale_growth as f32,
                backoff: config.loss_scale_backoff as f32,
                interval: whole(config.loss_scale_interval),
            }),
        };
        let seat = |comm: &Comm| [comm.rank(), comm.ranks()];
        if model.job().is_some_and(|job| comm.map(seat) != Some(seat(job))) {
            let shared = if model.experts().is_some() { "experts" } else { "parameters" };
            let problem = format!("the ranks that share out this model's {shared} must be those that train it");
            return Err(Error::value(problem));
        }
        if model.partitioned().is_some() && !one_micro_batch_each(&config, comm.map_or(1, Comm::ranks)) {
            let problem = "this model's gradients are partitioned: each rank must run one micro-batch of an update";
            return Err(Error::value(problem));
        }
        if let Some(comm) = comm.filter(|comm| comm.ranks() > 1) {
            comm.agree("configuration", canonical(&[model.config().values(), config.resolved()]))?;
            let experts = model.experts();
            comm.agree("expert parallel", experts.map_or(1, |experts| experts.ranks()).to_string())?;
            experts.map_or(Ok(()), |experts| experts.join())?;
        }
        let replicas = Replicas::of_model(&model, &config, config.micro_batches(), comm)?;
        let (parameters, gradients) = (model.parameters().data(), model.gradients()?.data());
        let rounded = (precision != Precision::F32).then(|| model.weights().data());
        let device = Optimizer::with_replicas(parameters, gradients, rounded, options, capture, replicas.clone())?;
        let arenas = device.moments().scales().is_none() && device.moments().data()[0].len() == model.layout().size();
        let moments = arenas
            .then(|| device.moments().data().each_ref().map(|data| ParameterArena::over(model.layout(), data.clone())));
        Ok(Self { model, config, moments, replicas, device, memory: None, each_kind: false })
    }

    /// The model.
    pub fn model(&self) -> &MoETransformer {
        &self.model
    }

    /// The options.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// First and second moments; `None` when they are kept in 8 bits, or this rank has a part of them, see
    /// [`Trainer::device_moments`].
    pub fn moments(&self) -> Option<&[ParameterArena; 2]> {
        self.moments.as_ref()
    }

    /// Both moments as they lie on the device, whatever they are kept in.
    pub fn device_moments(&self) -> &Moments {
        self.device.moments()
    }

    /// Which sequences of an update this rank gives to [`Trainer::train_step`], in this order: those of its micro-batches.
    pub fn rows(&self) -> impl Iterator<Item = usize> {
        let (batch, micro) = (self.config.batch_size, self.config.micro_batch(self.config.batch_size));
        (0..batch).filter(move |row| self.replicas.runs(row / micro))
    }

    /// The replicas that this rank runs, and the other ranks.
    pub(super) fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Steps done, those that were skipped included.
    pub fn step(&self) -> usize {
        usize::try_from(self.device.steps_done()).unwrap_or(0)
    }

    /// Bytes that this rank gave the transport for other ranks so far.
    pub fn bytes_sent(&self) -> Result<u64> {
        let of_experts = self.model.experts().map_or(Ok(0), |experts| experts.bytes_sent())?;
        Ok(of_experts + self.replicas.bytes_sent()?)
    }

    /// Memory of the gradients: of the model, of replicas whose sums wait for others, and of sums that arrive.
    pub(crate) fn bytes_of_gradients(&self) -> Result<usize> {
        Ok(self.model.bytes_of_gradients()? + self.replicas.bytes())
    }

    /// The numbers that the next step depends on, on the device.
    pub(super) fn counters(&self) -> Vec<(&'static str, &Tensor)> {
        self.device.counters()
    }

    /// The loss scale and its counters, read from the device; `None` in another precision than f16.
    pub fn loss_scaling(&self) -> Result<Option<LossScalingState>> {
        self.device.loss_scaling()
    }

    /// Continues after `step`, for a trainer whose weights and moments are of that step, with the `loss_scaling` of
    /// that moment when the precision is f16.
    pub fn restore(&mut self, step: usize, loss_scaling: Option<LossScalingState>) -> Result<()> {
        let count = i32::try_from(step).map_err(|_| Error::value(format!("step is {step}; it must be below 2^31")))?;
        self.device.restore(count, loss_scaling)
    }

    /// Why the last step ran call by call; `None` when it was replayed, or there was none yet.
    pub fn eager_reason(&self) -> Option<&str> {
        self.device.eager_reason()
    }

    /// The first step since this trainer began whose gradients were not finite, read from the device; from that step on
    /// nothing was updated. Always `None` in f16, where such steps are skipped and training goes on.
    pub fn diverged_at(&self) -> Result<Option<usize>> {
        if self.config.precision == Precision::F16 || !self.last_skipped()? {
            return Ok(None);
        }
        Ok(Some(usize::try_from(self.device.updates_done()?).unwrap_or(0) + 1))
    }

    /// Mean cross-entropy of the last step, in nats; NaN when there was none.
    pub(super) fn last_loss(&self) -> Result<f64> {
        self.memory.as_ref().map_or(Ok(f64::NAN), StepMemory::loss)
    }

    /// Whether the last step updated nothing.
    pub(super) fn last_skipped(&self) -> Result<bool> {
        Ok(self.device.skip().item::<i32>()? != 0)
    }

    /// What the losses of the last step were multiplied by; `None` in another precision than f16.
    pub(super) fn last_loss_scale(&self) -> Result<Option<f64>> {
        self.device.loss_scale().map(|scale| Ok(f64::from(scale.item::<f32>()?))).transpose()
    }

    /// The mean loss of a batch, whose gradients are then the model's, made call by call; nothing is updated. The
    /// captured step is let go. A rank runs all of it, without the others.
    pub(super) fn gradients_again(&mut self, batch: &Batch) -> Result<f64> {
        self.device.release_captured();
        let tokens = batch.targets.iter().filter(|target| **target != IGNORE_INDEX).count();
        let alone = Replicas::alone(self.model.context(), self.model.layout().size())?;
        self.memory = None;
        let memory = self.new_memory([batch.rows, batch.length], batch.document_ends.is_some(), &alone)?;
        let memory = self.memory.insert(memory);
        memory.fill(&self.model, batch, tokens)?;
        memory.calls(&self.model, &alone)?;
        memory.loss()
    }

    /// Brings the model's f32 `parameters` together on each rank, until the next step: with a precision of 16 bits a rank
    /// updates, and has room for, its part alone. All ranks call it. `Error::Value` where they share the experts out.
    pub fn gather_parameters(&mut self) -> Result<()> {
        self.model.require_all()?;
        let all = self.model.begin_gathering();
        let all = self.replicas.aborting(all)?;
        self.replicas.gather(all.data())?;
        self.model.end_gathering(all);
        Ok(())
    }

    /// The gradients of the last step, whole on all ranks, which all call it: not where they partition them.
    pub(super) fn gather_gradients(&self) -> Result<()> {
        self.replicas.gather(self.model.gradients()?.data())
    }

    /// The memory of steps of this shape, to be put back: that which there is, else a new one.
    fn memory_for(&mut self, batch: &Batch) -> Result<StepMemory> {
        let (before, has_documents) = (self.memory.take(), batch.document_ends.is_some());
        let other_calls = before.as_ref().is_some_and(|memory| memory.has_documents() != has_documents);
        match before.filter(|memory| memory.fits(batch)) {
            Some(memory) => Ok(memory),
            None => {
                let rows = if self.replicas.comm().is_some() { self.config.batch_size } else { batch.rows };
                let new = |()| self.new_memory([rows, batch.length], has_documents, &self.replicas);
                let made = self.config.check_replicas(rows).and_then(new);
                if made.is_err() || other_calls {
                    self.device.release_captured(); // it reads the memory that is gone
                }
                made
            }
        }
    }

    fn new_memory(&self, shape: [usize; 2], has_documents: bool, replicas: &Replicas) -> Result<StepMemory> {
        let [rows, length] = shape;
        let sizes = [rows, length, self.config.micro_batch(rows)];
        StepMemory::new(&self.model, sizes, has_documents, self.device.loss_scale(), replicas, self.each_kind)
    }

    /// For a plan: from now on, of micro-batches that make the same calls a step runs the first alone.
    pub(crate) fn run_each_kind(&mut self) {
        self.each_kind = true;
    }

    /// Of what the last step so left out, gives `count` calls, and how many times more a step makes them.
    pub(crate) fn left_out(&self, count: impl FnMut(usize, &dyn Fn() -> Result<()>) -> Result<()>) -> Result<()> {
        self.memory.as_ref().map_or(Ok(()), |memory| memory.left_out(&self.model, &self.replicas, count))
    }

    /// One update from a batch of any shape; targets of `IGNORE_INDEX` count for nothing. Of several ranks each gives the
    /// sequences [`Trainer::rows`] of a batch of `batch_size`.
    ///
    /// The gradient is that of the mean cross-entropy over all targets of the batch that count, however it is cut into
    /// micro-batches and shared out among ranks: one with few of them weighs little, one with none nothing. To it comes
    /// that of the load-balancing loss, which is the mean over micro-batches by their tokens, whatever counts.
    /// `Error::Value` when no target counts, and `Error::OutOfRange` when an id is no token; the parameters then stay.
    pub fn train_step(&mut self, batch: &Batch) -> Result<StepResult<'_>> {
        self.replicas.aborting(self.check(batch))?;
        let own = batch.targets.iter().filter(|target| **target != IGNORE_INDEX).count();
        let tokens = self.replicas.count(own)?;
        if tokens == 0 {
            return Err(Error::value("no target counts: all are -100"));
        }
        if self.replicas.comm().is_some() {
            self.model.outdate(self.replicas.updates());
        }
        let memory = self.memory_for(batch)?;
        let memory = self.memory.insert(memory);
        memory.fill(&self.model, batch, tokens)?;
        let mut uses = None;
        let done = self.device.step(&[batch.rows, batch.length], || {
            uses = Some(memory.calls(&self.model, &self.replicas)?);
            memory.share(&self.replicas)
        });
        self.replicas.aborting(done)?;
        if let Some(uses) = uses {
            memory.uses = uses;
        }
        let step = usize::try_from(self.device.steps_done()).unwrap_or(0);
        Ok(StepResult { memory, device: &self.device, replicas: &self.replicas, step, tokens })
    }

    /// Refuses a batch that is none of this model, or not that of this rank, before the device is given anything.
    fn check(&self, batch: &Batch) -> Result<()> {
        let expected = batch.rows.checked_mul(batch.length);
        if expected != Some(batch.inputs.len()) || expected != Some(batch.targets.len()) {
            let (inputs, targets, rows, length) = (batch.inputs.len(), batch.targets.len(), batch.rows, batch.length);
            return Err(Error::value(format!(
                "{inputs} input ids and {targets} targets; a batch of {rows} sequences has {length} of each a sequence"
            )));
        }
        let vocab = self.model.config().vocab_size;
        check_ids("input_ids", &batch.inputs, batch.length, vocab, None)?;
        check_ids("targets", &batch.targets, batch.length, vocab, Some(IGNORE_INDEX))?;
        if let Some(ends) = &batch.document_ends {
            if expected != Some(ends.len()) {
                let (ends, rows, length) = (ends.len(), batch.rows, batch.length);
                let problem = format!("{ends} ends of documents; a batch of {rows} sequences has {length} a sequence");
                return Err(Error::value(problem));
            }
            check_ids("document_ends", ends, batch.length, 2, None)?;
        }
        if self.replicas.comm().is_some() && batch.rows != self.rows().count() {
            let (rows, own) = (batch.rows, self.rows().count());
            return Err(Error::value(format!("a batch of {rows}; of this rank it must have its rows, {own}")));
        }
        Ok(())
    }
}

/// Checks ids on the host, before the device is given anything, so that it can go on.
fn check_ids(name: &str, ids: &[i32], length: usize, vocab: usize, also: Option<i32>) -> Result<()> {
    let wrong = |id: i32| usize::try_from(id).map_or(true, |id| id >= vocab) && Some(id) != also;
    let Some(at) = ids.iter().position(|id| wrong(*id)) else { return Ok(()) };
    let (row, column, id, last) = (at / length, at % length, ids[at], vocab - 1);
    let or = also.map_or(String::new(), |also| format!(", or {also}"));
    Err(Error::OutOfRange(format!("{name}[{row}, {column}] is {id}; it must be 0 to {last}{or}")))
}
