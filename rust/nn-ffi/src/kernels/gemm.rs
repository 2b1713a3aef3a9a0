// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section gemm of bindings.h.
//!
//! Products accumulate in f32. `dtype` is that of the factors, `dtype_c` that of the result: the same, or f32.
//! Processors that multiply bf16 themselves (AVX512_BF16, AMX) take its subnormals, below 2^-126, as zero.

use crate::call::{Call, Sizes, named, plus, pointer, tensor, times};
use crate::{Activation, DType, Result, Tensor};

/// Matrix product: C = op(A) \* op(B).
///
/// # Arguments
///
/// - `a`: of `dtype` `[m, k]^trans_a`, left factor
/// - `b`: of `dtype` `[k, n]^trans_b`, right factor; a weight \[out, in\] is read with trans_b = 1
/// - `c`: of `dtype_c` `[m, n]`, result; overwritten
/// - `trans_a`: 1 when A is stored as \[k, m\]
/// - `trans_b`: 1 when B is stored as \[n, k\]
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm(a: &Tensor, b: &Tensor, c: &Tensor, trans_a: bool, trans_b: bool) -> Result<()> {
    let call = Call::new("cuda_gemm", a);
    let a = call.dense::<2>("a", "[m, k]^trans_a", a)?.swapped(trans_a)?;
    let b = call.dense::<2>("b", "[k, n]^trans_b", b)?.swapped(trans_b)?;
    let c = call.dense::<2>("c", "[m, n]", c)?;
    if trans_a {
        c.unfolded("m", "a")?;
    }
    call.folds("m", &[Some(a.named()), Some(c.named())])?;
    if !trans_a {
        b.unfolded("k", "a")?;
    }
    let m = a.dims[0];
    let k = a.dims[1];
    let n = b.dims[1];
    const SIZES: [(&str, &str); 3] = [("m", "from a"), ("k", "from a"), ("n", "from b")];
    let sizes = Sizes { names: &SIZES, values: &[m, k, n] };
    b.expect([k, n], sizes)?;
    c.expect([m, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    let dtype_c = c.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            c.pointer(),
            m as i64,
            n as i64,
            k as i64,
            i32::from(trans_a),
            i32::from(trans_b),
            dtype.code(),
            dtype_c.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(c.tensor)];
    call.finish(status, &tensors)
}

/// Matrix product with leading dimensions: C = alpha \* op(A) \* op(B) + beta \* C.
///
/// With beta = 0, C is not read.
///
/// # Arguments
///
/// - `a`: of `dtype` `[m:lda, k]^trans_a`, left factor
/// - `b`: of `dtype` `[k:ldb, n]^trans_b`, right factor
/// - `c`: of `dtype_c` `[m:ldc, n]`, result; read and overwritten
/// - `alpha`: factor of the product
/// - `beta`: factor of the old C
/// - `trans_a`: 1 when A is stored as \[k, m\]
/// - `trans_b`: 1 when B is stored as \[n, k\]
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm_beta(
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    alpha: f32,
    beta: f32,
    trans_a: bool,
    trans_b: bool,
) -> Result<()> {
    let call = Call::new("cuda_gemm_beta", a);
    let a = call.strided::<2>("a", "[m:lda, k]^trans_a", a)?.swapped(trans_a)?;
    let b = call.strided::<2>("b", "[k:ldb, n]^trans_b", b)?.swapped(trans_b)?;
    let c = call.strided::<2>("c", "[m:ldc, n]", c)?;
    if trans_a {
        c.unfolded("m", "a")?;
    }
    call.folds("m", &[Some(a.named()), Some(c.named())])?;
    if !trans_a {
        b.unfolded("k", "a")?;
    }
    let m = a.dims[0];
    let k = a.dims[1];
    let n = b.dims[1];
    const SIZES: [(&str, &str); 3] = [("m", "from a"), ("k", "from a"), ("n", "from b")];
    let sizes = Sizes { names: &SIZES, values: &[m, k, n] };
    b.expect([k, n], sizes)?;
    c.expect([m, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    let dtype_c = c.dtype();
    let lda = call.stride(&[a.rows()])?;
    let ldb = call.stride(&[b.rows()])?;
    let ldc = call.stride(&[c.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm_beta)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            c.pointer(),
            m as i64,
            n as i64,
            k as i64,
            lda as i64,
            ldb as i64,
            ldc as i64,
            alpha,
            beta,
            i32::from(trans_a),
            i32::from(trans_b),
            dtype.code(),
            dtype_c.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(c.tensor)];
    call.finish(status, &tensors)
}

/// A linear layer in one pass: C = activation(A \* W^T + bias) + residual.
///
/// # Arguments
///
/// - `a`: of `dtype` `[m, k]`, input
/// - `b`: of `dtype` `[n, k]`, weight W
/// - `bias`: of `dtype` `[n]`, added to each row, or null
/// - `residual`: of `dtype` `[m, n]`, added at the end, or null
/// - `c`: of `dtype` `[m, n]`, result; overwritten, may be `residual`
/// - `activation`: NNCUDA_ACTIVATION_\*
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm_epilogue(
    a: &Tensor,
    b: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    c: &Tensor,
    activation: Activation,
) -> Result<()> {
    let call = Call::new("cuda_gemm_epilogue", a);
    let a = call.dense::<2>("a", "[m, k]", a)?;
    let b = call.dense::<2>("b", "[n, k]", b)?;
    let bias = match bias {
        Some(bias) => Some(call.dense::<1>("bias", "[n]", bias)?),
        None => None,
    };
    let residual = match residual {
        Some(residual) => Some(call.dense::<2>("residual", "[m, n]", residual)?),
        None => None,
    };
    let c = call.dense::<2>("c", "[m, n]", c)?;
    call.same(&[named(&residual), Some(c.named())])?;
    call.folds("m", &[Some(a.named()), named(&residual), Some(c.named())])?;
    b.unfolded("n", "c")?;
    if let Some(bias) = &bias {
        bias.unfolded("n", "c")?;
    }
    let m = a.dims[0];
    let k = a.dims[1];
    let n = b.dims[0];
    const SIZES: [(&str, &str); 3] = [("m", "from a"), ("k", "from a"), ("n", "from b")];
    let sizes = Sizes { names: &SIZES, values: &[m, k, n] };
    b.expect([n, k], sizes)?;
    if let Some(bias) = &bias {
        bias.expect([n], sizes)?;
    }
    if let Some(residual) = &residual {
        residual.expect([m, n], sizes)?;
    }
    c.expect([m, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    c.same(dtype, "a")?;
    if let Some(bias) = &bias {
        bias.same(dtype, "a")?;
    }
    if let Some(residual) = &residual {
        residual.same(dtype, "a")?;
    }
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm_epilogue)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            pointer(&bias),
            pointer(&residual),
            c.pointer(),
            m as i64,
            n as i64,
            k as i64,
            activation as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), tensor(&bias), tensor(&residual), Some(c.tensor)];
    call.finish(status, &tensors)
}

/// One product a batch entry: C\[i\] = alpha \* op(A\[i\]) \* op(B\[i\]) + beta \* C\[i\], each dense.
///
/// # Arguments
///
/// - `a`: of `dtype` `[batch, m, k]^trans_a`, left factors
/// - `b`: of `dtype` `[batch, k, n]^trans_b`, right factors
/// - `c`: of `dtype_c` `[batch, m, n]`, results; not read with beta = 0; read and overwritten
/// - `alpha`: factor of the products
/// - `beta`: factor of the old C
/// - `trans_a`: 1 when each A is stored as \[k, m\]
/// - `trans_b`: 1 when each B is stored as \[n, k\]
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn batched_gemm(
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    alpha: f32,
    beta: f32,
    trans_a: bool,
    trans_b: bool,
) -> Result<()> {
    let call = Call::new("cuda_batched_gemm", a);
    let a = call.dense::<3>("a", "[batch, m, k]^trans_a", a)?.swapped(trans_a)?;
    let b = call.dense::<3>("b", "[batch, k, n]^trans_b", b)?.swapped(trans_b)?;
    let c = call.dense::<3>("c", "[batch, m, n]", c)?;
    call.folds("batch", &[Some(a.named()), Some(b.named()), Some(c.named())])?;
    let batch = a.dims[0];
    let m = a.dims[1];
    let k = a.dims[2];
    let n = b.dims[2];
    const SIZES: [(&str, &str); 4] = [("batch", "from a"), ("m", "from a"), ("k", "from a"), ("n", "from b")];
    let sizes = Sizes { names: &SIZES, values: &[batch, m, k, n] };
    b.expect([batch, k, n], sizes)?;
    c.expect([batch, m, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    let dtype_c = c.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_batched_gemm)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            c.pointer(),
            batch as i64,
            m as i64,
            n as i64,
            k as i64,
            alpha,
            beta,
            i32::from(trans_a),
            i32::from(trans_b),
            dtype.code(),
            dtype_c.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(c.tensor)];
    call.finish(status, &tensors)
}

/// One product a group of rows (the experts' products): for each group g and its rows r in offsets\[g\] ..
/// offsets\[g+1\]-1, C\[r\] = A\[r\] \* op(B\[g\]) + beta \* C\[r\].
///
/// Rows from offsets\[groups\] on are neither read nor written. (Gale et al. 2022, "MegaBlocks")
///
/// # Arguments
///
/// - `a`: of `dtype` `[rows, k]`, rows, sorted by group
/// - `b`: of `dtype` `[groups, k, n]^trans_b`, a matrix a group
/// - `offsets`: i32 `[groups+1]`, first row of each group; offsets\[0\] = 0, never falling, at most `rows`
/// - `c`: of `dtype_c` `[rows, n]`, results; not read with beta = 0; read and overwritten
/// - `beta`: factor of the old C
/// - `trans_b`: 1 when each B is stored as \[n, k\]
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grouped_gemm(a: &Tensor, b: &Tensor, offsets: &Tensor, c: &Tensor, beta: f32, trans_b: bool) -> Result<()> {
    let call = Call::new("cuda_grouped_gemm", a);
    let a = call.dense::<2>("a", "[rows, k]", a)?;
    let b = call.dense::<3>("b", "[groups, k, n]^trans_b", b)?.swapped(trans_b)?;
    let offsets = call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?;
    let c = call.dense::<2>("c", "[rows, n]", c)?;
    call.folds("rows", &[Some(a.named()), Some(c.named())])?;
    let rows = a.dims[0];
    let k = a.dims[1];
    let groups = b.dims[0];
    let n = b.dims[2];
    const SIZES: [(&str, &str); 4] = [("rows", "from a"), ("k", "from a"), ("groups", "from b"), ("n", "from b")];
    let sizes = Sizes { names: &SIZES, values: &[rows, k, groups, n] };
    b.expect([groups, k, n], sizes)?;
    offsets.expect([plus(groups, 1)], sizes)?;
    c.expect([rows, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    let dtype_c = c.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grouped_gemm)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            offsets.pointer().cast(),
            c.pointer(),
            groups as i64,
            rows as i64,
            n as i64,
            k as i64,
            beta,
            i32::from(trans_b),
            dtype.code(),
            dtype_c.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(offsets.tensor), Some(c.tensor)];
    call.finish(status, &tensors)
}

/// The weights' gradients of grouped_gemm: C\[g\] = A_g^T \* B_g + beta \* C\[g\], summed over the rows of group g.
///
/// A group without rows leaves beta \* C\[g\].
///
/// # Arguments
///
/// - `a`: of `dtype` `[rows, m]`, rows, sorted by group (the gradient of the outputs, for a weight \[out, in\])
/// - `b`: of `dtype` `[rows, n]`, rows, sorted by group (the inputs)
/// - `offsets`: i32 `[groups+1]`, as in grouped_gemm
/// - `c`: of `dtype_c` `[groups, m, n]`, results; not read with beta = 0; read and overwritten
/// - `beta`: factor of the old C
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grouped_gemm_wgrad(a: &Tensor, b: &Tensor, offsets: &Tensor, c: &Tensor, beta: f32) -> Result<()> {
    let call = Call::new("cuda_grouped_gemm_wgrad", a);
    let a = call.dense::<2>("a", "[rows, m]", a)?;
    let b = call.dense::<2>("b", "[rows, n]", b)?;
    let offsets = call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?;
    let c = call.dense::<3>("c", "[groups, m, n]", c)?;
    call.folds("rows", &[Some(a.named()), Some(b.named())])?;
    let rows = a.dims[0];
    let m = a.dims[1];
    let n = b.dims[1];
    let groups = c.dims[0];
    const SIZES: [(&str, &str); 4] = [("rows", "from a"), ("m", "from a"), ("n", "from b"), ("groups", "from c")];
    let sizes = Sizes { names: &SIZES, values: &[rows, m, n, groups] };
    b.expect([rows, n], sizes)?;
    offsets.expect([plus(groups, 1)], sizes)?;
    c.expect([groups, m, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    let dtype_c = c.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grouped_gemm_wgrad)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            offsets.pointer().cast(),
            c.pointer(),
            groups as i64,
            rows as i64,
            m as i64,
            n as i64,
            beta,
            dtype.code(),
            dtype_c.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(offsets.tensor), Some(c.tensor)];
    call.finish(status, &tensors)
}

/// The experts' first products and their gate: grouped_gemm by B^T, whose columns are gates and, behind them, ups,
/// then swiglu of the two halves of its rows, with the bits of these two calls.
///
/// On a GPU it is one launch. (Shazeer 2020, "GLU Variants", eq. 6; Gale et al. 2022, "MegaBlocks")
///
/// # Arguments
///
/// - `a`: of `dtype` `[rows, k]`, rows, sorted by group
/// - `b`: of `dtype` `[groups, 2*n, k]`, a matrix a group, the rows of gates before those of ups
/// - `offsets`: i32 `[groups+1]`, as in grouped_gemm
/// - `gate_up`: of `dtype` `[rows, 2*n]`, the products, as the gradient needs them; rows from offsets\[groups\] on
///   are left alone; overwritten
/// - `y`: of `dtype` `[rows, n]`, silu(gate) \* up, likewise; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grouped_gemm_swiglu(a: &Tensor, b: &Tensor, offsets: &Tensor, gate_up: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_grouped_gemm_swiglu", a);
    let a = call.dense::<2>("a", "[rows, k]", a)?;
    let b = call.dense::<3>("b", "[groups, 2*n, k]", b)?;
    let offsets = call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?;
    let gate_up = call.dense::<2>("gate_up", "[rows, 2*n]", gate_up)?;
    let y = call.dense::<2>("y", "[rows, n]", y)?;
    call.folds("rows", &[Some(a.named()), Some(gate_up.named()), Some(y.named())])?;
    let rows = a.dims[0];
    let k = a.dims[1];
    let groups = b.dims[0];
    let n = b.solve(1, "n", 2, 1, 0)?;
    const SIZES: [(&str, &str); 4] = [("rows", "from a"), ("k", "from a"), ("groups", "from b"), ("n", "from b")];
    let sizes = Sizes { names: &SIZES, values: &[rows, k, groups, n] };
    b.expect([groups, times(&[n, 2]), k], sizes)?;
    offsets.expect([plus(groups, 1)], sizes)?;
    gate_up.expect([rows, times(&[n, 2])], sizes)?;
    y.expect([rows, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    gate_up.same(dtype, "a")?;
    y.same(dtype, "a")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grouped_gemm_swiglu)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            offsets.pointer().cast(),
            gate_up.pointer(),
            y.pointer(),
            groups as i64,
            rows as i64,
            n as i64,
            k as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(offsets.tensor), Some(gate_up.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Gradient of the experts' gate from that of what they give: dy = A \* B of each group, as grouped_gemm has it, is
/// the gradient of y in grouped_gemm_swiglu, from which swiglu_backward gives those of gate and up, in their place;
/// with the bits of these two calls.
///
/// On a GPU it is one launch, and dy is never in memory.
///
/// # Arguments
///
/// - `a`: of `dtype` `[rows, k]`, gradient of the experts' outputs
/// - `b`: of `dtype` `[groups, k, n]`, the matrices that y was multiplied by, \[out, in\]
/// - `offsets`: i32 `[groups+1]`, as in grouped_gemm
/// - `gate_up`: of `dtype` `[rows, 2*n]`, from the forward call; becomes its gradient; rows from offsets\[groups\] on
///   are left alone; read and overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grouped_gemm_swiglu_backward(a: &Tensor, b: &Tensor, offsets: &Tensor, gate_up: &Tensor) -> Result<()> {
    let call = Call::new("cuda_grouped_gemm_swiglu_backward", a);
    let a = call.dense::<2>("a", "[rows, k]", a)?;
    let b = call.dense::<3>("b", "[groups, k, n]", b)?;
    let offsets = call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?;
    let gate_up = call.dense::<2>("gate_up", "[rows, 2*n]", gate_up)?;
    call.folds("rows", &[Some(a.named()), Some(gate_up.named())])?;
    let rows = a.dims[0];
    let k = a.dims[1];
    let groups = b.dims[0];
    let n = b.dims[2];
    const SIZES: [(&str, &str); 4] = [("rows", "from a"), ("k", "from a"), ("groups", "from b"), ("n", "from b")];
    let sizes = Sizes { names: &SIZES, values: &[rows, k, groups, n] };
    b.expect([groups, k, n], sizes)?;
    offsets.expect([plus(groups, 1)], sizes)?;
    gate_up.expect([rows, times(&[n, 2])], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    gate_up.same(dtype, "a")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grouped_gemm_swiglu_backward)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            offsets.pointer().cast(),
            gate_up.pointer(),
            groups as i64,
            rows as i64,
            n as i64,
            k as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(offsets.tensor), Some(gate_up.tensor)];
    call.finish(status, &tensors)
}

/// grouped_gemm with factors in 8 bits: C\[r\] = fp8(A)\[r\] \* op(fp8(B)\[g\]).
///
/// fp8 rounds each number of a block to the nearest e \* 2^x, ties to even, where e is an OCP E4M3 and x, of the
/// block, the least from -100 to 100 with which none of its finite numbers is beyond 448 \* 2^x; those beyond it
/// even then, and those that are not finite, become NaN. A block is 128 neighbouring elements of a row of A, and
/// 128 x 128 of a matrix B, both counted from the first; the last may be smaller. A product of two such numbers is
/// exact. On sm_89 and sm_90a tensor cores sum 128 of them in their own precision, of 14 bits; those sums are added
/// up in f32. (DeepSeek-AI 2024, "DeepSeek-V3", 3.3; Micikevicius et al. 2022, "FP8 formats for deep learning")
///
/// # Arguments
///
/// - `a`: of `dtype` `[rows, k]`, rows, sorted by group
/// - `b`: of `dtype` `[groups, k, n]^trans_b`, a matrix a group
/// - `offsets`: i32 `[groups+1]`, as in grouped_gemm
/// - `c`: of `dtype_c` `[rows, n]`, results; rows from offsets\[groups\] on are left alone; overwritten
/// - `trans_b`: 1 when each B is stored as \[n, k\]
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grouped_gemm_fp8(a: &Tensor, b: &Tensor, offsets: &Tensor, c: &Tensor, trans_b: bool) -> Result<()> {
    let call = Call::new("cuda_grouped_gemm_fp8", a);
    let a = call.dense::<2>("a", "[rows, k]", a)?;
    let b = call.dense::<3>("b", "[groups, k, n]^trans_b", b)?.swapped(trans_b)?;
    let offsets = call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?;
    let c = call.dense::<2>("c", "[rows, n]", c)?;
    call.folds("rows", &[Some(a.named()), Some(c.named())])?;
    let rows = a.dims[0];
    let k = a.dims[1];
    let groups = b.dims[0];
    let n = b.dims[2];
    const SIZES: [(&str, &str); 4] = [("rows", "from a"), ("k", "from a"), ("groups", "from b"), ("n", "from b")];
    let sizes = Sizes { names: &SIZES, values: &[rows, k, groups, n] };
    b.expect([groups, k, n], sizes)?;
    offsets.expect([plus(groups, 1)], sizes)?;
    c.expect([rows, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    let dtype_c = c.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grouped_gemm_fp8)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            offsets.pointer().cast(),
            c.pointer(),
            groups as i64,
            rows as i64,
            n as i64,
            k as i64,
            i32::from(trans_b),
            dtype.code(),
            dtype_c.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(offsets.tensor), Some(c.tensor)];
    call.finish(status, &tensors)
}

/// grouped_gemm_wgrad with factors in 8 bits: C\[g\] = fp8(A)_g^T \* fp8(B)_g + beta \* C\[g\].
///
/// fp8 and the sums are those of grouped_gemm_fp8, but for a block: 128 elements of a column of A or B in
/// neighbouring rows of a group, counted from its first.
///
/// # Arguments
///
/// - `a`: of `dtype` `[rows, m]`, rows, sorted by group (the gradient of the outputs, for a weight \[out, in\])
/// - `b`: of `dtype` `[rows, n]`, rows, sorted by group (the inputs)
/// - `offsets`: i32 `[groups+1]`, as in grouped_gemm
/// - `c`: of `dtype_c` `[groups, m, n]`, results; not read with beta = 0; read and overwritten
/// - `beta`: factor of the old C
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grouped_gemm_wgrad_fp8(a: &Tensor, b: &Tensor, offsets: &Tensor, c: &Tensor, beta: f32) -> Result<()> {
    let call = Call::new("cuda_grouped_gemm_wgrad_fp8", a);
    let a = call.dense::<2>("a", "[rows, m]", a)?;
    let b = call.dense::<2>("b", "[rows, n]", b)?;
    let offsets = call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?;
    let c = call.dense::<3>("c", "[groups, m, n]", c)?;
    call.folds("rows", &[Some(a.named()), Some(b.named())])?;
    let rows = a.dims[0];
    let m = a.dims[1];
    let n = b.dims[1];
    let groups = c.dims[0];
    const SIZES: [(&str, &str); 4] = [("rows", "from a"), ("m", "from a"), ("n", "from b"), ("groups", "from c")];
    let sizes = Sizes { names: &SIZES, values: &[rows, m, n, groups] };
    b.expect([rows, n], sizes)?;
    offsets.expect([plus(groups, 1)], sizes)?;
    c.expect([groups, m, n], sizes)?;
    let dtype = a.dtype();
    b.same(dtype, "a")?;
    let dtype_c = c.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grouped_gemm_wgrad_fp8)(
            call.handle(),
            a.pointer(),
            b.pointer(),
            offsets.pointer().cast(),
            c.pointer(),
            groups as i64,
            rows as i64,
            m as i64,
            n as i64,
            beta,
            dtype.code(),
            dtype_c.code(),
        )
    };
    let tensors = [Some(a.tensor), Some(b.tensor), Some(offsets.tensor), Some(c.tensor)];
    call.finish(status, &tensors)
}
