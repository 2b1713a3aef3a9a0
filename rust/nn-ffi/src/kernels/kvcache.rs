// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section kvcache of bindings.h.

#![allow(clippy::too_many_arguments, reason = "the arguments are those of the C function")]

use crate::call::{Call, Sizes, plus, times};
use crate::{DType, Format, Result, Tensor};

/// Appends the keys and values of new tokens to each sequence's cache, at rows starts\[b\] .. starts\[b\]+len-1.
///
/// # Arguments
///
/// - `k`: of `dtype` `[batch*len:ld_kv, kv_heads, head_dim]`, new keys
/// - `v`: of `dtype` `[batch*len:ld_kv, kv_heads, head_dim]`, new values
/// - `starts`: i32 `[batch]`, first row to write, 0 .. capacity-len
/// - `k_cache`: of `dtype` `[batch, capacity, kv_heads, head_dim]`, keys; other rows stay; read and overwritten
/// - `v_cache`: of `dtype` `[batch, capacity, kv_heads, head_dim]`, values; other rows stay; read and overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn kv_append(k: &Tensor, v: &Tensor, starts: &Tensor, k_cache: &Tensor, v_cache: &Tensor) -> Result<()> {
    let call = Call::new("cuda_kv_append", k);
    let k = call.strided::<3>("k", "[batch*len:ld_kv, kv_heads, head_dim]", k)?;
    let v = call.strided::<3>("v", "[batch*len:ld_kv, kv_heads, head_dim]", v)?;
    let starts = call.dense::<1>("starts", "[batch]", starts)?.of(DType::I32)?;
    let k_cache = call.dense::<4>("k_cache", "[batch, capacity, kv_heads, head_dim]", k_cache)?;
    let v_cache = call.dense::<4>("v_cache", "[batch, capacity, kv_heads, head_dim]", v_cache)?;
    call.same(&[Some(k.named()), Some(v.named())])?;
    call.same(&[Some(k_cache.named()), Some(v_cache.named())])?;
    call.folds("batch", &[Some(starts.named()), Some(k_cache.named())])?;
    let kv_heads = k.dims[1];
    let head_dim = k.dims[2];
    let batch = starts.dims[0];
    let capacity = k_cache.dims[1];
    let len = k.solve(0, "len", batch, 1, 0)?;
    const SIZES: [(&str, &str); 5] = [
        ("kv_heads", "from k"),
        ("head_dim", "from k"),
        ("batch", "from starts"),
        ("capacity", "from k_cache"),
        ("len", "from k"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[kv_heads, head_dim, batch, capacity, len] };
    v.expect([times(&[batch, len]), kv_heads, head_dim], sizes)?;
    k_cache.expect([batch, capacity, kv_heads, head_dim], sizes)?;
    v_cache.expect([batch, capacity, kv_heads, head_dim], sizes)?;
    k.expect_factors(&[batch, len], sizes)?;
    let dtype = k.dtype();
    v.same(dtype, "k")?;
    k_cache.same(dtype, "k")?;
    v_cache.same(dtype, "k")?;
    let ld_kv = call.stride(&[k.rows(), v.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_kv_append)(
            call.handle(),
            k.pointer(),
            v.pointer(),
            starts.pointer().cast(),
            k_cache.pointer(),
            v_cache.pointer(),
            batch as i64,
            len as i64,
            capacity as i64,
            kv_heads as i64,
            head_dim as i64,
            ld_kv as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(k.tensor), Some(v.tensor), Some(starts.tensor), Some(k_cache.tensor), Some(v_cache.tensor)];
    call.finish(status, &tensors)
}

/// Drops the oldest rows of each cache so that at most `keep` remain: the newest move to the front, lengths follow.
///
/// # Arguments
///
/// - `k_cache`: of `dtype` `[batch, capacity, kv_heads, head_dim]`, keys; read and overwritten
/// - `v_cache`: of `dtype` `[batch, capacity, kv_heads, head_dim]`, values; read and overwritten
/// - `lengths`: i32 `[batch]`, rows in use, 0 .. capacity; read and overwritten
/// - `keep`: rows to keep; must be 0 to capacity
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn kv_trim(k_cache: &Tensor, v_cache: &Tensor, lengths: &Tensor, keep: i64) -> Result<()> {
    let call = Call::new("cuda_kv_trim", k_cache);
    let k_cache = call.dense::<4>("k_cache", "[batch, capacity, kv_heads, head_dim]", k_cache)?;
    let v_cache = call.dense::<4>("v_cache", "[batch, capacity, kv_heads, head_dim]", v_cache)?;
    let lengths = call.dense::<1>("lengths", "[batch]", lengths)?.of(DType::I32)?;
    call.same(&[Some(k_cache.named()), Some(v_cache.named())])?;
    call.folds("batch", &[Some(k_cache.named()), Some(lengths.named())])?;
    let batch = k_cache.dims[0];
    let capacity = k_cache.dims[1];
    let kv_heads = k_cache.dims[2];
    let head_dim = k_cache.dims[3];
    const SIZES: [(&str, &str); 4] = [
        ("batch", "from k_cache"),
        ("capacity", "from k_cache"),
        ("kv_heads", "from k_cache"),
        ("head_dim", "from k_cache"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[batch, capacity, kv_heads, head_dim] };
    v_cache.expect([batch, capacity, kv_heads, head_dim], sizes)?;
    lengths.expect([batch], sizes)?;
    let dtype = k_cache.dtype();
    v_cache.same(dtype, "k_cache")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_kv_trim)(
            call.handle(),
            k_cache.pointer(),
            v_cache.pointer(),
            lengths.pointer().cast(),
            batch as i64,
            capacity as i64,
            kv_heads as i64,
            head_dim as i64,
            keep,
            dtype.code(),
        )
    };
    let tensors = [Some(k_cache.tensor), Some(v_cache.tensor), Some(lengths.tensor)];
    call.finish(status, &tensors)
}

/// Writes the keys and values of new tokens into their sequences' pages.
///
/// Tokens offsets\[b\] .. offsets\[b+1\]-1 become the last rows of the lengths\[b\] that sequence b then has; row j
/// lies in row j mod 128 of page page_table\[b\]\[j / 128\]. Two sequences must not write to the same row: that is
/// the caller's duty, and what is left there otherwise is open. Numbers are rounded as by cast and quantize; in
/// q8_0 a block with one that is not finite becomes NaN. In e4m3 they are rounded to the nearest, ties to even, and
/// to 448 or -448 where they are beyond (infinities, too); NaN is 0x7f. (Kwon et al. 2023, "PagedAttention";
/// Micikevicius et al. 2022, "FP8 formats for deep learning")
///
/// # Arguments
///
/// - `k`: of `dtype` `[tokens:ld_kv, kv_heads, head_dim]`, new keys
/// - `v`: of `dtype` `[tokens:ld_kv, kv_heads, head_dim]`, new values
/// - `offsets`: i32 `[batch+1]`, first token of each sequence; offsets\[0\] = 0, never falling, the last at most
///   `tokens`
/// - `lengths`: i32 `[batch]`, rows of each sequence's cache, its new tokens included, at most 128 \* max_pages
/// - `page_table`: i32 `[batch, max_pages]`, pages of each sequence, 0 .. pages-1 where rows are written; others are
///   not read
/// - `k_pages`: u8 `[pages, page_bytes]`, keys; a page is \[kv_heads, 128, head_dim\], each row of head_dim in
///   `format`; read and overwritten
/// - `v_pages`: u8 `[pages, page_bytes]`, values, laid out as the keys; read and overwritten
/// - `format`: NNCUDA_FORMAT_\*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn kv_append_paged(
    k: &Tensor,
    v: &Tensor,
    offsets: &Tensor,
    lengths: &Tensor,
    page_table: &Tensor,
    k_pages: &Tensor,
    v_pages: &Tensor,
    format: Format,
) -> Result<()> {
    let call = Call::new("cuda_kv_append_paged", k);
    let k = call.strided::<3>("k", "[tokens:ld_kv, kv_heads, head_dim]", k)?;
    let v = call.strided::<3>("v", "[tokens:ld_kv, kv_heads, head_dim]", v)?;
    let offsets = call.dense::<1>("offsets", "[batch+1]", offsets)?.of(DType::I32)?;
    let lengths = call.dense::<1>("lengths", "[batch]", lengths)?.of(DType::I32)?;
    let page_table = call.dense::<2>("page_table", "[batch, max_pages]", page_table)?.of(DType::I32)?;
    let k_pages = call.dense::<2>("k_pages", "[pages, page_bytes]", k_pages)?.of(DType::U8)?;
    let v_pages = call.dense::<2>("v_pages", "[pages, page_bytes]", v_pages)?.of(DType::U8)?;
    call.same(&[Some(k.named()), Some(v.named())])?;
    call.same(&[Some(k_pages.named()), Some(v_pages.named())])?;
    call.folds("batch", &[Some(lengths.named()), Some(page_table.named())])?;
    let tokens = k.dims[0];
    let kv_heads = k.dims[1];
    let head_dim = k.dims[2];
    let batch = lengths.dims[0];
    let max_pages = page_table.dims[1];
    let pages = k_pages.dims[0];
    let page_bytes = k_pages.dims[1];
    const SIZES: [(&str, &str); 7] = [
        ("tokens", "from k"),
        ("kv_heads", "from k"),
        ("head_dim", "from k"),
        ("batch", "from lengths"),
        ("max_pages", "from page_table"),
        ("pages", "from k_pages"),
        ("page_bytes", "from k_pages"),
    ];
    let sizes = Sizes { names: &SIZES, values: &[tokens, kv_heads, head_dim, batch, max_pages, pages, page_bytes] };
    v.expect([tokens, kv_heads, head_dim], sizes)?;
    offsets.expect([plus(batch, 1)], sizes)?;
    page_table.expect([batch, max_pages], sizes)?;
    v_pages.expect([pages, page_bytes], sizes)?;
    let dtype = k.dtype();
    v.same(dtype, "k")?;
    let ld_kv = call.stride(&[k.rows(), v.rows()])?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_kv_append_paged)(
            call.handle(),
            k.pointer(),
            v.pointer(),
            offsets.pointer().cast(),
            lengths.pointer().cast(),
            page_table.pointer().cast(),
            k_pages.pointer(),
            v_pages.pointer(),
            tokens as i64,
            batch as i64,
            max_pages as i64,
            pages as i64,
            kv_heads as i64,
            head_dim as i64,
            ld_kv as i64,
            page_bytes as i64,
            format as i32,
            dtype.code(),
        )
    };
    let tensors = [
        Some(k.tensor),
        Some(v.tensor),
        Some(offsets.tensor),
        Some(lengths.tensor),
        Some(page_table.tensor),
        Some(k_pages.tensor),
        Some(v_pages.tensor),
    ];
    call.finish(status, &tensors)
}
