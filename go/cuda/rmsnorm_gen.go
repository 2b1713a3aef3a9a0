// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// RMSNorm calls cuda_rmsnorm as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.RMSNorm.
func (ctx *Context) RMSNorm(x, weight, y, rstd Memory, rows, cols int64, eps float32, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	weightAt := in.at("weight", weight)
	yAt := in.at("y", y)
	rstdAt := in.at("rstd", rstd)
	if in.refused() {
		return in.refuse("cuda_rmsnorm")
	}
	status := C.call_cuda_rmsnorm(in.handle, xAt, weightAt, yAt, rstdAt, C.int64_t(rows), C.int64_t(cols), C.float(eps),
		C.int32_t(dtype))
	return in.leave("cuda_rmsnorm", status)
}

// RMSNormResidual calls cuda_rmsnorm_residual as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.RMSNormResidual.
func (ctx *Context) RMSNormResidual(x, residual, weight, sum, y, rstd Memory, rows, cols int64, eps float32,
	dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	residualAt := in.at("residual", residual)
	weightAt := in.at("weight", weight)
	sumAt := in.at("sum", sum)
	yAt := in.at("y", y)
	rstdAt := in.at("rstd", rstd)
	if in.refused() {
		return in.refuse("cuda_rmsnorm_residual")
	}
	status := C.call_cuda_rmsnorm_residual(in.handle, xAt, residualAt, weightAt, sumAt, yAt, rstdAt, C.int64_t(rows),
		C.int64_t(cols), C.float(eps), C.int32_t(dtype))
	return in.leave("cuda_rmsnorm_residual", status)
}

// RMSNormBackward calls cuda_rmsnorm_backward as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.RMSNormBackward.
func (ctx *Context) RMSNormBackward(dy, x, weight, rstd, dresidual, dx, dweight Memory, rows, cols int64,
	dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	xAt := in.at("x", x)
	weightAt := in.at("weight", weight)
	rstdAt := in.at("rstd", rstd)
	dresidualAt := in.at("dresidual", dresidual)
	dxAt := in.at("dx", dx)
	dweightAt := in.at("dweight", dweight)
	if in.refused() {
		return in.refuse("cuda_rmsnorm_backward")
	}
	status := C.call_cuda_rmsnorm_backward(in.handle, dyAt, xAt, weightAt, rstdAt, dresidualAt, dxAt, dweightAt,
		C.int64_t(rows), C.int64_t(cols), C.int32_t(dtype))
	return in.leave("cuda_rmsnorm_backward", status)
}
