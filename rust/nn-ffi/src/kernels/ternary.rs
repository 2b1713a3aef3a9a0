// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section ternary of bindings.h.
//!
//! Linear layers with weights -1, 0 and 1 and 8-bit activations. (Ma et al. 2024, "The Era of 1-bit LLMs"; Ma et
//! al. 2025, "BitNet b1.58 2B4T Technical Report")
//!
//! Packed weights (tern2) have two bits each, code + 1, in words of four bytes: of sixteen rows and sixteen columns
//! at a time, byte j of the word of row r has at bits 2i the weight of row r and column j + 4i. Words lie as \[row
//! / 16\]\[column / 16\]\[row mod 16\]; rows and columns that fill up the last sixteen have code 0. Integer
//! products are exact in 32 bits, and so the same to the bit on every engine and instruction set.

use crate::call::{Call, Sizes, named, pointer, tensor};
use crate::{DType, Result, Tensor};

/// Rounds rows to 8 bits, each with a scale of its own: with a = max(max |x|, 1e-5), codes = rint(x \* (127/a)),
/// ties to even, scale = a/127, all in f32.
///
/// A row with a value that is not finite gets codes 0 and scale NaN. (Ma et al. 2024, eq. 4)
///
/// # Arguments
///
/// - `x`: of `dtype` `[rows, cols]`, activations
/// - `codes`: i8 `[rows, cols]`, -127 .. 127; overwritten
/// - `scale`: f32 `[rows]`, x is about codes \* scale; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn act_quant_i8(x: &Tensor, codes: &Tensor, scale: &Tensor) -> Result<()> {
    let call = Call::new("cuda_act_quant_i8", x);
    let x = call.dense::<2>("x", "[rows, cols]", x)?;
    let codes = call.dense::<2>("codes", "[rows, cols]", codes)?.of(DType::I8)?;
    let scale = call.dense::<1>("scale", "[rows]", scale)?.of(DType::F32)?;
    call.same(&[Some(x.named()), Some(codes.named())])?;
    call.folds("rows", &[Some(x.named()), Some(scale.named())])?;
    let rows = x.dims[0];
    let cols = x.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from x"), ("cols", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols] };
    codes.expect([rows, cols], sizes)?;
    scale.expect([rows], sizes)?;
    let dtype = x.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_act_quant_i8)(
            call.handle(),
            x.pointer(),
            codes.pointer(),
            scale.pointer().cast(),
            rows as i64,
            cols as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(codes.tensor), Some(scale.tensor)];
    call.finish(status, &tensors)
}

/// RMSNorm and act_quant_i8 in one pass: the bits of cuda_rmsnorm, its result rounded to dtype, then of
/// cuda_act_quant_i8.
///
/// # Arguments
///
/// - `x`: of `dtype` `[rows, cols]`, input
/// - `weight`: of `dtype` `[cols]`, gain
/// - `codes`: i8 `[rows, cols]`, the norm in 8 bits; overwritten
/// - `scale`: f32 `[rows]`, the norm is about codes \* scale; overwritten
/// - `eps`: added to the mean square; must be finite and at least 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rmsnorm_quant_i8(x: &Tensor, weight: &Tensor, codes: &Tensor, scale: &Tensor, eps: f32) -> Result<()> {
    let call = Call::new("cuda_rmsnorm_quant_i8", x);
    let x = call.dense::<2>("x", "[rows, cols]", x)?;
    let weight = call.dense::<1>("weight", "[cols]", weight)?;
    let codes = call.dense::<2>("codes", "[rows, cols]", codes)?.of(DType::I8)?;
    let scale = call.dense::<1>("scale", "[rows]", scale)?.of(DType::F32)?;
    call.same(&[Some(x.named()), Some(codes.named())])?;
    call.folds("rows", &[Some(x.named()), Some(scale.named())])?;
    weight.unfolded("cols", "x")?;
    let rows = x.dims[0];
    let cols = x.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from x"), ("cols", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols] };
    weight.expect([cols], sizes)?;
    codes.expect([rows, cols], sizes)?;
    scale.expect([rows], sizes)?;
    let dtype = x.dtype();
    weight.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rmsnorm_quant_i8)(
            call.handle(),
            x.pointer(),
            weight.pointer(),
            codes.pointer(),
            scale.pointer().cast(),
            rows as i64,
            cols as i64,
            eps,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(weight.tensor), Some(codes.tensor), Some(scale.tensor)];
    call.finish(status, &tensors)
}

/// Ternary weights by their mean magnitude: with s = max(mean |x|, 1e-5), codes = rint(x \* (1/s)) cut to -1 .. 1,
/// ties to even.
///
/// The mean is taken in f64: in each row, column by column, sixteen sums, of the columns equal modulo 16, then sum
/// j + sum j + 8, the same with 4, 2 and 1; then row after row; the quotient is rounded to f32 once. A value that
/// is not finite makes the call fail with NNCUDA_ERROR_OUT_OF_RANGE. (Ma et al. 2024, eqs. 1 to 3)
///
/// # Arguments
///
/// - `x`: of `dtype` `[n, k]`, weights
/// - `codes`: i8 `[n, k]`, -1, 0, 1; overwritten
/// - `scale`: f32 `[1]`, s; x is about codes \* scale; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn ternary_quantize(x: &Tensor, codes: &Tensor, scale: &Tensor) -> Result<()> {
    let call = Call::new("cuda_ternary_quantize", x);
    let x = call.dense::<2>("x", "[n, k]", x)?;
    let codes = call.dense::<2>("codes", "[n, k]", codes)?.of(DType::I8)?;
    let scale = call.dense::<1>("scale", "[1]", scale)?.of(DType::F32)?;
    call.same(&[Some(x.named()), Some(codes.named())])?;
    let n = x.dims[0];
    let k = x.dims[1];
    const SIZES: [(&str, &str); 2] = [("n", "from x"), ("k", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[n, k] };
    codes.expect([n, k], sizes)?;
    scale.expect([1], sizes)?;
    let dtype = x.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_ternary_quantize)(
            call.handle(),
            x.pointer(),
            codes.pointer(),
            scale.pointer().cast(),
            n as i64,
            k as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(codes.tensor), Some(scale.tensor)];
    call.finish(status, &tensors)
}

/// Packs ternary weights.
///
/// A code other than -1, 0 and 1 makes the call fail with NNCUDA_ERROR_OUT_OF_RANGE.
///
/// # Arguments
///
/// - `codes`: i8 `[n, k]`, -1, 0, 1
/// - `w`: u8 `[stored, row_bytes]`, packed weights; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn ternary_pack(codes: &Tensor, w: &Tensor) -> Result<()> {
    let call = Call::new("cuda_ternary_pack", codes);
    let codes = call.dense::<2>("codes", "[n, k]", codes)?.of(DType::I8)?;
    let w = call.dense::<2>("w", "[stored, row_bytes]", w)?.of(DType::U8)?;
    let n = codes.dims[0];
    let k = codes.dims[1];
    let stored = w.dims[0];
    let row_bytes = w.dims[1];
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_ternary_pack)(
            call.handle(),
            codes.pointer(),
            w.pointer(),
            n as i64,
            k as i64,
            stored as i64,
            row_bytes as i64,
        )
    };
    let tensors = [Some(codes.tensor), Some(w.tensor)];
    call.finish(status, &tensors)
}

/// The codes of packed weights.
///
/// Two bits that are no code (3) make the call fail with NNCUDA_ERROR_OUT_OF_RANGE.
///
/// # Arguments
///
/// - `w`: u8 `[stored, row_bytes]`, packed weights
/// - `codes`: i8 `[n, k]`, -1, 0, 1; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn ternary_unpack(w: &Tensor, codes: &Tensor) -> Result<()> {
    let call = Call::new("cuda_ternary_unpack", w);
    let w = call.dense::<2>("w", "[stored, row_bytes]", w)?.of(DType::U8)?;
    let codes = call.dense::<2>("codes", "[n, k]", codes)?.of(DType::I8)?;
    let stored = w.dims[0];
    let row_bytes = w.dims[1];
    let n = codes.dims[0];
    let k = codes.dims[1];
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_ternary_unpack)(
            call.handle(),
            w.pointer(),
            codes.pointer(),
            n as i64,
            k as i64,
            stored as i64,
            row_bytes as i64,
        )
    };
    let tensors = [Some(w.tensor), Some(codes.tensor)];
    call.finish(status, &tensors)
}

/// A linear layer with ternary weights: y = float(codes \* W^T) \* (scale \* w_scale) + residual, the product of
/// integers exact, its conversion to f32, the product of the scales, the product of the two and the sum each
/// rounded once to f32.
///
/// With dtype i32, y is the integers, and scale, w_scale and residual must be null. Two bits 3, which are no code,
/// count as 2.
///
/// # Arguments
///
/// - `codes`: i8 `[m, k]`, activations, from act_quant_i8 or rmsnorm_quant_i8
/// - `scale`: f32 `[m]`, of each row of the activations; null for i32
/// - `w`: u8 `[stored, row_bytes]`, weights from ternary_pack
/// - `w_scale`: f32 `[n]`, of each output, so that matrices with scales of their own can be one; null for i32
/// - `residual`: of `dtype` `[m, n]`, added at the end, or null
/// - `y`: of `dtype` `[m, n]`, result; overwritten, may be `residual`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn bitlinear(
    codes: &Tensor,
    scale: Option<&Tensor>,
    w: &Tensor,
    w_scale: Option<&Tensor>,
    residual: Option<&Tensor>,
    y: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_bitlinear", codes);
    let codes = call.dense::<2>("codes", "[m, k]", codes)?.of(DType::I8)?;
    let scale = match scale {
        Some(scale) => Some(call.dense::<1>("scale", "[m]", scale)?.of(DType::F32)?),
        None => None,
    };
    let w = call.dense::<2>("w", "[stored, row_bytes]", w)?.of(DType::U8)?;
    let w_scale = match w_scale {
        Some(w_scale) => Some(call.dense::<1>("w_scale", "[n]", w_scale)?.of(DType::F32)?),
        None => None,
    };
    let residual = match residual {
        Some(residual) => Some(call.dense::<2>("residual", "[m, n]", residual)?),
        None => None,
    };
    let y = call.dense::<2>("y", "[m, n]", y)?;
    call.same(&[named(&residual), Some(y.named())])?;
    call.folds("m", &[Some(codes.named()), named(&scale), named(&residual), Some(y.named())])?;
    if let Some(w_scale) = &w_scale {
        w_scale.unfolded("n", "y")?;
    }
    let m = codes.dims[0];
    let k = codes.dims[1];
    let stored = w.dims[0];
    let row_bytes = w.dims[1];
    let n = y.dims[1];
    const SIZES: [(&str, &str); 5] =
        [("m", "from codes"), ("k", "from codes"), ("stored", "from w"), ("row_bytes", "from w"), ("n", "from y")];
    let sizes = Sizes { names: &SIZES, values: &[m, k, stored, row_bytes, n] };
    if let Some(scale) = &scale {
        scale.expect([m], sizes)?;
    }
    if let Some(w_scale) = &w_scale {
        w_scale.expect([n], sizes)?;
    }
    if let Some(residual) = &residual {
        residual.expect([m, n], sizes)?;
    }
    y.expect([m, n], sizes)?;
    let dtype = y.dtype();
    if let Some(residual) = &residual {
        residual.same(dtype, "y")?;
    }
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_bitlinear)(
            call.handle(),
            codes.pointer(),
            pointer(&scale).cast(),
            w.pointer(),
            pointer(&w_scale).cast(),
            pointer(&residual),
            y.pointer(),
            m as i64,
            n as i64,
            k as i64,
            stored as i64,
            row_bytes as i64,
            dtype.code(),
        )
    };
    let tensors =
        [Some(codes.tensor), tensor(&scale), Some(w.tensor), tensor(&w_scale), tensor(&residual), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// A linear layer with ternary weights and the norm before it: bitlinear of what rmsnorm_quant_i8 makes of x, or
/// act_quant_i8 where there are no gains, with the bits of these two calls.
///
/// # Arguments
///
/// - `x`: of `dtype` `[m, k]`, input
/// - `norm`: of `dtype` `[k]`, gains of the norm of x, or null for x as it is
/// - `w`: u8 `[stored, row_bytes]`, weights from ternary_pack
/// - `w_scale`: f32 `[n]`, of each output, so that matrices with scales of their own can be one
/// - `residual`: of `dtype` `[m, n]`, added at the end, or null
/// - `y`: of `dtype` `[m, n]`, result; overwritten, may be `residual`
/// - `eps`: of the norm: added to the mean square; must be finite and at least 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn bitlinear_norm(
    x: &Tensor,
    norm: Option<&Tensor>,
    w: &Tensor,
    w_scale: &Tensor,
    residual: Option<&Tensor>,
    y: &Tensor,
    eps: f32,
) -> Result<()> {
    let call = Call::new("cuda_bitlinear_norm", x);
    let x = call.dense::<2>("x", "[m, k]", x)?;
    let norm = match norm {
        Some(norm) => Some(call.dense::<1>("norm", "[k]", norm)?),
        None => None,
    };
    let w = call.dense::<2>("w", "[stored, row_bytes]", w)?.of(DType::U8)?;
    let w_scale = call.dense::<1>("w_scale", "[n]", w_scale)?.of(DType::F32)?;
    let residual = match residual {
        Some(residual) => Some(call.dense::<2>("residual", "[m, n]", residual)?),
        None => None,
    };
    let y = call.dense::<2>("y", "[m, n]", y)?;
    call.same(&[named(&residual), Some(y.named())])?;
    call.folds("m", &[Some(x.named()), named(&residual), Some(y.named())])?;
    if let Some(norm) = &norm {
        norm.unfolded("k", "x")?;
    }
    w_scale.unfolded("n", "y")?;
    let m = x.dims[0];
    let k = x.dims[1];
    let stored = w.dims[0];
    let row_bytes = w.dims[1];
    let n = w_scale.dims[0];
    const SIZES: [(&str, &str); 5] =
        [("m", "from x"), ("k", "from x"), ("stored", "from w"), ("row_bytes", "from w"), ("n", "from w_scale")];
    let sizes = Sizes { names: &SIZES, values: &[m, k, stored, row_bytes, n] };
    if let Some(norm) = &norm {
        norm.expect([k], sizes)?;
    }
    if let Some(residual) = &residual {
        residual.expect([m, n], sizes)?;
    }
    y.expect([m, n], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    if let Some(norm) = &norm {
        norm.same(dtype, "x")?;
    }
    if let Some(residual) = &residual {
        residual.same(dtype, "x")?;
    }
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_bitlinear_norm)(
            call.handle(),
            x.pointer(),
            pointer(&norm),
            w.pointer(),
            w_scale.pointer().cast(),
            pointer(&residual),
            y.pointer(),
            m as i64,
            n as i64,
            k as i64,
            stored as i64,
            row_bytes as i64,
            eps,
            dtype.code(),
        )
    };
    let tensors =
        [Some(x.tensor), tensor(&norm), Some(w.tensor), Some(w_scale.tensor), tensor(&residual), Some(y.tensor)];
    call.finish(status, &tensors)
}
