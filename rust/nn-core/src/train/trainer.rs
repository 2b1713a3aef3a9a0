//! One training step: gradients over micro-batches, clipping, schedule, AdamW.

use nn_ffi::{DType, GpuTensor, kernels};

use super::captured::CapturedStep;
use super::config::TrainConfig;
use super::data::Batch;
use crate::error::{Error, Result};
use crate::model::{IGNORE_INDEX, MoETransformer, ParameterArena};
use crate::sum::exact_sum;

/// Trains a model with AdamW.
///
/// The state beside the model's parameters: first and second moments, arenas of the same layout, and the step.
#[derive(Debug)]
pub struct Trainer<'ctx> {
    model: MoETransformer<'ctx>,
    config: TrainConfig,
    first_moments: ParameterArena<'ctx>,
    second_moments: ParameterArena<'ctx>,
    capture: bool,
    calls: Option<CapturedStep<'ctx>>,
    state: Optimizer<'ctx>,
    /// What `state.step` holds, so that nobody has to wait for the device to know it.
    done: usize,
}

/// What the optimiser keeps on the device from step to step.
#[derive(Debug)]
struct Optimizer<'ctx> {
    step: GpuTensor<'ctx>,
    lr: GpuTensor<'ctx>,
    norm: GpuTensor<'ctx>,
    clip: GpuTensor<'ctx>,
}

/// What a step did. Values stay on the device until they are asked for; they last until the next step, which the borrow
/// of the trainer sees to.
#[derive(Debug)]
pub struct StepResult<'a, 'ctx> {
    state: &'a Optimizer<'ctx>,
    calls: &'a CapturedStep<'ctx>,
    /// Updates done, this one included.
    pub step: usize,
    /// Targets that counted.
    pub tokens: usize,
}

impl StepResult<'_, '_> {
    /// Mean cross-entropy over the targets of the whole batch, in nats.
    pub fn loss(&self) -> Result<f64> {
        let losses: Vec<f32> = self.calls.losses.to_vec()?;
        Ok(exact_sum(losses.into_iter().map(f64::from)) / self.tokens as f64)
    }

    /// Load-balancing loss, the mean over the micro-batches by their tokens.
    pub fn aux_loss(&self) -> Result<f64> {
        let aux: Vec<f32> = self.calls.aux.to_vec()?;
        Ok(exact_sum(self.calls.shares.iter().zip(aux).map(|(share, value)| share * f64::from(value))))
    }

    /// Global norm of the gradients before clipping.
    pub fn grad_norm(&self) -> Result<f64> {
        Ok(f64::from(self.state.norm.item::<f32>()?))
    }

    /// Rate of this update.
    pub fn learning_rate(&self) -> Result<f64> {
        Ok(f64::from(self.state.lr.item::<f32>()?))
    }

    /// Slots that chose each expert in the last micro-batch, layer by layer.
    pub fn expert_counts(&self) -> Result<Vec<Vec<i32>>> {
        self.calls.uses.iter().map(|layer| Ok(layer.counts.to_vec()?)).collect()
    }

    /// Experts of each token of the last micro-batch, likeliest first, `[tokens * experts_per_token]` a layer.
    pub fn expert_choices(&self) -> Result<Vec<Vec<i32>>> {
        self.calls.uses.iter().map(|layer| Ok(layer.choices.to_vec()?)).collect()
    }
}

impl<'ctx> Trainer<'ctx> {
    /// A trainer at step 0. `Error::Value` when the model was made for inference, or does not take sequences this long.
    pub fn new(model: MoETransformer<'ctx>, config: TrainConfig) -> Result<Self> {
        config.validate()?;
        model.gradients()?;
        let (length, context) = (config.sequence_length, model.config().context);
        if length > context {
            return Err(Error::value(format!("sequence_length is {length}; this model's context is {context}")));
        }
        let ctx = model.context();
        let scalar = || ctx.zeros(&[1], DType::F32);
        Ok(Self {
            first_moments: ParameterArena::zeros(ctx, model.layout())?,
            second_moments: ParameterArena::zeros(ctx, model.layout())?,
            state: Optimizer { step: ctx.zeros(&[1], DType::I32)?, lr: scalar()?, norm: scalar()?, clip: scalar()? },
            model,
            config,
            capture: true,
            calls: None,
            done: 0,
        })
    }

    /// With `capture`, as at first, steps of one shape of batch are captured as a graph and replayed: the same bits,
    /// sooner.
    #[must_use]
    pub fn with_capture(mut self, capture: bool) -> Self {
        self.capture = capture;
        self
    }

    /// The model.
    pub fn model(&self) -> &MoETransformer<'ctx> {
        &self.model
    }

    /// The options.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// First and second moments.
    pub fn moments(&self) -> [&ParameterArena<'ctx>; 2] {
        [&self.first_moments, &self.second_moments]
    }

    /// Updates done.
    pub fn step(&self) -> usize {
        self.done
    }

    /// Sets the number of updates done, for a trainer whose weights and moments are of that step.
    pub fn set_step(&mut self, step: usize) -> Result<()> {
        let count = i32::try_from(step).map_err(|_| Error::value(format!("step is {step}; it must be below 2^31")))?;
        self.state.step.copy_from_slice(&[count])?;
        self.done = step;
        Ok(())
    }

    /// One update from a batch of any shape; targets of `IGNORE_INDEX` count for nothing.
    ///
    /// The gradient is that of the mean cross-entropy over all targets of the batch, however it is cut into
    /// micro-batches, plus that of the load-balancing loss, which is the mean over micro-batches by their tokens.
    /// `Error::Value` when no target counts, and `Error::OutOfRange` when an id is no token; the parameters then stay.
    pub fn train_step(&mut self, batch: &Batch) -> Result<StepResult<'_, 'ctx>> {
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
        let tokens = batch.targets.iter().filter(|target| **target != IGNORE_INDEX).count();
        if tokens == 0 {
            return Err(Error::value("no target counts: all are -100"));
        }
        let calls = match self.calls.take().filter(|calls| calls.fits(batch)) {
            Some(calls) => calls,
            None => {
                let micro = self.config.micro_batch_size.unwrap_or(batch.rows);
                CapturedStep::new(&self.model, batch.rows, batch.length, micro)?
            }
        };
        let calls = self.calls.insert(calls);
        let update = || update(&self.model, &self.config, [&self.first_moments, &self.second_moments], &self.state);
        calls.run(&self.model, batch, tokens, self.capture, update)?;
        self.done += 1;
        Ok(StepResult { calls, state: &self.state, step: self.done, tokens })
    }
}

fn update(
    model: &MoETransformer<'_>,
    config: &TrainConfig,
    moments: [&ParameterArena<'_>; 2],
    state: &Optimizer<'_>,
) -> Result<()> {
    let gradients = model.gradients()?.data();
    kernels::grad_norm(gradients, &state.norm)?;
    let limit = config.clip_norm.map_or(f32::INFINITY, |limit| limit as f32);
    kernels::grad_clip(&state.norm, None, &state.clip, None, limit)?;
    let (warmup, total) = config.schedule_steps();
    let whole = |steps| i64::try_from(steps).unwrap_or(i64::MAX);
    let lowest = config.learning_rate * config.min_rate_share;
    kernels::lr_schedule(
        None,
        &state.step,
        &state.lr,
        whole(warmup),
        whole(total),
        config.learning_rate as f32,
        lowest as f32,
    )?;
    Ok(kernels::adamw_step(
        gradients,
        &state.lr,
        &state.step,
        Some(&state.clip),
        None,
        model.parameters().data(),
        moments[0].data(),
        moments[1].data(),
        None,
        whole(model.layout().num_decayed()),
        config.beta1 as f32,
        config.beta2 as f32,
        config.eps as f32,
        config.weight_decay as f32,
    )?)
}

/// Checks ids on the host, before the device is given anything, so that it can go on.
fn check_ids(name: &str, ids: &[i32], length: usize, vocab: usize, also: Option<i32>) -> Result<()> {
    let wrong = |id: i32| usize::try_from(id).map_or(true, |id| id >= vocab) && Some(id) != also;
    let Some(at) = ids.iter().position(|id| wrong(*id)) else { return Ok(()) };
    let (row, column, id, last) = (at / length, at % length, ids[at], vocab - 1);
    let or = also.map_or(String::new(), |also| format!(", or {also}"));
    Err(Error::OutOfRange(format!("{name}[{row}, {column}] is {id}; it must be 0 to {last}{or}")))
}
