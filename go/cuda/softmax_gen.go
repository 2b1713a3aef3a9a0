// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// Softmax calls cuda_softmax as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.Softmax.
func (ctx *Context) Softmax(x, y Memory, rows, cols int64, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_softmax")
	}
	status := C.call_cuda_softmax(in.handle, xAt, yAt, C.int64_t(rows), C.int64_t(cols), C.int32_t(dtype))
	return in.leave("cuda_softmax", status)
}

// SoftmaxBackward calls cuda_softmax_backward as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.SoftmaxBackward.
func (ctx *Context) SoftmaxBackward(dy, y, dx Memory, rows, cols int64, dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	yAt := in.at("y", y)
	dxAt := in.at("dx", dx)
	if in.refused() {
		return in.refuse("cuda_softmax_backward")
	}
	status := C.call_cuda_softmax_backward(in.handle, dyAt, yAt, dxAt, C.int64_t(rows), C.int64_t(cols),
		C.int32_t(dtype))
	return in.leave("cuda_softmax_backward", status)
}

// SoftmaxTopK calls cuda_softmax_topk as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.SoftmaxTopK.
func (ctx *Context) SoftmaxTopK(x, weights, indices, probs Memory, rows, cols, k int64, norm bool, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	weightsAt := in.at("weights", weights)
	indicesAt := in.at("indices", indices)
	probsAt := in.at("probs", probs)
	if in.refused() {
		return in.refuse("cuda_softmax_topk")
	}
	status := C.call_cuda_softmax_topk(in.handle, xAt, weightsAt, indicesAt, probsAt, C.int64_t(rows), C.int64_t(cols),
		C.int64_t(k), flag(norm), C.int32_t(dtype))
	return in.leave("cuda_softmax_topk", status)
}

// SoftmaxTopKBackward calls cuda_softmax_topk_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.SoftmaxTopKBackward.
func (ctx *Context) SoftmaxTopKBackward(dweights, weights, indices, probs, dprobs, dx Memory, rows, cols, k int64,
	norm bool, dtype DType) error {
	in := ctx.enter()
	dweightsAt := in.at("dweights", dweights)
	weightsAt := in.at("weights", weights)
	indicesAt := in.at("indices", indices)
	probsAt := in.at("probs", probs)
	dprobsAt := in.at("dprobs", dprobs)
	dxAt := in.at("dx", dx)
	if in.refused() {
		return in.refuse("cuda_softmax_topk_backward")
	}
	status := C.call_cuda_softmax_topk_backward(in.handle, dweightsAt, weightsAt, indicesAt, probsAt, dprobsAt, dxAt,
		C.int64_t(rows), C.int64_t(cols), C.int64_t(k), flag(norm), C.int32_t(dtype))
	return in.leave("cuda_softmax_topk_backward", status)
}
