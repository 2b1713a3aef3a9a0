// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section moe of bindings.h.
//!
//! A slot is one choice of one token: slot = token\*k + j. A row is its place in the order sorted by expert, in
//! which the rows of expert e are offsets\[e\] .. offsets\[e+1\]-1, in token order.

#![allow(clippy::too_many_arguments, reason = "the arguments are those of the C function")]

use crate::call::{Call, Sizes, named, plus, pointer, tensor, times};
use crate::{DType, Result, Tensor};

/// Plans which row each slot takes.
///
/// An expert keeps its first `capacity` slots in token order and drops the others. (Lepikhin et al. 2020, "GShard",
/// algorithm 1; Gale et al. 2022, "MegaBlocks")
///
/// # Arguments
///
/// - `indices`: i32 `[tokens, k]`, experts chosen, 0 .. experts-1
/// - `counts`: i32 `[experts]`, slots routed to each expert, dropped ones included; overwritten
/// - `offsets`: i32 `[experts+1]`, first row of each expert; the last is the number of rows kept; overwritten
/// - `slot_row`: i32 `[tokens, k]`, row of each slot, -1 if dropped; overwritten
/// - `row_slot`: i32 `[tokens*k]`, slot of each row; -1 from offsets\[experts\] on; overwritten
/// - `capacity`: most rows an expert may take; must be at least 1, or 0 for no limit
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_plan(
    indices: &Tensor,
    counts: &Tensor,
    offsets: &Tensor,
    slot_row: &Tensor,
    row_slot: &Tensor,
    capacity: i64,
) -> Result<()> {
    let call = Call::new("cuda_moe_plan", indices);
    let indices = call.dense::<2>("indices", "[tokens, k]", indices)?.of(DType::I32)?;
    let counts = call.dense::<1>("counts", "[experts]", counts)?.of(DType::I32)?;
    let offsets = call.dense::<1>("offsets", "[experts+1]", offsets)?.of(DType::I32)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let row_slot = call.dense::<1>("row_slot", "[tokens*k]", row_slot)?.of(DType::I32)?;
    call.same(&[Some(indices.named()), Some(slot_row.named())])?;
    let tokens = indices.dims[0];
    let k = indices.dims[1];
    let experts = counts.dims[0];
    const SIZES: [(&str, &str); 3] = [("tokens", "from indices"), ("k", "from indices"), ("experts", "from counts")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, k, experts] };
    offsets.expect([plus(experts, 1)], sizes)?;
    slot_row.expect([tokens, k], sizes)?;
    row_slot.expect([times(&[tokens, k])], sizes)?;
    row_slot.expect_factors(&[tokens, k], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_plan)(
            call.handle(),
            indices.pointer().cast(),
            counts.pointer().cast(),
            offsets.pointer().cast(),
            slot_row.pointer().cast(),
            row_slot.pointer().cast(),
            tokens as i64,
            k as i64,
            experts as i64,
            capacity,
        )
    };
    let tensors =
        [Some(indices.tensor), Some(counts.tensor), Some(offsets.tensor), Some(slot_row.tensor), Some(row_slot.tensor)];
    call.finish(status, &tensors)
}

/// Brings tokens into row order: y\[r\] = x\[row_slot\[r\] / k\].
///
/// Rows whose slot is -1 become zero.
///
/// # Arguments
///
/// - `x`: of `dtype` `[tokens, dim]`, tokens
/// - `row_slot`: i32 `[tokens*k]`, from moe_plan
/// - `y`: of `dtype` `[tokens*k, dim]`, rows; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_gather(x: &Tensor, row_slot: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_moe_gather", x);
    let x = call.dense::<2>("x", "[tokens, dim]", x)?;
    let row_slot = call.dense::<1>("row_slot", "[tokens*k]", row_slot)?.of(DType::I32)?;
    let y = call.dense::<2>("y", "[tokens*k, dim]", y)?;
    call.folds("tokens*k", &[Some(row_slot.named()), Some(y.named())])?;
    let tokens = x.dims[0];
    let dim = x.dims[1];
    let k = row_slot.solve(0, "k", tokens, 1, 0)?;
    const SIZES: [(&str, &str); 3] = [("tokens", "from x"), ("dim", "from x"), ("k", "from row_slot")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, dim, k] };
    y.expect([times(&[tokens, k]), dim], sizes)?;
    row_slot.expect_factors(&[tokens, k], sizes)?;
    y.expect_factors(&[tokens, k], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_gather)(
            call.handle(),
            x.pointer(),
            row_slot.pointer().cast(),
            y.pointer(),
            tokens as i64,
            k as i64,
            dim as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(row_slot.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Routes tokens to their experts and brings them there: softmax_topk of the logits, moe_plan, moe_gather and, with
/// `loss`, aux_loss_forward, with the bits that these give one after the other.
///
/// On a GPU it is two launches. (Fedus, Zoph, Shazeer 2021; Gale et al. 2022, "MegaBlocks")
///
/// # Arguments
///
/// - `logits`: of `dtype_logits` `[tokens, experts]`, as x of softmax_topk
/// - `x`: of `dtype` `[tokens, dim]`, tokens
/// - `weights`: f32 `[tokens, k]`, the k probabilities of each token, renormalised if asked; overwritten
/// - `indices`: i32 `[tokens, k]`, its experts; overwritten
/// - `probs`: f32 `[tokens, experts]`, all probabilities; overwritten
/// - `counts`: i32 `[experts]`, slots routed to each expert, dropped ones included; overwritten
/// - `offsets`: i32 `[experts+1]`, first row of each expert; the last is the number of rows kept; overwritten
/// - `slot_row`: i32 `[tokens, k]`, row of each slot, -1 if dropped; overwritten
/// - `row_slot`: i32 `[tokens*k]`, slot of each row; -1 from offsets\[experts\] on; overwritten
/// - `y`: of `dtype` `[tokens*k, dim]`, the tokens in row order; zero in rows without a slot; overwritten
/// - `loss`: f32 `[1]`, the load-balancing loss is added to it; null for none; read and overwritten
/// - `norm`: 1 divides the k weights by their sum
/// - `capacity`: most rows an expert may take; must be at least 1, or 0 for no limit
/// - `alpha`: weight of the load-balancing loss; must be finite
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_route(
    logits: &Tensor,
    x: &Tensor,
    weights: &Tensor,
    indices: &Tensor,
    probs: &Tensor,
    counts: &Tensor,
    offsets: &Tensor,
    slot_row: &Tensor,
    row_slot: &Tensor,
    y: &Tensor,
    loss: Option<&Tensor>,
    norm: bool,
    capacity: i64,
    alpha: f32,
) -> Result<()> {
    let call = Call::new("cuda_moe_route", logits);
    let logits = call.dense::<2>("logits", "[tokens, experts]", logits)?;
    let x = call.dense::<2>("x", "[tokens, dim]", x)?;
    let weights = call.dense::<2>("weights", "[tokens, k]", weights)?.of(DType::F32)?;
    let indices = call.dense::<2>("indices", "[tokens, k]", indices)?.of(DType::I32)?;
    let probs = call.dense::<2>("probs", "[tokens, experts]", probs)?.of(DType::F32)?;
    let counts = call.dense::<1>("counts", "[experts]", counts)?.of(DType::I32)?;
    let offsets = call.dense::<1>("offsets", "[experts+1]", offsets)?.of(DType::I32)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let row_slot = call.dense::<1>("row_slot", "[tokens*k]", row_slot)?.of(DType::I32)?;
    let y = call.dense::<2>("y", "[tokens*k, dim]", y)?;
    let loss = match loss {
        Some(loss) => Some(call.dense::<1>("loss", "[1]", loss)?.of(DType::F32)?),
        None => None,
    };
    call.same(&[Some(logits.named()), Some(probs.named())])?;
    call.same(&[Some(weights.named()), Some(indices.named()), Some(slot_row.named())])?;
    call.folds("tokens", &[Some(logits.named()), Some(x.named()), Some(weights.named())])?;
    counts.unfolded("experts", "logits")?;
    call.folds("tokens*k", &[Some(row_slot.named()), Some(y.named())])?;
    let tokens = logits.dims[0];
    let experts = logits.dims[1];
    let dim = x.dims[1];
    let k = weights.dims[1];
    const SIZES: [(&str, &str); 4] =
        [("tokens", "from logits"), ("experts", "from logits"), ("dim", "from x"), ("k", "from weights")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, experts, dim, k] };
    x.expect([tokens, dim], sizes)?;
    weights.expect([tokens, k], sizes)?;
    indices.expect([tokens, k], sizes)?;
    probs.expect([tokens, experts], sizes)?;
    counts.expect([experts], sizes)?;
    offsets.expect([plus(experts, 1)], sizes)?;
    slot_row.expect([tokens, k], sizes)?;
    row_slot.expect([times(&[tokens, k])], sizes)?;
    y.expect([times(&[tokens, k]), dim], sizes)?;
    if let Some(loss) = &loss {
        loss.expect([1], sizes)?;
    }
    row_slot.expect_factors(&[tokens, k], sizes)?;
    y.expect_factors(&[tokens, k], sizes)?;
    let dtype_logits = logits.dtype();
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_route)(
            call.handle(),
            logits.pointer(),
            x.pointer(),
            weights.pointer().cast(),
            indices.pointer().cast(),
            probs.pointer().cast(),
            counts.pointer().cast(),
            offsets.pointer().cast(),
            slot_row.pointer().cast(),
            row_slot.pointer().cast(),
            y.pointer(),
            pointer(&loss).cast(),
            tokens as i64,
            experts as i64,
            k as i64,
            dim as i64,
            i32::from(norm),
            capacity,
            alpha,
            dtype.code(),
            dtype_logits.code(),
        )
    };
    let tensors = [
        Some(logits.tensor),
        Some(x.tensor),
        Some(weights.tensor),
        Some(indices.tensor),
        Some(probs.tensor),
        Some(counts.tensor),
        Some(offsets.tensor),
        Some(slot_row.tensor),
        Some(row_slot.tensor),
        Some(y.tensor),
        tensor(&loss),
    ];
    call.finish(status, &tensors)
}

/// Gradient of moe_route with respect to the logits: softmax_topk_backward, whose dprobs is what aux_loss_backward
/// gives, with the bits of these two calls.
///
/// No gradient passes through the choice of experts, or through their counts.
///
/// # Arguments
///
/// - `dweights`: f32 `[tokens, k]`, gradient of weights
/// - `weights`: f32 `[tokens, k]`, from the forward call
/// - `indices`: i32 `[tokens, k]`, from the forward call
/// - `probs`: f32 `[tokens, experts]`, from the forward call
/// - `counts`: i32 `[experts]`, from the forward call
/// - `grad_scale`: f32 `[1]`, gradient of the load-balancing loss
/// - `dlogits`: of `dtype` `[tokens, experts]`, gradient of the logits; overwritten
/// - `norm`: as in the forward call
/// - `alpha`: as in the forward call; must be finite
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_route_backward(
    dweights: &Tensor,
    weights: &Tensor,
    indices: &Tensor,
    probs: &Tensor,
    counts: &Tensor,
    grad_scale: &Tensor,
    dlogits: &Tensor,
    norm: bool,
    alpha: f32,
) -> Result<()> {
    let call = Call::new("cuda_moe_route_backward", dweights);
    let dweights = call.dense::<2>("dweights", "[tokens, k]", dweights)?.of(DType::F32)?;
    let weights = call.dense::<2>("weights", "[tokens, k]", weights)?.of(DType::F32)?;
    let indices = call.dense::<2>("indices", "[tokens, k]", indices)?.of(DType::I32)?;
    let probs = call.dense::<2>("probs", "[tokens, experts]", probs)?.of(DType::F32)?;
    let counts = call.dense::<1>("counts", "[experts]", counts)?.of(DType::I32)?;
    let grad_scale = call.dense::<1>("grad_scale", "[1]", grad_scale)?.of(DType::F32)?;
    let dlogits = call.dense::<2>("dlogits", "[tokens, experts]", dlogits)?;
    call.same(&[Some(dweights.named()), Some(weights.named()), Some(indices.named())])?;
    call.same(&[Some(probs.named()), Some(dlogits.named())])?;
    call.folds("tokens", &[Some(dweights.named()), Some(probs.named())])?;
    counts.unfolded("experts", "probs")?;
    let tokens = dweights.dims[0];
    let k = dweights.dims[1];
    let experts = probs.dims[1];
    const SIZES: [(&str, &str); 3] = [("tokens", "from dweights"), ("k", "from dweights"), ("experts", "from probs")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, k, experts] };
    weights.expect([tokens, k], sizes)?;
    indices.expect([tokens, k], sizes)?;
    probs.expect([tokens, experts], sizes)?;
    counts.expect([experts], sizes)?;
    grad_scale.expect([1], sizes)?;
    dlogits.expect([tokens, experts], sizes)?;
    let dtype = dlogits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_route_backward)(
            call.handle(),
            dweights.pointer().cast(),
            weights.pointer().cast(),
            indices.pointer().cast(),
            probs.pointer().cast(),
            counts.pointer().cast(),
            grad_scale.pointer().cast(),
            dlogits.pointer(),
            tokens as i64,
            experts as i64,
            k as i64,
            i32::from(norm),
            alpha,
            dtype.code(),
        )
    };
    let tensors = [
        Some(dweights.tensor),
        Some(weights.tensor),
        Some(indices.tensor),
        Some(probs.tensor),
        Some(counts.tensor),
        Some(grad_scale.tensor),
        Some(dlogits.tensor),
    ];
    call.finish(status, &tensors)
}

/// Gradient of moe_gather: dx\[t\] = sum over j of dy\[slot_row\[t, j\]\], dropped slots left out.
///
/// # Arguments
///
/// - `dy`: of `dtype` `[tokens*k, dim]`, gradient of y
/// - `slot_row`: i32 `[tokens, k]`, from moe_plan
/// - `dx`: of `dtype` `[tokens, dim]`, gradient of x; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_gather_backward(dy: &Tensor, slot_row: &Tensor, dx: &Tensor) -> Result<()> {
    let call = Call::new("cuda_moe_gather_backward", dy);
    let dy = call.dense::<2>("dy", "[tokens*k, dim]", dy)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let dx = call.dense::<2>("dx", "[tokens, dim]", dx)?;
    call.folds("tokens", &[Some(slot_row.named()), Some(dx.named())])?;
    let dim = dy.dims[1];
    let tokens = slot_row.dims[0];
    let k = slot_row.dims[1];
    const SIZES: [(&str, &str); 3] = [("dim", "from dy"), ("tokens", "from slot_row"), ("k", "from slot_row")];
    let sizes = Sizes { names: &SIZES, values: &[dim, tokens, k] };
    dy.expect([times(&[tokens, k]), dim], sizes)?;
    dx.expect([tokens, dim], sizes)?;
    dy.expect_factors(&[tokens, k], sizes)?;
    let dtype = dy.dtype();
    dx.same(dtype, "dy")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_gather_backward)(
            call.handle(),
            dy.pointer(),
            slot_row.pointer().cast(),
            dx.pointer(),
            tokens as i64,
            k as i64,
            dim as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(dy.tensor), Some(slot_row.tensor), Some(dx.tensor)];
    call.finish(status, &tensors)
}

/// Weighs the experts' outputs and brings them back into token order: out\[t\] = residual\[t\] + sum over j of
/// weights\[t, j\] \* y\[slot_row\[t, j\]\], dropped slots left out.
///
/// # Arguments
///
/// - `y`: of `dtype` `[tokens*k, dim]`, the experts' outputs, in row order
/// - `weights`: f32 `[tokens, k]`, router weights
/// - `slot_row`: i32 `[tokens, k]`, from moe_plan
/// - `residual`: of `dtype` `[tokens, dim]`, added, or null
/// - `out`: of `dtype` `[tokens, dim]`, output; overwritten, may be `residual`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_combine(
    y: &Tensor,
    weights: &Tensor,
    slot_row: &Tensor,
    residual: Option<&Tensor>,
    out: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_moe_combine", y);
    let y = call.dense::<2>("y", "[tokens*k, dim]", y)?;
    let weights = call.dense::<2>("weights", "[tokens, k]", weights)?.of(DType::F32)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let residual = match residual {
        Some(residual) => Some(call.dense::<2>("residual", "[tokens, dim]", residual)?),
        None => None,
    };
    let out = call.dense::<2>("out", "[tokens, dim]", out)?;
    call.same(&[Some(weights.named()), Some(slot_row.named())])?;
    call.same(&[named(&residual), Some(out.named())])?;
    call.folds("tokens", &[Some(weights.named()), named(&residual), Some(out.named())])?;
    let dim = y.dims[1];
    let tokens = weights.dims[0];
    let k = weights.dims[1];
    const SIZES: [(&str, &str); 3] = [("dim", "from y"), ("tokens", "from weights"), ("k", "from weights")];
    let sizes = Sizes { names: &SIZES, values: &[dim, tokens, k] };
    y.expect([times(&[tokens, k]), dim], sizes)?;
    slot_row.expect([tokens, k], sizes)?;
    if let Some(residual) = &residual {
        residual.expect([tokens, dim], sizes)?;
    }
    out.expect([tokens, dim], sizes)?;
    y.expect_factors(&[tokens, k], sizes)?;
    let dtype = y.dtype();
    out.same(dtype, "y")?;
    if let Some(residual) = &residual {
        residual.same(dtype, "y")?;
    }
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_combine)(
            call.handle(),
            y.pointer(),
            weights.pointer().cast(),
            slot_row.pointer().cast(),
            pointer(&residual),
            out.pointer(),
            tokens as i64,
            k as i64,
            dim as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(y.tensor), Some(weights.tensor), Some(slot_row.tensor), tensor(&residual), Some(out.tensor)];
    call.finish(status, &tensors)
}

/// Gradients of moe_combine: dy\[r\] = weights\[t, j\] \* dout\[t\] for the slot (t, j) of row r, zero for rows
/// without a slot; dweights\[t, j\] = dout\[t\] . y\[slot_row\[t, j\]\], zero for dropped slots.
///
/// The residual's gradient is dout itself.
///
/// # Arguments
///
/// - `dout`: of `dtype` `[tokens, dim]`, gradient of out
/// - `y`: of `dtype` `[tokens*k, dim]`, as in the forward call
/// - `weights`: f32 `[tokens, k]`, as in the forward call
/// - `slot_row`: i32 `[tokens, k]`, from moe_plan
/// - `row_slot`: i32 `[tokens*k]`, from moe_plan
/// - `dy`: of `dtype` `[tokens*k, dim]`, gradient of y; overwritten, may be `y`
/// - `dweights`: f32 `[tokens, k]`, gradient of weights; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_combine_backward(
    dout: &Tensor,
    y: &Tensor,
    weights: &Tensor,
    slot_row: &Tensor,
    row_slot: &Tensor,
    dy: &Tensor,
    dweights: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_moe_combine_backward", dout);
    let dout = call.dense::<2>("dout", "[tokens, dim]", dout)?;
    let y = call.dense::<2>("y", "[tokens*k, dim]", y)?;
    let weights = call.dense::<2>("weights", "[tokens, k]", weights)?.of(DType::F32)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let row_slot = call.dense::<1>("row_slot", "[tokens*k]", row_slot)?.of(DType::I32)?;
    let dy = call.dense::<2>("dy", "[tokens*k, dim]", dy)?;
    let dweights = call.dense::<2>("dweights", "[tokens, k]", dweights)?.of(DType::F32)?;
    call.same(&[Some(y.named()), Some(dy.named())])?;
    call.same(&[Some(weights.named()), Some(slot_row.named()), Some(dweights.named())])?;
    call.folds("tokens", &[Some(dout.named()), Some(weights.named())])?;
    call.folds("tokens*k", &[Some(y.named()), Some(row_slot.named())])?;
    let tokens = dout.dims[0];
    let dim = dout.dims[1];
    let k = weights.dims[1];
    const SIZES: [(&str, &str); 3] = [("tokens", "from dout"), ("dim", "from dout"), ("k", "from weights")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, dim, k] };
    y.expect([times(&[tokens, k]), dim], sizes)?;
    weights.expect([tokens, k], sizes)?;
    slot_row.expect([tokens, k], sizes)?;
    row_slot.expect([times(&[tokens, k])], sizes)?;
    dy.expect([times(&[tokens, k]), dim], sizes)?;
    dweights.expect([tokens, k], sizes)?;
    y.expect_factors(&[tokens, k], sizes)?;
    row_slot.expect_factors(&[tokens, k], sizes)?;
    let dtype = dout.dtype();
    y.same(dtype, "dout")?;
    dy.same(dtype, "dout")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_combine_backward)(
            call.handle(),
            dout.pointer(),
            y.pointer(),
            weights.pointer().cast(),
            slot_row.pointer().cast(),
            row_slot.pointer().cast(),
            dy.pointer(),
            dweights.pointer().cast(),
            tokens as i64,
            k as i64,
            dim as i64,
            dtype.code(),
        )
    };
    let tensors = [
        Some(dout.tensor),
        Some(y.tensor),
        Some(weights.tensor),
        Some(slot_row.tensor),
        Some(row_slot.tensor),
        Some(dy.tensor),
        Some(dweights.tensor),
    ];
    call.finish(status, &tensors)
}

/// What the gradient of a layer of experts begins with: moe_combine_backward, and moe_route_backward of the
/// gradient of the weights that it gives, with the bits of these two calls.
///
/// On a GPU it is one launch.
///
/// # Arguments
///
/// - `dout`: of `dtype` `[tokens, dim]`, gradient of the layer's output
/// - `y`: of `dtype` `[tokens*k, dim]`, the experts' outputs, as in the forward call
/// - `weights`: f32 `[tokens, k]`, from moe_route
/// - `indices`: i32 `[tokens, k]`, from moe_route
/// - `probs`: f32 `[tokens, experts]`, from moe_route
/// - `counts`: i32 `[experts]`, from moe_route
/// - `slot_row`: i32 `[tokens, k]`, from moe_route
/// - `row_slot`: i32 `[tokens*k]`, from moe_route
/// - `grad_scale`: f32 `[1]`, gradient of the load-balancing loss
/// - `dy`: of `dtype` `[tokens*k, dim]`, gradient of y; overwritten, may be `y`
/// - `dweights`: f32 `[tokens, k]`, gradient of weights; overwritten
/// - `dlogits`: of `dtype` `[tokens, experts]`, gradient of the router's logits; overwritten
/// - `norm`: as in moe_route
/// - `alpha`: as in moe_route; must be finite
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_output_backward(
    dout: &Tensor,
    y: &Tensor,
    weights: &Tensor,
    indices: &Tensor,
    probs: &Tensor,
    counts: &Tensor,
    slot_row: &Tensor,
    row_slot: &Tensor,
    grad_scale: &Tensor,
    dy: &Tensor,
    dweights: &Tensor,
    dlogits: &Tensor,
    norm: bool,
    alpha: f32,
) -> Result<()> {
    let call = Call::new("cuda_moe_output_backward", dout);
    let dout = call.dense::<2>("dout", "[tokens, dim]", dout)?;
    let y = call.dense::<2>("y", "[tokens*k, dim]", y)?;
    let weights = call.dense::<2>("weights", "[tokens, k]", weights)?.of(DType::F32)?;
    let indices = call.dense::<2>("indices", "[tokens, k]", indices)?.of(DType::I32)?;
    let probs = call.dense::<2>("probs", "[tokens, experts]", probs)?.of(DType::F32)?;
    let counts = call.dense::<1>("counts", "[experts]", counts)?.of(DType::I32)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let row_slot = call.dense::<1>("row_slot", "[tokens*k]", row_slot)?.of(DType::I32)?;
    let grad_scale = call.dense::<1>("grad_scale", "[1]", grad_scale)?.of(DType::F32)?;
    let dy = call.dense::<2>("dy", "[tokens*k, dim]", dy)?;
    let dweights = call.dense::<2>("dweights", "[tokens, k]", dweights)?.of(DType::F32)?;
    let dlogits = call.dense::<2>("dlogits", "[tokens, experts]", dlogits)?;
    call.same(&[Some(y.named()), Some(dy.named())])?;
    call.same(&[Some(weights.named()), Some(indices.named()), Some(slot_row.named()), Some(dweights.named())])?;
    call.same(&[Some(probs.named()), Some(dlogits.named())])?;
    call.folds("tokens", &[Some(dout.named()), Some(weights.named()), Some(probs.named())])?;
    call.folds("tokens*k", &[Some(y.named()), Some(row_slot.named())])?;
    counts.unfolded("experts", "probs")?;
    let tokens = dout.dims[0];
    let dim = dout.dims[1];
    let k = weights.dims[1];
    let experts = probs.dims[1];
    const SIZES: [(&str, &str); 4] =
        [("tokens", "from dout"), ("dim", "from dout"), ("k", "from weights"), ("experts", "from probs")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, dim, k, experts] };
    y.expect([times(&[tokens, k]), dim], sizes)?;
    weights.expect([tokens, k], sizes)?;
    indices.expect([tokens, k], sizes)?;
    probs.expect([tokens, experts], sizes)?;
    counts.expect([experts], sizes)?;
    slot_row.expect([tokens, k], sizes)?;
    row_slot.expect([times(&[tokens, k])], sizes)?;
    grad_scale.expect([1], sizes)?;
    dy.expect([times(&[tokens, k]), dim], sizes)?;
    dweights.expect([tokens, k], sizes)?;
    dlogits.expect([tokens, experts], sizes)?;
    y.expect_factors(&[tokens, k], sizes)?;
    row_slot.expect_factors(&[tokens, k], sizes)?;
    let dtype = dout.dtype();
    y.same(dtype, "dout")?;
    dy.same(dtype, "dout")?;
    dlogits.same(dtype, "dout")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_output_backward)(
            call.handle(),
            dout.pointer(),
            y.pointer(),
            weights.pointer().cast(),
            indices.pointer().cast(),
            probs.pointer().cast(),
            counts.pointer().cast(),
            slot_row.pointer().cast(),
            row_slot.pointer().cast(),
            grad_scale.pointer().cast(),
            dy.pointer(),
            dweights.pointer().cast(),
            dlogits.pointer(),
            tokens as i64,
            experts as i64,
            k as i64,
            dim as i64,
            i32::from(norm),
            alpha,
            dtype.code(),
        )
    };
    let tensors = [
        Some(dout.tensor),
        Some(y.tensor),
        Some(weights.tensor),
        Some(indices.tensor),
        Some(probs.tensor),
        Some(counts.tensor),
        Some(slot_row.tensor),
        Some(row_slot.tensor),
        Some(grad_scale.tensor),
        Some(dy.tensor),
        Some(dweights.tensor),
        Some(dlogits.tensor),
    ];
    call.finish(status, &tensors)
}

/// What the gradient of a layer of experts ends with, those of the router's gate and of the tokens: dgate =
/// dlogits^T \* x + beta \* dgate, and dx\[t\] = sum over j of drows\[slot_row\[t, j\]\] + dlogits\[t\] \* gate, as
/// gemm_beta has the one, moe_gather_backward and gemm_beta the other.
///
/// On a GPU it is one launch, or two where dgate is summed in pieces.
///
/// # Arguments
///
/// - `dlogits`: of `dtype` `[tokens, experts]`, gradient of the router's logits
/// - `x`: of `dtype` `[tokens, dim]`, tokens, as in the forward call
/// - `gate`: of `dtype` `[experts, dim]`, weights of the gate, x \* gate^T being the logits
/// - `drows`: of `dtype` `[tokens*k, dim]`, gradient of the tokens in row order
/// - `slot_row`: i32 `[tokens, k]`, from moe_route
/// - `dx`: of `dtype` `[tokens, dim]`, gradient of x; overwritten
/// - `dgate`: of `dtype_c` `[experts, dim]`, gradient of the gate; not read with beta = 0; read and overwritten
/// - `beta`: factor of the old dgate
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn moe_input_backward(
    dlogits: &Tensor,
    x: &Tensor,
    gate: &Tensor,
    drows: &Tensor,
    slot_row: &Tensor,
    dx: &Tensor,
    dgate: &Tensor,
    beta: f32,
) -> Result<()> {
    let call = Call::new("cuda_moe_input_backward", dlogits);
    let dlogits = call.dense::<2>("dlogits", "[tokens, experts]", dlogits)?;
    let x = call.dense::<2>("x", "[tokens, dim]", x)?;
    let gate = call.dense::<2>("gate", "[experts, dim]", gate)?;
    let drows = call.dense::<2>("drows", "[tokens*k, dim]", drows)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let dx = call.dense::<2>("dx", "[tokens, dim]", dx)?;
    let dgate = call.dense::<2>("dgate", "[experts, dim]", dgate)?;
    call.same(&[Some(x.named()), Some(dx.named())])?;
    call.same(&[Some(gate.named()), Some(dgate.named())])?;
    call.folds("tokens", &[Some(dlogits.named()), Some(x.named()), Some(slot_row.named())])?;
    gate.unfolded("experts", "dlogits")?;
    let tokens = dlogits.dims[0];
    let experts = dlogits.dims[1];
    let dim = x.dims[1];
    let k = slot_row.dims[1];
    const SIZES: [(&str, &str); 4] =
        [("tokens", "from dlogits"), ("experts", "from dlogits"), ("dim", "from x"), ("k", "from slot_row")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, experts, dim, k] };
    x.expect([tokens, dim], sizes)?;
    gate.expect([experts, dim], sizes)?;
    drows.expect([times(&[tokens, k]), dim], sizes)?;
    slot_row.expect([tokens, k], sizes)?;
    dx.expect([tokens, dim], sizes)?;
    dgate.expect([experts, dim], sizes)?;
    drows.expect_factors(&[tokens, k], sizes)?;
    let dtype = dlogits.dtype();
    x.same(dtype, "dlogits")?;
    gate.same(dtype, "dlogits")?;
    drows.same(dtype, "dlogits")?;
    dx.same(dtype, "dlogits")?;
    let dtype_c = dgate.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_moe_input_backward)(
            call.handle(),
            dlogits.pointer(),
            x.pointer(),
            gate.pointer(),
            drows.pointer(),
            slot_row.pointer().cast(),
            dx.pointer(),
            dgate.pointer(),
            tokens as i64,
            experts as i64,
            k as i64,
            dim as i64,
            beta,
            dtype.code(),
            dtype_c.code(),
        )
    };
    let tensors = [
        Some(dlogits.tensor),
        Some(x.tensor),
        Some(gate.tensor),
        Some(drows.tensor),
        Some(slot_row.tensor),
        Some(dx.tensor),
        Some(dgate.tensor),
    ];
    call.finish(status, &tensors)
}
