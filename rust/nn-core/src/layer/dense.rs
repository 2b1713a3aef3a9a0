//! The feed-forward half of a block: a mixture of experts, or one network for all tokens, without a router.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nn_ffi::{Context, ExpertEvent, Tensor, kernels};

use super::expert_parallel::{Round, Served};
use super::expert_products::{Inside, SwiGLU};
use super::gated::{GatedInside, GatedNetwork};
use super::moe::{ExpertUse, MoEKept, MoELayer};
use super::ternary::{TernaryInside, TernaryNetwork};
use crate::error::Result;

/// For products that run over experts: that all rows are of one, the first.
#[derive(Debug)]
pub struct AllRows {
    ctx: Context,
    offsets: Mutex<HashMap<usize, Tensor>>,
}

impl AllRows {
    /// For the layers of a model.
    pub fn new(ctx: &Context) -> Self {
        Self { ctx: ctx.clone(), offsets: Mutex::default() }
    }

    /// 0 and the number of rows, i32 `[2]`; made once, so that a captured step finds it.
    pub fn offsets(&self, rows: usize) -> Result<Tensor> {
        let mut made = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = made.get(&rows) {
            return Ok(found.clone());
        }
        let offsets = self.ctx.tensor(&[0, rows as i32], &[2])?;
        made.insert(rows, offsets.clone());
        Ok(offsets)
    }
}

/// The network of a dense layer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a block has one, in its place")]
pub enum DenseNetwork {
    /// W2 (silu(W1 x) * (W3 x)), by the products of a mixture with one expert. (Shazeer 2020, "GLU Variants", eq. 6)
    Plain {
        /// That all rows are the network's.
        rows: Arc<AllRows>,
        /// Its weights are those of one expert.
        network: SwiGLU,
    },
    /// With weights that stay as they are stored.
    Gated(GatedNetwork),
    /// With ternary weights.
    Ternary(TernaryNetwork),
}

/// out = residual + what its network makes of x.
#[derive(Debug)]
pub struct DenseLayer {
    /// The network.
    pub network: DenseNetwork,
    /// Whether `backward` finds again, by the same calls, what the products take in and give between.
    pub recompute: bool,
}

impl DenseLayer {
    /// x and residual `[tokens, hidden]` to the same shape, and what is inside.
    fn run(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, DenseInside)> {
        let inside = self.inside(x)?;
        let out = match (&self.network, &inside.0) {
            (DenseNetwork::Plain { rows, network }, Within::Plain(inside)) => {
                let out = x.context().empty(x.shape(), x.dtype())?;
                network.outputs(inside, &rows.offsets(x.shape()[0])?, &out)?;
                out
            }
            (DenseNetwork::Gated(network), Within::Gated(inside)) => network.outputs(inside)?,
            (DenseNetwork::Ternary(network), Within::Ternary(inside)) => network.outputs(inside)?,
            _ => return Err(kept_elsewhere()),
        };
        kernels::add(&out, residual, &out)?;
        Ok((out, inside))
    }

    fn inside(&self, x: &Tensor) -> Result<DenseInside> {
        Ok(DenseInside(match &self.network {
            DenseNetwork::Plain { rows, network } => {
                Within::Plain(network.inside(x.clone(), &rows.offsets(x.shape()[0])?)?)
            }
            DenseNetwork::Gated(network) => Within::Gated(network.inside(x)?),
            DenseNetwork::Ternary(network) => Within::Ternary(network.inside(x)?),
        }))
    }

    /// Gradient of x from dout, both `[tokens, hidden]`, perhaps in the memory of x.
    fn backward(&self, dout: &Tensor, x: &Tensor, inside: Option<DenseInside>, beta: f32) -> Result<Tensor> {
        let DenseInside(inside) = inside.map_or_else(|| self.inside(x), Ok)?;
        match (&self.network, inside) {
            (DenseNetwork::Plain { rows, network }, Within::Plain(inside)) => {
                let grads = [network.w13.grad()?, network.w2.grad()?];
                network.backward(dout.clone(), inside, &rows.offsets(x.shape()[0])?, grads, beta)
            }
            (DenseNetwork::Gated(network), Within::Gated(inside)) => network.backward(dout, x, inside, beta),
            (DenseNetwork::Ternary(network), Within::Ternary(inside)) => network.backward(dout, x, inside, beta),
            _ => Err(kept_elsewhere()),
        }
    }
}

fn kept_elsewhere() -> crate::Error {
    crate::Error::value("this was kept by the forward of another layer")
}

/// The second half of a block.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a block has one, in its place")]
pub enum FeedForward {
    /// A mixture of experts.
    Experts(MoELayer),
    /// One network for all tokens.
    Dense(DenseLayer),
}

/// What its backward needs of its forward.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a block has one, in its place")]
pub enum FeedForwardKept {
    /// Of a mixture.
    Experts(MoEKept),
    /// What is inside, unless that is found again.
    Dense(Option<DenseInside>),
}

/// What the products of a dense network take in and give between.
#[derive(Debug)]
pub struct DenseInside(Within);

#[derive(Debug)]
enum Within {
    Plain(Inside),
    Gated(GatedInside),
    Ternary(TernaryInside),
}

impl FeedForwardKept {
    /// How the experts were used, where there are some.
    pub fn expert_use(&self) -> Option<ExpertUse> {
        match self {
            Self::Experts(kept) => Some(kept.expert_use()),
            Self::Dense(_) => None,
        }
    }
}

impl FeedForward {
    /// What traces call it.
    pub(super) fn name(&self) -> &'static str {
        if matches!(self, Self::Experts(_)) { "block_sparse_moe" } else { "mlp" }
    }

    /// x and residual `[tokens, hidden]` to the same shape. No expert drops a token.
    pub fn forward(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        match self {
            Self::Experts(layer) => layer.forward(x, residual),
            Self::Dense(layer) => Ok(layer.run(x, residual)?.0),
        }
    }

    /// As `forward`, and what `backward` needs; of experts with a capacity (0 for no limit), and adds their balancing loss to
    /// `aux`.
    pub fn forward_keeping(
        &self,
        x: &Tensor,
        residual: &Tensor,
        capacity: i64,
        aux: &Tensor,
    ) -> Result<(Tensor, FeedForwardKept)> {
        match self {
            Self::Experts(layer) => {
                let (out, kept) = layer.forward_keeping(x, residual, capacity, Some(aux))?;
                Ok((out, FeedForwardKept::Experts(kept)))
            }
            Self::Dense(layer) => {
                let (out, inside) = layer.run(x, residual)?;
                Ok((out, FeedForwardKept::Dense((!layer.recompute).then_some(inside))))
            }
        }
    }

    /// All that `backward` needs, for x whose `forward` kept nothing.
    pub fn forward_again(&self, x: &Tensor, capacity: i64) -> Result<FeedForwardKept> {
        match self {
            Self::Experts(layer) => Ok(FeedForwardKept::Experts(layer.forward_again(x, capacity)?)),
            Self::Dense(layer) => Ok(FeedForwardKept::Dense(Some(layer.inside(x)?))),
        }
    }

    /// Gradient of x from dout, both `[tokens, hidden]`, perhaps in the memory of x; the residual's gradient is dout itself.
    /// `Error::Value` when what was kept is of another kind of layer.
    pub fn backward(
        &self,
        dout: &Tensor,
        x: &Tensor,
        kept: FeedForwardKept,
        aux_factor: &Tensor,
        beta: f32,
    ) -> Result<Tensor> {
        match (self, kept) {
            (Self::Experts(layer), FeedForwardKept::Experts(kept)) => layer.backward(dout, x, kept, aux_factor, beta),
            (Self::Dense(layer), FeedForwardKept::Dense(inside)) => layer.backward(dout, x, inside, beta),
            _ => Err(kept_elsewhere()),
        }
    }

    /// Chooses whether `backward` finds again what the products take in and give between.
    pub(crate) fn recompute(&mut self, again: bool) {
        match self {
            Self::Experts(layer) => layer.recompute = again,
            Self::Dense(layer) => layer.recompute = again,
        }
    }

    fn experts(&self) -> Option<&MoELayer> {
        if let Self::Experts(layer) = self { Some(layer) } else { None }
    }

    /// The part of a guest in the other ranks' forward; with `keep`, and unless it is found again, what `serve_backward` needs.
    pub fn serve_forward(&self, keep: bool) -> Result<Option<Served>> {
        self.experts().map_or(Ok(None), |layer| layer.serve_forward(keep && !layer.recompute))
    }

    /// The part of a guest in the other ranks' `backward`; `again` finds what was not kept.
    pub fn serve_backward(&self, kept: Option<Served>, again: bool) -> Result<()> {
        let Some(layer) = self.experts() else { return Ok(()) };
        layer.serve_backward(if again { layer.serve_forward(true)? } else { kept })
    }

    /// Carries out what becomes, in a round, of sums of the gradients of experts that ranks share out.
    pub(crate) fn add_up(&self, round: &Round, event: &ExpertEvent) -> Result<()> {
        self.experts().map_or(Ok(()), |layer| layer.add_up(round, event))
    }
}
