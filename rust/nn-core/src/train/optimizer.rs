//! The device's side of training: moments, step, rate, norm and clip factor in device memory, and the calls of an update.

use nn_ffi::{Context, DType, Tensor, kernels};

use super::moments::{Moments, MomentsKind};
use super::replicas::Replicas;
use super::scaling::{FiniteWatch, LossScaling, LossScalingOptions, LossScalingState};
use crate::error::{Error, Result};
use crate::replay::{Replay, Run};

/// Constants of the updates. Numbers that users give in double precision are rounded to `f32` once, here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateOptions {
    /// The highest learning rate.
    pub max_rate: f32,
    /// The last learning rate.
    pub min_rate: f32,
    /// Updates until the rate is highest.
    pub warmup: i64,
    /// Updates until the rate is lowest, at least `warmup`.
    pub total: i64,
    /// Decay of the first moments, 0 to below 1.
    pub beta1: f32,
    /// Decay of the second moments, 0 to below 1.
    pub beta2: f32,
    /// Added to the root of the second moments, above 0.
    pub eps: f32,
    /// Decoupled weight decay, at least 0.
    pub weight_decay: f32,
    /// How many parameters, from the first, decay.
    pub decayed: i64,
    /// What both moments are kept in.
    pub moments: MomentsKind,
    /// The largest global norm of the gradients; `None` never clips.
    pub clip_norm: Option<f32>,
    /// How the losses are scaled; `None` leaves them as they are.
    pub loss_scaling: Option<LossScalingOptions>,
}

/// Trains parameters with AdamW, everything resident on the device: a step crosses to the host for nothing but what is
/// asked for.
///
/// Parameters and gradients are f32 tensors of one layout, and so are the moments unless the options say otherwise. How gradients come about is the caller's: a
/// function that makes the calls of a forward and backward pass. The calls of a step are captured on the second step of a
/// shape, and replayed from then on with the same bits.
///
/// A model that computes in 16 bits does it on a rounded copy of the parameters, which every update writes. With loss
/// scaling the caller's gradients are those of the losses times [`Optimizer::loss_scale`]; a step whose gradients
/// overflow is skipped: parameters, moments and the schedule stay as they are. (Micikevicius et al. 2018, section 3)
/// Without loss scaling such a step ends the training: neither it nor any step after it updates anything.
#[derive(Debug)]
pub struct Optimizer {
    context: Context,
    parameters: Tensor,
    gradients: Tensor,
    rounded: Option<Tensor>,
    moments: Moments,
    replicas: Replicas,
    /// Updates, which is steps without those that were skipped.
    step: Tensor,
    rate: Tensor,
    norm: Tensor,
    clip: Tensor,
    overflow: Overflow,
    options: UpdateOptions,
    capture: bool,
    replay: Option<(Vec<usize>, Replay)>,
    /// Why the last step ran call by call.
    eager_reason: Option<String>,
    /// Steps, known here so that nobody has to wait for the device.
    done: i32,
}

/// What becomes of a step whose gradients are not finite.
#[derive(Debug)]
enum Overflow {
    /// It is skipped, and the loss scale backs off.
    Scaled(LossScaling),
    /// From it on nothing is updated.
    Watched(FiniteWatch),
}

impl Optimizer {
    /// A trainer of parameters, whose gradients lie in the other tensor; the moments are zero and no step is done. Each
    /// update writes the parameters to `rounded`, too, if it is given: dense, of as many elements, f16 or bf16.
    /// Without `capture` every step makes its calls one by one: the same bits, later.
    ///
    /// # Errors
    ///
    /// [`nn_ffi::Error::Shape`] when a tensor is not dense, of its dtype and of as many elements, [`Error::Value`] when more
    /// parameters shall decay than there are, and as [`Context::empty`].
    pub fn new(
        parameters: &Tensor,
        gradients: &Tensor,
        rounded: Option<&Tensor>,
        options: UpdateOptions,
        capture: bool,
    ) -> Result<Self> {
        let replicas = Replicas::alone(parameters.context(), parameters.len())?;
        Self::with_replicas(parameters, gradients, rounded, options, capture, replicas)
    }

    /// The same for gradients that replicas compute, on a rank that updates its own shards of the parameters.
    pub(super) fn with_replicas(
        parameters: &Tensor,
        gradients: &Tensor,
        rounded: Option<&Tensor>,
        options: UpdateOptions,
        capture: bool,
        replicas: Replicas,
    ) -> Result<Self> {
        let context = parameters.context();
        let len = parameters.len();
        let fits = |tensor: &Tensor| tensor.layout().is_dense() && tensor.len() == len;
        let wide = |tensor: &Tensor| tensor.dtype() == DType::F32 && fits(tensor);
        if !wide(parameters) || !wide(gradients) {
            let message = format!("{parameters:?} and {gradients:?} must be dense, of f32 and of one size");
            return Err(Error::value(message));
        }
        let narrow = |dtype| matches!(dtype, DType::F16 | DType::BF16);
        if let Some(tensor) = rounded.filter(|tensor| !fits(tensor) || !narrow(tensor.dtype())) {
            let message = format!("{tensor:?} must be dense, of f16 or bf16 and of {len} elements");
            return Err(Error::value(message));
        }
        if !(0..=len as i64).contains(&options.decayed) {
            return Err(Error::value(format!("decayed is {}; it must be 0 to {len}", options.decayed)));
        }
        let one = || context.zeros(&[1], DType::F32);
        Ok(Self {
            context: context.clone(),
            parameters: parameters.clone(),
            gradients: gradients.clone(),
            rounded: rounded.cloned(),
            moments: Moments::new(context, replicas.updates().own(), options.moments)?,
            replicas,
            step: context.zeros(&[1], DType::I32)?,
            rate: one()?,
            norm: one()?,
            clip: one()?,
            overflow: match options.loss_scaling {
                Some(options) => Overflow::Scaled(LossScaling::new(context, options)?),
                None => Overflow::Watched(FiniteWatch::new(context)?),
            },
            options,
            capture,
            replay: None,
            eager_reason: None,
            done: 0,
        })
    }

    /// Both moments, of the parameters' layout. Resuming writes them.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The numbers that the next step depends on, by name, each of one element.
    pub(super) fn counters(&self) -> Vec<(&'static str, &Tensor)> {
        let scaling = match &self.overflow {
            Overflow::Scaled(scaling) => scaling.counters().to_vec(),
            Overflow::Watched(_) => Vec::new(),
        };
        [("updates", &self.step)].into_iter().chain(scaling).collect()
    }

    /// Steps done, those that were skipped included.
    pub fn steps_done(&self) -> i32 {
        self.done
    }

    /// What the next step's loss scaling depends on, read from the device; `None` when losses are not scaled.
    ///
    /// # Errors
    ///
    /// [`nn_ffi::Error::Call`] when the device has failed.
    pub fn loss_scaling(&self) -> Result<Option<LossScalingState>> {
        Ok(self.scaling().map(LossScaling::state).transpose()?)
    }

    fn scaling(&self) -> Option<&LossScaling> {
        match &self.overflow {
            Overflow::Scaled(scaling) => Some(scaling),
            Overflow::Watched(_) => None,
        }
    }

    /// Updates done, read from the device: steps without those that were skipped.
    ///
    /// # Errors
    ///
    /// [`nn_ffi::Error::Call`] when the device has failed.
    pub fn updates_done(&self) -> Result<i32> {
        Ok(self.step.item()?)
    }

    /// Continues as if so many steps were done, with the loss scaling of that moment when losses are scaled.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a negative number, fewer steps than were skipped, or a state of loss scaling where losses are
    /// not scaled or none where they are; [`nn_ffi::Error::Call`] when the device has failed.
    pub fn restore(&mut self, steps: i32, loss_scaling: Option<LossScalingState>) -> Result<()> {
        let skipped = match (&self.overflow, loss_scaling) {
            (Overflow::Watched(_), None) => 0,
            (Overflow::Scaled(_), Some(state)) => state.skipped,
            _ => {
                let problem = "a loss-scaling state is required with scaled losses, and allowed with no others";
                return Err(Error::value(problem));
            }
        };
        if steps < 0 || !(0..=steps).contains(&skipped) {
            let problem = "neither may be below 0, and no more can be skipped than there are";
            return Err(Error::value(format!("{steps} steps, {skipped} of them skipped: {problem}")));
        }
        match (&self.overflow, loss_scaling) {
            (Overflow::Scaled(scaling), Some(state)) => scaling.set_state(state)?,
            (Overflow::Watched(watch), _) => watch.restart()?,
            (Overflow::Scaled(_), None) => {}
        }
        self.step.copy_from_slice(&[steps - skipped])?;
        self.done = steps;
        Ok(())
    }

    /// What the losses of the last step were multiplied by, f32 `[1]`; `None` when losses are not scaled. Every step sets
    /// it before its forward pass.
    pub fn loss_scale(&self) -> Option<&Tensor> {
        self.scaling().map(|scaling| &scaling.scale)
    }

    /// 1 when the last step updated nothing, i32 `[1]`: its gradients were not finite, or, where losses are not scaled,
    /// those of a step before it.
    pub fn skip(&self) -> &Tensor {
        match &self.overflow {
            Overflow::Scaled(scaling) => &scaling.skip,
            Overflow::Watched(watch) => &watch.skip,
        }
    }

    /// Global norm of the gradients of the last step before clipping, of the scaled losses where they are, f32 `[1]`.
    pub fn norm(&self) -> &Tensor {
        &self.norm
    }

    /// Learning rate of the last step that was not skipped, f32 `[1]`.
    pub fn rate(&self) -> &Tensor {
        &self.rate
    }

    /// One step: `forward_backward` makes the calls that set the gradients, then the update follows.
    ///
    /// `shape` is that of the batch. Steps of one shape must make the same calls on memory that stays: what differs from
    /// step to step is written into it before. From the third step of a shape on, `forward_backward` is not run but
    /// replayed, which the result tells. Another shape starts afresh. Calls that cannot be captured are made one by one,
    /// by this step and all after it.
    ///
    /// # Errors
    ///
    /// That of `forward_backward`, or [`nn_ffi::Error::Call`]; the step then does not count.
    pub fn step(&mut self, shape: &[usize], mut forward_backward: impl FnMut() -> Result<()>) -> Result<Run> {
        let mut captured_for = None;
        let mut replay = match self.replay.take() {
            Some((known, replay)) if known == shape => replay,
            // The memory of a graph for another shape goes first.
            other => {
                captured_for = other.filter(|(_, replay)| replay.is_captured()).map(|(known, _)| known);
                Replay::new(&self.context, self.capture)
            }
        };
        let run = replay.run_or_call(|| {
            if let Some(scaling) = self.scaling() {
                scaling.begin()?;
            }
            forward_backward()?;
            self.update()
        });
        if run.is_ok() {
            self.done += 1;
            self.eager_reason = self.reason(shape, &replay, captured_for.as_deref());
            self.capture &= replay.refused().is_none();
        }
        self.replay = Some((shape.to_vec(), replay));
        run
    }

    /// Why a step of this shape ran call by call after steps of another, `None` when it was replayed.
    fn reason(&self, shape: &[usize], replay: &Replay, captured_for: Option<&[usize]>) -> Option<String> {
        if replay.is_captured() {
            return None;
        }
        if let Some(sentence) = replay.refused() {
            return Some(format!("the step could not be captured: {sentence}"));
        }
        if !self.capture {
            // Where a step could not be captured, that stays the reason.
            return self.eager_reason.clone().or_else(|| Some("capture is off".into()));
        }
        Some(match captured_for {
            Some(known) => format!("the batch is {shape:?}, the captured step was for {known:?}"),
            None => format!("the first step of batches {shape:?} runs call by call"),
        })
    }

    /// Why the last step ran call by call; `None` when it was replayed, or there was none yet.
    pub fn eager_reason(&self) -> Option<&str> {
        self.eager_reason.as_deref()
    }

    /// Whether the next step of this shape replays a graph.
    pub fn is_captured(&self, shape: &[usize]) -> bool {
        self.replay.as_ref().is_some_and(|(known, replay)| known == shape && replay.is_captured())
    }

    /// Releases the captured step and its memory. The next step runs call by call.
    pub fn release_captured(&mut self) {
        self.replay = None;
    }

    fn update(&self) -> Result<()> {
        let (options, skip) = (&self.options, Some(self.skip()));
        self.replicas.sum_up(&self.gradients, &self.norm)?;
        let limit = options.clip_norm.unwrap_or(f32::INFINITY);
        kernels::grad_clip(&self.norm, self.loss_scale(), &self.clip, None, limit)?;
        match &self.overflow {
            Overflow::Scaled(scaling) => scaling.update(&self.norm)?,
            Overflow::Watched(watch) => watch.update(&self.norm)?,
        }
        kernels::lr_schedule(
            skip,
            &self.step,
            &self.rate,
            options.warmup,
            options.total,
            options.max_rate,
            options.min_rate,
        )?;
        let tensors = [&self.gradients, &self.rate, &self.step, &self.clip, &self.parameters];
        self.moments.step(tensors, skip, self.rounded.as_ref(), options)?;
        self.replicas.gather(self.rounded.as_ref().unwrap_or(&self.parameters))
    }
}
