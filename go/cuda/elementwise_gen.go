// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// SiLU calls cuda_silu as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.SiLU.
func (ctx *Context) SiLU(x, y Memory, n int64, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_silu")
	}
	status := C.call_cuda_silu(in.handle, xAt, yAt, C.int64_t(n), C.int32_t(dtype))
	return in.leave("cuda_silu", status)
}

// SiLUBackward calls cuda_silu_backward as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.SiLUBackward.
func (ctx *Context) SiLUBackward(dy, x, dx Memory, n int64, dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	xAt := in.at("x", x)
	dxAt := in.at("dx", dx)
	if in.refused() {
		return in.refuse("cuda_silu_backward")
	}
	status := C.call_cuda_silu_backward(in.handle, dyAt, xAt, dxAt, C.int64_t(n), C.int32_t(dtype))
	return in.leave("cuda_silu_backward", status)
}

// Add calls cuda_add as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Add.
func (ctx *Context) Add(a, b, y Memory, n int64, dtype DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_add")
	}
	status := C.call_cuda_add(in.handle, aAt, bAt, yAt, C.int64_t(n), C.int32_t(dtype))
	return in.leave("cuda_add", status)
}

// Mul calls cuda_mul as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Mul.
func (ctx *Context) Mul(a, b, y Memory, n int64, dtype DType) error {
	in := ctx.enter()
	aAt := in.at("a", a)
	bAt := in.at("b", b)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_mul")
	}
	status := C.call_cuda_mul(in.handle, aAt, bAt, yAt, C.int64_t(n), C.int32_t(dtype))
	return in.leave("cuda_mul", status)
}

// Scale calls cuda_scale as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Scale.
func (ctx *Context) Scale(x, y Memory, n int64, alpha float32, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_scale")
	}
	status := C.call_cuda_scale(in.handle, xAt, yAt, C.int64_t(n), C.float(alpha), C.int32_t(dtype))
	return in.leave("cuda_scale", status)
}

// SwiGLU calls cuda_swiglu as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.SwiGLU.
func (ctx *Context) SwiGLU(gate, up, used, y Memory, rows, dim, ld int64, dtype DType) error {
	in := ctx.enter()
	gateAt := in.at("gate", gate)
	upAt := in.at("up", up)
	usedAt := in.at("used", used)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_swiglu")
	}
	status := C.call_cuda_swiglu(in.handle, gateAt, upAt, usedAt, yAt, C.int64_t(rows), C.int64_t(dim), C.int64_t(ld),
		C.int32_t(dtype))
	return in.leave("cuda_swiglu", status)
}

// SwiGLUBackward calls cuda_swiglu_backward as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.SwiGLUBackward.
func (ctx *Context) SwiGLUBackward(dy, gate, up, used, dgate, dup Memory, rows, dim, ld int64, dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	gateAt := in.at("gate", gate)
	upAt := in.at("up", up)
	usedAt := in.at("used", used)
	dgateAt := in.at("dgate", dgate)
	dupAt := in.at("dup", dup)
	if in.refused() {
		return in.refuse("cuda_swiglu_backward")
	}
	status := C.call_cuda_swiglu_backward(in.handle, dyAt, gateAt, upAt, usedAt, dgateAt, dupAt, C.int64_t(rows),
		C.int64_t(dim), C.int64_t(ld), C.int32_t(dtype))
	return in.leave("cuda_swiglu_backward", status)
}

// ReLU2Gate calls cuda_relu2_gate as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.ReLU2Gate.
func (ctx *Context) ReLU2Gate(gate, up, y Memory, rows, dim, ld int64, dtype DType) error {
	in := ctx.enter()
	gateAt := in.at("gate", gate)
	upAt := in.at("up", up)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_relu2_gate")
	}
	status := C.call_cuda_relu2_gate(in.handle, gateAt, upAt, yAt, C.int64_t(rows), C.int64_t(dim), C.int64_t(ld),
		C.int32_t(dtype))
	return in.leave("cuda_relu2_gate", status)
}

// Cast calls cuda_cast as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Cast.
func (ctx *Context) Cast(x, y Memory, n int64, dtypeX, dtypeY DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_cast")
	}
	status := C.call_cuda_cast(in.handle, xAt, yAt, C.int64_t(n), C.int32_t(dtypeX), C.int32_t(dtypeY))
	return in.leave("cuda_cast", status)
}

// Round calls cuda_round as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Round.
func (ctx *Context) Round(x, y Memory, n int64, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_round")
	}
	status := C.call_cuda_round(in.handle, xAt, yAt, C.int64_t(n), C.int32_t(dtype))
	return in.leave("cuda_round", status)
}

// Fill calls cuda_fill as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Fill.
func (ctx *Context) Fill(y Memory, n int64, value float32, dtype DType) error {
	in := ctx.enter()
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_fill")
	}
	status := C.call_cuda_fill(in.handle, yAt, C.int64_t(n), C.float(value), C.int32_t(dtype))
	return in.leave("cuda_fill", status)
}

// Increment calls cuda_increment as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.Increment.
func (ctx *Context) Increment(x Memory, n int64, by int32) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	if in.refused() {
		return in.refuse("cuda_increment")
	}
	status := C.call_cuda_increment(in.handle, xAt, C.int64_t(n), C.int32_t(by))
	return in.leave("cuda_increment", status)
}
