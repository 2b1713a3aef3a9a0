// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// AdamWStep calls cuda_adamw_step as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.AdamWStep.
func (ctx *Context) AdamWStep(grad, lr, step, gradScale, skip, param, m, v, paramCopy Memory, n, nDecay int64, beta1,
	beta2, eps, weightDecay float32, dtype DType) error {
	in := ctx.enter()
	gradAt := in.at("grad", grad)
	lrAt := in.at("lr", lr)
	stepAt := in.at("step", step)
	gradScaleAt := in.at("grad_scale", gradScale)
	skipAt := in.at("skip", skip)
	paramAt := in.at("param", param)
	mAt := in.at("m", m)
	vAt := in.at("v", v)
	paramCopyAt := in.at("param_copy", paramCopy)
	if in.refused() {
		return in.refuse("cuda_adamw_step")
	}
	status := C.call_cuda_adamw_step(in.handle, gradAt, lrAt, stepAt, gradScaleAt, skipAt, paramAt, mAt, vAt,
		paramCopyAt, C.int64_t(n), C.int64_t(nDecay), C.float(beta1), C.float(beta2), C.float(eps),
		C.float(weightDecay), C.int32_t(dtype))
	return in.leave("cuda_adamw_step", status)
}

// AdamWStepBF16 calls cuda_adamw_step_bf16 as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.AdamWStepBF16.
func (ctx *Context) AdamWStepBF16(grad, lr, step, gradScale, skip, param, m, v, paramCopy Memory, n, nDecay,
	first int64, beta1, beta2, eps, weightDecay float32, dtype DType) error {
	in := ctx.enter()
	gradAt := in.at("grad", grad)
	lrAt := in.at("lr", lr)
	stepAt := in.at("step", step)
	gradScaleAt := in.at("grad_scale", gradScale)
	skipAt := in.at("skip", skip)
	paramAt := in.at("param", param)
	mAt := in.at("m", m)
	vAt := in.at("v", v)
	paramCopyAt := in.at("param_copy", paramCopy)
	if in.refused() {
		return in.refuse("cuda_adamw_step_bf16")
	}
	status := C.call_cuda_adamw_step_bf16(in.handle, gradAt, lrAt, stepAt, gradScaleAt, skipAt, paramAt, mAt, vAt,
		paramCopyAt, C.int64_t(n), C.int64_t(nDecay), C.int64_t(first), C.float(beta1), C.float(beta2), C.float(eps),
		C.float(weightDecay), C.int32_t(dtype))
	return in.leave("cuda_adamw_step_bf16", status)
}

// AdamWStepF8 calls cuda_adamw_step_f8 as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.AdamWStepF8.
func (ctx *Context) AdamWStepF8(grad, lr, step, gradScale, skip, param, m, mScale, r, rScale, paramCopy Memory, n,
	blocks, nDecay, first int64, beta1, beta2, eps, weightDecay float32, dtype DType) error {
	in := ctx.enter()
	gradAt := in.at("grad", grad)
	lrAt := in.at("lr", lr)
	stepAt := in.at("step", step)
	gradScaleAt := in.at("grad_scale", gradScale)
	skipAt := in.at("skip", skip)
	paramAt := in.at("param", param)
	mAt := in.at("m", m)
	mScaleAt := in.at("m_scale", mScale)
	rAt := in.at("r", r)
	rScaleAt := in.at("r_scale", rScale)
	paramCopyAt := in.at("param_copy", paramCopy)
	if in.refused() {
		return in.refuse("cuda_adamw_step_f8")
	}
	status := C.call_cuda_adamw_step_f8(in.handle, gradAt, lrAt, stepAt, gradScaleAt, skipAt, paramAt, mAt, mScaleAt,
		rAt, rScaleAt, paramCopyAt, C.int64_t(n), C.int64_t(blocks), C.int64_t(nDecay), C.int64_t(first),
		C.float(beta1), C.float(beta2), C.float(eps), C.float(weightDecay), C.int32_t(dtype))
	return in.leave("cuda_adamw_step_f8", status)
}

// ZeroGrad calls cuda_zero_grad as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.ZeroGrad.
func (ctx *Context) ZeroGrad(grad Memory, n int64, dtype DType) error {
	in := ctx.enter()
	gradAt := in.at("grad", grad)
	if in.refused() {
		return in.refuse("cuda_zero_grad")
	}
	status := C.call_cuda_zero_grad(in.handle, gradAt, C.int64_t(n), C.int32_t(dtype))
	return in.leave("cuda_zero_grad", status)
}

// GradNorm calls cuda_grad_norm as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.GradNorm.
func (ctx *Context) GradNorm(grad, norm Memory, n int64, dtype DType) error {
	in := ctx.enter()
	gradAt := in.at("grad", grad)
	normAt := in.at("norm", norm)
	if in.refused() {
		return in.refuse("cuda_grad_norm")
	}
	status := C.call_cuda_grad_norm(in.handle, gradAt, normAt, C.int64_t(n), C.int32_t(dtype))
	return in.leave("cuda_grad_norm", status)
}

// GradClip calls cuda_grad_clip as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.GradClip.
func (ctx *Context) GradClip(norm, lossScale, scale, grad Memory, n int64, maxNorm float32, dtype DType) error {
	in := ctx.enter()
	normAt := in.at("norm", norm)
	lossScaleAt := in.at("loss_scale", lossScale)
	scaleAt := in.at("scale", scale)
	gradAt := in.at("grad", grad)
	if in.refused() {
		return in.refuse("cuda_grad_clip")
	}
	status := C.call_cuda_grad_clip(in.handle, normAt, lossScaleAt, scaleAt, gradAt, C.int64_t(n), C.float(maxNorm),
		C.int32_t(dtype))
	return in.leave("cuda_grad_clip", status)
}

// LRSchedule calls cuda_lr_schedule as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.LRSchedule.
func (ctx *Context) LRSchedule(skip, step, lr Memory, warmup, total int64, maxLR, minLR float32) error {
	in := ctx.enter()
	skipAt := in.at("skip", skip)
	stepAt := in.at("step", step)
	lrAt := in.at("lr", lr)
	if in.refused() {
		return in.refuse("cuda_lr_schedule")
	}
	status := C.call_cuda_lr_schedule(in.handle, skipAt, stepAt, lrAt, C.int64_t(warmup), C.int64_t(total),
		C.float(maxLR), C.float(minLR))
	return in.leave("cuda_lr_schedule", status)
}

// LossScaleUpdate calls cuda_loss_scale_update as it is in bindings.h: sizes are not compared with those of the
// buffers. See tensor.LossScaleUpdate.
func (ctx *Context) LossScaleUpdate(norm, lossScale, goodSteps, skipped, skip Memory, growth, backoff float32,
	interval int64) error {
	in := ctx.enter()
	normAt := in.at("norm", norm)
	lossScaleAt := in.at("loss_scale", lossScale)
	goodStepsAt := in.at("good_steps", goodSteps)
	skippedAt := in.at("skipped", skipped)
	skipAt := in.at("skip", skip)
	if in.refused() {
		return in.refuse("cuda_loss_scale_update")
	}
	status := C.call_cuda_loss_scale_update(in.handle, normAt, lossScaleAt, goodStepsAt, skippedAt, skipAt,
		C.float(growth), C.float(backoff), C.int64_t(interval))
	return in.leave("cuda_loss_scale_update", status)
}
