// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// AttentionScores calls cuda_attention_scores as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.AttentionScores.
func (ctx *Context) AttentionScores(q, k, scores Memory, batch, qLen, kvLen, heads, kvHeads, headDim int64,
	scale float32, causal bool, dtype DType) error {
	in := ctx.enter()
	qAt := in.at("q", q)
	kAt := in.at("k", k)
	scoresAt := in.at("scores", scores)
	if in.refused() {
		return in.refuse("cuda_attention_scores")
	}
	status := C.call_cuda_attention_scores(in.handle, qAt, kAt, scoresAt, C.int64_t(batch), C.int64_t(qLen),
		C.int64_t(kvLen), C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(headDim), C.float(scale), flag(causal),
		C.int32_t(dtype))
	return in.leave("cuda_attention_scores", status)
}

// AttentionOutput calls cuda_attention_output as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.AttentionOutput.
func (ctx *Context) AttentionOutput(probs, v, out Memory, batch, qLen, kvLen, heads, kvHeads, headDim int64,
	dtype DType) error {
	in := ctx.enter()
	probsAt := in.at("probs", probs)
	vAt := in.at("v", v)
	outAt := in.at("out", out)
	if in.refused() {
		return in.refuse("cuda_attention_output")
	}
	status := C.call_cuda_attention_output(in.handle, probsAt, vAt, outAt, C.int64_t(batch), C.int64_t(qLen),
		C.int64_t(kvLen), C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(headDim), C.int32_t(dtype))
	return in.leave("cuda_attention_output", status)
}

// FlashAttention calls cuda_flash_attention as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.FlashAttention.
func (ctx *Context) FlashAttention(q, k, v, starts, out, lse Memory, batch, qLen, kvLen, heads, kvHeads, headDim, ldQ,
	ldKV int64, scale float32, causal bool, dtype DType) error {
	in := ctx.enter()
	qAt := in.at("q", q)
	kAt := in.at("k", k)
	vAt := in.at("v", v)
	startsAt := in.at("starts", starts)
	outAt := in.at("out", out)
	lseAt := in.at("lse", lse)
	if in.refused() {
		return in.refuse("cuda_flash_attention")
	}
	status := C.call_cuda_flash_attention(in.handle, qAt, kAt, vAt, startsAt, outAt, lseAt, C.int64_t(batch),
		C.int64_t(qLen), C.int64_t(kvLen), C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(headDim), C.int64_t(ldQ),
		C.int64_t(ldKV), C.float(scale), flag(causal), C.int32_t(dtype))
	return in.leave("cuda_flash_attention", status)
}

// FlashAttentionBackward calls cuda_flash_attention_backward as it is in bindings.h: sizes are not compared with those
// of the buffers. See tensor.FlashAttentionBackward.
func (ctx *Context) FlashAttentionBackward(dout, q, k, v, out, lse, starts, dq, dk, dv Memory, batch, qLen, kvLen,
	heads, kvHeads, headDim, ldQ, ldKV int64, scale float32, causal bool, dtype DType) error {
	in := ctx.enter()
	doutAt := in.at("dout", dout)
	qAt := in.at("q", q)
	kAt := in.at("k", k)
	vAt := in.at("v", v)
	outAt := in.at("out", out)
	lseAt := in.at("lse", lse)
	startsAt := in.at("starts", starts)
	dqAt := in.at("dq", dq)
	dkAt := in.at("dk", dk)
	dvAt := in.at("dv", dv)
	if in.refused() {
		return in.refuse("cuda_flash_attention_backward")
	}
	status := C.call_cuda_flash_attention_backward(in.handle, doutAt, qAt, kAt, vAt, outAt, lseAt, startsAt, dqAt, dkAt,
		dvAt, C.int64_t(batch), C.int64_t(qLen), C.int64_t(kvLen), C.int64_t(heads), C.int64_t(kvHeads),
		C.int64_t(headDim), C.int64_t(ldQ), C.int64_t(ldKV), C.float(scale), flag(causal), C.int32_t(dtype))
	return in.leave("cuda_flash_attention_backward", status)
}

// DocumentStarts calls cuda_document_starts as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.DocumentStarts.
func (ctx *Context) DocumentStarts(ids, starts, positions Memory, batch, length int64, separator int32) error {
	in := ctx.enter()
	idsAt := in.at("ids", ids)
	startsAt := in.at("starts", starts)
	positionsAt := in.at("positions", positions)
	if in.refused() {
		return in.refuse("cuda_document_starts")
	}
	status := C.call_cuda_document_starts(in.handle, idsAt, startsAt, positionsAt, C.int64_t(batch), C.int64_t(length),
		C.int32_t(separator))
	return in.leave("cuda_document_starts", status)
}

// AttentionDecode calls cuda_attention_decode as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.AttentionDecode.
func (ctx *Context) AttentionDecode(q, kCache, vCache, lengths, out Memory, batch, capacity, heads, kvHeads, headDim,
	ldQ int64, scale float32, dtype DType) error {
	in := ctx.enter()
	qAt := in.at("q", q)
	kCacheAt := in.at("k_cache", kCache)
	vCacheAt := in.at("v_cache", vCache)
	lengthsAt := in.at("lengths", lengths)
	outAt := in.at("out", out)
	if in.refused() {
		return in.refuse("cuda_attention_decode")
	}
	status := C.call_cuda_attention_decode(in.handle, qAt, kCacheAt, vCacheAt, lengthsAt, outAt, C.int64_t(batch),
		C.int64_t(capacity), C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(headDim), C.int64_t(ldQ), C.float(scale),
		C.int32_t(dtype))
	return in.leave("cuda_attention_decode", status)
}

// FlashAttentionPaged calls cuda_flash_attention_paged as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.FlashAttentionPaged.
func (ctx *Context) FlashAttentionPaged(q, kPages, vPages, offsets, lengths, pageTable, sinks, out Memory, tokens,
	batch, maxPages, pages, heads, kvHeads, headDim, ldQ, pageBytes int64, scale float32, window int64, softcap float32,
	format Format, dtype DType) error {
	in := ctx.enter()
	qAt := in.at("q", q)
	kPagesAt := in.at("k_pages", kPages)
	vPagesAt := in.at("v_pages", vPages)
	offsetsAt := in.at("offsets", offsets)
	lengthsAt := in.at("lengths", lengths)
	pageTableAt := in.at("page_table", pageTable)
	sinksAt := in.at("sinks", sinks)
	outAt := in.at("out", out)
	if in.refused() {
		return in.refuse("cuda_flash_attention_paged")
	}
	status := C.call_cuda_flash_attention_paged(in.handle, qAt, kPagesAt, vPagesAt, offsetsAt, lengthsAt, pageTableAt,
		sinksAt, outAt, C.int64_t(tokens), C.int64_t(batch), C.int64_t(maxPages), C.int64_t(pages), C.int64_t(heads),
		C.int64_t(kvHeads), C.int64_t(headDim), C.int64_t(ldQ), C.int64_t(pageBytes), C.float(scale), C.int64_t(window),
		C.float(softcap), C.int32_t(format), C.int32_t(dtype))
	return in.leave("cuda_flash_attention_paged", status)
}

// AttentionDecodePaged calls cuda_attention_decode_paged as it is in bindings.h: sizes are not compared with those of
// the buffers. See tensor.AttentionDecodePaged.
func (ctx *Context) AttentionDecodePaged(q, kPages, vPages, lengths, pageTable, sinks, out Memory, batch, maxPages,
	pages, heads, kvHeads, headDim, ldQ, pageBytes int64, scale float32, window int64, softcap float32, format Format,
	dtype DType) error {
	in := ctx.enter()
	qAt := in.at("q", q)
	kPagesAt := in.at("k_pages", kPages)
	vPagesAt := in.at("v_pages", vPages)
	lengthsAt := in.at("lengths", lengths)
	pageTableAt := in.at("page_table", pageTable)
	sinksAt := in.at("sinks", sinks)
	outAt := in.at("out", out)
	if in.refused() {
		return in.refuse("cuda_attention_decode_paged")
	}
	status := C.call_cuda_attention_decode_paged(in.handle, qAt, kPagesAt, vPagesAt, lengthsAt, pageTableAt, sinksAt,
		outAt, C.int64_t(batch), C.int64_t(maxPages), C.int64_t(pages), C.int64_t(heads), C.int64_t(kvHeads),
		C.int64_t(headDim), C.int64_t(ldQ), C.int64_t(pageBytes), C.float(scale), C.int64_t(window), C.float(softcap),
		C.int32_t(format), C.int32_t(dtype))
	return in.leave("cuda_attention_decode_paged", status)
}

// AttentionStepPaged calls cuda_attention_step_paged as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.AttentionStepPaged.
func (ctx *Context) AttentionStepPaged(q, k, v, cosine, sine, positions, lengths, pageTable, sinks, kPages, vPages,
	out Memory, batch, maxPages, pages, heads, kvHeads, headDim, maxPosition, ldQ, ldKV, pageBytes int64, scale float32,
	window int64, softcap float32, layout RopeLayout, format Format, dtype DType) error {
	in := ctx.enter()
	qAt := in.at("q", q)
	kAt := in.at("k", k)
	vAt := in.at("v", v)
	cosineAt := in.at("cosine", cosine)
	sineAt := in.at("sine", sine)
	positionsAt := in.at("positions", positions)
	lengthsAt := in.at("lengths", lengths)
	pageTableAt := in.at("page_table", pageTable)
	sinksAt := in.at("sinks", sinks)
	kPagesAt := in.at("k_pages", kPages)
	vPagesAt := in.at("v_pages", vPages)
	outAt := in.at("out", out)
	if in.refused() {
		return in.refuse("cuda_attention_step_paged")
	}
	status := C.call_cuda_attention_step_paged(in.handle, qAt, kAt, vAt, cosineAt, sineAt, positionsAt, lengthsAt,
		pageTableAt, sinksAt, kPagesAt, vPagesAt, outAt, C.int64_t(batch), C.int64_t(maxPages), C.int64_t(pages),
		C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(headDim), C.int64_t(maxPosition), C.int64_t(ldQ),
		C.int64_t(ldKV), C.int64_t(pageBytes), C.float(scale), C.int64_t(window), C.float(softcap), C.int32_t(layout),
		C.int32_t(format), C.int32_t(dtype))
	return in.leave("cuda_attention_step_paged", status)
}
