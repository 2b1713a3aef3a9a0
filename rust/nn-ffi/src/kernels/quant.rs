// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section quant of bindings.h.
//!
//! Weights in the formats of GGUF files, bytes as they are in the file: each row of a matrix is a run of blocks.
//! `format` is one of NNCUDA_FORMAT_\*, row_bytes what nncuda_format_row_bytes gives for it.
//!
//! Products with a block format round their left factor to 8 bits first, in blocks of 32 of a row: with a the
//! largest magnitude of a block, d = a/127 and q = rint(x \* (127/a)), ties to even, all in f32; a below 2^-100
//! counts as 0 and gives zeros, a value that is not finite makes its row of the result NaN. The integer products of
//! a block are exact; for each block of 32 in order, sum = fma(d \* scale of the weights, products, sum) in f32,
//! and what a format has of minima likewise. In q2_k, q3_k and q6_k the products of either half of a block are
//! multiplied by the whole scale of their part first, and in q2_k the sums of q in either half by the whole minimum
//! of theirs: sum = fma(d \* -minimum of the weights, those, sum). Products with f16 and bf16 weights round their
//! left factor to that type. Each row of a result depends on its own row of the left factor alone and has the same
//! bits for any number of rows.

#![allow(clippy::too_many_arguments, reason = "the arguments are those of the C function")]

use crate::call::{Call, Sizes, named, plus, pointer, tensor, times};
use crate::{Activation, DType, Format, Result, Tensor};

/// Stores rows in a format.
///
/// q4_0, q4_1, q5_0, q5_1 and q8_0 as the `gguf` package does, to the bit; the others by a search for the scales
/// and minima of least squared error, part by part. (Gerganov et al., ggml-quants)
///
/// # Arguments
///
/// - `x`: of `dtype` `[rows, k]`, numbers; in a block format finite, or the call fails with NNCUDA_ERROR_OUT_OF_RANGE
/// - `y`: u8 `[rows, row_bytes]`, the same in `format`; overwritten
/// - `format`: NNCUDA_FORMAT_\* of y, other than those that are read alone
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn quantize(x: &Tensor, y: &Tensor, format: Format) -> Result<()> {
    let call = Call::new("cuda_quantize", x);
    let x = call.dense::<2>("x", "[rows, k]", x)?;
    let y = call.dense::<2>("y", "[rows, row_bytes]", y)?.of(DType::U8)?;
    call.folds("rows", &[Some(x.named()), Some(y.named())])?;
    let rows = x.dims[0];
    let k = x.dims[1];
    let row_bytes = y.dims[1];
    const SIZES: [(&str, &str); 3] = [("rows", "from x"), ("k", "from x"), ("row_bytes", "from y")];
    let sizes = Sizes { names: &SIZES, values: &[rows, k, row_bytes] };
    y.expect([rows, row_bytes], sizes)?;
    let dtype = x.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_quantize)(
            call.handle(),
            x.pointer(),
            y.pointer(),
            rows as i64,
            k as i64,
            row_bytes as i64,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// The numbers that stored rows stand for: in f32 as the `gguf` package computes them, to the bit, then rounded to
/// `dtype`.
///
/// # Arguments
///
/// - `x`: u8 `[rows, row_bytes]`, rows in `format`
/// - `y`: of `dtype` `[rows, k]`, numbers; overwritten
/// - `format`: NNCUDA_FORMAT_\* of x
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn dequantize(x: &Tensor, y: &Tensor, format: Format) -> Result<()> {
    let call = Call::new("cuda_dequantize", x);
    let x = call.dense::<2>("x", "[rows, row_bytes]", x)?.of(DType::U8)?;
    let y = call.dense::<2>("y", "[rows, k]", y)?;
    call.folds("rows", &[Some(x.named()), Some(y.named())])?;
    let rows = x.dims[0];
    let row_bytes = x.dims[1];
    let k = y.dims[1];
    const SIZES: [(&str, &str); 3] = [("rows", "from x"), ("row_bytes", "from x"), ("k", "from y")];
    let sizes = Sizes { names: &SIZES, values: &[rows, row_bytes, k] };
    y.expect([rows, k], sizes)?;
    let dtype = y.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_dequantize)(
            call.handle(),
            x.pointer(),
            y.pointer(),
            rows as i64,
            k as i64,
            row_bytes as i64,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Gathers and dequantizes rows of a stored table: y\[t\] = table\[ids\[t\]\].
///
/// # Arguments
///
/// - `table`: u8 `[vocab, row_bytes]`, embeddings in `format`
/// - `ids`: i32 `[tokens]`, rows to take, 0 .. vocab-1
/// - `y`: of `dtype` `[tokens, dim]`, the rows; overwritten
/// - `format`: NNCUDA_FORMAT_\* of the table
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn embedding_quant(table: &Tensor, ids: &Tensor, y: &Tensor, format: Format) -> Result<()> {
    let call = Call::new("cuda_embedding_quant", table);
    let table = call.dense::<2>("table", "[vocab, row_bytes]", table)?.of(DType::U8)?;
    let ids = call.dense::<1>("ids", "[tokens]", ids)?.of(DType::I32)?;
    let y = call.dense::<2>("y", "[tokens, dim]", y)?;
    call.folds("tokens", &[Some(ids.named()), Some(y.named())])?;
    let vocab = table.dims[0];
    let row_bytes = table.dims[1];
    let tokens = ids.dims[0];
    let dim = y.dims[1];
    const SIZES: [(&str, &str); 4] =
        [("vocab", "from table"), ("row_bytes", "from table"), ("tokens", "from ids"), ("dim", "from y")];
    let sizes = Sizes { names: &SIZES, values: &[vocab, row_bytes, tokens, dim] };
    y.expect([tokens, dim], sizes)?;
    let dtype = y.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_embedding_quant)(
            call.handle(),
            table.pointer(),
            ids.pointer().cast(),
            y.pointer(),
            tokens as i64,
            vocab as i64,
            dim as i64,
            row_bytes as i64,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(table.tensor), Some(ids.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// A linear layer with stored weights: y = activation(x \* W^T + bias) + residual.
///
/// With `offsets`, rows offsets\[g\] .. offsets\[g+1\]-1 of x meet the matrix W\[g\] (the experts' products), and
/// rows from offsets\[groups\] on are neither read nor written. (Gale et al. 2022, "MegaBlocks")
///
/// # Arguments
///
/// - `x`: of `dtype` `[m, k]`, input
/// - `w`: u8 `[groups*n, row_bytes]`, weights in `format`, a matrix \[n, k\] a group
/// - `offsets`: i32 `[groups+1]`, first row of each group; offsets\[0\] = 0, never falling, at most m; null for all
///   rows and one group
/// - `bias`: of `dtype` `[n]`, added to each row, or null
/// - `residual`: of `dtype` `[m, n]`, added at the end, or null
/// - `y`: of `dtype` `[m, n]`, result; overwritten, may be `residual`
/// - `activation`: NNCUDA_ACTIVATION_\*
/// - `format`: NNCUDA_FORMAT_\* of w
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm_quant(
    x: &Tensor,
    w: &Tensor,
    offsets: Option<&Tensor>,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    y: &Tensor,
    activation: Activation,
    format: Format,
) -> Result<()> {
    let call = Call::new("cuda_gemm_quant", x);
    let x = call.dense::<2>("x", "[m, k]", x)?;
    let w = call.dense::<2>("w", "[groups*n, row_bytes]", w)?.of(DType::U8)?;
    let offsets = match offsets {
        Some(offsets) => Some(call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?),
        None => None,
    };
    let bias = match bias {
        Some(bias) => Some(call.dense::<1>("bias", "[n]", bias)?),
        None => None,
    };
    let residual = match residual {
        Some(residual) => Some(call.dense::<2>("residual", "[m, n]", residual)?),
        None => None,
    };
    let y = call.dense::<2>("y", "[m, n]", y)?;
    call.same(&[named(&residual), Some(y.named())])?;
    call.folds("m", &[Some(x.named()), named(&residual), Some(y.named())])?;
    if let Some(bias) = &bias {
        bias.unfolded("n", "y")?;
    }
    let m = x.dims[0];
    let k = x.dims[1];
    let row_bytes = w.dims[1];
    let n = y.dims[1];
    let groups = w.solve(0, "groups", n, 1, 0)?;
    const SIZES: [(&str, &str); 5] =
        [("m", "from x"), ("k", "from x"), ("row_bytes", "from w"), ("n", "from y"), ("groups", "from w")];
    let sizes = Sizes { names: &SIZES, values: &[m, k, row_bytes, n, groups] };
    if let Some(offsets) = &offsets {
        offsets.expect([plus(groups, 1)], sizes)?;
    }
    if let Some(bias) = &bias {
        bias.expect([n], sizes)?;
    }
    if let Some(residual) = &residual {
        residual.expect([m, n], sizes)?;
    }
    y.expect([m, n], sizes)?;
    w.expect_factors(&[groups, n], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    if let Some(bias) = &bias {
        bias.same(dtype, "x")?;
    }
    if let Some(residual) = &residual {
        residual.same(dtype, "x")?;
    }
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm_quant)(
            call.handle(),
            x.pointer(),
            w.pointer(),
            pointer(&offsets).cast(),
            pointer(&bias),
            pointer(&residual),
            y.pointer(),
            groups as i64,
            m as i64,
            n as i64,
            k as i64,
            row_bytes as i64,
            activation as i32,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(w.tensor), tensor(&offsets), tensor(&bias), tensor(&residual), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Queries, keys and values in one call, as they come from three gemm_quant: y = \[x \* Wq^T, x \* Wk^T, x \*
/// Wv^T\] + bias.
///
/// With `norm`, of the rows that rmsnorm gives, with its bits.
///
/// # Arguments
///
/// - `x`: of `dtype` `[m, k]`, input
/// - `wq`: u8 `[n_q, row_bytes_q]`, weights of the queries
/// - `wk`: u8 `[n_kv, row_bytes_k]`, weights of the keys
/// - `wv`: u8 `[n_kv, row_bytes_v]`, weights of the values
/// - `bias`: of `dtype` `[n]`, added to each row, or null
/// - `norm`: of `dtype` `[k]`, gains of the norm of x, or null for x as it is
/// - `y`: of `dtype` `[m, n]`, result; overwritten
/// - `eps`: of the norm: added to the mean square; must be finite and at least 0
/// - `format_q`: NNCUDA_FORMAT_\* of wq
/// - `format_k`: NNCUDA_FORMAT_\* of wk
/// - `format_v`: NNCUDA_FORMAT_\* of wv
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm_quant_qkv(
    x: &Tensor,
    wq: &Tensor,
    wk: &Tensor,
    wv: &Tensor,
    bias: Option<&Tensor>,
    norm: Option<&Tensor>,
    y: &Tensor,
    eps: f32,
    format_q: Format,
    format_k: Format,
    format_v: Format,
) -> Result<()> {
    let call = Call::new("cuda_gemm_quant_qkv", x);
    let x = call.dense::<2>("x", "[m, k]", x)?;
    let wq = call.dense::<2>("wq", "[n_q, row_bytes_q]", wq)?.of(DType::U8)?;
    let wk = call.dense::<2>("wk", "[n_kv, row_bytes_k]", wk)?.of(DType::U8)?;
    let wv = call.dense::<2>("wv", "[n_kv, row_bytes_v]", wv)?.of(DType::U8)?;
    let bias = match bias {
        Some(bias) => Some(call.dense::<1>("bias", "[n]", bias)?),
        None => None,
    };
    let norm = match norm {
        Some(norm) => Some(call.dense::<1>("norm", "[k]", norm)?),
        None => None,
    };
    let y = call.dense::<2>("y", "[m, n]", y)?;
    call.folds("m", &[Some(x.named()), Some(y.named())])?;
    call.folds("n_kv", &[Some(wk.named()), Some(wv.named())])?;
    if let Some(bias) = &bias {
        bias.unfolded("n", "y")?;
    }
    if let Some(norm) = &norm {
        norm.unfolded("k", "x")?;
    }
    let m = x.dims[0];
    let k = x.dims[1];
    let n_q = wq.dims[0];
    let row_bytes_q = wq.dims[1];
    let n_kv = wk.dims[0];
    let row_bytes_k = wk.dims[1];
    let row_bytes_v = wv.dims[1];
    let n = y.dims[1];
    const SIZES: [(&str, &str); 8] = [
        ("m", "from x"),
        ("k", "from x"),
        ("n_q", "from wq"),
        ("row_bytes_q", "from wq"),
        ("n_kv", "from wk"),
        ("row_bytes_k", "from wk"),
        ("row_bytes_v", "from wv"),
        ("n", "from y"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[m, k, n_q, row_bytes_q, n_kv, row_bytes_k, row_bytes_v, n] };
    wv.expect([n_kv, row_bytes_v], sizes)?;
    if let Some(bias) = &bias {
        bias.expect([n], sizes)?;
    }
    if let Some(norm) = &norm {
        norm.expect([k], sizes)?;
    }
    y.expect([m, n], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    if let Some(bias) = &bias {
        bias.same(dtype, "x")?;
    }
    if let Some(norm) = &norm {
        norm.same(dtype, "x")?;
    }
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm_quant_qkv)(
            call.handle(),
            x.pointer(),
            wq.pointer(),
            wk.pointer(),
            wv.pointer(),
            pointer(&bias),
            pointer(&norm),
            y.pointer(),
            m as i64,
            n_q as i64,
            n_kv as i64,
            n as i64,
            k as i64,
            row_bytes_q as i64,
            row_bytes_k as i64,
            row_bytes_v as i64,
            eps,
            format_q as i32,
            format_k as i32,
            format_v as i32,
            dtype.code(),
        )
    };
    let tensors = [
        Some(x.tensor),
        Some(wq.tensor),
        Some(wk.tensor),
        Some(wv.tensor),
        tensor(&bias),
        tensor(&norm),
        Some(y.tensor),
    ];
    call.finish(status, &tensors)
}

/// The gated unit in one call: y = silu(x \* Wg^T) \* (x \* Wu^T), each product and the silu in f32.
///
/// Groups as in gemm_quant. With `norm`, of the rows that rmsnorm gives, with its bits. (Shazeer 2020, "GLU
/// Variants", eq. 6)
///
/// # Arguments
///
/// - `x`: of `dtype` `[m, k]`, input
/// - `w_gate`: u8 `[groups*n, row_bytes_gate]`, weights of the gate
/// - `w_up`: u8 `[groups*n, row_bytes_up]`, weights of the other factor
/// - `offsets`: i32 `[groups+1]`, first row of each group; offsets\[0\] = 0, never falling, at most m; null for all
///   rows and one group
/// - `norm`: of `dtype` `[k]`, gains of the norm of x, or null for x as it is
/// - `y`: of `dtype` `[m, n]`, result; overwritten
/// - `eps`: of the norm: added to the mean square; must be finite and at least 0
/// - `format_gate`: NNCUDA_FORMAT_\* of w_gate
/// - `format_up`: NNCUDA_FORMAT_\* of w_up
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm_quant_swiglu(
    x: &Tensor,
    w_gate: &Tensor,
    w_up: &Tensor,
    offsets: Option<&Tensor>,
    norm: Option<&Tensor>,
    y: &Tensor,
    eps: f32,
    format_gate: Format,
    format_up: Format,
) -> Result<()> {
    let call = Call::new("cuda_gemm_quant_swiglu", x);
    let x = call.dense::<2>("x", "[m, k]", x)?;
    let w_gate = call.dense::<2>("w_gate", "[groups*n, row_bytes_gate]", w_gate)?.of(DType::U8)?;
    let w_up = call.dense::<2>("w_up", "[groups*n, row_bytes_up]", w_up)?.of(DType::U8)?;
    let offsets = match offsets {
        Some(offsets) => Some(call.dense::<1>("offsets", "[groups+1]", offsets)?.of(DType::I32)?),
        None => None,
    };
    let norm = match norm {
        Some(norm) => Some(call.dense::<1>("norm", "[k]", norm)?),
        None => None,
    };
    let y = call.dense::<2>("y", "[m, n]", y)?;
    call.folds("m", &[Some(x.named()), Some(y.named())])?;
    call.folds("groups*n", &[Some(w_gate.named()), Some(w_up.named())])?;
    if let Some(norm) = &norm {
        norm.unfolded("k", "x")?;
    }
    let m = x.dims[0];
    let k = x.dims[1];
    let row_bytes_gate = w_gate.dims[1];
    let row_bytes_up = w_up.dims[1];
    let n = y.dims[1];
    let groups = w_gate.solve(0, "groups", n, 1, 0)?;
    const SIZES: [(&str, &str); 6] = [
        ("m", "from x"),
        ("k", "from x"),
        ("row_bytes_gate", "from w_gate"),
        ("row_bytes_up", "from w_up"),
        ("n", "from y"),
        ("groups", "from w_gate"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[m, k, row_bytes_gate, row_bytes_up, n, groups] };
    w_up.expect([times(&[groups, n]), row_bytes_up], sizes)?;
    if let Some(offsets) = &offsets {
        offsets.expect([plus(groups, 1)], sizes)?;
    }
    if let Some(norm) = &norm {
        norm.expect([k], sizes)?;
    }
    y.expect([m, n], sizes)?;
    w_gate.expect_factors(&[groups, n], sizes)?;
    w_up.expect_factors(&[groups, n], sizes)?;
    let dtype = x.dtype();
    y.same(dtype, "x")?;
    if let Some(norm) = &norm {
        norm.same(dtype, "x")?;
    }
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm_quant_swiglu)(
            call.handle(),
            x.pointer(),
            w_gate.pointer(),
            w_up.pointer(),
            pointer(&offsets).cast(),
            pointer(&norm),
            y.pointer(),
            groups as i64,
            m as i64,
            n as i64,
            k as i64,
            row_bytes_gate as i64,
            row_bytes_up as i64,
            eps,
            format_gate as i32,
            format_up as i32,
            dtype.code(),
        )
    };
    let tensors =
        [Some(x.tensor), Some(w_gate.tensor), Some(w_up.tensor), tensor(&offsets), tensor(&norm), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// The router of a stored mixture of experts: rmsnorm of the residual stream, gemm_quant of what that gives,
/// softmax_topk and moe_plan, with the bits of these calls.
///
/// On a GPU it is one launch for up to 32 tokens. (Fedus, Zoph, Shazeer 2021, "Switch Transformers"; Gale et al.
/// 2022, "MegaBlocks")
///
/// # Arguments
///
/// - `x`: f32 `[tokens, dim]`, the residual stream
/// - `gains`: f32 `[dim]`, gains of the norm of x
/// - `w`: u8 `[experts, row_bytes]`, weights of the router in `format`
/// - `y`: f32 `[tokens, dim]`, the normed rows, for the experts; overwritten
/// - `logits`: f32 `[tokens, experts]`, y \* W^T; overwritten
/// - `weights`: f32 `[tokens, k]`, the k probabilities of each token, renormalised if asked; overwritten
/// - `indices`: i32 `[tokens, k]`, its experts; overwritten
/// - `probs`: f32 `[tokens, experts]`, all probabilities; overwritten
/// - `counts`: i32 `[experts]`, slots routed to each expert; overwritten
/// - `offsets`: i32 `[experts+1]`, first row of each expert; overwritten
/// - `slot_row`: i32 `[tokens, k]`, row of each slot; overwritten
/// - `row_slot`: i32 `[tokens*k]`, slot of each row; overwritten
/// - `eps`: of the norm: added to the mean square; must be finite and at least 0
/// - `norm`: 1 divides the k weights by their sum
/// - `format`: NNCUDA_FORMAT_\* of w
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm_quant_route(
    x: &Tensor,
    gains: &Tensor,
    w: &Tensor,
    y: &Tensor,
    logits: &Tensor,
    weights: &Tensor,
    indices: &Tensor,
    probs: &Tensor,
    counts: &Tensor,
    offsets: &Tensor,
    slot_row: &Tensor,
    row_slot: &Tensor,
    eps: f32,
    norm: bool,
    format: Format,
) -> Result<()> {
    let call = Call::new("cuda_gemm_quant_route", x);
    let x = call.dense::<2>("x", "[tokens, dim]", x)?.of(DType::F32)?;
    let gains = call.dense::<1>("gains", "[dim]", gains)?.of(DType::F32)?;
    let w = call.dense::<2>("w", "[experts, row_bytes]", w)?.of(DType::U8)?;
    let y = call.dense::<2>("y", "[tokens, dim]", y)?.of(DType::F32)?;
    let logits = call.dense::<2>("logits", "[tokens, experts]", logits)?.of(DType::F32)?;
    let weights = call.dense::<2>("weights", "[tokens, k]", weights)?.of(DType::F32)?;
    let indices = call.dense::<2>("indices", "[tokens, k]", indices)?.of(DType::I32)?;
    let probs = call.dense::<2>("probs", "[tokens, experts]", probs)?.of(DType::F32)?;
    let counts = call.dense::<1>("counts", "[experts]", counts)?.of(DType::I32)?;
    let offsets = call.dense::<1>("offsets", "[experts+1]", offsets)?.of(DType::I32)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let row_slot = call.dense::<1>("row_slot", "[tokens*k]", row_slot)?.of(DType::I32)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    call.same(&[Some(logits.named()), Some(probs.named())])?;
    call.same(&[Some(weights.named()), Some(indices.named()), Some(slot_row.named())])?;
    call.folds("tokens", &[Some(x.named()), Some(logits.named()), Some(weights.named())])?;
    gains.unfolded("dim", "x")?;
    w.unfolded("experts", "logits")?;
    counts.unfolded("experts", "logits")?;
    let tokens = x.dims[0];
    let dim = x.dims[1];
    let experts = w.dims[0];
    let row_bytes = w.dims[1];
    let k = weights.dims[1];
    const SIZES: [(&str, &str); 5] = [
        ("tokens", "from x"),
        ("dim", "from x"),
        ("experts", "from w"),
        ("row_bytes", "from w"),
        ("k", "from weights"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[tokens, dim, experts, row_bytes, k] };
    gains.expect([dim], sizes)?;
    y.expect([tokens, dim], sizes)?;
    logits.expect([tokens, experts], sizes)?;
    weights.expect([tokens, k], sizes)?;
    indices.expect([tokens, k], sizes)?;
    probs.expect([tokens, experts], sizes)?;
    counts.expect([experts], sizes)?;
    offsets.expect([plus(experts, 1)], sizes)?;
    slot_row.expect([tokens, k], sizes)?;
    row_slot.expect([times(&[tokens, k])], sizes)?;
    row_slot.expect_factors(&[tokens, k], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm_quant_route)(
            call.handle(),
            x.pointer().cast(),
            gains.pointer().cast(),
            w.pointer(),
            y.pointer().cast(),
            logits.pointer().cast(),
            weights.pointer().cast(),
            indices.pointer().cast(),
            probs.pointer().cast(),
            counts.pointer().cast(),
            offsets.pointer().cast(),
            slot_row.pointer().cast(),
            row_slot.pointer().cast(),
            tokens as i64,
            experts as i64,
            k as i64,
            dim as i64,
            row_bytes as i64,
            eps,
            i32::from(norm),
            format as i32,
        )
    };
    let tensors = [
        Some(x.tensor),
        Some(gains.tensor),
        Some(w.tensor),
        Some(y.tensor),
        Some(logits.tensor),
        Some(weights.tensor),
        Some(indices.tensor),
        Some(probs.tensor),
        Some(counts.tensor),
        Some(offsets.tensor),
        Some(slot_row.tensor),
        Some(row_slot.tensor),
    ];
    call.finish(status, &tensors)
}

/// The experts of a stored mixture: y\[t\] = residual\[t\] + sum over a token's experts of weight \* ((silu(x\[t\]
/// \* Wg^T) \* (x\[t\] \* Wu^T)) \* Wd^T), as moe_gather, gemm_quant_swiglu, gemm_quant and moe_combine give it,
/// with the bits of these calls.
///
/// On a GPU it is two launches where there is about a row an expert: tokens are gathered where they are loaded, and
/// a token's rows added up by the blocks that end last. (Shazeer 2020, "GLU Variants", eq. 6; Gale et al. 2022,
/// "MegaBlocks")
///
/// # Arguments
///
/// - `x`: f32 `[tokens, dim]`, the normed rows
/// - `w_gate`: u8 `[experts*n, row_bytes_gate]`, weights of the gate, a matrix \[n, dim\] an expert
/// - `w_up`: u8 `[experts*n, row_bytes_up]`, weights of the other factor
/// - `w_down`: u8 `[experts*dim, row_bytes_down]`, weights of the last product, a matrix \[dim, n\] an expert
/// - `weights`: f32 `[tokens, k]`, from gemm_quant_route
/// - `offsets`: i32 `[experts+1]`, from gemm_quant_route; offsets\[0\] = 0, never falling, at most tokens\*k
/// - `slot_row`: i32 `[tokens, k]`, from gemm_quant_route
/// - `row_slot`: i32 `[tokens*k]`, from gemm_quant_route
/// - `residual`: f32 `[tokens, dim]`, added, or null
/// - `y`: f32 `[tokens, dim]`, output; overwritten, may be `residual`
/// - `format_gate`: NNCUDA_FORMAT_\* of w_gate
/// - `format_up`: NNCUDA_FORMAT_\* of w_up
/// - `format_down`: NNCUDA_FORMAT_\* of w_down
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn gemm_quant_experts(
    x: &Tensor,
    w_gate: &Tensor,
    w_up: &Tensor,
    w_down: &Tensor,
    weights: &Tensor,
    offsets: &Tensor,
    slot_row: &Tensor,
    row_slot: &Tensor,
    residual: Option<&Tensor>,
    y: &Tensor,
    format_gate: Format,
    format_up: Format,
    format_down: Format,
) -> Result<()> {
    let call = Call::new("cuda_gemm_quant_experts", x);
    let x = call.dense::<2>("x", "[tokens, dim]", x)?.of(DType::F32)?;
    let w_gate = call.dense::<2>("w_gate", "[experts*n, row_bytes_gate]", w_gate)?.of(DType::U8)?;
    let w_up = call.dense::<2>("w_up", "[experts*n, row_bytes_up]", w_up)?.of(DType::U8)?;
    let w_down = call.dense::<2>("w_down", "[experts*dim, row_bytes_down]", w_down)?.of(DType::U8)?;
    let weights = call.dense::<2>("weights", "[tokens, k]", weights)?.of(DType::F32)?;
    let offsets = call.dense::<1>("offsets", "[experts+1]", offsets)?.of(DType::I32)?;
    let slot_row = call.dense::<2>("slot_row", "[tokens, k]", slot_row)?.of(DType::I32)?;
    let row_slot = call.dense::<1>("row_slot", "[tokens*k]", row_slot)?.of(DType::I32)?;
    let residual = match residual {
        Some(residual) => Some(call.dense::<2>("residual", "[tokens, dim]", residual)?.of(DType::F32)?),
        None => None,
    };
    let y = call.dense::<2>("y", "[tokens, dim]", y)?.of(DType::F32)?;
    call.same(&[Some(x.named()), named(&residual), Some(y.named())])?;
    call.same(&[Some(weights.named()), Some(slot_row.named())])?;
    call.folds("tokens", &[Some(x.named()), Some(weights.named())])?;
    call.folds("experts*n", &[Some(w_gate.named()), Some(w_up.named())])?;
    let tokens = x.dims[0];
    let dim = x.dims[1];
    let row_bytes_gate = w_gate.dims[1];
    let row_bytes_up = w_up.dims[1];
    let row_bytes_down = w_down.dims[1];
    let k = weights.dims[1];
    let experts = w_down.solve(0, "experts", dim, 1, 0)?;
    let n = w_gate.solve(0, "n", experts, 1, 0)?;
    const SIZES: [(&str, &str); 8] = [
        ("tokens", "from x"),
        ("dim", "from x"),
        ("row_bytes_gate", "from w_gate"),
        ("row_bytes_up", "from w_up"),
        ("row_bytes_down", "from w_down"),
        ("k", "from weights"),
        ("experts", "from w_down"),
        ("n", "from w_gate"),
    ];
    let sizes =
        Sizes { names: &SIZES, values: &[tokens, dim, row_bytes_gate, row_bytes_up, row_bytes_down, k, experts, n] };
    w_up.expect([times(&[experts, n]), row_bytes_up], sizes)?;
    weights.expect([tokens, k], sizes)?;
    offsets.expect([plus(experts, 1)], sizes)?;
    slot_row.expect([tokens, k], sizes)?;
    row_slot.expect([times(&[tokens, k])], sizes)?;
    if let Some(residual) = &residual {
        residual.expect([tokens, dim], sizes)?;
    }
    y.expect([tokens, dim], sizes)?;
    w_gate.expect_factors(&[experts, n], sizes)?;
    w_up.expect_factors(&[experts, n], sizes)?;
    w_down.expect_factors(&[experts, dim], sizes)?;
    row_slot.expect_factors(&[tokens, k], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_gemm_quant_experts)(
            call.handle(),
            x.pointer().cast(),
            w_gate.pointer(),
            w_up.pointer(),
            w_down.pointer(),
            weights.pointer().cast(),
            offsets.pointer().cast(),
            slot_row.pointer().cast(),
            row_slot.pointer().cast(),
            pointer(&residual).cast(),
            y.pointer().cast(),
            tokens as i64,
            experts as i64,
            k as i64,
            dim as i64,
            n as i64,
            row_bytes_gate as i64,
            row_bytes_up as i64,
            row_bytes_down as i64,
            format_gate as i32,
            format_up as i32,
            format_down as i32,
        )
    };
    let tensors = [
        Some(x.tensor),
        Some(w_gate.tensor),
        Some(w_up.tensor),
        Some(w_down.tensor),
        Some(weights.tensor),
        Some(offsets.tensor),
        Some(slot_row.tensor),
        Some(row_slot.tensor),
        tensor(&residual),
        Some(y.tensor),
    ];
    call.finish(status, &tensors)
}

/// Puts the stored rows of a matrix into the order that products on a CPU read fastest: sixteen of them side by
/// side, so that one word of each fills a vector.
///
/// Products with the result have the same bits. Of each sixteen rows, block after block of `format`; of a block its
/// fields, cut into words of four bytes; of each field or word those of the sixteen rows. q6_k: the f16 scale, the
/// scale of each of 16 parts (one byte each), then for both halves of 128 elements and for i = 0 .. 7 words i and
/// i+8 of the half's low bits and word i of its high bits. q2_k: the f16 scale and minimum, then the words of its
/// parts' scales and those of its codes. q3_k: the f16 scale, the three words of its parts' scales, those of its
/// high bits and those of its low bits. All others in the order of the block: its scale, of f16 or, in mxfp4, one
/// byte, its f16 minimum where it has one, and words; iq4_xs, whose scales fill two words, words alone.
///
/// # Arguments
///
/// - `x`: u8 `[rows, row_bytes]`, rows in `format`
/// - `y`: u8 `[rows, row_bytes]`, the same in its _R16 form; overwritten
/// - `k`: elements per row, whole blocks
/// - `format`: NNCUDA_FORMAT_\*: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, Q2_K, Q3_K, IQ4_NL, MXFP4 or IQ4_XS
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn interleave_rows(x: &Tensor, y: &Tensor, k: usize, format: Format) -> Result<()> {
    let call = Call::new("cuda_interleave_rows", x);
    let x = call.dense::<2>("x", "[rows, row_bytes]", x)?.of(DType::U8)?;
    let y = call.dense::<2>("y", "[rows, row_bytes]", y)?.of(DType::U8)?;
    call.same(&[Some(x.named()), Some(y.named())])?;
    let rows = x.dims[0];
    let row_bytes = x.dims[1];
    const SIZES: [(&str, &str); 3] = [("rows", "from x"), ("row_bytes", "from x"), ("k", "given")];
    let sizes = Sizes { names: &SIZES, values: &[rows, row_bytes, k] };
    y.expect([rows, row_bytes], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_interleave_rows)(
            call.handle(),
            x.pointer(),
            y.pointer(),
            rows as i64,
            k as i64,
            row_bytes as i64,
            format as i32,
        )
    };
    let tensors = [Some(x.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}
