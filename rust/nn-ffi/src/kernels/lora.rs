// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section lora of bindings.h.
//!
//! Gradients through weights that stay as they are stored, for adapters beside them. (Hu et al. 2021, "LoRA:
//! Low-Rank Adaptation of Large Language Models", section 4)
//!
//! The weights are read as numbers of `dtype`, as dequantize rounds them, and products accumulate in f32, as in
//! gemm. On a CPU each row of a result depends on its own row of the left factor alone and has the same bits for
//! any number of rows.

use crate::call::{Call, Sizes, plus, pointer, tensor};
use crate::{DType, Format, Result, Tensor};

/// The gradient of a linear layer with stored weights with respect to its input: dx = dy \* W + beta \* dx, of the
/// layer y = x \* W^T that gemm_quant computes.
///
/// Groups as in gemm_quant. (Hu et al. 2021, section 4.1: W is frozen, its gradient not needed)
///
/// # Arguments
///
/// - `dy`: of `dtype` `[m, n]`, gradient of y
/// - `w`: u8 `[groups*n, row_bytes]`, weights in `format`, a matrix \[n, k\] a group
/// - `offsets`: i32 `[groups+1]`, first row of each group; offsets\[0\] = 0, never falling, at most m; null for all
///   rows and one group
/// - `dx`: of `dtype` `[m, k]`, gradient of x; not read with beta = 0; read and overwritten
/// - `beta`: factor of the old dx
/// - `format`: NNCUDA_FORMAT_\* of w, none of the _R16
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm_quant_backward(
    dy: &Tensor,
    w: &Tensor,
    offsets: Option<&Tensor>,
    dx: &Tensor,
    beta: f32,
    format: Format,
) -> Result<()> {
    let call = Call::new("cuda_gemm_quant_backward", dy);
    let dy = call.dense::<2>("dy", "[m, n]", dy)?;
    let w = call.dense::<2>("w", "[groups*n, row_bytes]", w)?.of(DType::U8)?;
    let offsets = match offsets {
        Some(offsets) => Some(call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?),
        None => None,
    };
    let dx = call.dense::<2>("dx", "[m, k]", dx)?;
    call.folds("m", &[Some(dy.named()), Some(dx.named())])?;
    let m = dy.dims[0];
    let n = dy.dims[1];
    let row_bytes = w.dims[1];
    let k = dx.dims[1];
    let groups = w.solve(0, "groups", n, 1, 0)?;
    const SIZES: [(&str, &str); 5] =
        [("m", "from dy"), ("n", "from dy"), ("row_bytes", "from w"), ("k", "from dx"), ("groups", "from w")];
    let sizes = Sizes { names: &SIZES, values: &[m, n, row_bytes, k, groups] };
    if let Some(offsets) = &offsets {
        offsets.expect([plus(groups, 1)], sizes)?;
    }
    dx.expect([m, k], sizes)?;
    w.expect_factors(&[groups, n], sizes)?;
    let dtype = dy.dtype();
    dx.same(dtype, "dy")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm_quant_backward)(
            call.handle(),
            dy.pointer(),
            w.pointer(),
            pointer(&offsets).cast(),
            dx.pointer(),
            groups as i64,
            m as i64,
            n as i64,
            k as i64,
            row_bytes as i64,
            beta,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(dy.tensor), Some(w.tensor), tensor(&offsets), Some(dx.tensor)];
    call.finish(status, &tensors)
}

/// The gradient of a linear layer with ternary weights with respect to its input: dx = dy \* (w_scale \* W) + beta
/// \* dx, of the layer that bitlinear computes, with the rounding of its input to 8 bits taken as the identity.
///
/// (Bengio, Léonard, Courville 2013, "Estimating or Propagating Gradients Through Stochastic Neurons", section 4;
/// Ma et al. 2024, section 2)
///
/// # Arguments
///
/// - `dy`: of `dtype` `[m, n]`, gradient of y
/// - `w`: u8 `[stored, row_bytes]`, weights from ternary_pack; two bits 3, which are no code, count as 2
/// - `w_scale`: f32 `[n]`, of each output
/// - `dx`: of `dtype` `[m, k]`, gradient of x; not read with beta = 0; read and overwritten
/// - `beta`: factor of the old dx
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn bitlinear_backward(dy: &Tensor, w: &Tensor, w_scale: &Tensor, dx: &Tensor, beta: f32) -> Result<()> {
    let call = Call::new("cuda_bitlinear_backward", dy);
    let dy = call.dense::<2>("dy", "[m, n]", dy)?;
    let w = call.dense::<2>("w", "[stored, row_bytes]", w)?.of(DType::U8)?;
    let w_scale = call.dense::<1>("w_scale", "[n]", w_scale)?.of(DType::F32)?;
    let dx = call.dense::<2>("dx", "[m, k]", dx)?;
    call.folds("m", &[Some(dy.named()), Some(dx.named())])?;
    w_scale.unfolded("n", "dy")?;
    let m = dy.dims[0];
    let n = dy.dims[1];
    let stored = w.dims[0];
    let row_bytes = w.dims[1];
    let k = dx.dims[1];
    const SIZES: [(&str, &str); 5] =
        [("m", "from dy"), ("n", "from dy"), ("stored", "from w"), ("row_bytes", "from w"), ("k", "from dx")];
    let sizes = Sizes { names: &SIZES, values: &[m, n, stored, row_bytes, k] };
    w_scale.expect([n], sizes)?;
    dx.expect([m, k], sizes)?;
    let dtype = dy.dtype();
    dx.same(dtype, "dy")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_bitlinear_backward)(
            call.handle(),
            dy.pointer(),
            w.pointer(),
            w_scale.pointer().cast(),
            dx.pointer(),
            m as i64,
            n as i64,
            k as i64,
            stored as i64,
            row_bytes as i64,
            beta,
            dtype.code(),
        )
    };
    let tensors = [Some(dy.tensor), Some(w.tensor), Some(w_scale.tensor), Some(dx.tensor)];
    call.finish(status, &tensors)
}
