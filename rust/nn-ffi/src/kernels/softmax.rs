// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section softmax of bindings.h.

use crate::call::{Call, Sizes, named, pointer, tensor};
use crate::{DType, Result, Tensor};

/// Softmax of each row: y = exp(x - max) / sum(exp(x - max)).
///
/// A row of nothing but -inf gives zeros; a NaN or +inf in a row makes the whole row NaN. (Goodfellow, Bengio,
/// Courville 2016, eq. 4.1)
///
/// # Arguments
///
/// - `x`: of `dtype` `[rows, cols]`, logits
/// - `y`: of `dtype` `[rows, cols]`, probabilities; overwritten, may be `x`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn softmax(x: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_softmax", x);
    let x = call.dense::<2>("x", "[rows, cols]", x)?;
    let y = call.dense::<2>("y", "[rows, cols]", y)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    let rows = x.dims[0];
    let cols = x.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from x"), ("cols", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols] };
    y.expect([rows, cols], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_softmax)(call.handle(), x.pointer(), y.pointer(), rows as i64, cols as i64, dtype.code())
    };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Gradient of softmax: dx = y \* (dy - sum(dy \* y)).
///
/// # Arguments
///
/// - `dy`: of `dtype` `[rows, cols]`, gradient of y
/// - `y`: of `dtype` `[rows, cols]`, the output of the forward call
/// - `dx`: of `dtype` `[rows, cols]`, gradient of x; overwritten, may be `dy`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn softmax_backward(dy: &Tensor, y: &Tensor, dx: &Tensor) -> Result<()> {
    let call = Call::new("cuda_softmax_backward", dy);
    let dy = call.dense::<2>("dy", "[rows, cols]", dy)?;
    let y = call.dense::<2>("y", "[rows, cols]", y)?;
    let dx = call.dense::<2>("dx", "[rows, cols]", dx)?;
    call.same(&[Some(dy.named()), Some(y.named()), Some(dx.named())])?;
    let rows = dy.dims[0];
    let cols = dy.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from dy"), ("cols", "from dy")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols] };
    y.expect([rows, cols], sizes)?;
    dx.expect([rows, cols], sizes)?;
    let dtype = dy.dtype();
    y.same(dtype, "dy")?;
    dx.same(dtype, "dy")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_softmax_backward)(
            call.handle(),
            dy.pointer(),
            y.pointer(),
            dx.pointer(),
            rows as i64,
            cols as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(dy.tensor), Some(y.tensor), Some(dx.tensor)];
    call.finish(status, &tensors)
}

/// The router: softmax over all columns in f32, then the k largest of each row in falling order.
///
/// Ties go to the lower index; NaN counts as less than everything, so the k indices are always distinct and in
/// range. With `norm` the k weights are divided by their sum. (Shazeer et al. 2017; Jiang et al. 2024, "Mixtral",
/// section 2.1)
///
/// # Arguments
///
/// - `x`: of `dtype` `[rows, cols]`, logits
/// - `weights`: f32 `[rows, k]`, the k probabilities, renormalised if asked; overwritten
/// - `indices`: i32 `[rows, k]`, their columns; overwritten
/// - `probs`: f32 `[rows, cols]`, all probabilities, as the backward call and the auxiliary loss need them;
///   overwritten
/// - `norm`: 1 divides the k weights by their sum
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn softmax_topk(x: &Tensor, weights: &Tensor, indices: &Tensor, probs: &Tensor, norm: bool) -> Result<()> {
    let call = Call::new("cuda_softmax_topk", x);
    let x = call.dense::<2>("x", "[rows, cols]", x)?;
    let weights = call.dense::<2>("weights", "[rows, k]", weights)?.of(DType::F32)?;
    let indices = call.dense::<2>("indices", "[rows, k]", indices)?.of(DType::I32)?;
    let probs = call.dense::<2>("probs", "[rows, cols]", probs)?.of(DType::F32)?;
    call.same(&[Some(x.named()), Some(probs.named())])?;
    call.same(&[Some(weights.named()), Some(indices.named())])?;
    call.folds("rows", &[Some(x.named()), Some(weights.named())])?;
    let rows = x.dims[0];
    let cols = x.dims[1];
    let k = weights.dims[1];
    const SIZES: [(&str, &str); 3] = [("rows", "from x"), ("cols", "from x"), ("k", "from weights")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols, k] };
    weights.expect([rows, k], sizes)?;
    indices.expect([rows, k], sizes)?;
    probs.expect([rows, cols], sizes)?;
    let dtype = x.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_softmax_topk)(
            call.handle(),
            x.pointer(),
            weights.pointer().cast(),
            indices.pointer().cast(),
            probs.pointer().cast(),
            rows as i64,
            cols as i64,
            k as i64,
            i32::from(norm),
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(weights.tensor), Some(indices.tensor), Some(probs.tensor)];
    call.finish(status, &tensors)
}

/// Gradient of the router with respect to its logits; no gradient passes through the choice of indices.
///
/// With g the gradient of the probabilities (dprobs, plus dweights carried through the renormalisation at the
/// chosen columns): dx = probs \* (g - sum(g \* probs)).
///
/// # Arguments
///
/// - `dweights`: f32 `[rows, k]`, gradient of weights
/// - `weights`: f32 `[rows, k]`, from the forward call
/// - `indices`: i32 `[rows, k]`, from the forward call
/// - `probs`: f32 `[rows, cols]`, from the forward call
/// - `dprobs`: f32 `[rows, cols]`, further gradient of probs (the auxiliary loss), or null
/// - `dx`: of `dtype` `[rows, cols]`, gradient of the logits; overwritten
/// - `norm`: as in the forward call
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn softmax_topk_backward(
    dweights: &Tensor,
    weights: &Tensor,
    indices: &Tensor,
    probs: &Tensor,
    dprobs: Option<&Tensor>,
    dx: &Tensor,
    norm: bool,
) -> Result<()> {
    let call = Call::new("cuda_softmax_topk_backward", dweights);
    let dweights = call.dense::<2>("dweights", "[rows, k]", dweights)?.of(DType::F32)?;
    let weights = call.dense::<2>("weights", "[rows, k]", weights)?.of(DType::F32)?;
    let indices = call.dense::<2>("indices", "[rows, k]", indices)?.of(DType::I32)?;
    let probs = call.dense::<2>("probs", "[rows, cols]", probs)?.of(DType::F32)?;
    let dprobs = match dprobs {
        Some(dprobs) => Some(call.dense::<2>("dprobs", "[rows, cols]", dprobs)?.of(DType::F32)?),
        None => None,
    };
    let dx = call.dense::<2>("dx", "[rows, cols]", dx)?;
    call.same(&[Some(dweights.named()), Some(weights.named()), Some(indices.named())])?;
    call.same(&[Some(probs.named()), named(&dprobs), Some(dx.named())])?;
    call.folds("rows", &[Some(dweights.named()), Some(probs.named())])?;
    let rows = dweights.dims[0];
    let k = dweights.dims[1];
    let cols = probs.dims[1];
    const SIZES: [(&str, &str); 3] = [("rows", "from dweights"), ("k", "from dweights"), ("cols", "from probs")];
    let sizes = Sizes { names: &SIZES, values: &[rows, k, cols] };
    weights.expect([rows, k], sizes)?;
    indices.expect([rows, k], sizes)?;
    probs.expect([rows, cols], sizes)?;
    if let Some(dprobs) = &dprobs {
        dprobs.expect([rows, cols], sizes)?;
    }
    dx.expect([rows, cols], sizes)?;
    let dtype = dx.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_softmax_topk_backward)(
            call.handle(),
            dweights.pointer().cast(),
            weights.pointer().cast(),
            indices.pointer().cast(),
            probs.pointer().cast(),
            pointer(&dprobs).cast(),
            dx.pointer(),
            rows as i64,
            cols as i64,
            k as i64,
            i32::from(norm),
            dtype.code(),
        )
    };
    let tensors = [
        Some(dweights.tensor),
        Some(weights.tensor),
        Some(indices.tensor),
        Some(probs.tensor),
        tensor(&dprobs),
        Some(dx.tensor),
    ];
    call.finish(status, &tensors)
}
