// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section rope of bindings.h.

use crate::call::{Call, Sizes, pointer, tensor};
use crate::{DType, Result, RopeLayout, Tensor};

/// Tables of rotary embedding: for position p and pair i, the angle p \* b^(-2i/head_dim), computed in f64; its
/// cosine and sine, rounded to f32.
///
/// b = base \* ntk_alpha^(head_dim/(head_dim-2)), the NTK-aware base; ntk_alpha = 1 leaves it. (Su et al. 2021,
/// "RoFormer", eq. 15; bloc97 2023, NTK-aware scaling)
///
/// # Arguments
///
/// - `cosine`: f32 `[positions, head_dim/2]`, cosines; overwritten
/// - `sine`: f32 `[positions, head_dim/2]`, sines; overwritten
/// - `first`: position of the first row; must be at least 0
/// - `base`: base of the frequencies; must be finite and above 0
/// - `ntk_alpha`: stretch of the base; must be finite and at least 1
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rope_freqs(cosine: &Tensor, sine: &Tensor, first: i64, base: f64, ntk_alpha: f64) -> Result<()> {
    let call = Call::new("cuda_rope_freqs", cosine);
    let cosine = call.dense::<2>("cosine", "[positions, head_dim/2]", cosine)?.of(DType::F32)?;
    let sine = call.dense::<2>("sine", "[positions, head_dim/2]", sine)?.of(DType::F32)?;
    call.same(&[Some(cosine.named()), Some(sine.named())])?;
    let positions = cosine.dims[0];
    let head_dim = cosine.solve(1, "head_dim", 1, 2, 0)?;
    const SIZES: [(&str, &str); 2] = [("positions", "from cosine"), ("head_dim", "from cosine")];
    let sizes = Sizes { names: &SIZES, values: &[positions, head_dim] };
    sine.expect([positions, head_dim / 2], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rope_freqs)(
            call.handle(),
            cosine.pointer().cast(),
            sine.pointer().cast(),
            first,
            positions as i64,
            head_dim as i64,
            base,
            ntk_alpha,
        )
    };
    let tensors = [Some(cosine.tensor), Some(sine.tensor)];
    call.finish(status, &tensors)
}

/// Tables of rotary embedding as rope_freqs, stretched: for position p and pair i, the angle scale \* p \*
/// b^(-2i/head_dim) / factors\[i\], computed in f64.
///
/// Position interpolation is scale = 1/factor; the scaling of Llama 3.1 is a table of factors, rope_freqs.weight in
/// GGUF files. (Chen et al. 2023, "Extending Context Window"; Dubey et al. 2024, "The Llama 3 Herd of Models")
///
/// # Arguments
///
/// - `factors`: f32 `[head_dim/2]`, divisors of the frequencies, finite and above 0, or null for ones
/// - `cosine`: f32 `[positions, head_dim/2]`, cosines; overwritten
/// - `sine`: f32 `[positions, head_dim/2]`, sines; overwritten
/// - `first`: position of the first row; must be at least 0
/// - `base`: base of the frequencies; must be finite and above 0
/// - `ntk_alpha`: stretch of the base; must be finite and at least 1
/// - `scale`: factor of the positions; must be finite and above 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rope_freqs_scaled(
    factors: Option<&Tensor>,
    cosine: &Tensor,
    sine: &Tensor,
    first: i64,
    base: f64,
    ntk_alpha: f64,
    scale: f64,
) -> Result<()> {
    let call = Call::new("cuda_rope_freqs_scaled", cosine);
    let factors = match factors {
        Some(factors) => Some(call.dense::<1>("factors", "[head_dim/2]", factors)?.of(DType::F32)?),
        None => None,
    };
    let cosine = call.dense::<2>("cosine", "[positions, head_dim/2]", cosine)?.of(DType::F32)?;
    let sine = call.dense::<2>("sine", "[positions, head_dim/2]", sine)?.of(DType::F32)?;
    call.same(&[Some(cosine.named()), Some(sine.named())])?;
    if let Some(factors) = &factors {
        factors.unfolded("head_dim/2", "cosine")?;
    }
    let positions = cosine.dims[0];
    let head_dim = cosine.solve(1, "head_dim", 1, 2, 0)?;
    const SIZES: [(&str, &str); 2] = [("positions", "from cosine"), ("head_dim", "from cosine")];
    let sizes = Sizes { names: &SIZES, values: &[positions, head_dim] };
    if let Some(factors) = &factors {
        factors.expect([head_dim / 2], sizes)?;
    }
    sine.expect([positions, head_dim / 2], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rope_freqs_scaled)(
            call.handle(),
            pointer(&factors).cast(),
            cosine.pointer().cast(),
            sine.pointer().cast(),
            first,
            positions as i64,
            head_dim as i64,
            base,
            ntk_alpha,
            scale,
        )
    };
    let tensors = [tensor(&factors), Some(cosine.tensor), Some(sine.tensor)];
    call.finish(status, &tensors)
}

/// Rotates each pair (u, v) of each head by the angle of its token's position: (u cos - v sin, v cos + u sin).
///
/// (Su et al. 2021, "RoFormer", eq. 34)
///
/// # Arguments
///
/// - `x`: of `dtype` `[tokens:ld_x, heads, head_dim]`, input
/// - `cosine`: f32 `[max_position, head_dim/2]`, from rope_freqs
/// - `sine`: f32 `[max_position, head_dim/2]`, from rope_freqs
/// - `positions`: i32 `[tokens]`, rows of the tables, 0 .. max_position-1
/// - `y`: of `dtype` `[tokens:ld_y, heads, head_dim]`, output; overwritten, may be `x`
/// - `layout`: NNCUDA_ROPE_\*
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rope_forward(
    x: &Tensor,
    cosine: &Tensor,
    sine: &Tensor,
    positions: &Tensor,
    y: &Tensor,
    layout: RopeLayout,
) -> Result<()> {
    let call = Call::new("cuda_rope_forward", x);
    let x = call.strided::<3>("x", "[tokens:ld_x, heads, head_dim]", x)?;
    let cosine = call.dense::<2>("cosine", "[max_position, head_dim/2]", cosine)?.of(DType::F32)?;
    let sine = call.dense::<2>("sine", "[max_position, head_dim/2]", sine)?.of(DType::F32)?;
    let positions = call.dense::<1>("positions", "[tokens]", positions)?.of(DType::I32)?;
    let y = call.strided::<3>("y", "[tokens:ld_y, heads, head_dim]", y)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    call.same(&[Some(cosine.named()), Some(sine.named())])?;
    call.folds("tokens", &[Some(x.named()), Some(positions.named())])?;
    let tokens = x.dims[0];
    let heads = x.dims[1];
    let head_dim = x.dims[2];
    let max_position = cosine.dims[0];
    const SIZES: [(&str, &str); 4] =
        [("tokens", "from x"), ("heads", "from x"), ("head_dim", "from x"), ("max_position", "from cosine")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, heads, head_dim, max_position] };
    cosine.expect([max_position, head_dim / 2], sizes)?;
    sine.expect([max_position, head_dim / 2], sizes)?;
    positions.expect([tokens], sizes)?;
    y.expect([tokens, heads, head_dim], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    let ld_x = call.stride(&[x.rows()])?;
    let ld_y = call.stride(&[y.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rope_forward)(
            call.handle(),
            x.pointer(),
            cosine.pointer().cast(),
            sine.pointer().cast(),
            positions.pointer().cast(),
            y.pointer(),
            tokens as i64,
            heads as i64,
            head_dim as i64,
            max_position as i64,
            ld_x as i64,
            ld_y as i64,
            layout as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(cosine.tensor), Some(sine.tensor), Some(positions.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// rope_forward of queries and keys in one call, in place.
///
/// # Arguments
///
/// - `q`: of `dtype` `[tokens:ld_q, heads, head_dim]`, queries; read and overwritten
/// - `k`: of `dtype` `[tokens:ld_k, kv_heads, head_dim]`, keys; read and overwritten
/// - `cosine`: f32 `[max_position, head_dim/2]`, from rope_freqs
/// - `sine`: f32 `[max_position, head_dim/2]`, from rope_freqs
/// - `positions`: i32 `[tokens]`, rows of the tables, 0 .. max_position-1
/// - `layout`: NNCUDA_ROPE_\*
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rope_qk(
    q: &Tensor,
    k: &Tensor,
    cosine: &Tensor,
    sine: &Tensor,
    positions: &Tensor,
    layout: RopeLayout,
) -> Result<()> {
    let call = Call::new("cuda_rope_qk", q);
    let q = call.strided::<3>("q", "[tokens:ld_q, heads, head_dim]", q)?;
    let k = call.strided::<3>("k", "[tokens:ld_k, kv_heads, head_dim]", k)?;
    let cosine = call.dense::<2>("cosine", "[max_position, head_dim/2]", cosine)?.of(DType::F32)?;
    let sine = call.dense::<2>("sine", "[max_position, head_dim/2]", sine)?.of(DType::F32)?;
    let positions = call.dense::<1>("positions", "[tokens]", positions)?.of(DType::I32)?;
    call.same(&[Some(cosine.named()), Some(sine.named())])?;
    call.folds("tokens", &[Some(q.named()), Some(k.named()), Some(positions.named())])?;
    let tokens = q.dims[0];
    let heads = q.dims[1];
    let head_dim = q.dims[2];
    let kv_heads = k.dims[1];
    let max_position = cosine.dims[0];
    const SIZES: [(&str, &str); 5] = [
        ("tokens", "from q"),
        ("heads", "from q"),
        ("head_dim", "from q"),
        ("kv_heads", "from k"),
        ("max_position", "from cosine"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[tokens, heads, head_dim, kv_heads, max_position] };
    k.expect([tokens, kv_heads, head_dim], sizes)?;
    cosine.expect([max_position, head_dim / 2], sizes)?;
    sine.expect([max_position, head_dim / 2], sizes)?;
    positions.expect([tokens], sizes)?;
    let dtype = q.dtype();
    k.same(dtype, "q")?;
    let ld_q = call.stride(&[q.rows()])?;
    let ld_k = call.stride(&[k.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rope_qk)(
            call.handle(),
            q.pointer(),
            k.pointer(),
            cosine.pointer().cast(),
            sine.pointer().cast(),
            positions.pointer().cast(),
            tokens as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            max_position as i64,
            ld_q as i64,
            ld_k as i64,
            layout as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(q.tensor), Some(k.tensor), Some(cosine.tensor), Some(sine.tensor), Some(positions.tensor)];
    call.finish(status, &tensors)
}

/// Gradient of rope_forward: the rotation by the opposite angle.
///
/// # Arguments
///
/// - `dy`: of `dtype` `[tokens:ld_y, heads, head_dim]`, gradient of y
/// - `cosine`: f32 `[max_position, head_dim/2]`, from rope_freqs
/// - `sine`: f32 `[max_position, head_dim/2]`, from rope_freqs
/// - `positions`: i32 `[tokens]`, rows of the tables, 0 .. max_position-1
/// - `dx`: of `dtype` `[tokens:ld_x, heads, head_dim]`, gradient of x; overwritten, may be `dy`
/// - `layout`: NNCUDA_ROPE_\*
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn rope_backward(
    dy: &Tensor,
    cosine: &Tensor,
    sine: &Tensor,
    positions: &Tensor,
    dx: &Tensor,
    layout: RopeLayout,
) -> Result<()> {
    let call = Call::new("cuda_rope_backward", dy);
    let dy = call.strided::<3>("dy", "[tokens:ld_y, heads, head_dim]", dy)?;
    let cosine = call.dense::<2>("cosine", "[max_position, head_dim/2]", cosine)?.of(DType::F32)?;
    let sine = call.dense::<2>("sine", "[max_position, head_dim/2]", sine)?.of(DType::F32)?;
    let positions = call.dense::<1>("positions", "[tokens]", positions)?.of(DType::I32)?;
    let dx = call.strided::<3>("dx", "[tokens:ld_x, heads, head_dim]", dx)?;
    call.same(&[Some(dy.named()), Some(dx.named())])?;
    call.same(&[Some(cosine.named()), Some(sine.named())])?;
    call.folds("tokens", &[Some(dy.named()), Some(positions.named())])?;
    let tokens = dy.dims[0];
    let heads = dy.dims[1];
    let head_dim = dy.dims[2];
    let max_position = cosine.dims[0];
    const SIZES: [(&str, &str); 4] =
        [("tokens", "from dy"), ("heads", "from dy"), ("head_dim", "from dy"), ("max_position", "from cosine")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, heads, head_dim, max_position] };
    cosine.expect([max_position, head_dim / 2], sizes)?;
    sine.expect([max_position, head_dim / 2], sizes)?;
    positions.expect([tokens], sizes)?;
    dx.expect([tokens, heads, head_dim], sizes)?;
    let dtype = dy.dtype();
    dx.same(dtype, "dy")?;
    let ld_y = call.stride(&[dy.rows()])?;
    let ld_x = call.stride(&[dx.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_rope_backward)(
            call.handle(),
            dy.pointer(),
            cosine.pointer().cast(),
            sine.pointer().cast(),
            positions.pointer().cast(),
            dx.pointer(),
            tokens as i64,
            heads as i64,
            head_dim as i64,
            max_position as i64,
            ld_y as i64,
            ld_x as i64,
            layout as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(dy.tensor), Some(cosine.tensor), Some(sine.tensor), Some(positions.tensor), Some(dx.tensor)];
    call.finish(status, &tensors)
}
