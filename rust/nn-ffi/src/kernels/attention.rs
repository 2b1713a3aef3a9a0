// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section attention of bindings.h.
//!
//! Query head h reads key head h / (heads / kv_heads): kv_heads = heads is multi-head, 1 is multi-query attention.
//! With `causal`, query i of q_len sees the keys j \<= i + kv_len - q_len: the last query sees all keys. A query
//! that sees no key gives zeros. head_dim is a multiple of 8, at most 256. Over paged caches, a query sees at most
//! the last `window` keys (Beltagy et al. 2020, "Longformer", section 3.1): pages before them are not read, nor
//! their numbers. `softcap` bounds the scores s, scale included: softcap \* tanh(s / softcap) takes their place
//! (Gemma Team 2024, "Gemma 2", section 2). A sink is a score that has no key: exp(sink) is added to the sum of its
//! head's softmax, and nothing to its output (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.2). It
//! is not scaled.

#![allow(clippy::too_many_arguments, reason = "the arguments are those of the C function")]

use crate::call::{Call, Sizes, named, plus, pointer, tensor, times};
use crate::{DType, Format, Result, RopeLayout, Tensor};

/// Scores: s = scale \* q \* k^T, with -inf where `causal` hides the key.
///
/// (Vaswani et al. 2017, eq. 1)
///
/// # Arguments
///
/// - `q`: of `dtype` `[batch, q_len, heads, head_dim]`, queries
/// - `k`: of `dtype` `[batch, kv_len, kv_heads, head_dim]`, keys
/// - `scores`: of `dtype` `[batch, heads, q_len, kv_len]`, scores; overwritten
/// - `scale`: factor of the products; must be finite
/// - `causal`: 1 hides the keys after each query
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn attention_scores(q: &Tensor, k: &Tensor, scores: &Tensor, scale: f32, causal: bool) -> Result<()> {
    let call = Call::new("cuda_attention_scores", q);
    let q = call.dense::<4>("q", "[batch, q_len, heads, head_dim]", q)?;
    let k = call.dense::<4>("k", "[batch, kv_len, kv_heads, head_dim]", k)?;
    let scores = call.dense::<4>("scores", "[batch, heads, q_len, kv_len]", scores)?;
    call.folds("batch", &[Some(q.named()), Some(k.named()), Some(scores.named())])?;
    let batch = q.dims[0];
    let q_len = q.dims[1];
    let heads = q.dims[2];
    let head_dim = q.dims[3];
    let kv_len = k.dims[1];
    let kv_heads = k.dims[2];
    const SIZES: [(&str, &str); 6] = [
        ("batch", "from q"),
        ("q_len", "from q"),
        ("heads", "from q"),
        ("head_dim", "from q"),
        ("kv_len", "from k"),
        ("kv_heads", "from k"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[batch, q_len, heads, head_dim, kv_len, kv_heads] };
    k.expect([batch, kv_len, kv_heads, head_dim], sizes)?;
    scores.expect([batch, heads, q_len, kv_len], sizes)?;
    let dtype = q.dtype();
    k.same(dtype, "q")?;
    scores.same(dtype, "q")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_attention_scores)(
            call.handle(),
            q.pointer(),
            k.pointer(),
            scores.pointer(),
            batch as i64,
            q_len as i64,
            kv_len as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            scale,
            i32::from(causal),
            dtype.code(),
        )
    };
    let tensors = [Some(q.tensor), Some(k.tensor), Some(scores.tensor)];
    call.finish(status, &tensors)
}

/// Output: out = probs \* v.
///
/// (Vaswani et al. 2017, eq. 1)
///
/// # Arguments
///
/// - `probs`: of `dtype` `[batch, heads, q_len, kv_len]`, softmax of the scores
/// - `v`: of `dtype` `[batch, kv_len, kv_heads, head_dim]`, values
/// - `out`: of `dtype` `[batch, q_len, heads, head_dim]`, output; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn attention_output(probs: &Tensor, v: &Tensor, out: &Tensor) -> Result<()> {
    let call = Call::new("cuda_attention_output", probs);
    let probs = call.dense::<4>("probs", "[batch, heads, q_len, kv_len]", probs)?;
    let v = call.dense::<4>("v", "[batch, kv_len, kv_heads, head_dim]", v)?;
    let out = call.dense::<4>("out", "[batch, q_len, heads, head_dim]", out)?;
    call.folds("batch", &[Some(probs.named()), Some(v.named()), Some(out.named())])?;
    let batch = probs.dims[0];
    let heads = probs.dims[1];
    let q_len = probs.dims[2];
    let kv_len = probs.dims[3];
    let kv_heads = v.dims[2];
    let head_dim = v.dims[3];
    const SIZES: [(&str, &str); 6] = [
        ("batch", "from probs"),
        ("heads", "from probs"),
        ("q_len", "from probs"),
        ("kv_len", "from probs"),
        ("kv_heads", "from v"),
        ("head_dim", "from v"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[batch, heads, q_len, kv_len, kv_heads, head_dim] };
    v.expect([batch, kv_len, kv_heads, head_dim], sizes)?;
    out.expect([batch, q_len, heads, head_dim], sizes)?;
    let dtype = probs.dtype();
    v.same(dtype, "probs")?;
    out.same(dtype, "probs")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_attention_output)(
            call.handle(),
            probs.pointer(),
            v.pointer(),
            out.pointer(),
            batch as i64,
            q_len as i64,
            kv_len as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(probs.tensor), Some(v.tensor), Some(out.tensor)];
    call.finish(status, &tensors)
}

/// Attention without storing the scores: out = softmax(scale \* q \* k^T) \* v, and the log-sum-exp of the scaled
/// scores.
///
/// With `starts` query t of a sequence sees the keys starts\[t\] .. t alone, so that documents packed into one
/// sequence do not see one another; then `causal` must be 1 and q_len = kv_len. Keys that no query of a block sees
/// are not read. (Dao 2023, "FlashAttention-2", algorithm 1)
///
/// # Arguments
///
/// - `q`: of `dtype` `[batch*q_len:ld_q, heads, head_dim]`, queries
/// - `k`: of `dtype` `[batch*kv_len:ld_kv, kv_heads, head_dim]`, keys
/// - `v`: of `dtype` `[batch*kv_len:ld_kv, kv_heads, head_dim]`, values
/// - `starts`: i32 `[batch, q_len]`, first key that each query sees, never falling in a sequence and never behind its
///   own; or null for 0
/// - `out`: of `dtype` `[batch*q_len, heads, head_dim]`, output; overwritten
/// - `lse`: f32 `[batch, heads, q_len]`, log-sum-exp (-inf for a query without keys), kept for the backward call, or
///   null; overwritten
/// - `batch`: sequences
/// - `scale`: factor of the products; must be finite
/// - `causal`: 1 hides the keys after each query
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn flash_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    starts: Option<&Tensor>,
    out: &Tensor,
    lse: Option<&Tensor>,
    batch: usize,
    scale: f32,
    causal: bool,
) -> Result<()> {
    let call = Call::new("cuda_flash_attention", q);
    let q = call.strided::<3>("q", "[batch*q_len:ld_q, heads, head_dim]", q)?;
    let k = call.strided::<3>("k", "[batch*kv_len:ld_kv, kv_heads, head_dim]", k)?;
    let v = call.strided::<3>("v", "[batch*kv_len:ld_kv, kv_heads, head_dim]", v)?;
    let starts = match starts {
        Some(starts) => Some(call.dense::<2>("starts", "[batch, q_len]", starts)?.of(DType::I32)?),
        None => None,
    };
    let out = call.dense::<3>("out", "[batch*q_len, heads, head_dim]", out)?;
    let lse = match lse {
        Some(lse) => Some(call.dense::<3>("lse", "[batch, heads, q_len]", lse)?.of(DType::F32)?),
        None => None,
    };
    call.same(&[Some(q.named()), Some(out.named())])?;
    call.same(&[Some(k.named()), Some(v.named())])?;
    call.folds("batch", &[named(&starts), named(&lse)])?;
    let heads = q.dims[1];
    let head_dim = q.dims[2];
    let kv_heads = k.dims[1];
    let q_len = q.solve(0, "q_len", batch, 1, 0)?;
    let kv_len = k.solve(0, "kv_len", batch, 1, 0)?;
    const SIZES: [(&str, &str); 6] = [
        ("heads", "from q"),
        ("head_dim", "from q"),
        ("kv_heads", "from k"),
        ("q_len", "from q"),
        ("kv_len", "from k"),
        ("batch", "given"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[heads, head_dim, kv_heads, q_len, kv_len, batch] };
    k.expect([times(&[batch, kv_len]), kv_heads, head_dim], sizes)?;
    v.expect([times(&[batch, kv_len]), kv_heads, head_dim], sizes)?;
    if let Some(starts) = &starts {
        starts.expect([batch, q_len], sizes)?;
    }
    out.expect([times(&[batch, q_len]), heads, head_dim], sizes)?;
    if let Some(lse) = &lse {
        lse.expect([batch, heads, q_len], sizes)?;
    }
    q.expect_factors(&[batch, q_len], sizes)?;
    k.expect_factors(&[batch, kv_len], sizes)?;
    let dtype = q.dtype();
    k.same(dtype, "q")?;
    v.same(dtype, "q")?;
    out.same(dtype, "q")?;
    let ld_q = call.stride(&[q.rows()])?;
    let ld_kv = call.stride(&[k.rows(), v.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_flash_attention)(
            call.handle(),
            q.pointer(),
            k.pointer(),
            v.pointer(),
            pointer(&starts).cast(),
            out.pointer(),
            pointer(&lse).cast(),
            batch as i64,
            q_len as i64,
            kv_len as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            ld_q as i64,
            ld_kv as i64,
            scale,
            i32::from(causal),
            dtype.code(),
        )
    };
    let tensors = [Some(q.tensor), Some(k.tensor), Some(v.tensor), tensor(&starts), Some(out.tensor), tensor(&lse)];
    call.finish(status, &tensors)
}

/// Gradients of flash_attention; the probabilities are recomputed from lse.
///
/// (Dao 2023, "FlashAttention-2", algorithm 2)
///
/// # Arguments
///
/// - `dout`: of `dtype` `[batch*q_len, heads, head_dim]`, gradient of out
/// - `q`: of `dtype` `[batch*q_len:ld_q, heads, head_dim]`, queries
/// - `k`: of `dtype` `[batch*kv_len:ld_kv, kv_heads, head_dim]`, keys
/// - `v`: of `dtype` `[batch*kv_len:ld_kv, kv_heads, head_dim]`, values
/// - `out`: of `dtype` `[batch*q_len, heads, head_dim]`, output of the forward call
/// - `lse`: f32 `[batch, heads, q_len]`, from the forward call
/// - `starts`: i32 `[batch, q_len]`, as in the forward call, or null
/// - `dq`: of `dtype` `[batch*q_len:ld_q, heads, head_dim]`, gradient of q; overwritten
/// - `dk`: of `dtype` `[batch*kv_len:ld_kv, kv_heads, head_dim]`, gradient of k; overwritten
/// - `dv`: of `dtype` `[batch*kv_len:ld_kv, kv_heads, head_dim]`, gradient of v; overwritten
/// - `scale`: as in the forward call; must be finite
/// - `causal`: as in the forward call
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn flash_attention_backward(
    dout: &Tensor,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    out: &Tensor,
    lse: &Tensor,
    starts: Option<&Tensor>,
    dq: &Tensor,
    dk: &Tensor,
    dv: &Tensor,
    scale: f32,
    causal: bool,
) -> Result<()> {
    let call = Call::new("cuda_flash_attention_backward", dout);
    let dout = call.dense::<3>("dout", "[batch*q_len, heads, head_dim]", dout)?;
    let q = call.strided::<3>("q", "[batch*q_len:ld_q, heads, head_dim]", q)?;
    let k = call.strided::<3>("k", "[batch*kv_len:ld_kv, kv_heads, head_dim]", k)?;
    let v = call.strided::<3>("v", "[batch*kv_len:ld_kv, kv_heads, head_dim]", v)?;
    let out = call.dense::<3>("out", "[batch*q_len, heads, head_dim]", out)?;
    let lse = call.dense::<3>("lse", "[batch, heads, q_len]", lse)?.of(DType::F32)?;
    let starts = match starts {
        Some(starts) => Some(call.dense::<2>("starts", "[batch, q_len]", starts)?.of(DType::I32)?),
        None => None,
    };
    let dq = call.strided::<3>("dq", "[batch*q_len:ld_q, heads, head_dim]", dq)?;
    let dk = call.strided::<3>("dk", "[batch*kv_len:ld_kv, kv_heads, head_dim]", dk)?;
    let dv = call.strided::<3>("dv", "[batch*kv_len:ld_kv, kv_heads, head_dim]", dv)?;
    call.same(&[Some(dout.named()), Some(q.named()), Some(out.named()), Some(dq.named())])?;
    call.same(&[Some(k.named()), Some(v.named()), Some(dk.named()), Some(dv.named())])?;
    call.folds("batch", &[Some(lse.named()), named(&starts)])?;
    let heads = dout.dims[1];
    let head_dim = dout.dims[2];
    let kv_heads = k.dims[1];
    let batch = lse.dims[0];
    let q_len = lse.dims[2];
    let kv_len = k.solve(0, "kv_len", batch, 1, 0)?;
    const SIZES: [(&str, &str); 6] = [
        ("heads", "from dout"),
        ("head_dim", "from dout"),
        ("kv_heads", "from k"),
        ("batch", "from lse"),
        ("q_len", "from lse"),
        ("kv_len", "from k"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[heads, head_dim, kv_heads, batch, q_len, kv_len] };
    dout.expect([times(&[batch, q_len]), heads, head_dim], sizes)?;
    q.expect([times(&[batch, q_len]), heads, head_dim], sizes)?;
    k.expect([times(&[batch, kv_len]), kv_heads, head_dim], sizes)?;
    v.expect([times(&[batch, kv_len]), kv_heads, head_dim], sizes)?;
    out.expect([times(&[batch, q_len]), heads, head_dim], sizes)?;
    lse.expect([batch, heads, q_len], sizes)?;
    if let Some(starts) = &starts {
        starts.expect([batch, q_len], sizes)?;
    }
    dq.expect([times(&[batch, q_len]), heads, head_dim], sizes)?;
    dk.expect([times(&[batch, kv_len]), kv_heads, head_dim], sizes)?;
    dv.expect([times(&[batch, kv_len]), kv_heads, head_dim], sizes)?;
    dout.expect_factors(&[batch, q_len], sizes)?;
    k.expect_factors(&[batch, kv_len], sizes)?;
    let dtype = dout.dtype();
    q.same(dtype, "dout")?;
    k.same(dtype, "dout")?;
    v.same(dtype, "dout")?;
    out.same(dtype, "dout")?;
    dq.same(dtype, "dout")?;
    dk.same(dtype, "dout")?;
    dv.same(dtype, "dout")?;
    let ld_q = call.stride(&[q.rows(), dq.rows()])?;
    let ld_kv = call.stride(&[k.rows(), v.rows(), dk.rows(), dv.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_flash_attention_backward)(
            call.handle(),
            dout.pointer(),
            q.pointer(),
            k.pointer(),
            v.pointer(),
            out.pointer(),
            lse.pointer().cast(),
            pointer(&starts).cast(),
            dq.pointer(),
            dk.pointer(),
            dv.pointer(),
            batch as i64,
            q_len as i64,
            kv_len as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            ld_q as i64,
            ld_kv as i64,
            scale,
            i32::from(causal),
            dtype.code(),
        )
    };
    let tensors = [
        Some(dout.tensor),
        Some(q.tensor),
        Some(k.tensor),
        Some(v.tensor),
        Some(out.tensor),
        Some(lse.tensor),
        tensor(&starts),
        Some(dq.tensor),
        Some(dk.tensor),
        Some(dv.tensor),
    ];
    call.finish(status, &tensors)
}

/// Where the documents of packed sequences begin.
///
/// Token t of a sequence belongs to the document that begins behind the last separator before t, or with the
/// sequence: starts\[t\] is that place, positions\[t\] = t - starts\[t\]. A separator is the last token of its
/// document.
///
/// # Arguments
///
/// - `ids`: i32 `[batch, length]`, tokens of the sequences
/// - `starts`: i32 `[batch, length]`, first token of each token's document, for flash_attention; overwritten
/// - `positions`: i32 `[batch, length]`, place of each token in its document, for rope_qk; overwritten
/// - `separator`: id of the token that ends a document
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn document_starts(ids: &Tensor, starts: &Tensor, positions: &Tensor, separator: i32) -> Result<()> {
    let call = Call::new("cuda_document_starts", ids);
    let ids = call.dense::<2>("ids", "[batch, length]", ids)?.of(DType::I32)?;
    let starts = call.dense::<2>("starts", "[batch, length]", starts)?.of(DType::I32)?;
    let positions = call.dense::<2>("positions", "[batch, length]", positions)?.of(DType::I32)?;
    call.same(&[Some(ids.named()), Some(starts.named()), Some(positions.named())])?;
    let batch = ids.dims[0];
    let length = ids.dims[1];
    const SIZES: [(&str, &str); 2] = [("batch", "from ids"), ("length", "from ids")];
    let sizes = Sizes { names: &SIZES, values: &[batch, length] };
    starts.expect([batch, length], sizes)?;
    positions.expect([batch, length], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_document_starts)(
            call.handle(),
            ids.pointer().cast(),
            starts.pointer().cast(),
            positions.pointer().cast(),
            batch as i64,
            length as i64,
            separator,
        )
    };
    let tensors = [Some(ids.tensor), Some(starts.tensor), Some(positions.tensor)];
    call.finish(status, &tensors)
}

/// Attention of one new query a sequence over its cache, split over the keys.
///
/// Sequence b sees its first lengths\[b\] keys. (Dao et al. 2023, "Flash-Decoding")
///
/// # Arguments
///
/// - `q`: of `dtype` `[batch:ld_q, heads, head_dim]`, queries
/// - `k_cache`: of `dtype` `[batch, capacity, kv_heads, head_dim]`, keys
/// - `v_cache`: of `dtype` `[batch, capacity, kv_heads, head_dim]`, values
/// - `lengths`: i32 `[batch]`, keys to see, 0 .. capacity
/// - `out`: of `dtype` `[batch, heads, head_dim]`, output; overwritten
/// - `scale`: factor of the products; must be finite
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn attention_decode(
    q: &Tensor,
    k_cache: &Tensor,
    v_cache: &Tensor,
    lengths: &Tensor,
    out: &Tensor,
    scale: f32,
) -> Result<()> {
    let call = Call::new("cuda_attention_decode", q);
    let q = call.strided::<3>("q", "[batch:ld_q, heads, head_dim]", q)?;
    let k_cache = call.dense::<4>("k_cache", "[batch, capacity, kv_heads, head_dim]", k_cache)?;
    let v_cache = call.dense::<4>("v_cache", "[batch, capacity, kv_heads, head_dim]", v_cache)?;
    let lengths = call.dense::<1>("lengths", "[batch]", lengths)?.of(DType::I32)?;
    let out = call.dense::<3>("out", "[batch, heads, head_dim]", out)?;
    call.same(&[Some(q.named()), Some(out.named())])?;
    call.same(&[Some(k_cache.named()), Some(v_cache.named())])?;
    call.folds("batch", &[Some(q.named()), Some(k_cache.named()), Some(lengths.named())])?;
    let batch = q.dims[0];
    let heads = q.dims[1];
    let head_dim = q.dims[2];
    let capacity = k_cache.dims[1];
    let kv_heads = k_cache.dims[2];
    const SIZES: [(&str, &str); 5] = [
        ("batch", "from q"),
        ("heads", "from q"),
        ("head_dim", "from q"),
        ("capacity", "from k_cache"),
        ("kv_heads", "from k_cache"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[batch, heads, head_dim, capacity, kv_heads] };
    k_cache.expect([batch, capacity, kv_heads, head_dim], sizes)?;
    v_cache.expect([batch, capacity, kv_heads, head_dim], sizes)?;
    lengths.expect([batch], sizes)?;
    out.expect([batch, heads, head_dim], sizes)?;
    let dtype = q.dtype();
    k_cache.same(dtype, "q")?;
    v_cache.same(dtype, "q")?;
    out.same(dtype, "q")?;
    let ld_q = call.stride(&[q.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_attention_decode)(
            call.handle(),
            q.pointer(),
            k_cache.pointer(),
            v_cache.pointer(),
            lengths.pointer().cast(),
            out.pointer(),
            batch as i64,
            capacity as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            ld_q as i64,
            scale,
            dtype.code(),
        )
    };
    let tensors = [Some(q.tensor), Some(k_cache.tensor), Some(v_cache.tensor), Some(lengths.tensor), Some(out.tensor)];
    call.finish(status, &tensors)
}

/// Causal attention of new tokens over paged caches.
///
/// Tokens offsets\[b\] .. offsets\[b+1\]-1 are the last of the lengths\[b\] tokens of sequence b, whose keys and
/// values are in its pages already (kv_append_paged): row j of them is row j mod 128 of page page_table\[b\]\[j /
/// 128\]. Each token sees those before it and itself. A token's result depends on neither the other tokens of the
/// call nor on how many there are: the same bits as attention_decode_paged. (Kwon et al. 2023, "PagedAttention";
/// Dao 2023, "FlashAttention-2", algorithm 1)
///
/// # Arguments
///
/// - `q`: of `dtype` `[tokens:ld_q, heads, head_dim]`, queries
/// - `k_pages`: u8 `[pages, page_bytes]`, keys; a page is \[kv_heads, 128, head_dim\], each row of head_dim in
///   `format`
/// - `v_pages`: u8 `[pages, page_bytes]`, values, laid out as the keys
/// - `offsets`: i32 `[batch+1]`, first token of each sequence; offsets\[0\] = 0, never falling, the last at most
///   `tokens`
/// - `lengths`: i32 `[batch]`, rows of each sequence's cache, its new tokens included, at most 128 \* max_pages
/// - `page_table`: i32 `[batch, max_pages]`, pages of each sequence, 0 .. pages-1 where rows are seen; others are not
///   read
/// - `sinks`: f32 `[heads]`, a score of each head that has no key, or null for none
/// - `out`: of `dtype` `[tokens, heads, head_dim]`, output; rows from offsets\[batch\] on are not written;
///   overwritten
/// - `kv_heads`: key and value heads
/// - `scale`: factor of the products; must be finite
/// - `window`: most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
/// - `softcap`: bound of the scores, or 0 for none; must be finite and at least 0
/// - `format`: NNCUDA_FORMAT_\*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn flash_attention_paged(
    q: &Tensor,
    k_pages: &Tensor,
    v_pages: &Tensor,
    offsets: &Tensor,
    lengths: &Tensor,
    page_table: &Tensor,
    sinks: Option<&Tensor>,
    out: &Tensor,
    kv_heads: usize,
    scale: f32,
    window: i64,
    softcap: f32,
    format: Format,
) -> Result<()> {
    let call = Call::new("cuda_flash_attention_paged", q);
    let q = call.strided::<3>("q", "[tokens:ld_q, heads, head_dim]", q)?;
    let k_pages = call.dense::<2>("k_pages", "[pages, page_bytes]", k_pages)?.of(DType::U8)?;
    let v_pages = call.dense::<2>("v_pages", "[pages, page_bytes]", v_pages)?.of(DType::U8)?;
    let offsets = call.dense::<1>("offsets", "[batch+1]", offsets)?.of(DType::I32)?;
    let lengths = call.dense::<1>("lengths", "[batch]", lengths)?.of(DType::I32)?;
    let page_table = call.dense::<2>("page_table", "[batch, max_pages]", page_table)?.of(DType::I32)?;
    let sinks = match sinks {
        Some(sinks) => Some(call.dense::<1>("sinks", "[heads]", sinks)?.of(DType::F32)?),
        None => None,
    };
    let out = call.dense::<3>("out", "[tokens, heads, head_dim]", out)?;
    call.same(&[Some(q.named()), Some(out.named())])?;
    call.same(&[Some(k_pages.named()), Some(v_pages.named())])?;
    call.folds("batch", &[Some(lengths.named()), Some(page_table.named())])?;
    if let Some(sinks) = &sinks {
        sinks.unfolded("heads", "q")?;
    }
    let tokens = q.dims[0];
    let heads = q.dims[1];
    let head_dim = q.dims[2];
    let pages = k_pages.dims[0];
    let page_bytes = k_pages.dims[1];
    let batch = lengths.dims[0];
    let max_pages = page_table.dims[1];
    const SIZES: [(&str, &str); 8] = [
        ("tokens", "from q"),
        ("heads", "from q"),
        ("head_dim", "from q"),
        ("pages", "from k_pages"),
        ("page_bytes", "from k_pages"),
        ("batch", "from lengths"),
        ("max_pages", "from page_table"),
        ("kv_heads", "given"),
    ];
    let sizes =
        Sizes { names: &SIZES, values: &[tokens, heads, head_dim, pages, page_bytes, batch, max_pages, kv_heads] };
    v_pages.expect([pages, page_bytes], sizes)?;
    offsets.expect([plus(batch, 1)], sizes)?;
    page_table.expect([batch, max_pages], sizes)?;
    if let Some(sinks) = &sinks {
        sinks.expect([heads], sizes)?;
    }
    out.expect([tokens, heads, head_dim], sizes)?;
    let dtype = q.dtype();
    out.same(dtype, "q")?;
    let ld_q = call.stride(&[q.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_flash_attention_paged)(
            call.handle(),
            q.pointer(),
            k_pages.pointer(),
            v_pages.pointer(),
            offsets.pointer().cast(),
            lengths.pointer().cast(),
            page_table.pointer().cast(),
            pointer(&sinks).cast(),
            out.pointer(),
            tokens as i64,
            batch as i64,
            max_pages as i64,
            pages as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            ld_q as i64,
            page_bytes as i64,
            scale,
            window,
            softcap,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [
        Some(q.tensor),
        Some(k_pages.tensor),
        Some(v_pages.tensor),
        Some(offsets.tensor),
        Some(lengths.tensor),
        Some(page_table.tensor),
        tensor(&sinks),
        Some(out.tensor),
    ];
    call.finish(status, &tensors)
}

/// Attention of one new query a sequence over its pages, split over the keys.
///
/// Sequence b sees its first lengths\[b\] rows, and gives zeros when it has none. (Dao et al. 2023,
/// "Flash-Decoding"; Kwon et al. 2023, "PagedAttention")
///
/// # Arguments
///
/// - `q`: of `dtype` `[batch:ld_q, heads, head_dim]`, queries
/// - `k_pages`: u8 `[pages, page_bytes]`, keys; a page is \[kv_heads, 128, head_dim\], each row of head_dim in
///   `format`
/// - `v_pages`: u8 `[pages, page_bytes]`, values, laid out as the keys
/// - `lengths`: i32 `[batch]`, rows to see, 0 .. 128 \* max_pages
/// - `page_table`: i32 `[batch, max_pages]`, pages of each sequence, 0 .. pages-1 where rows are seen; others are not
///   read
/// - `sinks`: f32 `[heads]`, a score of each head that has no key, or null for none
/// - `out`: of `dtype` `[batch, heads, head_dim]`, output; overwritten
/// - `kv_heads`: key and value heads
/// - `scale`: factor of the products; must be finite
/// - `window`: most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
/// - `softcap`: bound of the scores, or 0 for none; must be finite and at least 0
/// - `format`: NNCUDA_FORMAT_\*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn attention_decode_paged(
    q: &Tensor,
    k_pages: &Tensor,
    v_pages: &Tensor,
    lengths: &Tensor,
    page_table: &Tensor,
    sinks: Option<&Tensor>,
    out: &Tensor,
    kv_heads: usize,
    scale: f32,
    window: i64,
    softcap: f32,
    format: Format,
) -> Result<()> {
    let call = Call::new("cuda_attention_decode_paged", q);
    let q = call.strided::<3>("q", "[batch:ld_q, heads, head_dim]", q)?;
    let k_pages = call.dense::<2>("k_pages", "[pages, page_bytes]", k_pages)?.of(DType::U8)?;
    let v_pages = call.dense::<2>("v_pages", "[pages, page_bytes]", v_pages)?.of(DType::U8)?;
    let lengths = call.dense::<1>("lengths", "[batch]", lengths)?.of(DType::I32)?;
    let page_table = call.dense::<2>("page_table", "[batch, max_pages]", page_table)?.of(DType::I32)?;
    let sinks = match sinks {
        Some(sinks) => Some(call.dense::<1>("sinks", "[heads]", sinks)?.of(DType::F32)?),
        None => None,
    };
    let out = call.dense::<3>("out", "[batch, heads, head_dim]", out)?;
    call.same(&[Some(q.named()), Some(out.named())])?;
    call.same(&[Some(k_pages.named()), Some(v_pages.named())])?;
    call.folds("batch", &[Some(q.named()), Some(lengths.named()), Some(page_table.named())])?;
    if let Some(sinks) = &sinks {
        sinks.unfolded("heads", "q")?;
    }
    let batch = q.dims[0];
    let heads = q.dims[1];
    let head_dim = q.dims[2];
    let pages = k_pages.dims[0];
    let page_bytes = k_pages.dims[1];
    let max_pages = page_table.dims[1];
    const SIZES: [(&str, &str); 7] = [
        ("batch", "from q"),
        ("heads", "from q"),
        ("head_dim", "from q"),
        ("pages", "from k_pages"),
        ("page_bytes", "from k_pages"),
        ("max_pages", "from page_table"),
        ("kv_heads", "given"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[batch, heads, head_dim, pages, page_bytes, max_pages, kv_heads] };
    v_pages.expect([pages, page_bytes], sizes)?;
    lengths.expect([batch], sizes)?;
    page_table.expect([batch, max_pages], sizes)?;
    if let Some(sinks) = &sinks {
        sinks.expect([heads], sizes)?;
    }
    out.expect([batch, heads, head_dim], sizes)?;
    let dtype = q.dtype();
    out.same(dtype, "q")?;
    let ld_q = call.stride(&[q.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_attention_decode_paged)(
            call.handle(),
            q.pointer(),
            k_pages.pointer(),
            v_pages.pointer(),
            lengths.pointer().cast(),
            page_table.pointer().cast(),
            pointer(&sinks).cast(),
            out.pointer(),
            batch as i64,
            max_pages as i64,
            pages as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            ld_q as i64,
            page_bytes as i64,
            scale,
            window,
            softcap,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [
        Some(q.tensor),
        Some(k_pages.tensor),
        Some(v_pages.tensor),
        Some(lengths.tensor),
        Some(page_table.tensor),
        tensor(&sinks),
        Some(out.tensor),
    ];
    call.finish(status, &tensors)
}

/// A layer's attention in a decoding step, in one call: rope_qk of one new query and key a sequence,
/// kv_append_paged of the key and its value, then attention_decode_paged over the lengths\[b\] rows that sequence b
/// has with them; the same bits as those three.
///
/// q and k stay as they are. Two sequences must not write to the same row, nor one see a row that another writes:
/// that is the caller's duty, and what they give otherwise is open. (Su et al. 2021, "RoFormer"; Kwon et al. 2023,
/// "PagedAttention"; Dao et al. 2023, "Flash-Decoding")
///
/// # Arguments
///
/// - `q`: of `dtype` `[batch:ld_q, heads, head_dim]`, queries, not yet rotated
/// - `k`: of `dtype` `[batch:ld_kv, kv_heads, head_dim]`, new keys, not yet rotated
/// - `v`: of `dtype` `[batch:ld_kv, kv_heads, head_dim]`, new values
/// - `cosine`: f32 `[max_position, head_dim/2]`, from rope_freqs
/// - `sine`: f32 `[max_position, head_dim/2]`, from rope_freqs
/// - `positions`: i32 `[batch]`, rows of the tables, 0 .. max_position-1
/// - `lengths`: i32 `[batch]`, rows of each sequence's cache, the new one included, 1 .. 128 \* max_pages
/// - `page_table`: i32 `[batch, max_pages]`, pages of each sequence, 0 .. pages-1 where rows are seen; others are not
///   read
/// - `sinks`: f32 `[heads]`, a score of each head that has no key, or null for none
/// - `k_pages`: u8 `[pages, page_bytes]`, keys; a page is \[kv_heads, 128, head_dim\], each row of head_dim in
///   `format`; read and overwritten
/// - `v_pages`: u8 `[pages, page_bytes]`, values, laid out as the keys; read and overwritten
/// - `out`: of `dtype` `[batch, heads, head_dim]`, output; overwritten
/// - `scale`: factor of the products; must be finite
/// - `window`: most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
/// - `softcap`: bound of the scores, or 0 for none; must be finite and at least 0
/// - `layout`: NNCUDA_ROPE_\*
/// - `format`: NNCUDA_FORMAT_\*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn attention_step_paged(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    cosine: &Tensor,
    sine: &Tensor,
    positions: &Tensor,
    lengths: &Tensor,
    page_table: &Tensor,
    sinks: Option<&Tensor>,
    k_pages: &Tensor,
    v_pages: &Tensor,
    out: &Tensor,
    scale: f32,
    window: i64,
    softcap: f32,
    layout: RopeLayout,
    format: Format,
) -> Result<()> {
    let call = Call::new("cuda_attention_step_paged", q);
    let q = call.strided::<3>("q", "[batch:ld_q, heads, head_dim]", q)?;
    let k = call.strided::<3>("k", "[batch:ld_kv, kv_heads, head_dim]", k)?;
    let v = call.strided::<3>("v", "[batch:ld_kv, kv_heads, head_dim]", v)?;
    let cosine = call.dense::<2>("cosine", "[max_position, head_dim/2]", cosine)?.of(DType::F32)?;
    let sine = call.dense::<2>("sine", "[max_position, head_dim/2]", sine)?.of(DType::F32)?;
    let positions = call.dense::<1>("positions", "[batch]", positions)?.of(DType::I32)?;
    let lengths = call.dense::<1>("lengths", "[batch]", lengths)?.of(DType::I32)?;
    let page_table = call.dense::<2>("page_table", "[batch, max_pages]", page_table)?.of(DType::I32)?;
    let sinks = match sinks {
        Some(sinks) => Some(call.dense::<1>("sinks", "[heads]", sinks)?.of(DType::F32)?),
        None => None,
    };
    let k_pages = call.dense::<2>("k_pages", "[pages, page_bytes]", k_pages)?.of(DType::U8)?;
    let v_pages = call.dense::<2>("v_pages", "[pages, page_bytes]", v_pages)?.of(DType::U8)?;
    let out = call.dense::<3>("out", "[batch, heads, head_dim]", out)?;
    call.same(&[Some(q.named()), Some(out.named())])?;
    call.same(&[Some(k.named()), Some(v.named())])?;
    call.same(&[Some(cosine.named()), Some(sine.named())])?;
    call.same(&[Some(positions.named()), Some(lengths.named())])?;
    call.same(&[Some(k_pages.named()), Some(v_pages.named())])?;
    call.folds("batch", &[Some(q.named()), Some(k.named()), Some(positions.named()), Some(page_table.named())])?;
    if let Some(sinks) = &sinks {
        sinks.unfolded("heads", "q")?;
    }
    let batch = q.dims[0];
    let heads = q.dims[1];
    let head_dim = q.dims[2];
    let kv_heads = k.dims[1];
    let max_position = cosine.dims[0];
    let max_pages = page_table.dims[1];
    let pages = k_pages.dims[0];
    let page_bytes = k_pages.dims[1];
    const SIZES: [(&str, &str); 8] = [
        ("batch", "from q"),
        ("heads", "from q"),
        ("head_dim", "from q"),
        ("kv_heads", "from k"),
        ("max_position", "from cosine"),
        ("max_pages", "from page_table"),
        ("pages", "from k_pages"),
        ("page_bytes", "from k_pages"),
    ];
    let sizes = Sizes {
        names: &SIZES,
        values: &[batch, heads, head_dim, kv_heads, max_position, max_pages, pages, page_bytes],
    };
    k.expect([batch, kv_heads, head_dim], sizes)?;
    v.expect([batch, kv_heads, head_dim], sizes)?;
    cosine.expect([max_position, head_dim / 2], sizes)?;
    sine.expect([max_position, head_dim / 2], sizes)?;
    positions.expect([batch], sizes)?;
    lengths.expect([batch], sizes)?;
    page_table.expect([batch, max_pages], sizes)?;
    if let Some(sinks) = &sinks {
        sinks.expect([heads], sizes)?;
    }
    v_pages.expect([pages, page_bytes], sizes)?;
    out.expect([batch, heads, head_dim], sizes)?;
    let dtype = q.dtype();
    k.same(dtype, "q")?;
    v.same(dtype, "q")?;
    out.same(dtype, "q")?;
    let ld_q = call.stride(&[q.rows()])?;
    let ld_kv = call.stride(&[k.rows(), v.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_attention_step_paged)(
            call.handle(),
            q.pointer(),
            k.pointer(),
            v.pointer(),
            cosine.pointer().cast(),
            sine.pointer().cast(),
            positions.pointer().cast(),
            lengths.pointer().cast(),
            page_table.pointer().cast(),
            pointer(&sinks).cast(),
            k_pages.pointer(),
            v_pages.pointer(),
            out.pointer(),
            batch as i64,
            max_pages as i64,
            pages as i64,
            heads as i64,
            kv_heads as i64,
            head_dim as i64,
            max_position as i64,
            ld_q as i64,
            ld_kv as i64,
            page_bytes as i64,
            scale,
            window,
            softcap,
            layout as i32,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [
        Some(q.tensor),
        Some(k.tensor),
        Some(v.tensor),
        Some(cosine.tensor),
        Some(sine.tensor),
        Some(positions.tensor),
        Some(lengths.tensor),
        Some(page_table.tensor),
        tensor(&sinks),
        Some(k_pages.tensor),
        Some(v_pages.tensor),
        Some(out.tensor),
    ];
    call.finish(status, &tensors)
}
