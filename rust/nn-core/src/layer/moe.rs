//! The mixture of experts: a router that picks k experts a token, and the experts' feed-forward networks.

use nn_ffi::{DType, ExpertEvent, Tensor, kernels};

use super::expert_parallel::{ExpertExchange, Round, Served};
use super::expert_products::{Inside, SwiGLU};
use super::linear::Linear;
use super::sizes;
use crate::error::Result;

/// Where each token goes: what router and experts hand to one another.
#[derive(Clone, Debug)]
pub struct Routing {
    /// f32 `[tokens, k]`, the weight of each choice.
    pub weights: Tensor,
    /// i32 `[tokens, k]`, the experts chosen, most likely first.
    pub indices: Tensor,
    /// f32 `[tokens, experts]`, all probabilities.
    pub probs: Tensor,
    /// i32 `[experts]`, slots that chose each expert, dropped ones included.
    pub counts: Tensor,
    /// i32 `[experts + 1]`, the first row of each expert.
    pub offsets: Tensor,
    /// i32 `[tokens, k]`, the row of each slot, -1 if dropped.
    pub slot_row: Tensor,
    /// i32 `[tokens * k]`, the slot of each row.
    pub row_slot: Tensor,
}

/// Softmax over the experts, the k most likely, and the plan of which row each slot takes.
///
/// The load-balancing loss is alpha * sum over experts of f * P. (Fedus, Zoph, Shazeer 2021, eq. 4-6)
#[derive(Debug)]
pub struct Router {
    /// The product that gives the experts' logits, `[experts, hidden]`.
    pub gate: Linear,
    /// Experts a token.
    pub k: usize,
    /// Whether a token's weights are divided by their sum.
    pub norm: bool,
    /// Weight of the load-balancing loss.
    pub alpha: f64,
}

impl Router {
    /// Routes x `[tokens, hidden]`, and gives x in the order of rows, too; adds the load-balancing loss to `aux` f32
    /// `[1]` where given. An expert takes at most `capacity` slots; 0 for no limit.
    ///
    /// The logits are f32 in every precision: rounded to 16 bits, experts would tie that are not alike.
    pub fn forward(&self, x: &Tensor, capacity: i64, aux: Option<&Tensor>) -> Result<(Routing, Tensor)> {
        let (ctx, [tokens, hidden], experts) = (x.context(), sizes("x", x)?, self.gate.outputs()?);
        let logits = self.gate.forward_f32(x)?;
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
        let rows = ctx.empty(&[tokens * self.k, hidden], x.dtype())?;
        kernels::moe_route(
            &logits,
            x,
            weights,
            indices,
            probs,
            counts,
            offsets,
            slot_row,
            row_slot,
            &rows,
            aux,
            self.norm,
            capacity,
            self.alpha as f32,
        )?;
        Ok((routing, rows))
    }

    /// Puts the gradient of the experts' outputs y into their place, from that of the layer's output, and gives that of the
    /// logits: through the weights and, times `aux_factor` f32 `[1]`, through the balancing loss.
    pub fn backward(&self, dout: &Tensor, y: &Tensor, routing: &Routing, aux_factor: &Tensor) -> Result<Tensor> {
        let Routing { weights, indices, probs, counts, slot_row, row_slot, .. } = routing;
        let (ctx, alpha) = (y.context(), self.alpha as f32);
        let dweights = ctx.empty(weights.shape(), DType::F32)?;
        let dlogits = ctx.empty(probs.shape(), y.dtype())?;
        kernels::moe_output_backward(
            dout, y, weights, indices, probs, counts, slot_row, row_slot, aux_factor, y, &dweights, &dlogits,
            self.norm, alpha,
        )?;
        Ok(dlogits)
    }

    /// Gradient of x from those of the logits and of the rows that x was brought to.
    pub fn backward_input(
        &self,
        dlogits: &Tensor,
        x: &Tensor,
        drows: &Tensor,
        routing: &Routing,
        beta: f32,
    ) -> Result<Tensor> {
        let (dx, gate) = (x.context().empty(x.shape(), x.dtype())?, self.gate.weight());
        kernels::moe_input_backward(dlogits, x, &gate.value, drows, &routing.slot_row, &dx, gate.grad()?, beta)?;
        Ok(dx)
    }
}

/// What experts take in and give between, here or of the rows of all ranks that share them out.
#[derive(Debug)]
enum Between {
    Here(Inside),
    Shared(Served),
}

/// How a layer used its experts, for whoever watches the balance.
#[derive(Clone, Debug)]
pub struct ExpertUse {
    /// Slots that chose each expert, i32 `[experts]`.
    pub counts: Tensor,
    /// Experts of each token, most likely first, i32 `[tokens, experts_per_token]`.
    pub choices: Tensor,
}

/// out = residual + sum over a token's experts of weight * expert(x).
#[derive(Debug)]
pub struct MoELayer {
    /// What picks the experts.
    pub router: Router,
    /// The experts; of those that ranks share out, the ones of this rank.
    pub experts: SwiGLU,
    /// The ways to the ranks that have the other experts.
    pub exchange: Option<ExpertExchange>,
    /// Whether `backward` finds again, by the same calls, what the experts' products take in and give between.
    pub recompute: bool,
}

/// What the backward of the mixture needs of its forward: the routing, the experts' outputs, and, unless that is found
/// again, what their products take in and give between.
#[derive(Debug)]
pub struct MoEKept {
    routing: Routing,
    y: Tensor,
    inside: Option<Between>,
}

impl MoEKept {
    /// How the layer used its experts.
    pub fn expert_use(&self) -> ExpertUse {
        ExpertUse { counts: self.routing.counts.clone(), choices: self.routing.indices.clone() }
    }
}

impl MoELayer {
    /// x and residual `[tokens, hidden]` to the same shape. No expert drops a token.
    pub fn forward(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        combine(&self.run(x, 0, None, false)?, x, residual)
    }

    /// As `forward`, with a capacity (0 for no limit) and what `backward` needs; adds the balancing loss to `aux` where
    /// given.
    pub fn forward_keeping(
        &self,
        x: &Tensor,
        residual: &Tensor,
        capacity: i64,
        aux: Option<&Tensor>,
    ) -> Result<(Tensor, MoEKept)> {
        let kept = self.run(x, capacity, aux, !self.recompute)?;
        Ok((combine(&kept, x, residual)?, kept))
    }

    /// All that `backward` needs, for x whose `forward` kept nothing; the balancing loss has been counted already.
    pub fn forward_again(&self, x: &Tensor, capacity: i64) -> Result<MoEKept> {
        self.run(x, capacity, None, true)
    }

    fn run(&self, x: &Tensor, capacity: i64, aux: Option<&Tensor>, keep_inside: bool) -> Result<MoEKept> {
        let (routing, rows) = self.router.forward(x, capacity, aux)?;
        let offsets = &routing.offsets;
        let (y, inside) = match &self.exchange {
            None => {
                let y = x.context().empty(rows.shape(), x.dtype())?;
                let inside = self.experts.inside(rows, offsets)?;
                self.experts.outputs(&inside, offsets, &y)?;
                (y, keep_inside.then_some(Between::Here(inside)))
            }
            Some(exchange) => {
                let served = exchange.outputs(&self.experts, Some((&rows, offsets)), keep_inside)?;
                (rows, served.map(Between::Shared))
            }
        };
        Ok(MoEKept { routing, y, inside })
    }

    /// What the experts make of x `[tokens, hidden]` before W2; where ranks share them out, its rows are on their way.
    fn inside(&self, x: &Tensor, routing: &Routing) -> Result<Between> {
        let (rows, offsets) = (gather(x, routing)?, &routing.offsets);
        Ok(match &self.exchange {
            None => Between::Here(self.experts.inside(rows, offsets)?),
            Some(exchange) => Between::Shared(exchange.arrive(&self.experts, Some((&rows, offsets)))?),
        })
    }

    /// Gradient of x from dout, both `[tokens, hidden]`; the residual's gradient is dout itself.
    pub fn backward(&self, dout: &Tensor, x: &Tensor, kept: MoEKept, aux_factor: &Tensor, beta: f32) -> Result<Tensor> {
        let MoEKept { routing, y, inside } = kept;
        let inside = inside.map_or_else(|| self.inside(x, &routing), Ok)?;
        let (offsets, dlogits) = (&routing.offsets, self.router.backward(dout, &y, &routing, aux_factor)?);
        let drows = match inside {
            Between::Here(inside) => {
                let grads = [self.experts.w13.grad()?, self.experts.w2.grad()?];
                self.experts.backward(y, inside, offsets, grads, beta)?
            }
            Between::Shared(served) => {
                served.backward(&self.experts, Some((&y, offsets)))?;
                y
            }
        };
        self.router.backward_input(&dlogits, x, &drows, &routing, beta)
    }

    /// The part of a guest in the other ranks' forward; with `keep` what `serve_backward` needs, unless that is found again.
    pub fn serve_forward(&self, keep: bool) -> Result<Option<Served>> {
        self.exchange.as_ref().map_or(Ok(None), |exchange| exchange.outputs(&self.experts, None, keep))
    }

    /// Carries out what becomes, in a round, of sums of the gradients of experts that ranks share out.
    pub(crate) fn add_up(&self, round: &Round, event: &ExpertEvent) -> Result<()> {
        self.exchange.as_ref().map_or(Ok(()), |exchange| exchange.add_up(round, event, &self.experts))
    }

    /// The part of a guest in the other ranks' `backward`.
    pub fn serve_backward(&self, kept: Option<Served>) -> Result<()> {
        let Some(exchange) = &self.exchange else { return Ok(()) };
        kept.map_or_else(|| exchange.arrive(&self.experts, None), Ok)?.backward(&self.experts, None)
    }
}

/// x `[tokens, hidden]` in row order.
fn gather(x: &Tensor, routing: &Routing) -> Result<Tensor> {
    let ([count], [_, hidden]) = (sizes("the plan", &routing.row_slot)?, sizes("x", x)?);
    let rows = x.context().empty(&[count, hidden], x.dtype())?;
    kernels::moe_gather(x, &routing.row_slot, &rows)?;
    Ok(rows)
}

/// The residual and the outputs of each token's experts, of the shape of x.
fn combine(kept: &MoEKept, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
    let out = x.context().empty(x.shape(), x.dtype())?;
    let Routing { weights, slot_row, .. } = &kept.routing;
    kernels::moe_combine(&kept.y, weights, slot_row, Some(residual), &out)?;
    Ok(out)
}
