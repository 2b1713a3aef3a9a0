// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// GemmQuantBackward calls cuda_gemm_quant_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.GemmQuantBackward.
func (ctx *Context) GemmQuantBackward(dy, w, offsets, dx Memory, groups, m, n, k, rowBytes int64, beta float32,
	format Format, dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	wAt := in.at("w", w)
	offsetsAt := in.at("offsets", offsets)
	dxAt := in.at("dx", dx)
	if in.refused() {
		return in.refuse("cuda_gemm_quant_backward")
	}
	status := C.call_cuda_gemm_quant_backward(in.handle, dyAt, wAt, offsetsAt, dxAt, C.int64_t(groups), C.int64_t(m),
		C.int64_t(n), C.int64_t(k), C.int64_t(rowBytes), C.float(beta), C.int32_t(format), C.int32_t(dtype))
	return in.leave("cuda_gemm_quant_backward", status)
}

// BitLinearBackward calls cuda_bitlinear_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.BitLinearBackward.
func (ctx *Context) BitLinearBackward(dy, w, wScale, dx Memory, m, n, k, stored, rowBytes int64, beta float32,
	dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	wAt := in.at("w", w)
	wScaleAt := in.at("w_scale", wScale)
	dxAt := in.at("dx", dx)
	if in.refused() {
		return in.refuse("cuda_bitlinear_backward")
	}
	status := C.call_cuda_bitlinear_backward(in.handle, dyAt, wAt, wScaleAt, dxAt, C.int64_t(m), C.int64_t(n),
		C.int64_t(k), C.int64_t(stored), C.int64_t(rowBytes), C.float(beta), C.int32_t(dtype))
	return in.leave("cuda_bitlinear_backward", status)
}
