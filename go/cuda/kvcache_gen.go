// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// KVAppend calls cuda_kv_append as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.KVAppend.
func (ctx *Context) KVAppend(k, v, starts, kCache, vCache Memory, batch, length, capacity, kvHeads, headDim, ldKV int64,
	dtype DType) error {
	in := ctx.enter()
	kAt := in.at("k", k)
	vAt := in.at("v", v)
	startsAt := in.at("starts", starts)
	kCacheAt := in.at("k_cache", kCache)
	vCacheAt := in.at("v_cache", vCache)
	if in.refused() {
		return in.refuse("cuda_kv_append")
	}
	status := C.call_cuda_kv_append(in.handle, kAt, vAt, startsAt, kCacheAt, vCacheAt, C.int64_t(batch),
		C.int64_t(length), C.int64_t(capacity), C.int64_t(kvHeads), C.int64_t(headDim), C.int64_t(ldKV),
		C.int32_t(dtype))
	return in.leave("cuda_kv_append", status)
}

// KVTrim calls cuda_kv_trim as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.KVTrim.
func (ctx *Context) KVTrim(kCache, vCache, lengths Memory, batch, capacity, kvHeads, headDim, keep int64,
	dtype DType) error {
	in := ctx.enter()
	kCacheAt := in.at("k_cache", kCache)
	vCacheAt := in.at("v_cache", vCache)
	lengthsAt := in.at("lengths", lengths)
	if in.refused() {
		return in.refuse("cuda_kv_trim")
	}
	status := C.call_cuda_kv_trim(in.handle, kCacheAt, vCacheAt, lengthsAt, C.int64_t(batch), C.int64_t(capacity),
		C.int64_t(kvHeads), C.int64_t(headDim), C.int64_t(keep), C.int32_t(dtype))
	return in.leave("cuda_kv_trim", status)
}

// KVAppendPaged calls cuda_kv_append_paged as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.KVAppendPaged.
func (ctx *Context) KVAppendPaged(k, v, offsets, lengths, pageTable, kPages, vPages Memory, tokens, batch, maxPages,
	pages, kvHeads, headDim, ldKV, pageBytes int64, format Format, dtype DType) error {
	in := ctx.enter()
	kAt := in.at("k", k)
	vAt := in.at("v", v)
	offsetsAt := in.at("offsets", offsets)
	lengthsAt := in.at("lengths", lengths)
	pageTableAt := in.at("page_table", pageTable)
	kPagesAt := in.at("k_pages", kPages)
	vPagesAt := in.at("v_pages", vPages)
	if in.refused() {
		return in.refuse("cuda_kv_append_paged")
	}
	status := C.call_cuda_kv_append_paged(in.handle, kAt, vAt, offsetsAt, lengthsAt, pageTableAt, kPagesAt, vPagesAt,
		C.int64_t(tokens), C.int64_t(batch), C.int64_t(maxPages), C.int64_t(pages), C.int64_t(kvHeads),
		C.int64_t(headDim), C.int64_t(ldKV), C.int64_t(pageBytes), C.int32_t(format), C.int32_t(dtype))
	return in.leave("cuda_kv_append_paged", status)
}
