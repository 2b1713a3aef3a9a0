// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// KVAppend calls cuda_kv_append.
//
// Appends the keys and values of new tokens to each sequence's cache, at rows starts[b] .. starts[b]+len-1.
//
//   - k, in dtype [batch*len:ld_kv, kv_heads, head_dim]: new keys
//   - v, in dtype [batch*len:ld_kv, kv_heads, head_dim]: new values
//   - starts, in i32 [batch]: first row to write, 0 .. capacity-len
//   - kCache, inout dtype [batch, capacity, kv_heads, head_dim]: keys; other rows stay
//   - vCache, inout dtype [batch, capacity, kv_heads, head_dim]: values; other rows stay
func KVAppend(k, v, starts, kCache, vCache *Tensor) error {
	check := begin("kv_append", "kv_heads and head_dim and len from k, batch from starts, capacity from k_cache")
	if !check.required("k", k, 3, strided) ||
		!check.required("v", v, 3, strided) ||
		!check.required("starts", starts, 1, dense) ||
		!check.required("k_cache", kCache, 4, dense) ||
		!check.required("v_cache", vCache, 4, dense) {
		return check.err
	}
	check.same(named{"k", k}, named{"v", v})
	check.same(named{"k_cache", kCache}, named{"v_cache", vCache})
	check.folds("batch", ranked{named{"starts", starts}, 1}, ranked{named{"k_cache", kCache}, 4})
	kvHeads := k.extent(3, 1)
	headDim := k.extent(3, 2)
	batch := starts.extent(1, 0)
	capacity := kCache.extent(4, 1)
	length := check.solve("k", "batch*len", "len", k.extent(3, 0), 0, 1, batch)
	dtype := k.dtype
	check.dtype("v", v, dtype)
	check.dtype("k_cache", kCache, dtype)
	check.dtype("v_cache", vCache, dtype)
	check.dtype("starts", starts, cuda.I32)
	check.shape("k", k, "[batch*len:ld_kv, kv_heads, head_dim]", batch*length, kvHeads, headDim)
	check.factors("k", k, 3, "[batch*len:ld_kv, kv_heads, head_dim]", batch, length)
	check.shape("v", v, "[batch*len:ld_kv, kv_heads, head_dim]", batch*length, kvHeads, headDim)
	check.shape("starts", starts, "[batch]", batch)
	check.shape("k_cache", kCache, "[batch, capacity, kv_heads, head_dim]", batch, capacity, kvHeads, headDim)
	check.shape("v_cache", vCache, "[batch, capacity, kv_heads, head_dim]", batch, capacity, kvHeads, headDim)
	ldKV := check.strides("ld_kv", 3, named{"k", k}, named{"v", v})
	if check.err != nil {
		return check.err
	}
	return check.ctx.KVAppend(k.memory(), v.memory(), starts.memory(), kCache.memory(), vCache.memory(), int64(batch),
		int64(length), int64(capacity), int64(kvHeads), int64(headDim), int64(ldKV), dtype)
}

// KVTrim calls cuda_kv_trim.
//
// Drops the oldest rows of each cache so that at most `keep` remain: the newest move to the front, lengths follow.
//
//   - kCache, inout dtype [batch, capacity, kv_heads, head_dim]: keys
//   - vCache, inout dtype [batch, capacity, kv_heads, head_dim]: values
//   - lengths, inout i32 [batch]: rows in use, 0 .. capacity
//   - keep: rows to keep; must be 0 to capacity
func KVTrim(kCache, vCache, lengths *Tensor, keep int64) error {
	check := begin("kv_trim", "batch and capacity and kv_heads and head_dim from k_cache")
	if !check.required("k_cache", kCache, 4, dense) ||
		!check.required("v_cache", vCache, 4, dense) ||
		!check.required("lengths", lengths, 1, dense) {
		return check.err
	}
	check.same(named{"k_cache", kCache}, named{"v_cache", vCache})
	check.folds("batch", ranked{named{"k_cache", kCache}, 4}, ranked{named{"lengths", lengths}, 1})
	batch := kCache.extent(4, 0)
	capacity := kCache.extent(4, 1)
	kvHeads := kCache.extent(4, 2)
	headDim := kCache.extent(4, 3)
	dtype := kCache.dtype
	check.dtype("v_cache", vCache, dtype)
	check.dtype("lengths", lengths, cuda.I32)
	check.shape("k_cache", kCache, "[batch, capacity, kv_heads, head_dim]", batch, capacity, kvHeads, headDim)
	check.shape("v_cache", vCache, "[batch, capacity, kv_heads, head_dim]", batch, capacity, kvHeads, headDim)
	check.shape("lengths", lengths, "[batch]", batch)
	if check.err != nil {
		return check.err
	}
	return check.ctx.KVTrim(kCache.memory(), vCache.memory(), lengths.memory(), int64(batch), int64(capacity),
		int64(kvHeads), int64(headDim), keep, dtype)
}

// KVAppendPaged calls cuda_kv_append_paged.
//
// Writes the keys and values of new tokens into their sequences' pages. Tokens offsets[b] .. offsets[b+1]-1 become the
// last rows of the lengths[b] that sequence b then has; row j lies in row j mod 128 of page page_table[b][j / 128]. Two
// sequences must not write to the same row: that is the caller's duty, and what is left there otherwise is open.
// Numbers are rounded as by cast and quantize; in q8_0 a block with one that is not finite becomes NaN. In e4m3 they
// are rounded to the nearest, ties to even, and to 448 or -448 where they are beyond (infinities, too); NaN is 0x7f.
// (Kwon et al. 2023, "PagedAttention"; Micikevicius et al. 2022, "FP8 formats for deep learning")
//
//   - k, in dtype [tokens:ld_kv, kv_heads, head_dim]: new keys
//   - v, in dtype [tokens:ld_kv, kv_heads, head_dim]: new values
//   - offsets, in i32 [batch+1]: first token of each sequence; offsets[0] = 0, never falling, the last at most `tokens`
//   - lengths, in i32 [batch]: rows of each sequence's cache, its new tokens included, at most 128 * max_pages
//   - pageTable, in i32 [batch, max_pages]: pages of each sequence, 0 .. pages-1 where rows are written; others are not
//     read
//   - kPages, inout u8 [pages, page_bytes]: keys; a page is [kv_heads, 128, head_dim], each row of head_dim in `format`
//   - vPages, inout u8 [pages, page_bytes]: values, laid out as the keys
//   - format, usually NNCUDA_FORMAT_F16: NNCUDA_FORMAT_*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
func KVAppendPaged(k, v, offsets, lengths, pageTable, kPages, vPages *Tensor, format cuda.Format) error {
	check := begin("kv_append_paged",
		"tokens and kv_heads and head_dim from k, batch from lengths, max_pages from page_table, pages and page_bytes from k_pages")
	if !check.required("k", k, 3, strided) ||
		!check.required("v", v, 3, strided) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("lengths", lengths, 1, dense) ||
		!check.required("page_table", pageTable, 2, dense) ||
		!check.required("k_pages", kPages, 2, dense) ||
		!check.required("v_pages", vPages, 2, dense) {
		return check.err
	}
	check.same(named{"k", k}, named{"v", v})
	check.same(named{"k_pages", kPages}, named{"v_pages", vPages})
	check.folds("batch", ranked{named{"lengths", lengths}, 1}, ranked{named{"page_table", pageTable}, 2})
	tokens := k.extent(3, 0)
	kvHeads := k.extent(3, 1)
	headDim := k.extent(3, 2)
	batch := lengths.extent(1, 0)
	maxPages := pageTable.extent(2, 1)
	pages := kPages.extent(2, 0)
	pageBytes := kPages.extent(2, 1)
	dtype := k.dtype
	check.dtype("v", v, dtype)
	check.dtype("offsets", offsets, cuda.I32)
	check.dtype("lengths", lengths, cuda.I32)
	check.dtype("page_table", pageTable, cuda.I32)
	check.dtype("k_pages", kPages, cuda.U8)
	check.dtype("v_pages", vPages, cuda.U8)
	check.shape("k", k, "[tokens:ld_kv, kv_heads, head_dim]", tokens, kvHeads, headDim)
	check.shape("v", v, "[tokens:ld_kv, kv_heads, head_dim]", tokens, kvHeads, headDim)
	check.shape("offsets", offsets, "[batch+1]", batch+1)
	check.shape("lengths", lengths, "[batch]", batch)
	check.shape("page_table", pageTable, "[batch, max_pages]", batch, maxPages)
	check.shape("k_pages", kPages, "[pages, page_bytes]", pages, pageBytes)
	check.shape("v_pages", vPages, "[pages, page_bytes]", pages, pageBytes)
	ldKV := check.strides("ld_kv", 3, named{"k", k}, named{"v", v})
	if check.err != nil {
		return check.err
	}
	return check.ctx.KVAppendPaged(k.memory(), v.memory(), offsets.memory(), lengths.memory(), pageTable.memory(),
		kPages.memory(), vPages.memory(), int64(tokens), int64(batch), int64(maxPages), int64(pages), int64(kvHeads),
		int64(headDim), int64(ldKV), int64(pageBytes), format, dtype)
}
