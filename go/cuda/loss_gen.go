// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// CrossEntropyForward calls cuda_cross_entropy_forward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.CrossEntropyForward.
func (ctx *Context) CrossEntropyForward(logits, targets, losses, lse, lossSum, count Memory, rows, vocab int64,
	ignoreIndex int32, dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	targetsAt := in.at("targets", targets)
	lossesAt := in.at("losses", losses)
	lseAt := in.at("lse", lse)
	lossSumAt := in.at("loss_sum", lossSum)
	countAt := in.at("count", count)
	if in.refused() {
		return in.refuse("cuda_cross_entropy_forward")
	}
	status := C.call_cuda_cross_entropy_forward(in.handle, logitsAt, targetsAt, lossesAt, lseAt, lossSumAt, countAt,
		C.int64_t(rows), C.int64_t(vocab), C.int32_t(ignoreIndex), C.int32_t(dtype))
	return in.leave("cuda_cross_entropy_forward", status)
}

// CrossEntropyBackward calls cuda_cross_entropy_backward as it is in bindings.h: sizes are not compared with those of
// the buffers. See tensor.CrossEntropyBackward.
func (ctx *Context) CrossEntropyBackward(logits, targets, lse, gradScale, dlogits Memory, rows, vocab int64,
	ignoreIndex int32, dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	targetsAt := in.at("targets", targets)
	lseAt := in.at("lse", lse)
	gradScaleAt := in.at("grad_scale", gradScale)
	dlogitsAt := in.at("dlogits", dlogits)
	if in.refused() {
		return in.refuse("cuda_cross_entropy_backward")
	}
	status := C.call_cuda_cross_entropy_backward(in.handle, logitsAt, targetsAt, lseAt, gradScaleAt, dlogitsAt,
		C.int64_t(rows), C.int64_t(vocab), C.int32_t(ignoreIndex), C.int32_t(dtype))
	return in.leave("cuda_cross_entropy_backward", status)
}

// AuxLossForward calls cuda_aux_loss_forward as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.AuxLossForward.
func (ctx *Context) AuxLossForward(probs, counts, loss Memory, tokens, experts int64, alpha float32) error {
	in := ctx.enter()
	probsAt := in.at("probs", probs)
	countsAt := in.at("counts", counts)
	lossAt := in.at("loss", loss)
	if in.refused() {
		return in.refuse("cuda_aux_loss_forward")
	}
	status := C.call_cuda_aux_loss_forward(in.handle, probsAt, countsAt, lossAt, C.int64_t(tokens), C.int64_t(experts),
		C.float(alpha))
	return in.leave("cuda_aux_loss_forward", status)
}

// AuxLossBackward calls cuda_aux_loss_backward as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.AuxLossBackward.
func (ctx *Context) AuxLossBackward(counts, gradScale, dprobs Memory, tokens, experts int64, alpha float32) error {
	in := ctx.enter()
	countsAt := in.at("counts", counts)
	gradScaleAt := in.at("grad_scale", gradScale)
	dprobsAt := in.at("dprobs", dprobs)
	if in.refused() {
		return in.refuse("cuda_aux_loss_backward")
	}
	status := C.call_cuda_aux_loss_backward(in.handle, countsAt, gradScaleAt, dprobsAt, C.int64_t(tokens),
		C.int64_t(experts), C.float(alpha))
	return in.leave("cuda_aux_loss_backward", status)
}

// WeightedMean calls cuda_weighted_mean as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.WeightedMean.
func (ctx *Context) WeightedMean(x, weights, y Memory, n, divisor int64) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	weightsAt := in.at("weights", weights)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_weighted_mean")
	}
	status := C.call_cuda_weighted_mean(in.handle, xAt, weightsAt, yAt, C.int64_t(n), C.int64_t(divisor))
	return in.leave("cuda_weighted_mean", status)
}
