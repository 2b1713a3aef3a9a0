// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// Softcap calls cuda_softcap as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.Softcap.
func (ctx *Context) Softcap(x, y Memory, n int64, capacity float32, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_softcap")
	}
	status := C.call_cuda_softcap(in.handle, xAt, yAt, C.int64_t(n), C.float(capacity), C.int32_t(dtype))
	return in.leave("cuda_softcap", status)
}

// Geglu calls cuda_geglu as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Geglu.
func (ctx *Context) Geglu(gate, up, y Memory, rows, dim, ld int64, dtype DType) error {
	in := ctx.enter()
	gateAt := in.at("gate", gate)
	upAt := in.at("up", up)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_geglu")
	}
	status := C.call_cuda_geglu(in.handle, gateAt, upAt, yAt, C.int64_t(rows), C.int64_t(dim), C.int64_t(ld),
		C.int32_t(dtype))
	return in.leave("cuda_geglu", status)
}

// SwiGLUClipped calls cuda_swiglu_clipped as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.SwiGLUClipped.
func (ctx *Context) SwiGLUClipped(gate, up, y Memory, rows, dim, ld int64, alpha, limit float32, dtype DType) error {
	in := ctx.enter()
	gateAt := in.at("gate", gate)
	upAt := in.at("up", up)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_swiglu_clipped")
	}
	status := C.call_cuda_swiglu_clipped(in.handle, gateAt, upAt, yAt, C.int64_t(rows), C.int64_t(dim), C.int64_t(ld),
		C.float(alpha), C.float(limit), C.int32_t(dtype))
	return in.leave("cuda_swiglu_clipped", status)
}

// ReLU2GateBackward calls cuda_relu2_gate_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.ReLU2GateBackward.
func (ctx *Context) ReLU2GateBackward(dy, gate, up, dgate, dup Memory, rows, dim, ld int64, dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	gateAt := in.at("gate", gate)
	upAt := in.at("up", up)
	dgateAt := in.at("dgate", dgate)
	dupAt := in.at("dup", dup)
	if in.refused() {
		return in.refuse("cuda_relu2_gate_backward")
	}
	status := C.call_cuda_relu2_gate_backward(in.handle, dyAt, gateAt, upAt, dgateAt, dupAt, C.int64_t(rows),
		C.int64_t(dim), C.int64_t(ld), C.int32_t(dtype))
	return in.leave("cuda_relu2_gate_backward", status)
}

// ActDequantI8 calls cuda_act_dequant_i8 as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.ActDequantI8.
func (ctx *Context) ActDequantI8(codes, scale, x Memory, rows, cols int64, dtype DType) error {
	in := ctx.enter()
	codesAt := in.at("codes", codes)
	scaleAt := in.at("scale", scale)
	xAt := in.at("x", x)
	if in.refused() {
		return in.refuse("cuda_act_dequant_i8")
	}
	status := C.call_cuda_act_dequant_i8(in.handle, codesAt, scaleAt, xAt, C.int64_t(rows), C.int64_t(cols),
		C.int32_t(dtype))
	return in.leave("cuda_act_dequant_i8", status)
}

// GroupedBias calls cuda_grouped_bias as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.GroupedBias.
func (ctx *Context) GroupedBias(x, bias, offsets, y Memory, rows, dim, groups int64, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	biasAt := in.at("bias", bias)
	offsetsAt := in.at("offsets", offsets)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_grouped_bias")
	}
	status := C.call_cuda_grouped_bias(in.handle, xAt, biasAt, offsetsAt, yAt, C.int64_t(rows), C.int64_t(dim),
		C.int64_t(groups), C.int32_t(dtype))
	return in.leave("cuda_grouped_bias", status)
}
