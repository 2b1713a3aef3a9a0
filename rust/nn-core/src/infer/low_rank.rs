//! The factors of an adapter on a device, as the products of the layers take them.
//!
//! y = x W^T + (x A^T) (scale B)^T: the product with the weights as they are stored, and two with A and scale * B as stored
//! matrices in f32, the last of them added to y. All give a row the same bits in any company, and so does their sum.
//! (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)

use std::borrow::Cow;
use std::collections::HashMap;

use nn_ffi::{Activation, Context, Format, RopeLayout, Tensor, kernels};

use crate::error::{Error, Result};
use crate::model::{Adapter, LlamaConfig, interleaved_order, is_rotated};

/// Rows of f32 as bytes: A `[rank, 4 * in]` and, with the scale in it, B `[out, 4 * rank]`.
#[derive(Clone, Debug)]
pub(super) struct LowRank {
    a: Tensor,
    b: Tensor,
}

impl LowRank {
    /// Bytes of both.
    pub(super) fn bytes(&self) -> usize {
        self.a.layout().bytes() + self.b.layout().bytes()
    }

    /// y += the product of x f32 `[tokens, in]`; `inner` f32 `[tokens, rank]` is room for its first half.
    pub(super) fn add(&self, x: &Tensor, inner: &Tensor, y: &Tensor) -> Result<()> {
        kernels::gemm_quant(x, &self.a, None, None, None, inner, Activation::None, Format::F32)?;
        Ok(kernels::gemm_quant(inner, &self.b, None, None, Some(y), y, Activation::None, Format::F32)?)
    }
}

/// An adapter's factors by the names of their matrices. `order` is that of the rows of a head in which queries and keys are
/// read, `None` for the order of the folders that adapters are of.
pub(super) fn low_rank_factors(
    ctx: &Context,
    adapter: &Adapter,
    config: &LlamaConfig,
    order: Option<&[usize]>,
) -> Result<HashMap<String, LowRank>> {
    let interleaved = config.rope.layout == RopeLayout::Interleaved;
    if interleaved && config.rope.rotated > 0 {
        let problem = "a part of each head is rotated, in neighbouring pairs, where this engine runs no adapter";
        return Err(Error::value(problem));
    }
    let pairs = interleaved.then(|| interleaved_order(config.head_dim));
    let order = pairs.as_deref().or(order);
    let scale = adapter.scale() as f32;
    let factors = adapter.factors().iter().map(|(name, pair)| {
        let b = match order.filter(|_| is_rotated(name)) {
            Some(order) => Cow::Owned(pair.b.rows_in_order(order)?),
            None => Cow::Borrowed(&pair.b),
        };
        let a = ctx.tensor(&pair.a.f32()?, &pair.a.shape)?;
        let b = ctx.tensor(&b.f32()?, &b.shape)?;
        kernels::scale(&b, &b, scale)?;
        Ok::<_, Error>((name.clone(), LowRank { a: a.as_bytes()?, b: b.as_bytes()? }))
    });
    factors.collect()
}
