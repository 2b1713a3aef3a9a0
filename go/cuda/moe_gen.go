// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// MoEPlan calls cuda_moe_plan as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.MoEPlan.
func (ctx *Context) MoEPlan(indices, counts, offsets, slotRow, rowSlot Memory, tokens, k, experts,
	capacity int64) error {
	in := ctx.enter()
	indicesAt := in.at("indices", indices)
	countsAt := in.at("counts", counts)
	offsetsAt := in.at("offsets", offsets)
	slotRowAt := in.at("slot_row", slotRow)
	rowSlotAt := in.at("row_slot", rowSlot)
	if in.refused() {
		return in.refuse("cuda_moe_plan")
	}
	status := C.call_cuda_moe_plan(in.handle, indicesAt, countsAt, offsetsAt, slotRowAt, rowSlotAt, C.int64_t(tokens),
		C.int64_t(k), C.int64_t(experts), C.int64_t(capacity))
	return in.leave("cuda_moe_plan", status)
}

// MoEGather calls cuda_moe_gather as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.MoEGather.
func (ctx *Context) MoEGather(x, rowSlot, y Memory, tokens, k, dim int64, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	rowSlotAt := in.at("row_slot", rowSlot)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_moe_gather")
	}
	status := C.call_cuda_moe_gather(in.handle, xAt, rowSlotAt, yAt, C.int64_t(tokens), C.int64_t(k), C.int64_t(dim),
		C.int32_t(dtype))
	return in.leave("cuda_moe_gather", status)
}

// MoEGatherBackward calls cuda_moe_gather_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.MoEGatherBackward.
func (ctx *Context) MoEGatherBackward(dy, slotRow, dx Memory, tokens, k, dim int64, dtype DType) error {
	in := ctx.enter()
	dyAt := in.at("dy", dy)
	slotRowAt := in.at("slot_row", slotRow)
	dxAt := in.at("dx", dx)
	if in.refused() {
		return in.refuse("cuda_moe_gather_backward")
	}
	status := C.call_cuda_moe_gather_backward(in.handle, dyAt, slotRowAt, dxAt, C.int64_t(tokens), C.int64_t(k),
		C.int64_t(dim), C.int32_t(dtype))
	return in.leave("cuda_moe_gather_backward", status)
}

// MoECombine calls cuda_moe_combine as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.MoECombine.
func (ctx *Context) MoECombine(y, weights, slotRow, residual, out Memory, tokens, k, dim int64, dtype DType) error {
	in := ctx.enter()
	yAt := in.at("y", y)
	weightsAt := in.at("weights", weights)
	slotRowAt := in.at("slot_row", slotRow)
	residualAt := in.at("residual", residual)
	outAt := in.at("out", out)
	if in.refused() {
		return in.refuse("cuda_moe_combine")
	}
	status := C.call_cuda_moe_combine(in.handle, yAt, weightsAt, slotRowAt, residualAt, outAt, C.int64_t(tokens),
		C.int64_t(k), C.int64_t(dim), C.int32_t(dtype))
	return in.leave("cuda_moe_combine", status)
}

// MoECombineBackward calls cuda_moe_combine_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.MoECombineBackward.
func (ctx *Context) MoECombineBackward(dout, y, weights, slotRow, rowSlot, dy, dweights Memory, tokens, k, dim int64,
	dtype DType) error {
	in := ctx.enter()
	doutAt := in.at("dout", dout)
	yAt := in.at("y", y)
	weightsAt := in.at("weights", weights)
	slotRowAt := in.at("slot_row", slotRow)
	rowSlotAt := in.at("row_slot", rowSlot)
	dyAt := in.at("dy", dy)
	dweightsAt := in.at("dweights", dweights)
	if in.refused() {
		return in.refuse("cuda_moe_combine_backward")
	}
	status := C.call_cuda_moe_combine_backward(in.handle, doutAt, yAt, weightsAt, slotRowAt, rowSlotAt, dyAt,
		dweightsAt, C.int64_t(tokens), C.int64_t(k), C.int64_t(dim), C.int32_t(dtype))
	return in.leave("cuda_moe_combine_backward", status)
}
