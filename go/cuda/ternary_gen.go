// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// ActQuantI8 calls cuda_act_quant_i8 as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.ActQuantI8.
func (ctx *Context) ActQuantI8(x, codes, scale Memory, rows, cols int64, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	codesAt := in.at("codes", codes)
	scaleAt := in.at("scale", scale)
	if in.refused() {
		return in.refuse("cuda_act_quant_i8")
	}
	status := C.call_cuda_act_quant_i8(in.handle, xAt, codesAt, scaleAt, C.int64_t(rows), C.int64_t(cols),
		C.int32_t(dtype))
	return in.leave("cuda_act_quant_i8", status)
}

// RMSNormQuantI8 calls cuda_rmsnorm_quant_i8 as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.RMSNormQuantI8.
func (ctx *Context) RMSNormQuantI8(x, weight, codes, scale Memory, rows, cols int64, eps float32, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	weightAt := in.at("weight", weight)
	codesAt := in.at("codes", codes)
	scaleAt := in.at("scale", scale)
	if in.refused() {
		return in.refuse("cuda_rmsnorm_quant_i8")
	}
	status := C.call_cuda_rmsnorm_quant_i8(in.handle, xAt, weightAt, codesAt, scaleAt, C.int64_t(rows), C.int64_t(cols),
		C.float(eps), C.int32_t(dtype))
	return in.leave("cuda_rmsnorm_quant_i8", status)
}

// TernaryQuantize calls cuda_ternary_quantize as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.TernaryQuantize.
func (ctx *Context) TernaryQuantize(x, codes, scale Memory, n, k int64, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	codesAt := in.at("codes", codes)
	scaleAt := in.at("scale", scale)
	if in.refused() {
		return in.refuse("cuda_ternary_quantize")
	}
	status := C.call_cuda_ternary_quantize(in.handle, xAt, codesAt, scaleAt, C.int64_t(n), C.int64_t(k),
		C.int32_t(dtype))
	return in.leave("cuda_ternary_quantize", status)
}

// TernaryPack calls cuda_ternary_pack as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.TernaryPack.
func (ctx *Context) TernaryPack(codes, w Memory, n, k, stored, rowBytes int64) error {
	in := ctx.enter()
	codesAt := in.at("codes", codes)
	wAt := in.at("w", w)
	if in.refused() {
		return in.refuse("cuda_ternary_pack")
	}
	status := C.call_cuda_ternary_pack(in.handle, codesAt, wAt, C.int64_t(n), C.int64_t(k), C.int64_t(stored),
		C.int64_t(rowBytes))
	return in.leave("cuda_ternary_pack", status)
}

// TernaryUnpack calls cuda_ternary_unpack as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.TernaryUnpack.
func (ctx *Context) TernaryUnpack(w, codes Memory, n, k, stored, rowBytes int64) error {
	in := ctx.enter()
	wAt := in.at("w", w)
	codesAt := in.at("codes", codes)
	if in.refused() {
		return in.refuse("cuda_ternary_unpack")
	}
	status := C.call_cuda_ternary_unpack(in.handle, wAt, codesAt, C.int64_t(n), C.int64_t(k), C.int64_t(stored),
		C.int64_t(rowBytes))
	return in.leave("cuda_ternary_unpack", status)
}

// BitLinear calls cuda_bitlinear as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.BitLinear.
func (ctx *Context) BitLinear(codes, scale, w, wScale, residual, y Memory, m, n, k, stored, rowBytes int64,
	dtype DType) error {
	in := ctx.enter()
	codesAt := in.at("codes", codes)
	scaleAt := in.at("scale", scale)
	wAt := in.at("w", w)
	wScaleAt := in.at("w_scale", wScale)
	residualAt := in.at("residual", residual)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_bitlinear")
	}
	status := C.call_cuda_bitlinear(in.handle, codesAt, scaleAt, wAt, wScaleAt, residualAt, yAt, C.int64_t(m),
		C.int64_t(n), C.int64_t(k), C.int64_t(stored), C.int64_t(rowBytes), C.int32_t(dtype))
	return in.leave("cuda_bitlinear", status)
}

// BitLinearNorm calls cuda_bitlinear_norm as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.BitLinearNorm.
func (ctx *Context) BitLinearNorm(x, norm, w, wScale, residual, y Memory, m, n, k, stored, rowBytes int64, eps float32,
	dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	normAt := in.at("norm", norm)
	wAt := in.at("w", w)
	wScaleAt := in.at("w_scale", wScale)
	residualAt := in.at("residual", residual)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_bitlinear_norm")
	}
	status := C.call_cuda_bitlinear_norm(in.handle, xAt, normAt, wAt, wScaleAt, residualAt, yAt, C.int64_t(m),
		C.int64_t(n), C.int64_t(k), C.int64_t(stored), C.int64_t(rowBytes), C.float(eps), C.int32_t(dtype))
	return in.leave("cuda_bitlinear_norm", status)
}
