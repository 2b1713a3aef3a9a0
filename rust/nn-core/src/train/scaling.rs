//! What becomes of a step whose gradients are not finite: dynamic loss scaling, which training in f16 needs, skips it and
//! continues; without it nothing is updated from there on. All of it happens on the device, and nothing is read back.

use nn_ffi::{Context, DType, Result, Tensor, kernels};

/// How the scale of the losses moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScalingOptions {
    /// The scale to begin with, 2^-24 to 2^24.
    pub scale: f64,
    /// Factor of the scale after that many good steps, at least 1.
    pub growth: f32,
    /// Factor of the scale after a step whose gradients overflow, above 0, at most 1.
    pub backoff: f32,
    /// Good steps in a row after which the scale grows, at least 1.
    pub interval: i64,
}

/// What the next step depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScalingState {
    /// What the losses of the next step are multiplied by; the device has it as f32.
    pub scale: f64,
    /// Steps since the scale last changed.
    pub good_steps: i32,
    /// Steps skipped so far.
    pub skipped: i32,
}

/// Multiplies losses by a scale, so that small gradients do not vanish in f16; finds the largest that fits.
///
/// A step whose gradients overflow is skipped, and the scale backs off; after that many good steps it grows.
/// (Micikevicius et al. 2018, section 3.2)
#[derive(Debug)]
pub(super) struct LossScaling {
    options: LossScalingOptions,
    next: Tensor,
    good_steps: Tensor,
    skipped: Tensor,
    /// Of the last step, f32 `[1]`.
    pub(super) scale: Tensor,
    /// 1 when the last step was skipped, i32 `[1]`.
    pub(super) skip: Tensor,
}

impl LossScaling {
    pub(super) fn new(context: &Context, options: LossScalingOptions) -> Result<Self> {
        let scaling = Self {
            options,
            next: context.empty(&[1], DType::F32)?,
            good_steps: context.empty(&[1], DType::I32)?,
            skipped: context.empty(&[1], DType::I32)?,
            scale: context.zeros(&[1], DType::F32)?,
            skip: context.zeros(&[1], DType::I32)?,
        };
        scaling.set_state(LossScalingState { scale: options.scale, good_steps: 0, skipped: 0 })?;
        Ok(scaling)
    }

    /// What the next step depends on, read from the device.
    pub(super) fn state(&self) -> Result<LossScalingState> {
        Ok(LossScalingState {
            scale: f64::from(self.next.item::<f32>()?),
            good_steps: self.good_steps.item()?,
            skipped: self.skipped.item()?,
        })
    }

    pub(super) fn set_state(&self, state: LossScalingState) -> Result<()> {
        self.next.copy_from_slice(&[state.scale as f32])?;
        self.good_steps.copy_from_slice(&[state.good_steps])?;
        self.skipped.copy_from_slice(&[state.skipped])
    }

    /// The same on the device, by name.
    pub(super) fn counters(&self) -> [(&'static str, &Tensor); 3] {
        [("loss_scale", &self.next), ("good_steps", &self.good_steps), ("skipped_steps", &self.skipped)]
    }

    /// Takes the scale of a step, which `update` leaves as it is.
    pub(super) fn begin(&self) -> Result<()> {
        self.scale.copy_from(&self.next)
    }

    /// Sets `skip`, and the scale of the next step, from the norm f32 `[1]` of the gradients of the scaled losses.
    pub(super) fn update(&self, norm: &Tensor) -> Result<()> {
        let LossScalingOptions { growth, backoff, interval, .. } = self.options;
        kernels::loss_scale_update(
            norm,
            &self.next,
            &self.good_steps,
            &self.skipped,
            &self.skip,
            growth,
            backoff,
            interval,
        )
    }
}

/// Finds the first step whose gradients are not finite, and has nothing updated from that step on: the weights stay those
/// that it met, however much later somebody looks.
#[derive(Debug)]
pub(super) struct FiniteWatch {
    /// Sum of the norms of all steps, f32 `[1]`: once it is not finite it never is again.
    sum: Tensor,
    /// What `loss_scale_update` takes beside the sum. Its scale is 1 and stays 1.
    scale: Tensor,
    good_steps: Tensor,
    skipped: Tensor,
    /// 1 from the first step on whose gradients were not finite, i32 `[1]`.
    pub(super) skip: Tensor,
}

impl FiniteWatch {
    pub(super) fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            sum: context.zeros(&[1], DType::F32)?,
            scale: context.tensor(&[1.0f32], &[1])?,
            good_steps: context.zeros(&[1], DType::I32)?,
            skipped: context.zeros(&[1], DType::I32)?,
            skip: context.zeros(&[1], DType::I32)?,
        })
    }

    /// Forgets the steps so far.
    pub(super) fn restart(&self) -> Result<()> {
        self.sum.zero()?;
        self.skip.zero()
    }

    /// Sets `skip` from the norm f32 `[1]` of a step's gradients and those before.
    pub(super) fn update(&self, norm: &Tensor) -> Result<()> {
        kernels::add(norm, &self.sum, &self.sum)?;
        kernels::loss_scale_update(&self.sum, &self.scale, &self.good_steps, &self.skipped, &self.skip, 1.0, 1.0, 1)
    }
}
