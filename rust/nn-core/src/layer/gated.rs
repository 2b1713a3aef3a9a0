//! A feed-forward network whose weights stay as they are stored.

use nn_ffi::{Tensor, kernels};

use super::linear::Linear;
use crate::error::Result;

/// down (silu(gate x) * (up x)), each product with a stored weight, which may have an adapter. (Shazeer 2020, "GLU Variants",
/// eq. 6)
#[derive(Debug)]
pub struct GatedNetwork {
    /// What goes through silu.
    pub gate: Linear,
    /// What it is multiplied with.
    pub up: Linear,
    /// Back to the stream.
    pub down: Linear,
}

/// Gate, up, and what the last product takes in.
#[derive(Debug)]
pub(super) struct GatedInside([Tensor; 3]);

impl GatedNetwork {
    pub(super) fn inside(&self, x: &Tensor) -> Result<GatedInside> {
        let (gate, up) = (self.gate.forward(x)?, self.up.forward(x)?);
        let active = x.context().empty(gate.shape(), gate.dtype())?;
        kernels::swiglu(&gate, &up, None, &active)?;
        Ok(GatedInside([gate, up, active]))
    }

    pub(super) fn outputs(&self, inside: &GatedInside) -> Result<Tensor> {
        self.down.forward(&inside.0[2])
    }

    /// Gradient of x from dout, both `[tokens, hidden]`.
    pub(super) fn backward(&self, dout: &Tensor, x: &Tensor, inside: GatedInside, beta: f32) -> Result<Tensor> {
        let GatedInside([gate, up, active]) = inside;
        let dactive = x.context().empty(active.shape(), active.dtype())?;
        self.down.backward(dout, &active, &dactive, beta)?;
        drop(active);
        kernels::swiglu_backward(&dactive, &gate, &up, None, &gate, &up)?;
        drop(dactive);
        let dx = x.context().empty(x.shape(), x.dtype())?;
        self.gate.backward(&gate, x, &dx, beta)?;
        self.up.backward_adding(&up, x, &dx, beta)?;
        Ok(dx)
    }
}
