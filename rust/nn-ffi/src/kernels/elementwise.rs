// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section elementwise of bindings.h.

use crate::call::{Call, Sizes, pointer, tensor};
use crate::{DType, Result, Tensor};

/// SiLU: y = x \* sigmoid(x).
///
/// (Elfwing, Uchibe, Doya 2018, eq. 4)
///
/// # Arguments
///
/// - `x`: of `dtype` `[n]`, input
/// - `y`: of `dtype` `[n]`, output; overwritten, may be `x`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn silu(x: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_silu", x);
    let x = call.dense::<1>("x", "[n]", x)?;
    let y = call.dense::<1>("y", "[n]", y)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    let n = x.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    y.expect([n], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status =
        unsafe { (call.functions().cuda_silu)(call.handle(), x.pointer(), y.pointer(), n as i64, dtype.code()) };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Gradient of SiLU: dx = dy \* s \* (1 + x \* (1 - s)), s = sigmoid(x).
///
/// (Elfwing, Uchibe, Doya 2018, eq. 5)
///
/// # Arguments
///
/// - `dy`: of `dtype` `[n]`, gradient of y
/// - `x`: of `dtype` `[n]`, the input of the forward call
/// - `dx`: of `dtype` `[n]`, gradient of x; overwritten, may be `dy` or `x`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn silu_backward(dy: &Tensor, x: &Tensor, dx: &Tensor) -> Result<()> {
    let call = Call::new("cuda_silu_backward", dy);
    let dy = call.dense::<1>("dy", "[n]", dy)?;
    let x = call.dense::<1>("x", "[n]", x)?;
    let dx = call.dense::<1>("dx", "[n]", dx)?;
    call.same(&[Some(dy.named()), Some(x.named()), Some(dx.named())])?;
    let n = dy.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from dy")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    x.expect([n], sizes)?;
    dx.expect([n], sizes)?;
    let dtype = dy.dtype();
    x.same(dtype, "dy")?;
    dx.same(dtype, "dy")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_silu_backward)(
            call.handle(),
            dy.pointer(),
            x.pointer(),
            dx.pointer(),
            n as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(dy.tensor), Some(x.tensor), Some(dx.tensor)];
    call.finish(status, &tensors)
}

/// Sum: y = a + b.
///
/// # Arguments
///
/// - `a`: of `dtype` `[n]`, first term
/// - `b`: of `dtype` `[n]`, second term
/// - `y`: of `dtype` `[n]`, output; overwritten, may be `a` or `b`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn add(a: &Tensor, b: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_add", a);
    let a = call.dense::<1>("a", "[n]", a)?;
    let b = call.dense::<1>("b", "[n]", b)?;
    let y = call.dense::<1>("y", "[n]", y)?;
    call.same(&[Some(a.named()), Some(b.named()), Some(y.named())])?;
    let n = a.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from a")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    b.expect([n], sizes)?;
    y.expect([n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    y.same(dtype, "a")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_add)(call.handle(), a.pointer(), b.pointer(), y.pointer(), n as i64, dtype.code())
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Product, element by element: y = a \* b.
///
/// # Arguments
///
/// - `a`: of `dtype` `[n]`, first factor
/// - `b`: of `dtype` `[n]`, second factor
/// - `y`: of `dtype` `[n]`, output; overwritten, may be `a` or `b`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn mul(a: &Tensor, b: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_mul", a);
    let a = call.dense::<1>("a", "[n]", a)?;
    let b = call.dense::<1>("b", "[n]", b)?;
    let y = call.dense::<1>("y", "[n]", y)?;
    call.same(&[Some(a.named()), Some(b.named()), Some(y.named())])?;
    let n = a.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from a")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    b.expect([n], sizes)?;
    y.expect([n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    y.same(dtype, "a")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_mul)(call.handle(), a.pointer(), b.pointer(), y.pointer(), n as i64, dtype.code())
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Scaling: y = alpha \* x.
///
/// # Arguments
///
/// - `x`: of `dtype` `[n]`, input
/// - `y`: of `dtype` `[n]`, output; overwritten, may be `x`
/// - `alpha`: factor
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn scale(x: &Tensor, y: &Tensor, alpha: f32) -> Result<()> {
    let call = Call::new("cuda_scale", x);
    let x = call.dense::<1>("x", "[n]", x)?;
    let y = call.dense::<1>("y", "[n]", y)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    let n = x.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    y.expect([n], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_scale)(call.handle(), x.pointer(), y.pointer(), n as i64, alpha, dtype.code())
    };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// SwiGLU gate: y = silu(gate) \* up.
///
/// (Shazeer 2020, "GLU Variants", eq. 6, without the products) With up = gate + dim and ld = 2\*dim it reads the
/// two halves of one fused product.
///
/// # Arguments
///
/// - `gate`: of `dtype` `[rows:ld, dim]`, what passes through SiLU
/// - `up`: of `dtype` `[rows:ld, dim]`, what is gated
/// - `used`: i32 `[1]`, how many rows there are, at most `rows`; those behind are neither read nor written; null for
///   all
/// - `y`: of `dtype` `[rows, dim]`, output; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn swiglu(gate: &Tensor, up: &Tensor, used: Option<&Tensor>, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_swiglu", gate);
    let gate = call.strided::<2>("gate", "[rows:ld, dim]", gate)?;
    let up = call.strided::<2>("up", "[rows:ld, dim]", up)?;
    let used = match used {
        Some(used) => Some(call.dense::<1>("used", "[1]", used)?.of(DType::I32)?),
        None => None,
    };
    let y = call.dense::<2>("y", "[rows, dim]", y)?;
    call.same(&[Some(gate.named()), Some(up.named()), Some(y.named())])?;
    let rows = gate.dims[0];
    let dim = gate.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from gate"), ("dim", "from gate")];
    let sizes = Sizes { names: &SIZES, values: &[rows, dim] };
    up.expect([rows, dim], sizes)?;
    if let Some(used) = &used {
        used.expect([1], sizes)?;
    }
    y.expect([rows, dim], sizes)?;
    let dtype = gate.dtype();
    up.same(dtype, "gate")?;
    y.same(dtype, "gate")?;
    let ld = call.stride(&[gate.rows(), up.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_swiglu)(
            call.handle(),
            gate.pointer(),
            up.pointer(),
            pointer(&used).cast(),
            y.pointer(),
            rows as i64,
            dim as i64,
            ld as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(gate.tensor), Some(up.tensor), tensor(&used), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Gradient of the SwiGLU gate: dgate = dy \* up \* silu'(gate), dup = dy \* silu(gate).
///
/// # Arguments
///
/// - `dy`: of `dtype` `[rows, dim]`, gradient of y
/// - `gate`: of `dtype` `[rows:ld, dim]`, as in the forward call
/// - `up`: of `dtype` `[rows:ld, dim]`, as in the forward call
/// - `used`: i32 `[1]`, as in the forward call (optional)
/// - `dgate`: of `dtype` `[rows:ld, dim]`, gradient of gate; overwritten, may be `gate`
/// - `dup`: of `dtype` `[rows:ld, dim]`, gradient of up; overwritten, may be `up`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn swiglu_backward(
    dy: &Tensor,
    gate: &Tensor,
    up: &Tensor,
    used: Option<&Tensor>,
    dgate: &Tensor,
    dup: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_swiglu_backward", dy);
    let dy = call.dense::<2>("dy", "[rows, dim]", dy)?;
    let gate = call.strided::<2>("gate", "[rows:ld, dim]", gate)?;
    let up = call.strided::<2>("up", "[rows:ld, dim]", up)?;
    let used = match used {
        Some(used) => Some(call.dense::<1>("used", "[1]", used)?.of(DType::I32)?),
        None => None,
    };
    let dgate = call.strided::<2>("dgate", "[rows:ld, dim]", dgate)?;
    let dup = call.strided::<2>("dup", "[rows:ld, dim]", dup)?;
    call.same(&[Some(dy.named()), Some(gate.named()), Some(up.named()), Some(dgate.named()), Some(dup.named())])?;
    let rows = dy.dims[0];
    let dim = dy.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from dy"), ("dim", "from dy")];
    let sizes = Sizes { names: &SIZES, values: &[rows, dim] };
    gate.expect([rows, dim], sizes)?;
    up.expect([rows, dim], sizes)?;
    if let Some(used) = &used {
        used.expect([1], sizes)?;
    }
    dgate.expect([rows, dim], sizes)?;
    dup.expect([rows, dim], sizes)?;
    let dtype = dy.dtype();
    gate.same(dtype, "dy")?;
    up.same(dtype, "dy")?;
    dgate.same(dtype, "dy")?;
    dup.same(dtype, "dy")?;
    let ld = call.stride(&[gate.rows(), up.rows(), dgate.rows(), dup.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_swiglu_backward)(
            call.handle(),
            dy.pointer(),
            gate.pointer(),
            up.pointer(),
            pointer(&used).cast(),
            dgate.pointer(),
            dup.pointer(),
            rows as i64,
            dim as i64,
            ld as i64,
            dtype.code(),
        )
    };
    let tensors =
        [Some(dy.tensor), Some(gate.tensor), Some(up.tensor), tensor(&used), Some(dgate.tensor), Some(dup.tensor)];
    call.finish(status, &tensors)
}

/// Squared-ReLU gate: y = max(gate, 0)^2 \* up.
///
/// (So et al. 2021, "Primer"; the feed-forward gate of BitNet b1.58 2B-4T)
///
/// # Arguments
///
/// - `gate`: of `dtype` `[rows:ld, dim]`, what passes through the squared ReLU
/// - `up`: of `dtype` `[rows:ld, dim]`, what is gated
/// - `y`: of `dtype` `[rows, dim]`, output; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn relu2_gate(gate: &Tensor, up: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_relu2_gate", gate);
    let gate = call.strided::<2>("gate", "[rows:ld, dim]", gate)?;
    let up = call.strided::<2>("up", "[rows:ld, dim]", up)?;
    let y = call.dense::<2>("y", "[rows, dim]", y)?;
    call.same(&[Some(gate.named()), Some(up.named()), Some(y.named())])?;
    let rows = gate.dims[0];
    let dim = gate.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from gate"), ("dim", "from gate")];
    let sizes = Sizes { names: &SIZES, values: &[rows, dim] };
    up.expect([rows, dim], sizes)?;
    y.expect([rows, dim], sizes)?;
    let dtype = gate.dtype();
    up.same(dtype, "gate")?;
    y.same(dtype, "gate")?;
    let ld = call.stride(&[gate.rows(), up.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_relu2_gate)(
            call.handle(),
            gate.pointer(),
            up.pointer(),
            y.pointer(),
            rows as i64,
            dim as i64,
            ld as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(gate.tensor), Some(up.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Conversion, rounding to nearest-even; f32 too large for the 16-bit type becomes infinity, NaN stays NaN.
///
/// # Arguments
///
/// - `x`: of `dtype_x` `[n]`, input
/// - `y`: of `dtype_y` `[n]`, output; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn cast(x: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_cast", x);
    let x = call.dense::<1>("x", "[n]", x)?;
    let y = call.dense::<1>("y", "[n]", y)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    let n = x.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    y.expect([n], sizes)?;
    let dtype_x = x.dtype();
    let dtype_y = y.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_cast)(call.handle(), x.pointer(), y.pointer(), n as i64, dtype_x.code(), dtype_y.code())
    };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// y = x, rounded to a 16-bit type as cuda_cast rounds, and f32 again.
///
/// # Arguments
///
/// - `x`: f32 `[n]`, input
/// - `y`: f32 `[n]`, output; overwritten, may be `x`
/// - `dtype`: f16, bf16
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn round(x: &Tensor, y: &Tensor, dtype: DType) -> Result<()> {
    let call = Call::new("cuda_round", x);
    let x = call.dense::<1>("x", "[n]", x)?.of(DType::F32)?;
    let y = call.dense::<1>("y", "[n]", y)?.of(DType::F32)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    let n = x.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    y.expect([n], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_round)(call.handle(), x.pointer().cast(), y.pointer().cast(), n as i64, dtype.code())
    };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Sets every element to a value, rounded to the dtype (for i32 and i8 it must be a whole number in range).
///
/// # Arguments
///
/// - `y`: of `dtype` `[n]`, output; overwritten
/// - `value`: the value
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn fill(y: &Tensor, value: f32) -> Result<()> {
    let call = Call::new("cuda_fill", y);
    let y = call.dense::<1>("y", "[n]", y)?;
    let n = y.dims[0];
    let dtype = y.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe { (call.functions().cuda_fill)(call.handle(), y.pointer(), n as i64, value, dtype.code()) };
    let tensors = [Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Counts on: x += by.
///
/// For lengths, positions and numbers of draws that live in device memory, where a captured graph finds them moved
/// on at each launch. Nothing wraps: an element for which x + by is no i32 is NNCUDA_ERROR_OUT_OF_RANGE.
///
/// # Arguments
///
/// - `x`: i32 `[n]`, counters; read and overwritten
/// - `by`: what is added
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn increment(x: &Tensor, by: i32) -> Result<()> {
    let call = Call::new("cuda_increment", x);
    let x = call.dense::<1>("x", "[n]", x)?.of(DType::I32)?;
    let n = x.dims[0];
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe { (call.functions().cuda_increment)(call.handle(), x.pointer().cast(), n as i64, by) };
    let tensors = [Some(x.tensor)];
    call.finish(status, &tensors)
}
