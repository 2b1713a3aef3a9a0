// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section loss of bindings.h.

use crate::call::{Call, Sizes, named, pointer, tensor};
use crate::{DType, Result, Tensor};

/// Cross-entropy of each row: losses = lse - logits\[target\], lse = log(sum(exp(logits))); zero where the target
/// is ignore_index.
///
/// loss_sum and count are over the rows that are not ignored. (Goodfellow, Bengio, Courville 2016, eq. 6.30)
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits
/// - `targets`: i32 `[rows]`, 0 .. vocab-1, or ignore_index
/// - `losses`: f32 `[rows]`, loss of each row, or null; overwritten
/// - `lse`: f32 `[rows]`, kept for the backward call; overwritten
/// - `loss_sum`: f32 `[1]`, sum of the losses; overwritten
/// - `count`: i32 `[1]`, rows not ignored; overwritten
/// - `ignore_index`: target to leave out
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn cross_entropy_forward(
    logits: &Tensor,
    targets: &Tensor,
    losses: Option<&Tensor>,
    lse: &Tensor,
    loss_sum: &Tensor,
    count: &Tensor,
    ignore_index: i32,
) -> Result<()> {
    let call = Call::new("cuda_cross_entropy_forward", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let targets = call.dense::<1>("targets", "[rows]", targets)?.of(DType::I32)?;
    let losses = match losses {
        Some(losses) => Some(call.dense::<1>("losses", "[rows]", losses)?.of(DType::F32)?),
        None => None,
    };
    let lse = call.dense::<1>("lse", "[rows]", lse)?.of(DType::F32)?;
    let loss_sum = call.dense::<1>("loss_sum", "[1]", loss_sum)?.of(DType::F32)?;
    let count = call.dense::<1>("count", "[1]", count)?.of(DType::I32)?;
    call.same(&[Some(targets.named()), named(&losses), Some(lse.named())])?;
    call.folds("rows", &[Some(logits.named()), Some(targets.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from logits"), ("vocab", "from logits")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab] };
    targets.expect([rows], sizes)?;
    if let Some(losses) = &losses {
        losses.expect([rows], sizes)?;
    }
    lse.expect([rows], sizes)?;
    loss_sum.expect([1], sizes)?;
    count.expect([1], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_cross_entropy_forward)(
            call.handle(),
            logits.pointer(),
            targets.pointer().cast(),
            pointer(&losses).cast(),
            lse.pointer().cast(),
            loss_sum.pointer().cast(),
            count.pointer().cast(),
            rows as i64,
            vocab as i64,
            ignore_index,
            dtype.code(),
        )
    };
    let tensors = [
        Some(logits.tensor),
        Some(targets.tensor),
        tensor(&losses),
        Some(lse.tensor),
        Some(loss_sum.tensor),
        Some(count.tensor),
    ];
    call.finish(status, &tensors)
}

/// Gradient of grad_scale \* sum(losses): dlogits = grad_scale \* (exp(logits - lse) - onehot(target)); zero where
/// ignored.
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, as in the forward call
/// - `targets`: i32 `[rows]`, as in the forward call
/// - `lse`: f32 `[rows]`, from the forward call
/// - `grad_scale`: f32 `[1]`, factor; 1/count for the mean
/// - `dlogits`: of `dtype` `[rows, vocab]`, gradient of the logits; overwritten, may be `logits`
/// - `ignore_index`: as in the forward call
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn cross_entropy_backward(
    logits: &Tensor,
    targets: &Tensor,
    lse: &Tensor,
    grad_scale: &Tensor,
    dlogits: &Tensor,
    ignore_index: i32,
) -> Result<()> {
    let call = Call::new("cuda_cross_entropy_backward", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let targets = call.dense::<1>("targets", "[rows]", targets)?.of(DType::I32)?;
    let lse = call.dense::<1>("lse", "[rows]", lse)?.of(DType::F32)?;
    let grad_scale = call.dense::<1>("grad_scale", "[1]", grad_scale)?.of(DType::F32)?;
    let dlogits = call.dense::<2>("dlogits", "[rows, vocab]", dlogits)?;
    call.same(&[Some(logits.named()), Some(dlogits.named())])?;
    call.same(&[Some(targets.named()), Some(lse.named())])?;
    call.folds("rows", &[Some(logits.named()), Some(targets.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from logits"), ("vocab", "from logits")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab] };
    targets.expect([rows], sizes)?;
    lse.expect([rows], sizes)?;
    grad_scale.expect([1], sizes)?;
    dlogits.expect([rows, vocab], sizes)?;
    let dtype = logits.dtype();
    dlogits.same(dtype, "logits")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_cross_entropy_backward)(
            call.handle(),
            logits.pointer(),
            targets.pointer().cast(),
            lse.pointer().cast(),
            grad_scale.pointer().cast(),
            dlogits.pointer(),
            rows as i64,
            vocab as i64,
            ignore_index,
            dtype.code(),
        )
    };
    let tensors =
        [Some(logits.tensor), Some(targets.tensor), Some(lse.tensor), Some(grad_scale.tensor), Some(dlogits.tensor)];
    call.finish(status, &tensors)
}

/// Load-balancing loss of one layer: loss += alpha \* sum over experts of f \* P, f = counts / tokens, P = mean of
/// probs over tokens.
///
/// (Fedus, Zoph, Shazeer 2021, "Switch Transformers", eq. 4-6, without the factor of the expert count)
///
/// # Arguments
///
/// - `probs`: f32 `[tokens, experts]`, from softmax_topk
/// - `counts`: i32 `[experts]`, from moe_plan
/// - `loss`: f32 `[1]`, the loss; added to
/// - `alpha`: weight of this loss; must be finite
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn aux_loss_forward(probs: &Tensor, counts: &Tensor, loss: &Tensor, alpha: f32) -> Result<()> {
    let call = Call::new("cuda_aux_loss_forward", probs);
    let probs = call.dense::<2>("probs", "[tokens, experts]", probs)?.of(DType::F32)?;
    let counts = call.dense::<1>("counts", "[experts]", counts)?.of(DType::I32)?;
    let loss = call.dense::<1>("loss", "[1]", loss)?.of(DType::F32)?;
    counts.unfolded("experts", "probs")?;
    let tokens = probs.dims[0];
    let experts = probs.dims[1];
    const SIZES: [(&str, &str); 2] = [("tokens", "from probs"), ("experts", "from probs")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, experts] };
    counts.expect([experts], sizes)?;
    loss.expect([1], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_aux_loss_forward)(
            call.handle(),
            probs.pointer().cast(),
            counts.pointer().cast(),
            loss.pointer().cast(),
            tokens as i64,
            experts as i64,
            alpha,
        )
    };
    let tensors = [Some(probs.tensor), Some(counts.tensor), Some(loss.tensor)];
    call.finish(status, &tensors)
}

/// Gradient of grad_scale \* aux loss with respect to probs: dprobs = grad_scale \* alpha \* f / tokens; none
/// through f.
///
/// # Arguments
///
/// - `counts`: i32 `[experts]`, from moe_plan
/// - `grad_scale`: f32 `[1]`, factor
/// - `dprobs`: f32 `[tokens, experts]`, gradient of probs; overwritten
/// - `alpha`: weight of this loss; must be finite
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn aux_loss_backward(counts: &Tensor, grad_scale: &Tensor, dprobs: &Tensor, alpha: f32) -> Result<()> {
    let call = Call::new("cuda_aux_loss_backward", counts);
    let counts = call.dense::<1>("counts", "[experts]", counts)?.of(DType::I32)?;
    let grad_scale = call.dense::<1>("grad_scale", "[1]", grad_scale)?.of(DType::F32)?;
    let dprobs = call.dense::<2>("dprobs", "[tokens, experts]", dprobs)?.of(DType::F32)?;
    counts.unfolded("experts", "dprobs")?;
    let experts = counts.dims[0];
    let tokens = dprobs.dims[0];
    const SIZES: [(&str, &str); 2] = [("experts", "from counts"), ("tokens", "from dprobs")];
    let sizes = Sizes { names: &SIZES, values: &[experts, tokens] };
    grad_scale.expect([1], sizes)?;
    dprobs.expect([tokens, experts], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_aux_loss_backward)(
            call.handle(),
            counts.pointer().cast(),
            grad_scale.pointer().cast(),
            dprobs.pointer().cast(),
            tokens as i64,
            experts as i64,
            alpha,
        )
    };
    let tensors = [Some(counts.tensor), Some(grad_scale.tensor), Some(dprobs.tensor)];
    call.finish(status, &tensors)
}

/// Mean of what was summed in parts: y = sum of weights \* x / divisor, in f64 in a fixed order, rounded once.
///
/// The mean of a batch's losses, of its parts' losses by their sizes, and with x = 1 the factor of a gradient,
/// 1/tokens.
///
/// # Arguments
///
/// - `x`: f32 `[n]`, the parts' sums
/// - `weights`: i32 `[n]`, how often each counts; null is once
/// - `y`: f32 `[1]`, the mean; overwritten
/// - `divisor`: how many they are the sums of; must be at least 1
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn weighted_mean(x: &Tensor, weights: Option<&Tensor>, y: &Tensor, divisor: i64) -> Result<()> {
    let call = Call::new("cuda_weighted_mean", x);
    let x = call.dense::<1>("x", "[n]", x)?.of(DType::F32)?;
    let weights = match weights {
        Some(weights) => Some(call.dense::<1>("weights", "[n]", weights)?.of(DType::I32)?),
        None => None,
    };
    let y = call.dense::<1>("y", "[1]", y)?.of(DType::F32)?;
    call.same(&[Some(x.named()), named(&weights)])?;
    let n = x.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    if let Some(weights) = &weights {
        weights.expect([n], sizes)?;
    }
    y.expect([1], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_weighted_mean)(
            call.handle(),
            x.pointer().cast(),
            pointer(&weights).cast(),
            y.pointer().cast(),
            n as i64,
            divisor,
        )
    };
    let tensors = [Some(x.tensor), tensor(&weights), Some(y.tensor)];
    call.finish(status, &tensors)
}
