//! The mixture of experts: a router that picks k experts a token, and the experts' feed-forward networks.

use nn_ffi::{DType, GpuTensor, kernels};

use super::Weight;
use super::linear::Linear;
use crate::error::Result;

/// Where each token goes: what router and experts hand to one another.
#[derive(Clone, Debug)]
pub struct Routing<'ctx> {
    /// f32 `[tokens, k]`, the weight of each choice.
    pub weights: GpuTensor<'ctx>,
    /// i32 `[tokens, k]`, the experts chosen, likeliest first.
    pub indices: GpuTensor<'ctx>,
    /// f32 `[tokens, experts]`, all probabilities.
    pub probs: GpuTensor<'ctx>,
    /// i32 `[experts]`, slots that chose each expert, dropped ones included.
    pub counts: GpuTensor<'ctx>,
    /// i32 `[experts + 1]`, the first row of each expert.
    pub offsets: GpuTensor<'ctx>,
    /// i32 `[tokens, k]`, the row of each slot, -1 if dropped.
    pub slot_row: GpuTensor<'ctx>,
    /// i32 `[tokens * k]`, the slot of each row.
    pub row_slot: GpuTensor<'ctx>,
}

/// Softmax over the experts, the k likeliest, and the plan of which row each slot takes.
///
/// The load-balancing loss is alpha * sum over experts of f * P. (Fedus, Zoph, Shazeer 2021, eq. 4-6)
#[derive(Debug)]
pub struct Router<'ctx> {
    /// The product that gives the experts' logits, `[experts, hidden]`.
    pub gate: Linear<'ctx>,
    /// Experts a token.
    pub k: usize,
    /// Whether a token's weights are divided by their sum.
    pub norm: bool,
    /// Weight of the load-balancing loss.
    pub alpha: f64,
}

impl<'ctx> Router<'ctx> {
    /// Routes x `[tokens, hidden]`; adds the load-balancing loss to `aux` f32 `[1]` where given. An expert takes at most
    /// `capacity` slots; 0 for no limit.
    pub fn forward(&self, x: &GpuTensor<'ctx>, capacity: i64, aux: Option<&GpuTensor<'ctx>>) -> Result<Routing<'ctx>> {
        let (ctx, tokens, experts) = (x.context(), x.shape()[0], self.gate.outputs());
        let logits = self.gate.forward(x)?;
        let routing = Routing {
            weights: ctx.empty(&[tokens, self.k], DType::F32)?,
            indices: ctx.empty(&[tokens, self.k], DType::I32)?,
            probs: ctx.empty(&[tokens, experts], DType::F32)?,
            counts: ctx.empty(&[experts], DType::I32)?,
            offsets: ctx.empty(&[experts + 1], DType::I32)?,
            slot_row: ctx.empty(&[tokens, self.k], DType::I32)?,
            row_slot: ctx.empty(&[tokens * self.k], DType::I32)?,
        };
        let Routing { weights, indices, probs, counts, offsets, slot_row, row_slot } = &routing;
        kernels::softmax_topk(&logits, weights, indices, probs, self.norm)?;
        kernels::moe_plan(indices, counts, offsets, slot_row, row_slot, capacity)?;
        if let Some(aux) = aux {
            kernels::aux_loss_forward(probs, counts, aux, self.alpha as f32)?;
        }
        Ok(routing)
    }

    /// Adds to dx what reaches x through the weights and, times `aux_scale` f32 `[1]`, through the balancing loss.
    pub fn backward(
        &self,
        dweights: &GpuTensor<'ctx>,
        x: &GpuTensor<'ctx>,
        routing: &Routing<'ctx>,
        dx: &GpuTensor<'ctx>,
        aux_scale: &GpuTensor<'ctx>,
        beta: f32,
    ) -> Result<()> {
        let Routing { weights, indices, probs, counts, .. } = routing;
        let dprobs = x.context().empty(probs.shape(), DType::F32)?;
        kernels::aux_loss_backward(counts, aux_scale, &dprobs, self.alpha as f32)?;
        let dlogits = x.context().empty(probs.shape(), DType::F32)?;
        kernels::softmax_topk_backward(dweights, weights, indices, probs, Some(&dprobs), &dlogits, self.norm)?;
        self.gate.backward_adding(&dlogits, x, dx, beta)
    }
}

/// The experts' feed-forward networks: y = W2 (silu(W1 x) * (W3 x)), rows sorted by expert, so that each product runs
/// over all experts at once. (Shazeer 2020, "GLU Variants", eq. 6; Gale et al. 2022, "MegaBlocks")
#[derive(Debug)]
pub struct SwiGLU<'ctx> {
    /// `[experts, 2*ffn, hidden]`, the rows of W1 before those of W3.
    pub w13: Weight<'ctx>,
    /// `[experts, hidden, ffn]`.
    pub w2: Weight<'ctx>,
}

/// What the backward of the experts needs of their forward.
#[derive(Debug)]
struct SwiGLUKept<'ctx> {
    gate_up: GpuTensor<'ctx>,
    active: GpuTensor<'ctx>,
}

impl<'ctx> SwiGLU<'ctx> {
    /// rows `[tokens*k, hidden]` to the same shape.
    fn forward(
        &self,
        rows: &GpuTensor<'ctx>,
        offsets: &GpuTensor<'ctx>,
    ) -> Result<(GpuTensor<'ctx>, SwiGLUKept<'ctx>)> {
        let (ctx, count) = (rows.context(), rows.shape()[0]);
        let gate_up = ctx.empty(&[count, self.w13.value.shape()[1]], DType::F32)?;
        kernels::grouped_gemm(rows, &self.w13.value, offsets, &gate_up, 0.0, true)?;
        let [gate, up] = halves(&gate_up)?;
        let active = ctx.empty(gate.shape(), DType::F32)?;
        kernels::swiglu(&gate, &up, &active)?;
        let y = ctx.empty(rows.shape(), DType::F32)?;
        kernels::grouped_gemm(&active, &self.w2.value, offsets, &y, 0.0, true)?;
        Ok((y, SwiGLUKept { gate_up, active }))
    }

    /// The gradient of the rows takes their place.
    fn backward(
        &self,
        dy: GpuTensor<'ctx>,
        rows: &GpuTensor<'ctx>,
        offsets: &GpuTensor<'ctx>,
        kept: SwiGLUKept<'ctx>,
        beta: f32,
    ) -> Result<()> {
        let SwiGLUKept { gate_up, active } = kept;
        let [gate, up] = halves(&gate_up)?;
        kernels::grouped_gemm_wgrad(&dy, &active, offsets, self.w2.grad()?, beta)?;
        let dactive = dy.context().empty(active.shape(), DType::F32)?;
        drop(active);
        kernels::grouped_gemm(&dy, &self.w2.value, offsets, &dactive, 0.0, false)?;
        drop(dy);
        kernels::swiglu_backward(&dactive, &gate, &up, &gate, &up)?;
        drop(dactive);
        kernels::grouped_gemm_wgrad(&gate_up, rows, offsets, self.w13.grad()?, beta)?;
        Ok(kernels::grouped_gemm(&gate_up, &self.w13.value, offsets, rows, 0.0, false)?)
    }
}

/// out = residual + sum over a token's experts of weight * expert(x).
#[derive(Debug)]
pub struct MoELayer<'ctx> {
    /// What picks the experts.
    pub router: Router<'ctx>,
    /// The experts.
    pub experts: SwiGLU<'ctx>,
}

/// What the backward of the mixture needs of its forward.
#[derive(Debug)]
pub struct MoEKept<'ctx> {
    /// Where each token went.
    pub routing: Routing<'ctx>,
    rows: GpuTensor<'ctx>,
    y: GpuTensor<'ctx>,
    experts: SwiGLUKept<'ctx>,
}

impl<'ctx> MoELayer<'ctx> {
    /// x and residual `[tokens, hidden]` to the same shape. No expert drops a token.
    pub fn forward(&self, x: &GpuTensor<'ctx>, residual: &GpuTensor<'ctx>) -> Result<GpuTensor<'ctx>> {
        let (out, _) = self.run(x, residual, 0, None)?;
        Ok(out)
    }

    /// As `forward`, with a capacity (0 for no limit) and what `backward` needs; adds the balancing loss to `aux`.
    pub fn forward_keeping(
        &self,
        x: &GpuTensor<'ctx>,
        residual: &GpuTensor<'ctx>,
        capacity: i64,
        aux: &GpuTensor<'ctx>,
    ) -> Result<(GpuTensor<'ctx>, MoEKept<'ctx>)> {
        self.run(x, residual, capacity, Some(aux))
    }

    fn run(
        &self,
        x: &GpuTensor<'ctx>,
        residual: &GpuTensor<'ctx>,
        capacity: i64,
        aux: Option<&GpuTensor<'ctx>>,
    ) -> Result<(GpuTensor<'ctx>, MoEKept<'ctx>)> {
        let ctx = x.context();
        let routing = self.router.forward(x, capacity, aux)?;
        let rows = ctx.empty(&[routing.row_slot.shape()[0], x.shape()[1]], DType::F32)?;
        kernels::moe_gather(x, &routing.row_slot, &rows)?;
        let (y, experts) = self.experts.forward(&rows, &routing.offsets)?;
        let out = ctx.empty(x.shape(), DType::F32)?;
        kernels::moe_combine(&y, &routing.weights, &routing.slot_row, Some(residual), &out)?;
        Ok((out, MoEKept { routing, rows, y, experts }))
    }

    /// Gradient of x from dout, both `[tokens, hidden]`; the residual's gradient is dout itself.
    pub fn backward(
        &self,
        dout: &GpuTensor<'ctx>,
        x: &GpuTensor<'ctx>,
        kept: MoEKept<'ctx>,
        aux_scale: &GpuTensor<'ctx>,
        beta: f32,
    ) -> Result<GpuTensor<'ctx>> {
        let MoEKept { routing, rows, y, experts } = kept;
        let Routing { weights, slot_row, row_slot, .. } = &routing;
        let dweights = x.context().empty(weights.shape(), DType::F32)?;
        kernels::moe_combine_backward(dout, &y, weights, slot_row, row_slot, &y, &dweights)?;
        self.experts.backward(y, &rows, &routing.offsets, experts, beta)?;
        let dx = x.context().empty(x.shape(), DType::F32)?;
        kernels::moe_gather_backward(&rows, slot_row, &dx)?;
        drop(rows);
        self.router.backward(&dweights, x, &routing, &dx, aux_scale, beta)?;
        Ok(dx)
    }
}

/// The gate and up halves of a fused product, as views.
fn halves<'ctx>(gate_up: &GpuTensor<'ctx>) -> Result<[GpuTensor<'ctx>; 2]> {
    let ffn = gate_up.shape()[1] / 2;
    Ok([gate_up.narrow(1, 0, ffn)?, gate_up.narrow(1, ffn, ffn)?])
}
