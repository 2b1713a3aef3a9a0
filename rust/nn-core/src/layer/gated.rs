//! A feed-forward network whose weights stay as they are stored.

use nn_ffi::{Tensor, kernels};

use super::linear::Linear;
use super::projection::Product;
use crate::error::Result;

/// down (silu(gate x) * (up x)), or max(gate x, 0)^2 in place of the SiLU, each product with a stored weight, which may have an
/// adapter. (Shazeer 2020, "GLU Variants", eq. 6; Ma et al. 2025, "BitNet b1.58 2B4T Technical Report", section 2)
#[derive(Debug)]
pub struct GatedNetwork {
    /// What goes through the gate's activation.
    pub gate: Linear,
    /// What it is multiplied with.
    pub up: Linear,
    /// Back to the stream.
    pub down: Product,
    /// Whether the gate is a squared ReLU.
    pub squared_relu: bool,
}

/// active = silu(gate) * up, or max(gate, 0)^2 * up.
pub(super) fn gated(squared_relu: bool, gate: &Tensor, up: &Tensor, active: &Tensor) -> Result<()> {
    if squared_relu {
        return Ok(kernels::relu2_gate(gate, up, active)?);
    }
    Ok(kernels::swiglu(gate, up, None, active)?)
}

/// The gradients of gate and up, in their places.
pub(super) fn gated_backward(squared_relu: bool, dactive: &Tensor, gate: &Tensor, up: &Tensor) -> Result<()> {
    if squared_relu {
        return Ok(kernels::relu2_gate_backward(dactive, gate, up, gate, up)?);
    }
    Ok(kernels::swiglu_backward(dactive, gate, up, None, gate, up)?)
}

/// Gate, up, and what the last product takes in.
#[derive(Debug)]
pub(super) struct GatedInside([Tensor; 3]);

impl GatedNetwork {
    pub(super) fn inside(&self, x: &Tensor) -> Result<GatedInside> {
        let (gate, up) = (self.gate.forward(x)?, self.up.forward(x)?);
        let active = x.context().empty(gate.shape(), gate.dtype())?;
        gated(self.squared_relu, &gate, &up, &active)?;
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
        gated_backward(self.squared_relu, &dactive, &gate, &up)?;
        drop(dactive);
        let dx = x.context().empty(x.shape(), x.dtype())?;
        self.gate.backward(&gate, x, &dx, beta)?;
        self.up.backward_adding(&up, x, &dx, beta)?;
        Ok(dx)
    }
}
