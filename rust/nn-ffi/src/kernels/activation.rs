// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section activation of bindings.h.
//!
//! What of today's families has no place in other kernels: bounds of scores, gates, and what training needs of
//! rounded rows.

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

/// Gradient of the squared-ReLU gate: dgate = 2 \* dy \* up \* max(gate, 0), dup = dy \* max(gate, 0)^2.
///
/// (So et al. 2021, "Primer")
///
/// # Arguments
///
/// - `dy`: of `dtype` `[rows, dim]`, gradient of y
/// - `gate`: of `dtype` `[rows:ld, dim]`, as in the forward call, relu2_gate
/// - `up`: of `dtype` `[rows:ld, dim]`, as in the forward call
/// - `dgate`: of `dtype` `[rows:ld, dim]`, gradient of gate; overwritten, may be `gate`
/// - `dup`: of `dtype` `[rows:ld, dim]`, gradient of up; overwritten, may be `up`
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn relu2_gate_backward(dy: &Tensor, gate: &Tensor, up: &Tensor, dgate: &Tensor, dup: &Tensor) -> Result<()> {
    let call = Call::new("cuda_relu2_gate_backward", dy);
    let dy = call.dense::<2>("dy", "[rows, dim]", dy)?;
    let gate = call.strided::<2>("gate", "[rows:ld, dim]", gate)?;
    let up = call.strided::<2>("up", "[rows:ld, dim]", up)?;
    let dgate = call.strided::<2>("dgate", "[rows:ld, dim]", dgate)?;
    let dup = call.strided::<2>("dup", "[rows:ld, dim]", dup)?;
    call.same(&[Some(dy.named()), Some(gate.named()), Some(up.named()), Some(dgate.named()), Some(dup.named())])?;
    let rows = dy.dims[0];
    let dim = dy.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from dy"), ("dim", "from dy")];
    let sizes = Sizes { names: &SIZES, values: &[rows, dim] };
    gate.expect([rows, dim], sizes)?;
    up.expect([rows, dim], sizes)?;
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
        (call.functions().cuda_relu2_gate_backward)(
            call.handle(),
            dy.pointer(),
            gate.pointer(),
            up.pointer(),
            dgate.pointer(),
            dup.pointer(),
            rows as i64,
            dim as i64,
            ld as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(dy.tensor), Some(gate.tensor), Some(up.tensor), Some(dgate.tensor), Some(dup.tensor)];
    call.finish(status, &tensors)
}

/// What rows in 8 bits stand for: x = codes \* scale.
///
/// The gradient of a weight takes it for the input that the product had, while the rounding counts as the identity.
/// (Ma et al. 2024, eq. 4; Bengio, Léonard, Courville 2013, section 4)
///
/// # Arguments
///
/// - `codes`: i8 `[rows, cols]`, from act_quant_i8 or rmsnorm_quant_i8
/// - `scale`: f32 `[rows]`, of each row
/// - `x`: of `dtype` `[rows, cols]`, output; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn act_dequant_i8(codes: &Tensor, scale: &Tensor, x: &Tensor) -> Result<()> {
    let call = Call::new("cuda_act_dequant_i8", codes);
    let codes = call.dense::<2>("codes", "[rows, cols]", codes)?.of(DType::I8)?;
    let scale = call.dense::<1>("scale", "[rows]", scale)?.of(DType::F32)?;
    let x = call.dense::<2>("x", "[rows, cols]", x)?;
    call.same(&[Some(codes.named()), Some(x.named())])?;
    call.folds("rows", &[Some(codes.named()), Some(scale.named())])?;
    let rows = codes.dims[0];
    let cols = codes.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from codes"), ("cols", "from codes")];
    let sizes = Sizes { names: &SIZES, values: &[rows, cols] };
    scale.expect([rows], sizes)?;
    x.expect([rows, cols], sizes)?;
    let dtype = x.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_act_dequant_i8)(
            call.handle(),
            codes.pointer(),
            scale.pointer().cast(),
            x.pointer(),
            rows as i64,
            cols as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(codes.tensor), Some(scale.tensor), Some(x.tensor)];
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
