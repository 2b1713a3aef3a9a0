// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section rmsnorm of bindings.h.
//!
//! Arithmetic inside is f32 for every dtype.

use crate::call::{Call, Sizes, named, pointer, tensor};
use crate::{DType, Result, Tensor};

/// RMSNorm: y = x \* rstd \* weight, rstd = 1 / sqrt(mean(x^2) + eps).
///
/// (Zhang, Sennrich 2019, eq. 4)
///
/// # Arguments
///
/// - `x`: of `dtype` `[rows, cols]`, input
/// - `weight`: of `dtype` `[cols]`, gain
/// - `y`: of `dtype` `[rows, cols]`, output; overwritten, may be `x`
/// - `rstd`: f32 `[rows]`, kept for the backward call, or null; overwritten
/// - `eps`: added to the mean square; must be finite and at least 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rmsnorm(x: &Tensor, weight: &Tensor, y: &Tensor, rstd: Option<&Tensor>, eps: f32) -> Result<()> {
    let call = Call::new("cuda_rmsnorm", x);
    let x = call.dense::<2>("x", "[rows, cols]", x)?;
    let weight = call.dense::<1>("weight", "[cols]", weight)?;
    let y = call.dense::<2>("y", "[rows, cols]", y)?;
    let rstd = match rstd {
        Some(rstd) => Some(call.dense::<1>("rstd", "[rows]", rstd)?.of(DType::F32)?),
        None => None,
    };
    call.same(&[Some(x.named()), Some(y.named())])?;
    call.folds("rows", &[Some(x.named()), named(&rstd)])?;
    weight.unfolded("cols", "x")?;
    let rows = x.dims[0];
    let cols = x.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from x"), ("cols", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols] };
    weight.expect([cols], sizes)?;
    y.expect([rows, cols], sizes)?;
    if let Some(rstd) = &rstd {
        rstd.expect([rows], sizes)?;
    }
    let dtype = x.dtype();
    weight.same(dtype, "x")?;
    y.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rmsnorm)(
            call.handle(),
            x.pointer(),
            weight.pointer(),
            y.pointer(),
            pointer(&rstd).cast(),
            rows as i64,
            cols as i64,
            eps,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(weight.tensor), Some(y.tensor), tensor(&rstd)];
    call.finish(status, &tensors)
}

/// Residual sum and its RMSNorm in one pass: sum = x + residual (rounded to dtype), y = rmsnorm(sum).
///
/// # Arguments
///
/// - `x`: of `dtype` `[rows, cols]`, a block's output
/// - `residual`: of `dtype` `[rows, cols]`, the residual stream
/// - `weight`: of `dtype` `[cols]`, gain
/// - `sum`: of `dtype` `[rows, cols]`, the new residual stream; overwritten, may be `x` or `residual`
/// - `y`: of `dtype` `[rows, cols]`, its norm; overwritten
/// - `rstd`: f32 `[rows]`, kept for the backward call, or null; overwritten
/// - `eps`: added to the mean square; must be finite and at least 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rmsnorm_residual(
    x: &Tensor,
    residual: &Tensor,
    weight: &Tensor,
    sum: &Tensor,
    y: &Tensor,
    rstd: Option<&Tensor>,
    eps: f32,
) -> Result<()> {
    let call = Call::new("cuda_rmsnorm_residual", x);
    let x = call.dense::<2>("x", "[rows, cols]", x)?;
    let residual = call.dense::<2>("residual", "[rows, cols]", residual)?;
    let weight = call.dense::<1>("weight", "[cols]", weight)?;
    let sum = call.dense::<2>("sum", "[rows, cols]", sum)?;
    let y = call.dense::<2>("y", "[rows, cols]", y)?;
    let rstd = match rstd {
        Some(rstd) => Some(call.dense::<1>("rstd", "[rows]", rstd)?.of(DType::F32)?),
        None => None,
    };
    call.same(&[Some(x.named()), Some(residual.named()), Some(sum.named()), Some(y.named())])?;
    call.folds("rows", &[Some(x.named()), named(&rstd)])?;
    weight.unfolded("cols", "x")?;
    let rows = x.dims[0];
    let cols = x.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from x"), ("cols", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols] };
    residual.expect([rows, cols], sizes)?;
    weight.expect([cols], sizes)?;
    sum.expect([rows, cols], sizes)?;
    y.expect([rows, cols], sizes)?;
    if let Some(rstd) = &rstd {
        rstd.expect([rows], sizes)?;
    }
    let dtype = x.dtype();
    residual.same(dtype, "x")?;
    weight.same(dtype, "x")?;
    sum.same(dtype, "x")?;
    y.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rmsnorm_residual)(
            call.handle(),
            x.pointer(),
            residual.pointer(),
            weight.pointer(),
            sum.pointer(),
            y.pointer(),
            pointer(&rstd).cast(),
            rows as i64,
            cols as i64,
            eps,
            dtype.code(),
        )
    };
    let tensors =
        [Some(x.tensor), Some(residual.tensor), Some(weight.tensor), Some(sum.tensor), Some(y.tensor), tensor(&rstd)];
    call.finish(status, &tensors)
}

/// Gradient of RMSNorm: with xhat = x \* rstd and g = dy \* weight, dx = dresidual + rstd \* (g - xhat \* mean(g \*
/// xhat)); dweight += sum over rows of dy \* xhat.
///
/// # Arguments
///
/// - `dy`: of `dtype` `[rows, cols]`, gradient of y
/// - `x`: of `dtype` `[rows, cols]`, the input (of rmsnorm_residual: its sum)
/// - `weight`: of `dtype` `[cols]`, gain
/// - `rstd`: f32 `[rows]`, from the forward call
/// - `dresidual`: of `dtype` `[rows, cols]`, gradient that reaches x past the norm, or null for none
/// - `dx`: of `dtype` `[rows, cols]`, gradient of x; overwritten, may be `dy` or `dresidual`
/// - `dweight`: f32 `[cols]`, gradient of weight; added to
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rmsnorm_backward(
    dy: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    rstd: &Tensor,
    dresidual: Option<&Tensor>,
    dx: &Tensor,
    dweight: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_rmsnorm_backward", dy);
    let dy = call.dense::<2>("dy", "[rows, cols]", dy)?;
    let x = call.dense::<2>("x", "[rows, cols]", x)?;
    let weight = call.dense::<1>("weight", "[cols]", weight)?;
    let rstd = call.dense::<1>("rstd", "[rows]", rstd)?.of(DType::F32)?;
    let dresidual = match dresidual {
        Some(dresidual) => Some(call.dense::<2>("dresidual", "[rows, cols]", dresidual)?),
        None => None,
    };
    let dx = call.dense::<2>("dx", "[rows, cols]", dx)?;
    let dweight = call.dense::<1>("dweight", "[cols]", dweight)?.of(DType::F32)?;
    call.same(&[Some(dy.named()), Some(x.named()), named(&dresidual), Some(dx.named())])?;
    call.same(&[Some(weight.named()), Some(dweight.named())])?;
    call.folds("rows", &[Some(dy.named()), Some(rstd.named())])?;
    weight.unfolded("cols", "dy")?;
    let rows = dy.dims[0];
    let cols = dy.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from dy"), ("cols", "from dy")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols] };
    x.expect([rows, cols], sizes)?;
    weight.expect([cols], sizes)?;
    rstd.expect([rows], sizes)?;
    if let Some(dresidual) = &dresidual {
        dresidual.expect([rows, cols], sizes)?;
    }
    dx.expect([rows, cols], sizes)?;
    dweight.expect([cols], sizes)?;
    let dtype = dy.dtype();
    x.same(dtype, "dy")?;
    weight.same(dtype, "dy")?;
    dx.same(dtype, "dy")?;
    if let Some(dresidual) = &dresidual {
        dresidual.same(dtype, "dy")?;
    }
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rmsnorm_backward)(
            call.handle(),
            dy.pointer(),
            x.pointer(),
            weight.pointer(),
            rstd.pointer().cast(),
            pointer(&dresidual),
            dx.pointer(),
            dweight.pointer().cast(),
            rows as i64,
            cols as i64,
            dtype.code(),
        )
    };
    let tensors = [
        Some(dy.tensor),
        Some(x.tensor),
        Some(weight.tensor),
        Some(rstd.tensor),
        tensor(&dresidual),
        Some(dx.tensor),
        Some(dweight.tensor),
    ];
    call.finish(status, &tensors)
}
