// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// Quantize calls cuda_quantize as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.Quantize.
func (ctx *Context) Quantize(x, y Memory, rows, k, rowBytes int64, format Format, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_quantize")
	}
	status := C.call_cuda_quantize(in.handle, xAt, yAt, C.int64_t(rows), C.int64_t(k), C.int64_t(rowBytes),
		C.int32_t(format), C.int32_t(dtype))
	return in.leave("cuda_quantize", status)
}

// Dequantize calls cuda_dequantize as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.Dequantize.
func (ctx *Context) Dequantize(x, y Memory, rows, k, rowBytes int64, format Format, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_dequantize")
	}
	status := C.call_cuda_dequantize(in.handle, xAt, yAt, C.int64_t(rows), C.int64_t(k), C.int64_t(rowBytes),
		C.int32_t(format), C.int32_t(dtype))
	return in.leave("cuda_dequantize", status)
}

// EmbeddingQuant calls cuda_embedding_quant as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.EmbeddingQuant.
func (ctx *Context) EmbeddingQuant(table, ids, y Memory, tokens, vocab, dim, rowBytes int64, format Format,
	dtype DType) error {
	in := ctx.enter()
	tableAt := in.at("table", table)
	idsAt := in.at("ids", ids)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_embedding_quant")
	}
	status := C.call_cuda_embedding_quant(in.handle, tableAt, idsAt, yAt, C.int64_t(tokens), C.int64_t(vocab),
		C.int64_t(dim), C.int64_t(rowBytes), C.int32_t(format), C.int32_t(dtype))
	return in.leave("cuda_embedding_quant", status)
}

// GemmQuant calls cuda_gemm_quant as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.GemmQuant.
func (ctx *Context) GemmQuant(x, w, offsets, bias, residual, y Memory, groups, m, n, k, rowBytes int64,
	activation Activation, format Format, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	wAt := in.at("w", w)
	offsetsAt := in.at("offsets", offsets)
	biasAt := in.at("bias", bias)
	residualAt := in.at("residual", residual)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_gemm_quant")
	}
	status := C.call_cuda_gemm_quant(in.handle, xAt, wAt, offsetsAt, biasAt, residualAt, yAt, C.int64_t(groups),
		C.int64_t(m), C.int64_t(n), C.int64_t(k), C.int64_t(rowBytes), C.int32_t(activation), C.int32_t(format),
		C.int32_t(dtype))
	return in.leave("cuda_gemm_quant", status)
}

// GemmQuantQKV calls cuda_gemm_quant_qkv as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.GemmQuantQKV.
func (ctx *Context) GemmQuantQKV(x, wq, wk, wv, bias, norm, y Memory, m, nQ, nKV, n, k, rowBytesQ, rowBytesK,
	rowBytesV int64, eps float32, formatQ, formatK, formatV Format, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	wqAt := in.at("wq", wq)
	wkAt := in.at("wk", wk)
	wvAt := in.at("wv", wv)
	biasAt := in.at("bias", bias)
	normAt := in.at("norm", norm)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_gemm_quant_qkv")
	}
	status := C.call_cuda_gemm_quant_qkv(in.handle, xAt, wqAt, wkAt, wvAt, biasAt, normAt, yAt, C.int64_t(m),
		C.int64_t(nQ), C.int64_t(nKV), C.int64_t(n), C.int64_t(k), C.int64_t(rowBytesQ), C.int64_t(rowBytesK),
		C.int64_t(rowBytesV), C.float(eps), C.int32_t(formatQ), C.int32_t(formatK), C.int32_t(formatV),
		C.int32_t(dtype))
	return in.leave("cuda_gemm_quant_qkv", status)
}

// GemmQuantSwiGLU calls cuda_gemm_quant_swiglu as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.GemmQuantSwiGLU.
func (ctx *Context) GemmQuantSwiGLU(x, wGate, wUp, offsets, norm, y Memory, groups, m, n, k, rowBytesGate,
	rowBytesUp int64, eps float32, formatGate, formatUp Format, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	wGateAt := in.at("w_gate", wGate)
	wUpAt := in.at("w_up", wUp)
	offsetsAt := in.at("offsets", offsets)
	normAt := in.at("norm", norm)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_gemm_quant_swiglu")
	}
	status := C.call_cuda_gemm_quant_swiglu(in.handle, xAt, wGateAt, wUpAt, offsetsAt, normAt, yAt, C.int64_t(groups),
		C.int64_t(m), C.int64_t(n), C.int64_t(k), C.int64_t(rowBytesGate), C.int64_t(rowBytesUp), C.float(eps),
		C.int32_t(formatGate), C.int32_t(formatUp), C.int32_t(dtype))
	return in.leave("cuda_gemm_quant_swiglu", status)
}

// GemmQuantRoute calls cuda_gemm_quant_route as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.GemmQuantRoute.
func (ctx *Context) GemmQuantRoute(x, gains, w, y, logits, weights, indices, probs, counts, offsets, slotRow,
	rowSlot Memory, tokens, experts, k, dim, rowBytes int64, eps float32, norm bool, format Format) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	gainsAt := in.at("gains", gains)
	wAt := in.at("w", w)
	yAt := in.at("y", y)
	logitsAt := in.at("logits", logits)
	weightsAt := in.at("weights", weights)
	indicesAt := in.at("indices", indices)
	probsAt := in.at("probs", probs)
	countsAt := in.at("counts", counts)
	offsetsAt := in.at("offsets", offsets)
	slotRowAt := in.at("slot_row", slotRow)
	rowSlotAt := in.at("row_slot", rowSlot)
	if in.refused() {
		return in.refuse("cuda_gemm_quant_route")
	}
	status := C.call_cuda_gemm_quant_route(in.handle, xAt, gainsAt, wAt, yAt, logitsAt, weightsAt, indicesAt, probsAt,
		countsAt, offsetsAt, slotRowAt, rowSlotAt, C.int64_t(tokens), C.int64_t(experts), C.int64_t(k), C.int64_t(dim),
		C.int64_t(rowBytes), C.float(eps), flag(norm), C.int32_t(format))
	return in.leave("cuda_gemm_quant_route", status)
}

// GemmQuantExperts calls cuda_gemm_quant_experts as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.GemmQuantExperts.
func (ctx *Context) GemmQuantExperts(x, wGate, wUp, wDown, weights, offsets, slotRow, rowSlot, residual, y Memory,
	tokens, experts, k, dim, n, rowBytesGate, rowBytesUp, rowBytesDown int64, formatGate, formatUp,
	formatDown Format) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	wGateAt := in.at("w_gate", wGate)
	wUpAt := in.at("w_up", wUp)
	wDownAt := in.at("w_down", wDown)
	weightsAt := in.at("weights", weights)
	offsetsAt := in.at("offsets", offsets)
	slotRowAt := in.at("slot_row", slotRow)
	rowSlotAt := in.at("row_slot", rowSlot)
	residualAt := in.at("residual", residual)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_gemm_quant_experts")
	}
	status := C.call_cuda_gemm_quant_experts(in.handle, xAt, wGateAt, wUpAt, wDownAt, weightsAt, offsetsAt, slotRowAt,
		rowSlotAt, residualAt, yAt, C.int64_t(tokens), C.int64_t(experts), C.int64_t(k), C.int64_t(dim), C.int64_t(n),
		C.int64_t(rowBytesGate), C.int64_t(rowBytesUp), C.int64_t(rowBytesDown), C.int32_t(formatGate),
		C.int32_t(formatUp), C.int32_t(formatDown))
	return in.leave("cuda_gemm_quant_experts", status)
}

// InterleaveRows calls cuda_interleave_rows as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.InterleaveRows.
func (ctx *Context) InterleaveRows(x, y Memory, rows, k, rowBytes int64, format Format) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_interleave_rows")
	}
	status := C.call_cuda_interleave_rows(in.handle, xAt, yAt, C.int64_t(rows), C.int64_t(k), C.int64_t(rowBytes),
		C.int32_t(format))
	return in.leave("cuda_interleave_rows", status)
}
