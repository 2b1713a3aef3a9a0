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

// MoERoute calls cuda_moe_route as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.MoERoute.
func (ctx *Context) MoERoute(logits, x, weights, indices, probs, counts, offsets, slotRow, rowSlot, y, loss Memory,
	tokens, experts, k, dim int64, norm bool, capacity int64, alpha float32, dtype, dtypeLogits DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	xAt := in.at("x", x)
	weightsAt := in.at("weights", weights)
	indicesAt := in.at("indices", indices)
	probsAt := in.at("probs", probs)
	countsAt := in.at("counts", counts)
	offsetsAt := in.at("offsets", offsets)
	slotRowAt := in.at("slot_row", slotRow)
	rowSlotAt := in.at("row_slot", rowSlot)
	yAt := in.at("y", y)
	lossAt := in.at("loss", loss)
	if in.refused() {
		return in.refuse("cuda_moe_route")
	}
	status := C.call_cuda_moe_route(in.handle, logitsAt, xAt, weightsAt, indicesAt, probsAt, countsAt, offsetsAt,
		slotRowAt, rowSlotAt, yAt, lossAt, C.int64_t(tokens), C.int64_t(experts), C.int64_t(k), C.int64_t(dim),
		flag(norm), C.int64_t(capacity), C.float(alpha), C.int32_t(dtype), C.int32_t(dtypeLogits))
	return in.leave("cuda_moe_route", status)
}

// MoERouteBackward calls cuda_moe_route_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.MoERouteBackward.
func (ctx *Context) MoERouteBackward(dweights, weights, indices, probs, counts, gradScale, dlogits Memory, tokens,
	experts, k int64, norm bool, alpha float32, dtype DType) error {
	in := ctx.enter()
	dweightsAt := in.at("dweights", dweights)
	weightsAt := in.at("weights", weights)
	indicesAt := in.at("indices", indices)
	probsAt := in.at("probs", probs)
	countsAt := in.at("counts", counts)
	gradScaleAt := in.at("grad_scale", gradScale)
	dlogitsAt := in.at("dlogits", dlogits)
	if in.refused() {
		return in.refuse("cuda_moe_route_backward")
	}
	status := C.call_cuda_moe_route_backward(in.handle, dweightsAt, weightsAt, indicesAt, probsAt, countsAt,
		gradScaleAt, dlogitsAt, C.int64_t(tokens), C.int64_t(experts), C.int64_t(k), flag(norm), C.float(alpha),
		C.int32_t(dtype))
	return in.leave("cuda_moe_route_backward", status)
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

// MoEOutputBackward calls cuda_moe_output_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.MoEOutputBackward.
func (ctx *Context) MoEOutputBackward(dout, y, weights, indices, probs, counts, slotRow, rowSlot, gradScale, dy,
	dweights, dlogits Memory, tokens, experts, k, dim int64, norm bool, alpha float32, dtype DType) error {
	in := ctx.enter()
	doutAt := in.at("dout", dout)
	yAt := in.at("y", y)
	weightsAt := in.at("weights", weights)
	indicesAt := in.at("indices", indices)
	probsAt := in.at("probs", probs)
	countsAt := in.at("counts", counts)
	slotRowAt := in.at("slot_row", slotRow)
	rowSlotAt := in.at("row_slot", rowSlot)
	gradScaleAt := in.at("grad_scale", gradScale)
	dyAt := in.at("dy", dy)
	dweightsAt := in.at("dweights", dweights)
	dlogitsAt := in.at("dlogits", dlogits)
	if in.refused() {
		return in.refuse("cuda_moe_output_backward")
	}
	status := C.call_cuda_moe_output_backward(in.handle, doutAt, yAt, weightsAt, indicesAt, probsAt, countsAt,
		slotRowAt, rowSlotAt, gradScaleAt, dyAt, dweightsAt, dlogitsAt, C.int64_t(tokens), C.int64_t(experts),
		C.int64_t(k), C.int64_t(dim), flag(norm), C.float(alpha), C.int32_t(dtype))
	return in.leave("cuda_moe_output_backward", status)
}

// MoEInputBackward calls cuda_moe_input_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.MoEInputBackward.
func (ctx *Context) MoEInputBackward(dlogits, x, gate, drows, slotRow, dx, dgate Memory, tokens, experts, k, dim int64,
	beta float32, dtype, dtypeC DType) error {
	in := ctx.enter()
	dlogitsAt := in.at("dlogits", dlogits)
	xAt := in.at("x", x)
	gateAt := in.at("gate", gate)
	drowsAt := in.at("drows", drows)
	slotRowAt := in.at("slot_row", slotRow)
	dxAt := in.at("dx", dx)
	dgateAt := in.at("dgate", dgate)
	if in.refused() {
		return in.refuse("cuda_moe_input_backward")
	}
	status := C.call_cuda_moe_input_backward(in.handle, dlogitsAt, xAt, gateAt, drowsAt, slotRowAt, dxAt, dgateAt,
		C.int64_t(tokens), C.int64_t(experts), C.int64_t(k), C.int64_t(dim), C.float(beta), C.int32_t(dtype),
		C.int32_t(dtypeC))
	return in.leave("cuda_moe_input_backward", status)
}
