//! What makes queries, keys and values of the stream: one product, or products of their own with norms of heads.

use nn_ffi::Tensor;

use super::linear::Linear;
use super::norm::RMSNorm;
use super::sizes;
use super::ternary::TernaryLinear;
use crate::error::Result;

/// Queries, keys and values.
#[derive(Debug)]
pub enum Projection {
    /// By one product, whose weight has theirs one below the other.
    Fused(Box<Product>),
    /// By products of their own, the former two perhaps normed head by head, as in Qwen3.
    Normed(Box<HeadNorms>),
}

/// A product with a weight.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a block has one, in its place")]
pub enum Product {
    /// As it is, or as it is stored.
    Plain(Linear),
    /// Made of -1, 0 and 1.
    Ternary(TernaryLinear),
    /// As it is stored, of rows that are normed: a BitNet's projections back to the stream. The norm is made again in the backward
    /// direction, where it takes little beside the product.
    Normed(RMSNorm, Linear),
}

impl Product {
    /// x `[rows, in]` to y `[rows, out]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Plain(product) => product.forward(x),
            Self::Ternary(product) => product.forward(x),
            Self::Normed(norm, product) => product.forward(&norm.forward(x)?),
        }
    }

    /// Overwrites dx, which is not x, by the gradient of x from dy; that of the weight is added to `beta` times what is there.
    pub fn backward(&self, dy: &Tensor, x: &Tensor, dx: &Tensor, beta: f32) -> Result<()> {
        match self {
            Self::Plain(product) => product.backward(dy, x, dx, beta),
            Self::Ternary(product) => product.backward(dy, x, dx, beta),
            Self::Normed(norm, product) => {
                let (normed, rstd) = norm.forward_keeping(x)?;
                product.backward(dy, &normed, dx, beta)?;
                norm.backward(dx, x, &rstd, None)
            }
        }
    }
}

/// The products of queries, keys and values, each of whose weights may be stored in a form of its own, and the norms of the
/// former two, with gains `[head_dim]`.
#[derive(Debug)]
pub struct HeadNorms {
    /// Of queries, keys and values.
    pub products: [Linear; 3],
    /// Of queries and keys, where they are normed.
    pub norms: Option<[RMSNorm; 2]>,
}

/// Queries, keys and values `[tokens, heads, head_dim]`, and what the backward of norms needs: the former two before them,
/// `[tokens * heads, head_dim]`, and their reciprocal deviations.
#[derive(Debug)]
pub(super) struct Projected {
    pub(super) parts: [Tensor; 3],
    norms: Option<[(Tensor, Tensor); 2]>,
}

impl Projection {
    /// x `[tokens, hidden]` to queries, keys and values of so many elements a head.
    pub(super) fn forward(&self, x: &Tensor, [heads, kv_heads, dim]: [usize; 3]) -> Result<Projected> {
        let [rows, _] = sizes("x", x)?;
        match self {
            Projection::Fused(product) => {
                let parts = split(&product.forward(x)?, [heads, kv_heads, dim])?;
                Ok(Projected { parts, norms: None })
            }
            Projection::Normed(of) => {
                let [q, k, v] = &of.products;
                let (q, k, v) = (q.forward(x)?, k.forward(x)?, v.forward(x)?);
                let Some([norm_q, norm_k]) = &of.norms else {
                    let view = |part: &Tensor, heads: usize| part.view(&[rows, heads, dim]);
                    let parts = [view(&q, heads)?, view(&k, kv_heads)?, view(&v, kv_heads)?];
                    return Ok(Projected { parts, norms: None });
                };
                let (q, k) = (q.view(&[rows * heads, dim])?, k.view(&[rows * kv_heads, dim])?);
                let (normed_q, rstd_q) = norm_q.forward_keeping(&q)?;
                let (normed_k, rstd_k) = norm_k.forward_keeping(&k)?;
                let parts = [
                    normed_q.view(&[rows, heads, dim])?,
                    normed_k.view(&[rows, kv_heads, dim])?,
                    v.view(&[rows, kv_heads, dim])?,
                ];
                Ok(Projected { parts, norms: Some([(q, rstd_q), (k, rstd_k)]) })
            }
        }
    }

    /// Places for the gradients of queries, keys and values: first what holds them, which `backward` takes, then they.
    pub(super) fn gradients(
        &self,
        x: &Tensor,
        [heads, kv_heads, dim]: [usize; 3],
    ) -> Result<(Vec<Tensor>, [Tensor; 3])> {
        let [rows, _] = sizes("x", x)?;
        let place = |heads: usize| x.context().empty(&[rows, heads * dim], x.dtype());
        match self {
            Projection::Fused(_) => {
                let fused = place(heads + 2 * kv_heads)?;
                let parts = split(&fused, [heads, kv_heads, dim])?;
                Ok((vec![fused], parts))
            }
            Projection::Normed(_) => {
                let held = vec![place(heads)?, place(kv_heads)?, place(kv_heads)?];
                let view = |part: &Tensor, heads: usize| part.view(&[rows, heads, dim]);
                let parts = [view(&held[0], heads)?, view(&held[1], kv_heads)?, view(&held[2], kv_heads)?];
                Ok((held, parts))
            }
        }
    }

    /// Overwrites dx by the gradient of x from those of queries, keys and values, `held` as `gradients` gave it, which are spent.
    pub(super) fn backward(
        &self,
        held: &[Tensor],
        x: &Tensor,
        projected: &Projected,
        dx: &Tensor,
        beta: f32,
    ) -> Result<()> {
        match (self, held, &projected.norms) {
            (Projection::Fused(product), [fused], _) => product.backward(fused, x, dx, beta),
            (Projection::Normed(of), [dq, dk, dv], kept) => {
                let norms = of.norms.iter().flatten();
                for ((norm, gradient), (before, rstd)) in norms.zip([dq, dk]).zip(kept.iter().flatten()) {
                    norm.backward(&gradient.view(before.shape())?, before, rstd, None)?;
                }
                let [q, k, v] = &of.products;
                q.backward(dq, x, dx, beta)?;
                k.backward_adding(dk, x, dx, beta)?;
                v.backward_adding(dv, x, dx, beta)
            }
            _ => Ok(()), // neither of which `gradients` gives
        }
    }
}

/// Views of the queries, keys and values in the fused product, `[tokens, heads, head_dim]` each.
fn split(qkv: &Tensor, [heads, kv_heads, dim]: [usize; 3]) -> Result<[Tensor; 3]> {
    let [rows, _] = sizes("the fused product", qkv)?;
    let part = |first: usize, heads: usize| qkv.narrow(1, first * dim, heads * dim)?.view(&[rows, heads, dim]);
    Ok([part(0, heads)?, part(heads, kv_heads)?, part(heads + kv_heads, kv_heads)?])
}
