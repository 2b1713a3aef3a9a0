// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section activation of bindings.h.
//!
//! What of today's families has no place in other kernels: bounds of scores, and gates.

use crate::call::{Call, Sizes, plus};
use crate::{DType, Result, Tensor};

/// Bounds scores softly: y = cap \* tanh(x / cap).
///
/// (Gemma Team 2024, "Gemma 2", section 2)
///
/// # Arguments
///
/// - `x`: of `dtype` `[n]`, input
/// - `y`: of `dtype` `[n]`, output, between -cap and cap; overwritten, may be `x`
/// - `cap`: bound; must be finite and above 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn softcap(x: &Tensor, y: &Tensor, cap: f32) -> Result<()> {
    let call = Call::new("cuda_softcap", x);
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
        (call.functions().cuda_softcap)(call.handle(), x.pointer(), y.pointer(), n as i64, cap, dtype.code())
    };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// GELU gate: y = gelu(gate) \* up, where gelu(x) = x/2 \* (1 + tanh(sqrt(2/pi) \* (x + 0.044715 \* x^3))).
///
/// (Hendrycks, Gimpel 2016, "GELUs", section 2; Shazeer 2020, "GLU Variants", eq. 6, without the products)
///
/// # Arguments
///
/// - `gate`: of `dtype` `[rows:ld, dim]`, what passes through GELU
/// - `up`: of `dtype` `[rows:ld, dim]`, what is gated
/// - `y`: of `dtype` `[rows, dim]`, output; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn geglu(gate: &Tensor, up: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_geglu", gate);
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
        (call.functions().cuda_geglu)(
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

/// Clipped SwiGLU gate: with g = min(gate, limit) and u = up held between -limit and limit, y = g \* sigmoid(alpha
/// \* g) \* (u + 1).
///
/// (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.3)
///
/// # Arguments
///
/// - `gate`: of `dtype` `[rows:ld, dim]`, what passes through the sigmoid
/// - `up`: of `dtype` `[rows:ld, dim]`, what is gated
/// - `y`: of `dtype` `[rows, dim]`, output; overwritten
/// - `alpha`: factor in the sigmoid; must be finite
/// - `limit`: bound; must be finite and above 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn swiglu_clipped(gate: &Tensor, up: &Tensor, y: &Tensor, alpha: f32, limit: f32) -> Result<()> {
    let call = Call::new("cuda_swiglu_clipped", gate);
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
        (call.functions().cuda_swiglu_clipped)(
            call.handle(),
            gate.pointer(),
            up.pointer(),
            y.pointer(),
            rows as i64,
            dim as i64,
            ld as i64,
            alpha,
            limit,
            dtype.code(),
        )
    };
    let tensors = [Some(gate.tensor), Some(up.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Biases of grouped rows, such as those of experts: y\[r\] = x\[r\] + bias\[g\] for the rows offsets\[g\] ..
/// offsets\[g+1\]-1.
///
/// Rows from offsets\[groups\] on are neither read nor written.
///
/// # Arguments
///
/// - `x`: of `dtype` `[rows, dim]`, input
/// - `bias`: of `dtype` `[groups, dim]`, of each group
/// - `offsets`: i32 `[groups+1]`, first row of each group; offsets\[0\] = 0, never falling, at most rows
/// - `y`: of `dtype` `[rows, dim]`, output; overwritten, may be `x`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grouped_bias(x: &Tensor, bias: &Tensor, offsets: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_grouped_bias", x);
    let x = call.dense::<2>("x", "[rows, dim]", x)?;
    let bias = call.dense::<2>("bias", "[groups, dim]", bias)?;
    let offsets = call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?;
    let y = call.dense::<2>("y", "[rows, dim]", y)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    let rows = x.dims[0];
    let dim = x.dims[1];
    let groups = bias.dims[0];
    const SIZES: [(&str, &str); 3] = [("rows", "from x"), ("dim", "from x"), ("groups", "from bias")];
    let sizes = Sizes { names: &SIZES, values: &[rows, dim, groups] };
    bias.expect([groups, dim], sizes)?;
    offsets.expect([plus(groups, 1)], sizes)?;
    y.expect([rows, dim], sizes)?;
    let dtype = x.dtype();
    bias.same(dtype, "x")?;
    y.same(dtype, "x")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grouped_bias)(
            call.handle(),
            x.pointer(),
            bias.pointer(),
            offsets.pointer().cast(),
            y.pointer(),
            rows as i64,
            dim as i64,
            groups as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(bias.tensor), Some(offsets.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}
