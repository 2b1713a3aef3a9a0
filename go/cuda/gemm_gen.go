// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// Gemm calls cuda_gemm as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Gemm.
func (ctx *Context) Gemm(a, b, c Memory, m, n, k int64, transA, transB bool, dtype, dtypeC DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	cAt := in.at("c", c)
	if in.refused() {
		return in.refuse("cuda_gemm")
	}
	status := C.call_cuda_gemm(in.handle, aAt, bAt, cAt, C.int64_t(m), C.int64_t(n), C.int64_t(k), flag(transA),
		flag(transB), C.int32_t(dtype), C.int32_t(dtypeC))
	return in.leave("cuda_gemm", status)
}

// GemmBeta calls cuda_gemm_beta as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.GemmBeta.
func (ctx *Context) GemmBeta(a, b, c Memory, m, n, k, lda, ldb, ldc int64, alpha, beta float32, transA, transB bool,
	dtype, dtypeC DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	cAt := in.at("c", c)
	if in.refused() {
		return in.refuse("cuda_gemm_beta")
	}
	status := C.call_cuda_gemm_beta(in.handle, aAt, bAt, cAt, C.int64_t(m), C.int64_t(n), C.int64_t(k), C.int64_t(lda),
		C.int64_t(ldb), C.int64_t(ldc), C.float(alpha), C.float(beta), flag(transA), flag(transB), C.int32_t(dtype),
		C.int32_t(dtypeC))
	return in.leave("cuda_gemm_beta", status)
}

// GemmEpilogue calls cuda_gemm_epilogue as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.GemmEpilogue.
func (ctx *Context) GemmEpilogue(a, b, bias, residual, c Memory, m, n, k int64, activation Activation,
	dtype DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	biasAt := in.at("bias", bias)
	residualAt := in.at("residual", residual)
	cAt := in.at("c", c)
	if in.refused() {
		return in.refuse("cuda_gemm_epilogue")
	}
	status := C.call_cuda_gemm_epilogue(in.handle, aAt, bAt, biasAt, residualAt, cAt, C.int64_t(m), C.int64_t(n),
		C.int64_t(k), C.int32_t(activation), C.int32_t(dtype))
	return in.leave("cuda_gemm_epilogue", status)
}

// BatchedGemm calls cuda_batched_gemm as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.BatchedGemm.
func (ctx *Context) BatchedGemm(a, b, c Memory, batch, m, n, k int64, alpha, beta float32, transA, transB bool, dtype,
	dtypeC DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	cAt := in.at("c", c)
	if in.refused() {
		return in.refuse("cuda_batched_gemm")
	}
	status := C.call_cuda_batched_gemm(in.handle, aAt, bAt, cAt, C.int64_t(batch), C.int64_t(m), C.int64_t(n),
		C.int64_t(k), C.float(alpha), C.float(beta), flag(transA), flag(transB), C.int32_t(dtype), C.int32_t(dtypeC))
	return in.leave("cuda_batched_gemm", status)
}

// GroupedGemm calls cuda_grouped_gemm as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.GroupedGemm.
func (ctx *Context) GroupedGemm(a, b, offsets, c Memory, groups, rows, n, k int64, beta float32, transB bool, dtype,
	dtypeC DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	offsetsAt := in.at("offsets", offsets)
	cAt := in.at("c", c)
	if in.refused() {
		return in.refuse("cuda_grouped_gemm")
	}
	status := C.call_cuda_grouped_gemm(in.handle, aAt, bAt, offsetsAt, cAt, C.int64_t(groups), C.int64_t(rows),
		C.int64_t(n), C.int64_t(k), C.float(beta), flag(transB), C.int32_t(dtype), C.int32_t(dtypeC))
	return in.leave("cuda_grouped_gemm", status)
}

// GroupedGemmWGrad calls cuda_grouped_gemm_wgrad as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.GroupedGemmWGrad.
func (ctx *Context) GroupedGemmWGrad(a, b, offsets, c Memory, groups, rows, m, n int64, beta float32, dtype,
	dtypeC DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	offsetsAt := in.at("offsets", offsets)
	cAt := in.at("c", c)
	if in.refused() {
		return in.refuse("cuda_grouped_gemm_wgrad")
	}
	status := C.call_cuda_grouped_gemm_wgrad(in.handle, aAt, bAt, offsetsAt, cAt, C.int64_t(groups), C.int64_t(rows),
		C.int64_t(m), C.int64_t(n), C.float(beta), C.int32_t(dtype), C.int32_t(dtypeC))
	return in.leave("cuda_grouped_gemm_wgrad", status)
}

// GroupedGemmSwiGLU calls cuda_grouped_gemm_swiglu as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.GroupedGemmSwiGLU.
func (ctx *Context) GroupedGemmSwiGLU(a, b, offsets, gateUp, y Memory, groups, rows, n, k int64, dtype DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	offsetsAt := in.at("offsets", offsets)
	gateUpAt := in.at("gate_up", gateUp)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_grouped_gemm_swiglu")
	}
	status := C.call_cuda_grouped_gemm_swiglu(in.handle, aAt, bAt, offsetsAt, gateUpAt, yAt, C.int64_t(groups),
		C.int64_t(rows), C.int64_t(n), C.int64_t(k), C.int32_t(dtype))
	return in.leave("cuda_grouped_gemm_swiglu", status)
}

// GroupedGemmSwiGLUBackward calls cuda_grouped_gemm_swiglu_backward as it is in bindings.h: sizes are not compared with
// those of the buffers. See tensor.GroupedGemmSwiGLUBackward.
func (ctx *Context) GroupedGemmSwiGLUBackward(a, b, offsets, gateUp Memory, groups, rows, n, k int64,
	dtype DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	offsetsAt := in.at("offsets", offsets)
	gateUpAt := in.at("gate_up", gateUp)
	if in.refused() {
		return in.refuse("cuda_grouped_gemm_swiglu_backward")
	}
	status := C.call_cuda_grouped_gemm_swiglu_backward(in.handle, aAt, bAt, offsetsAt, gateUpAt, C.int64_t(groups),
		C.int64_t(rows), C.int64_t(n), C.int64_t(k), C.int32_t(dtype))
	return in.leave("cuda_grouped_gemm_swiglu_backward", status)
}

// GroupedGemmFP8 calls cuda_grouped_gemm_fp8 as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.GroupedGemmFP8.
func (ctx *Context) GroupedGemmFP8(a, b, offsets, c Memory, groups, rows, n, k int64, transB bool, dtype,
	dtypeC DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	offsetsAt := in.at("offsets", offsets)
	cAt := in.at("c", c)
	if in.refused() {
		return in.refuse("cuda_grouped_gemm_fp8")
	}
	status := C.call_cuda_grouped_gemm_fp8(in.handle, aAt, bAt, offsetsAt, cAt, C.int64_t(groups), C.int64_t(rows),
		C.int64_t(n), C.int64_t(k), flag(transB), C.int32_t(dtype), C.int32_t(dtypeC))
	return in.leave("cuda_grouped_gemm_fp8", status)
}

// GroupedGemmWGradFP8 calls cuda_grouped_gemm_wgrad_fp8 as it is in bindings.h: sizes are not compared with those of
// the buffers. See tensor.GroupedGemmWGradFP8.
func (ctx *Context) GroupedGemmWGradFP8(a, b, offsets, c Memory, groups, rows, m, n int64, beta float32, dtype,
	dtypeC DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	offsetsAt := in.at("offsets", offsets)
	cAt := in.at("c", c)
	if in.refused() {
		return in.refuse("cuda_grouped_gemm_wgrad_fp8")
	}
	status := C.call_cuda_grouped_gemm_wgrad_fp8(in.handle, aAt, bAt, offsetsAt, cAt, C.int64_t(groups),
		C.int64_t(rows), C.int64_t(m), C.int64_t(n), C.float(beta), C.int32_t(dtype), C.int32_t(dtypeC))
	return in.leave("cuda_grouped_gemm_wgrad_fp8", status)
}
