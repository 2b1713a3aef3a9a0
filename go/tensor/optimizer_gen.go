// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// AdamWStep calls cuda_adamw_step.
//
// AdamW with decoupled weight decay, for t = step[0] >= 1 and g = grad * grad_scale: m = beta1*m + (1-beta1)*g; v =
// beta2*v + (1-beta2)*g^2; param = param*(1 - lr*weight_decay) - lr * (m/(1-beta1^t)) / (sqrt(v/(1-beta2^t)) + eps).
// (Loshchilov, Hutter 2019, algorithm 2)
//
//   - grad, in f32 [n]: gradients
//   - lr, in f32 [1]: learning rate
//   - step, in i32 [1]: number of this update, from 1
//   - gradScale, in f32 [1], may be nil: factor of the gradients (from grad_clip), or null for 1
//   - skip, in i32 [1], may be nil: non-zero leaves everything as it is; or null
//   - param, inout f32 [n]: parameters
//   - m, inout f32 [n]: first moments
//   - v, inout f32 [n]: second moments
//   - paramCopy, out dtype [n], may be nil: the new parameters rounded to `dtype`, or null
//   - nDecay: how many of them, from the first, decay; must be 0 to n
//   - beta1: decay rate of the first moments; must be at least 0 and below 1
//   - beta2: decay rate of the second moments; must be at least 0 and below 1
//   - eps: added to the root; must be finite and above 0
//   - weightDecay: decay of the parameters; must be finite and at least 0
func AdamWStep(grad, lr, step, gradScale, skip, param, m, v, paramCopy *Tensor, nDecay int64, beta1, beta2, eps,
	weightDecay float32) error {
	check := begin("adamw_step", "n from grad")
	if !check.required("grad", grad, 1, dense) ||
		!check.required("lr", lr, 1, dense) ||
		!check.required("step", step, 1, dense) ||
		!check.optional("grad_scale", gradScale, 1, dense) ||
		!check.optional("skip", skip, 1, dense) ||
		!check.required("param", param, 1, dense) ||
		!check.required("m", m, 1, dense) ||
		!check.required("v", v, 1, dense) ||
		!check.optional("param_copy", paramCopy, 1, dense) {
		return check.err
	}
	check.same(named{"grad", grad}, named{"param", param}, named{"m", m}, named{"v", v}, named{"param_copy", paramCopy})
	n := grad.extent(1, 0)
	dtype := firstDType(paramCopy)
	check.dtype("param_copy", paramCopy, dtype)
	check.dtype("grad", grad, cuda.F32)
	check.dtype("lr", lr, cuda.F32)
	check.dtype("step", step, cuda.I32)
	check.dtype("grad_scale", gradScale, cuda.F32)
	check.dtype("skip", skip, cuda.I32)
	check.dtype("param", param, cuda.F32)
	check.dtype("m", m, cuda.F32)
	check.dtype("v", v, cuda.F32)
	check.shape("grad", grad, "[n]", n)
	check.shape("lr", lr, "[1]", 1)
	check.shape("step", step, "[1]", 1)
	check.shape("grad_scale", gradScale, "[1]", 1)
	check.shape("skip", skip, "[1]", 1)
	check.shape("param", param, "[n]", n)
	check.shape("m", m, "[n]", n)
	check.shape("v", v, "[n]", n)
	check.shape("param_copy", paramCopy, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AdamWStep(grad.memory(), lr.memory(), step.memory(), gradScale.memory(), skip.memory(),
		param.memory(), m.memory(), v.memory(), paramCopy.memory(), int64(n), nDecay, beta1, beta2, eps, weightDecay,
		dtype)
}

// AdamWStepBF16 calls cuda_adamw_step_bf16.
//
// AdamW as adamw_step has it, its moments kept in bf16: they are widened, updated in f32, used for the parameters, and
// rounded by chance (see above) as they are stored. Infinities and NaN stay what they are. (Zamirai, Zhang, Aberger, De
// Sa 2020, "Revisiting BFloat16 training", section 3)
//
//   - grad, in f32 [n]: gradients
//   - lr, in f32 [1]: learning rate
//   - step, in i32 [1]: number of this update, from 1
//   - gradScale, in f32 [1], may be nil: factor of the gradients (from grad_clip), or null for 1
//   - skip, in i32 [1], may be nil: non-zero leaves everything as it is; or null
//   - param, inout f32 [n]: parameters
//   - m, inout bf16 [n]: first moments
//   - v, inout bf16 [n]: second moments
//   - paramCopy, out dtype [n], may be nil: the new parameters rounded to `dtype`, or null
//   - nDecay: how many of them, from the first, decay; must be 0 to n
//   - first, usually 0: of a shard, the place of its first element among all parameters, which chance depends on; must
//     be at least 0 and a multiple of 256
//   - beta1: decay rate of the first moments; must be at least 0 and below 1
//   - beta2: decay rate of the second moments; must be at least 0 and below 1
//   - eps: added to the root; must be finite and above 0
//   - weightDecay: decay of the parameters; must be finite and at least 0
func AdamWStepBF16(grad, lr, step, gradScale, skip, param, m, v, paramCopy *Tensor, nDecay, first int64, beta1, beta2,
	eps, weightDecay float32) error {
	check := begin("adamw_step_bf16", "n from grad")
	if !check.required("grad", grad, 1, dense) ||
		!check.required("lr", lr, 1, dense) ||
		!check.required("step", step, 1, dense) ||
		!check.optional("grad_scale", gradScale, 1, dense) ||
		!check.optional("skip", skip, 1, dense) ||
		!check.required("param", param, 1, dense) ||
		!check.required("m", m, 1, dense) ||
		!check.required("v", v, 1, dense) ||
		!check.optional("param_copy", paramCopy, 1, dense) {
		return check.err
	}
	check.same(named{"grad", grad}, named{"param", param}, named{"m", m}, named{"v", v}, named{"param_copy", paramCopy})
	n := grad.extent(1, 0)
	dtype := firstDType(paramCopy)
	check.dtype("param_copy", paramCopy, dtype)
	check.dtype("grad", grad, cuda.F32)
	check.dtype("lr", lr, cuda.F32)
	check.dtype("step", step, cuda.I32)
	check.dtype("grad_scale", gradScale, cuda.F32)
	check.dtype("skip", skip, cuda.I32)
	check.dtype("param", param, cuda.F32)
	check.dtype("m", m, cuda.BF16)
	check.dtype("v", v, cuda.BF16)
	check.shape("grad", grad, "[n]", n)
	check.shape("lr", lr, "[1]", 1)
	check.shape("step", step, "[1]", 1)
	check.shape("grad_scale", gradScale, "[1]", 1)
	check.shape("skip", skip, "[1]", 1)
	check.shape("param", param, "[n]", n)
	check.shape("m", m, "[n]", n)
	check.shape("v", v, "[n]", n)
	check.shape("param_copy", paramCopy, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AdamWStepBF16(grad.memory(), lr.memory(), step.memory(), gradScale.memory(), skip.memory(),
		param.memory(), m.memory(), v.memory(), paramCopy.memory(), int64(n), nDecay, first, beta1, beta2, eps,
		weightDecay, dtype)
}

// AdamWStepF8 calls cuda_adamw_step_f8.
//
// AdamW as adamw_step has it, its moments kept in 8 bits, blockwise (Dettmers, Lewis, Shleifer, Zettlemoyer 2022,
// section 2.1): each 256 consecutive elements, the last ones fewer, have one f32 scale s, the largest magnitude among
// them, and each element a code for a number q of 0 .. 1; it is s * q, the largest one exactly. m has a sign (bit 7), 4
// bits of exponent e and 3 of mantissa f: q = 2^(e-15) * (1 + f/8), and q = 2^-14 * f/8 where e = 0. Of v its root r is
// kept, which has half the range and which the update divides by: 4 bits of exponent and 4 of mantissa, likewise, with
// f/16. The update: v = beta2*r^2 + (1-beta2)*g^2; r = sqrt(v); param as in adamw_step, with r * sqrt(1/(1-beta2^t))
// for the root, from the new moments before they are rounded. Stored are s and, of x = |m|/s or r/s (a division in
// f32), the code of x rounded by chance (see above) to 3 or 4 bits of mantissa; where x < 2^-14, x + 2^-14 is rounded
// and 2^-14 taken off again. A root above 0 gets at least code 1, so that nothing is divided by a root that was rounded
// to 0. A block of zeros has s = 0 and codes 0. In a block with an infinity or a NaN s is that, and the codes are 0.
//
//   - grad, in f32 [n]: gradients
//   - lr, in f32 [1]: learning rate
//   - step, in i32 [1]: number of this update, from 1
//   - gradScale, in f32 [1], may be nil: factor of the gradients (from grad_clip), or null for 1
//   - skip, in i32 [1], may be nil: non-zero leaves everything as it is; or null
//   - param, inout f32 [n]: parameters
//   - m, inout u8 [n]: codes of the first moments
//   - mScale, inout f32 [blocks]: their scales
//   - r, inout u8 [n]: codes of the roots of the second moments
//   - rScale, inout f32 [blocks]: their scales
//   - paramCopy, out dtype [n], may be nil: the new parameters rounded to `dtype`, or null
//   - nDecay: how many of them, from the first, decay; must be 0 to n
//   - first, usually 0: of a shard, the place of its first element among all parameters, which chance depends on; must
//     be at least 0 and a multiple of 256
//   - beta1: decay rate of the first moments; must be at least 0 and below 1
//   - beta2: decay rate of the second moments; must be at least 0 and below 1
//   - eps: added to the root; must be finite and above 0
//   - weightDecay: decay of the parameters; must be finite and at least 0
func AdamWStepF8(grad, lr, step, gradScale, skip, param, m, mScale, r, rScale, paramCopy *Tensor, nDecay, first int64,
	beta1, beta2, eps, weightDecay float32) error {
	check := begin("adamw_step_f8", "n from grad, blocks from m_scale")
	if !check.required("grad", grad, 1, dense) ||
		!check.required("lr", lr, 1, dense) ||
		!check.required("step", step, 1, dense) ||
		!check.optional("grad_scale", gradScale, 1, dense) ||
		!check.optional("skip", skip, 1, dense) ||
		!check.required("param", param, 1, dense) ||
		!check.required("m", m, 1, dense) ||
		!check.required("m_scale", mScale, 1, dense) ||
		!check.required("r", r, 1, dense) ||
		!check.required("r_scale", rScale, 1, dense) ||
		!check.optional("param_copy", paramCopy, 1, dense) {
		return check.err
	}
	check.same(named{"grad", grad}, named{"param", param}, named{"m", m}, named{"r", r}, named{"param_copy", paramCopy})
	check.same(named{"m_scale", mScale}, named{"r_scale", rScale})
	n := grad.extent(1, 0)
	blocks := mScale.extent(1, 0)
	dtype := firstDType(paramCopy)
	check.dtype("param_copy", paramCopy, dtype)
	check.dtype("grad", grad, cuda.F32)
	check.dtype("lr", lr, cuda.F32)
	check.dtype("step", step, cuda.I32)
	check.dtype("grad_scale", gradScale, cuda.F32)
	check.dtype("skip", skip, cuda.I32)
	check.dtype("param", param, cuda.F32)
	check.dtype("m", m, cuda.U8)
	check.dtype("m_scale", mScale, cuda.F32)
	check.dtype("r", r, cuda.U8)
	check.dtype("r_scale", rScale, cuda.F32)
	check.shape("grad", grad, "[n]", n)
	check.shape("lr", lr, "[1]", 1)
	check.shape("step", step, "[1]", 1)
	check.shape("grad_scale", gradScale, "[1]", 1)
	check.shape("skip", skip, "[1]", 1)
	check.shape("param", param, "[n]", n)
	check.shape("m", m, "[n]", n)
	check.shape("m_scale", mScale, "[blocks]", blocks)
	check.shape("r", r, "[n]", n)
	check.shape("r_scale", rScale, "[blocks]", blocks)
	check.shape("param_copy", paramCopy, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AdamWStepF8(grad.memory(), lr.memory(), step.memory(), gradScale.memory(), skip.memory(),
		param.memory(), m.memory(), mScale.memory(), r.memory(), rScale.memory(), paramCopy.memory(), int64(n),
		int64(blocks), nDecay, first, beta1, beta2, eps, weightDecay, dtype)
}

// ZeroGrad calls cuda_zero_grad.
//
// Sets gradients to zero.
//
//   - grad, out dtype [n]: gradients
func ZeroGrad(grad *Tensor) error {
	check := begin("zero_grad", "n from grad")
	if !check.required("grad", grad, 1, dense) {
		return check.err
	}
	n := grad.extent(1, 0)
	dtype := grad.dtype
	check.shape("grad", grad, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.ZeroGrad(grad.memory(), int64(n), dtype)
}

// GradNorm calls cuda_grad_norm.
//
// Euclidean norm: norm = sqrt(sum(grad^2)). Not finite exactly when a gradient is not finite or the norm overflows f32.
//
//   - grad, in dtype [n]: gradients
//   - norm, out f32 [1]: the norm
func GradNorm(grad, norm *Tensor) error {
	check := begin("grad_norm", "n from grad")
	if !check.required("grad", grad, 1, dense) ||
		!check.required("norm", norm, 1, dense) {
		return check.err
	}
	n := grad.extent(1, 0)
	dtype := grad.dtype
	check.dtype("norm", norm, cuda.F32)
	check.shape("grad", grad, "[n]", n)
	check.shape("norm", norm, "[1]", 1)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GradNorm(grad.memory(), norm.memory(), int64(n), dtype)
}

// GradClip calls cuda_grad_clip.
//
// Clips by the global norm: with s = loss_scale (1 if null) and g = norm/s, scale = min(1, max_norm / (g + 1e-6)) / s;
// where grad is given it is multiplied by scale. (Pascanu, Mikolov, Bengio 2013, algorithm 1)
//
//   - norm, in f32 [1]: from grad_norm
//   - lossScale, in f32 [1], may be nil: what the loss was multiplied by, or null for 1
//   - scale, out f32 [1]: the factor, for adamw_step
//   - grad, inout dtype [n], may be nil: gradients to scale in place, or null to leave that to adamw_step
//   - maxNorm: largest norm allowed, where infinity never clips; must be above 0
func GradClip(norm, lossScale, scale, grad *Tensor, maxNorm float32) error {
	check := begin("grad_clip", "n from grad")
	if !check.required("norm", norm, 1, dense) ||
		!check.optional("loss_scale", lossScale, 1, dense) ||
		!check.required("scale", scale, 1, dense) ||
		!check.optional("grad", grad, 1, dense) {
		return check.err
	}
	n := 1
	if grad != nil {
		n = grad.extent(1, 0)
	}
	dtype := firstDType(grad)
	check.dtype("grad", grad, dtype)
	check.dtype("norm", norm, cuda.F32)
	check.dtype("loss_scale", lossScale, cuda.F32)
	check.dtype("scale", scale, cuda.F32)
	check.shape("norm", norm, "[1]", 1)
	check.shape("loss_scale", lossScale, "[1]", 1)
	check.shape("scale", scale, "[1]", 1)
	check.shape("grad", grad, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GradClip(norm.memory(), lossScale.memory(), scale.memory(), grad.memory(), int64(n), maxNorm,
		dtype)
}

// LRSchedule calls cuda_lr_schedule.
//
// Advances the step and gives its rate: t = ++step[0]; up to `warmup` steps lr = max_lr * t / warmup, then lr = min_lr
// + (max_lr - min_lr) * (1 + cos(pi * (t - warmup) / (total - warmup))) / 2, from `total` on min_lr. (Loshchilov,
// Hutter 2017, "SGDR", eq. 5, with a linear warm-up)
//
//   - skip, in i32 [1], may be nil: non-zero leaves step and lr as they are; or null
//   - step, inout i32 [1]: updates done
//   - lr, out f32 [1]: rate of this update
//   - warmup: steps of the warm-up; must be at least 0
//   - total: steps until the last rate; must be at least warmup
//   - maxLR: highest rate; must be finite
//   - minLR: last rate; must be finite
func LRSchedule(skip, step, lr *Tensor, warmup, total int64, maxLR, minLR float32) error {
	check := begin("lr_schedule", "")
	if !check.optional("skip", skip, 1, dense) ||
		!check.required("step", step, 1, dense) ||
		!check.required("lr", lr, 1, dense) {
		return check.err
	}
	check.dtype("skip", skip, cuda.I32)
	check.dtype("step", step, cuda.I32)
	check.dtype("lr", lr, cuda.F32)
	check.shape("skip", skip, "[1]", 1)
	check.shape("step", step, "[1]", 1)
	check.shape("lr", lr, "[1]", 1)
	if check.err != nil {
		return check.err
	}
	return check.ctx.LRSchedule(skip.memory(), step.memory(), lr.memory(), warmup, total, maxLR, minLR)
}

// LossScaleUpdate calls cuda_loss_scale_update.
//
// Dynamic loss scaling: when norm is not finite, skip = 1, skipped += 1, loss_scale *= backoff, good_steps = 0; else
// skip = 0 and good_steps += 1, and each time it reaches `interval` loss_scale *= growth and good_steps = 0. The scale
// stays within 2^-24 .. 2^24. (Micikevicius et al. 2018, section 3.2)
//
//   - norm, in f32 [1]: from grad_norm
//   - lossScale, inout f32 [1]: the scale
//   - goodSteps, inout i32 [1]: steps since the last change
//   - skipped, inout i32 [1]: steps skipped so far
//   - skip, out i32 [1]: 1 when this step must be skipped
//   - growth: factor by which the scale grows; must be finite and at least 1
//   - backoff: factor by which it shrinks; must be above 0 and at most 1
//   - interval: good steps before it grows; must be at least 1
func LossScaleUpdate(norm, lossScale, goodSteps, skipped, skip *Tensor, growth, backoff float32, interval int64) error {
	check := begin("loss_scale_update", "")
	if !check.required("norm", norm, 1, dense) ||
		!check.required("loss_scale", lossScale, 1, dense) ||
		!check.required("good_steps", goodSteps, 1, dense) ||
		!check.required("skipped", skipped, 1, dense) ||
		!check.required("skip", skip, 1, dense) {
		return check.err
	}
	check.dtype("norm", norm, cuda.F32)
	check.dtype("loss_scale", lossScale, cuda.F32)
	check.dtype("good_steps", goodSteps, cuda.I32)
	check.dtype("skipped", skipped, cuda.I32)
	check.dtype("skip", skip, cuda.I32)
	check.shape("norm", norm, "[1]", 1)
	check.shape("loss_scale", lossScale, "[1]", 1)
	check.shape("good_steps", goodSteps, "[1]", 1)
	check.shape("skipped", skipped, "[1]", 1)
	check.shape("skip", skip, "[1]", 1)
	if check.err != nil {
		return check.err
	}
	return check.ctx.LossScaleUpdate(norm.memory(), lossScale.memory(), goodSteps.memory(), skipped.memory(),
		skip.memory(), growth, backoff, interval)
}
