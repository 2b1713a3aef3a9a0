// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// RopeFreqs calls cuda_rope_freqs as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.RopeFreqs.
func (ctx *Context) RopeFreqs(cosine, sine Memory, first, positions, headDim int64, base, ntkAlpha float64) error {
	in := ctx.enter()
	cosineAt := in.at("cosine", cosine)
	sineAt := in.at("sine", sine)
	if in.refused() {
		return in.refuse("cuda_rope_freqs")
	}
	status := C.call_cuda_rope_freqs(in.handle, cosineAt, sineAt, C.int64_t(first), C.int64_t(positions),
		C.int64_t(headDim), C.double(base), C.double(ntkAlpha))
	return in.leave("cuda_rope_freqs", status)
}

// RopeFreqsScaled calls cuda_rope_freqs_scaled as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.RopeFreqsScaled.
func (ctx *Context) RopeFreqsScaled(factors, cosine, sine Memory, first, positions, headDim int64, base, ntkAlpha,
	scale float64) error {
	in := ctx.enter()
	factorsAt := in.at("factors", factors)
	cosineAt := in.at("cosine", cosine)
	sineAt := in.at("sine", sine)
	if in.refused() {
		return in.refuse("cuda_rope_freqs_scaled")
	}
	status := C.call_cuda_rope_freqs_scaled(in.handle, factorsAt, cosineAt, sineAt, C.int64_t(first),
		C.int64_t(positions), C.int64_t(headDim), C.double(base), C.double(ntkAlpha), C.double(scale))
	return in.leave("cuda_rope_freqs_scaled", status)
}

// RopeForward calls cuda_rope_forward as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.RopeForward.
func (ctx *Context) RopeForward(x, cosine, sine, positions, y Memory, tokens, heads, headDim, maxPosition, ldX,
	ldY int64, layout RopeLayout, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	cosineAt := in.at("cosine", cosine)
	sineAt := in.at("sine", sine)
	positionsAt := in.at("positions", positions)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_rope_forward")
	}
	status := C.call_cuda_rope_forward(in.handle, xAt, cosineAt, sineAt, positionsAt, yAt, C.int64_t(tokens),
		C.int64_t(heads), C.int64_t(headDim), C.int64_t(maxPosition), C.int64_t(ldX), C.int64_t(ldY), C.int32_t(layout),
		C.int32_t(dtype))
	return in.leave("cuda_rope_forward", status)
}

// RopeQK calls cuda_rope_qk as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.RopeQK.
func (ctx *Context) RopeQK(q, k, cosine, sine, positions Memory, tokens, heads, kvHeads, headDim, maxPosition, ldQ,
	ldK int64, layout RopeLayout, dtype DType) error {
	in := ctx.enter()
	qAt := in.at("q", q)
	kAt := in.at("k", k)
	cosineAt := in.at("cosine", cosine)
	sineAt := in.at("sine", sine)
	positionsAt := in.at("positions", positions)
	if in.refused() {
		return in.refuse("cuda_rope_qk")
	}
	status := C.call_cuda_rope_qk(in.handle, qAt, kAt, cosineAt, sineAt, positionsAt, C.int64_t(tokens),
		C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(headDim), C.int64_t(maxPosition), C.int64_t(ldQ),
		C.int64_t(ldK), C.int32_t(layout), C.int32_t(dtype))
	return in.leave("cuda_rope_qk", status)
}

// RopeBackward calls cuda_rope_backward as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.RopeBackward.
func (ctx *Context) RopeBackward(dy, cosine, sine, positions, dx Memory, tokens, heads, headDim, maxPosition, ldY,
	ldX int64, layout RopeLayout, dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	cosineAt := in.at("cosine", cosine)
	sineAt := in.at("sine", sine)
	positionsAt := in.at("positions", positions)
	dxAt := in.at("dx", dx)
	if in.refused() {
		return in.refuse("cuda_rope_backward")
	}
	status := C.call_cuda_rope_backward(in.handle, dyAt, cosineAt, sineAt, positionsAt, dxAt, C.int64_t(tokens),
		C.int64_t(heads), C.int64_t(headDim), C.int64_t(maxPosition), C.int64_t(ldY), C.int64_t(ldX), C.int32_t(layout),
		C.int32_t(dtype))
	return in.leave("cuda_rope_backward", status)
}
