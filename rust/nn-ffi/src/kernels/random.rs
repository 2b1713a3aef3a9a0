// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section random of bindings.h.
//!
//! Philox4x32-10 (Salmon et al. 2011): key = seed (low word first), counter = (block low, block high, stream low,
//! stream high). Element i comes from word i mod 4 of block offset + i / 4, so any part of a sequence can be made
//! on its own.

use crate::call::Call;
use crate::{DType, Result, Tensor};

/// The generator's own 32-bit words.
///
/// # Arguments
///
/// - `y`: i32 `[n]`, words, as bits; overwritten
/// - `seed`: key
/// - `stream`: upper half of the counter
/// - `offset`: block of the first element
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn random_bits(y: &Tensor, seed: i64, stream: i64, offset: i64) -> Result<()> {
    let call = Call::new("cuda_random_bits", y);
    let y = call.dense::<1>("y", "[n]", y)?.of(DType::I32)?;
    let n = y.dims[0];
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_random_bits)(call.handle(), y.pointer().cast(), n as i64, seed, stream, offset)
    };
    let tensors = [Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Uniform numbers: y = low + (high - low) \* (word \>\> 8) \* 2^-24, so low \<= y, and y \< high before rounding.
///
/// # Arguments
///
/// - `y`: of `dtype` `[n]`, numbers; overwritten
/// - `low`: lower end; must be finite
/// - `high`: upper end; must be at least low
/// - `seed`: key
/// - `stream`: upper half of the counter
/// - `offset`: block of the first element
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn uniform(y: &Tensor, low: f32, high: f32, seed: i64, stream: i64, offset: i64) -> Result<()> {
    let call = Call::new("cuda_uniform", y);
    let y = call.dense::<1>("y", "[n]", y)?;
    let n = y.dims[0];
    let dtype = y.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_uniform)(
            call.handle(),
            y.pointer(),
            n as i64,
            low,
            high,
            seed,
            stream,
            offset,
            dtype.code(),
        )
    };
    let tensors = [Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Normal numbers by Box and Muller (1958): each pair of words (a, b) with u = ((a \>\> 8) + 1) \* 2^-24, w = (b
/// \>\> 8) \* 2^-24 gives r\*cos(2 pi w) and r\*sin(2 pi w), r = sqrt(-2 log u); y = mean + std \* that.
///
/// # Arguments
///
/// - `y`: of `dtype` `[n]`, numbers; overwritten
/// - `mean`: mean; must be finite
/// - `std`: standard deviation; must be finite and at least 0
/// - `seed`: key
/// - `stream`: upper half of the counter
/// - `offset`: block of the first element
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn normal(y: &Tensor, mean: f32, std: f32, seed: i64, stream: i64, offset: i64) -> Result<()> {
    let call = Call::new("cuda_normal", y);
    let y = call.dense::<1>("y", "[n]", y)?;
    let n = y.dims[0];
    let dtype = y.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_normal)(
            call.handle(),
            y.pointer(),
            n as i64,
            mean,
            std,
            seed,
            stream,
            offset,
            dtype.code(),
        )
    };
    let tensors = [Some(y.tensor)];
    call.finish(status, &tensors)
}
