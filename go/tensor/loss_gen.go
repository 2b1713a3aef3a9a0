// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// CrossEntropyForward calls cuda_cross_entropy_forward.
//
// Cross-entropy of each row: losses = lse - logits[target], lse = log(sum(exp(logits))); zero where the target is
// ignore_index. loss_sum and count are over the rows that are not ignored. (Goodfellow, Bengio, Courville 2016, eq.
// 6.30)
//
//   - logits, in dtype [rows, vocab]: logits
//   - targets, in i32 [rows]: 0 .. vocab-1, or ignore_index
//   - losses, out f32 [rows], may be nil: loss of each row, or null
//   - lse, out f32 [rows]: kept for the backward call
//   - lossSum, out f32 [1]: sum of the losses
//   - count, out i32 [1]: rows not ignored
//   - ignoreIndex, usually -100: target to leave out
func CrossEntropyForward(logits, targets, losses, lse, lossSum, count *Tensor, ignoreIndex int32) error {
	check := begin("cross_entropy_forward", "rows and vocab from logits")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("targets", targets, 1, dense) ||
		!check.optional("losses", losses, 1, dense) ||
		!check.required("lse", lse, 1, dense) ||
		!check.required("loss_sum", lossSum, 1, dense) ||
		!check.required("count", count, 1, dense) {
		return check.err
	}
	check.same(named{"targets", targets}, named{"losses", losses}, named{"lse", lse})
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"targets", targets}, 1})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	dtype := logits.dtype
	check.dtype("targets", targets, cuda.I32)
	check.dtype("losses", losses, cuda.F32)
	check.dtype("lse", lse, cuda.F32)
	check.dtype("loss_sum", lossSum, cuda.F32)
	check.dtype("count", count, cuda.I32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("targets", targets, "[rows]", rows)
	check.shape("losses", losses, "[rows]", rows)
	check.shape("lse", lse, "[rows]", rows)
	check.shape("loss_sum", lossSum, "[1]", 1)
	check.shape("count", count, "[1]", 1)
	if check.err != nil {
		return check.err
	}
	return check.ctx.CrossEntropyForward(logits.memory(), targets.memory(), losses.memory(), lse.memory(),
		lossSum.memory(), count.memory(), int64(rows), int64(vocab), ignoreIndex, dtype)
}

// CrossEntropyBackward calls cuda_cross_entropy_backward.
//
// Gradient of grad_scale * sum(losses): dlogits = grad_scale * (exp(logits - lse) - onehot(target)); zero where
// ignored.
//
//   - logits, in dtype [rows, vocab]: as in the forward call
//   - targets, in i32 [rows]: as in the forward call
//   - lse, in f32 [rows]: from the forward call
//   - gradScale, in f32 [1]: factor; 1/count for the mean
//   - dlogits, out dtype [rows, vocab], may be logits itself: gradient of the logits
//   - ignoreIndex, usually -100: as in the forward call
func CrossEntropyBackward(logits, targets, lse, gradScale, dlogits *Tensor, ignoreIndex int32) error {
	check := begin("cross_entropy_backward", "rows and vocab from logits")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("targets", targets, 1, dense) ||
		!check.required("lse", lse, 1, dense) ||
		!check.required("grad_scale", gradScale, 1, dense) ||
		!check.required("dlogits", dlogits, 2, dense) {
		return check.err
	}
	check.same(named{"logits", logits}, named{"dlogits", dlogits})
	check.same(named{"targets", targets}, named{"lse", lse})
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"targets", targets}, 1})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	dtype := logits.dtype
	check.dtype("dlogits", dlogits, dtype)
	check.dtype("targets", targets, cuda.I32)
	check.dtype("lse", lse, cuda.F32)
	check.dtype("grad_scale", gradScale, cuda.F32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("targets", targets, "[rows]", rows)
	check.shape("lse", lse, "[rows]", rows)
	check.shape("grad_scale", gradScale, "[1]", 1)
	check.shape("dlogits", dlogits, "[rows, vocab]", rows, vocab)
	if check.err != nil {
		return check.err
	}
	return check.ctx.CrossEntropyBackward(logits.memory(), targets.memory(), lse.memory(), gradScale.memory(),
		dlogits.memory(), int64(rows), int64(vocab), ignoreIndex, dtype)
}

// AuxLossForward calls cuda_aux_loss_forward.
//
// Load-balancing loss of one layer: loss += alpha * sum over experts of f * P, f = counts / tokens, P = mean of probs
// over tokens. (Fedus, Zoph, Shazeer 2021, "Switch Transformers", eq. 4-6, without the factor of the expert count)
//
//   - probs, in f32 [tokens, experts]: from softmax_topk
//   - counts, in i32 [experts]: from moe_plan
//   - loss, acc f32 [1]: the loss
//   - alpha: weight of this loss; must be finite
func AuxLossForward(probs, counts, loss *Tensor, alpha float32) error {
	check := begin("aux_loss_forward", "tokens and experts from probs")
	if !check.required("probs", probs, 2, dense) ||
		!check.required("counts", counts, 1, dense) ||
		!check.required("loss", loss, 1, dense) {
		return check.err
	}
	check.unfolded("counts", counts, 1, "[experts]", "experts", "probs")
	tokens := probs.extent(2, 0)
	experts := probs.extent(2, 1)
	check.dtype("probs", probs, cuda.F32)
	check.dtype("counts", counts, cuda.I32)
	check.dtype("loss", loss, cuda.F32)
	check.shape("probs", probs, "[tokens, experts]", tokens, experts)
	check.shape("counts", counts, "[experts]", experts)
	check.shape("loss", loss, "[1]", 1)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AuxLossForward(probs.memory(), counts.memory(), loss.memory(), int64(tokens), int64(experts),
		alpha)
}

// AuxLossBackward calls cuda_aux_loss_backward.
//
// Gradient of grad_scale * aux loss with respect to probs: dprobs = grad_scale * alpha * f / tokens; none through f.
//
//   - counts, in i32 [experts]: from moe_plan
//   - gradScale, in f32 [1]: factor
//   - dprobs, out f32 [tokens, experts]: gradient of probs
//   - alpha: weight of this loss; must be finite
func AuxLossBackward(counts, gradScale, dprobs *Tensor, alpha float32) error {
	check := begin("aux_loss_backward", "experts from counts, tokens from dprobs")
	if !check.required("counts", counts, 1, dense) ||
		!check.required("grad_scale", gradScale, 1, dense) ||
		!check.required("dprobs", dprobs, 2, dense) {
		return check.err
	}
	check.unfolded("counts", counts, 1, "[experts]", "experts", "dprobs")
	experts := counts.extent(1, 0)
	tokens := dprobs.extent(2, 0)
	check.dtype("counts", counts, cuda.I32)
	check.dtype("grad_scale", gradScale, cuda.F32)
	check.dtype("dprobs", dprobs, cuda.F32)
	check.shape("counts", counts, "[experts]", experts)
	check.shape("grad_scale", gradScale, "[1]", 1)
	check.shape("dprobs", dprobs, "[tokens, experts]", tokens, experts)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AuxLossBackward(counts.memory(), gradScale.memory(), dprobs.memory(), int64(tokens),
		int64(experts), alpha)
}

// WeightedMean calls cuda_weighted_mean.
//
// Mean of what was summed in parts: y = sum of weights * x / divisor, in f64 in a fixed order, rounded once. The mean
// of a batch's losses, of its parts' losses by their sizes, and with x = 1 the factor of a gradient, 1/tokens.
//
//   - x, in f32 [n]: the parts' sums
//   - weights, in i32 [n], may be nil: how often each counts; null is once
//   - y, out f32 [1]: the mean
//   - divisor, usually 1: how many they are the sums of; must be at least 1
func WeightedMean(x, weights, y *Tensor, divisor int64) error {
	check := begin("weighted_mean", "n from x")
	if !check.required("x", x, 1, dense) ||
		!check.optional("weights", weights, 1, dense) ||
		!check.required("y", y, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"weights", weights})
	n := x.extent(1, 0)
	check.dtype("x", x, cuda.F32)
	check.dtype("weights", weights, cuda.I32)
	check.dtype("y", y, cuda.F32)
	check.shape("x", x, "[n]", n)
	check.shape("weights", weights, "[n]", n)
	check.shape("y", y, "[1]", 1)
	if check.err != nil {
		return check.err
	}
	return check.ctx.WeightedMean(x.memory(), weights.memory(), y.memory(), int64(n), divisor)
}
