// Code generated from bindings.h by `python -m nncuda.binding.golang`. DO NOT EDIT.

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
//   - keep: rows to keep, 0 .. capacity
func KVTrim(kCache, vCache, lengths *Tensor, keep int64) error {
	check := begin("kv_trim", "batch and capacity and kv_heads and head_dim from k_cache")
	if !check.required("k_cache", kCache, 4, dense) ||
		!check.required("v_cache", vCache, 4, dense) ||
		!check.required("lengths", lengths, 1, dense) {
		return check.err
	}
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
