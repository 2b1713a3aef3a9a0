// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// MoEPlan calls cuda_moe_plan.
//
// Plans which row each slot takes. An expert keeps its first `capacity` slots in token order and drops the others.
// (Lepikhin et al. 2020, "GShard", algorithm 1; Gale et al. 2022, "MegaBlocks")
//
//   - indices, in i32 [tokens, k]: experts chosen, 0 .. experts-1
//   - counts, out i32 [experts]: slots routed to each expert, dropped ones included
//   - offsets, out i32 [experts+1]: first row of each expert; the last is the number of rows kept
//   - slotRow, out i32 [tokens, k]: row of each slot, -1 if dropped
//   - rowSlot, out i32 [tokens*k]: slot of each row; -1 from offsets[experts] on
//   - capacity, usually 0: most rows an expert may take; must be at least 1, or 0 for no limit
func MoEPlan(indices, counts, offsets, slotRow, rowSlot *Tensor, capacity int64) error {
	check := begin("moe_plan", "tokens and k from indices, experts from counts")
	if !check.required("indices", indices, 2, dense) ||
		!check.required("counts", counts, 1, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.required("row_slot", rowSlot, 1, dense) {
		return check.err
	}
	check.same(named{"indices", indices}, named{"slot_row", slotRow})
	tokens := indices.extent(2, 0)
	k := indices.extent(2, 1)
	experts := counts.extent(1, 0)
	check.dtype("indices", indices, cuda.I32)
	check.dtype("counts", counts, cuda.I32)
	check.dtype("offsets", offsets, cuda.I32)
	check.dtype("slot_row", slotRow, cuda.I32)
	check.dtype("row_slot", rowSlot, cuda.I32)
	check.shape("indices", indices, "[tokens, k]", tokens, k)
	check.shape("counts", counts, "[experts]", experts)
	check.shape("offsets", offsets, "[experts+1]", experts+1)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("row_slot", rowSlot, "[tokens*k]", tokens*k)
	check.factors("row_slot", rowSlot, 1, "[tokens*k]", tokens, k)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoEPlan(indices.memory(), counts.memory(), offsets.memory(), slotRow.memory(), rowSlot.memory(),
		int64(tokens), int64(k), int64(experts), capacity)
}

// MoEGather calls cuda_moe_gather.
//
// Brings tokens into row order: y[r] = x[row_slot[r] / k]. Rows whose slot is -1 become zero.
//
//   - x, in dtype [tokens, dim]: tokens
//   - rowSlot, in i32 [tokens*k]: from moe_plan
//   - y, out dtype [tokens*k, dim]: rows
func MoEGather(x, rowSlot, y *Tensor) error {
	check := begin("moe_gather", "tokens and dim from x, k from row_slot")
	if !check.required("x", x, 2, dense) ||
		!check.required("row_slot", rowSlot, 1, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.folds("tokens*k", ranked{named{"row_slot", rowSlot}, 1}, ranked{named{"y", y}, 2})
	tokens := x.extent(2, 0)
	dim := x.extent(2, 1)
	k := check.solve("row_slot", "tokens*k", "k", rowSlot.extent(1, 0), 0, 1, tokens)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.dtype("row_slot", rowSlot, cuda.I32)
	check.shape("x", x, "[tokens, dim]", tokens, dim)
	check.shape("row_slot", rowSlot, "[tokens*k]", tokens*k)
	check.factors("row_slot", rowSlot, 1, "[tokens*k]", tokens, k)
	check.shape("y", y, "[tokens*k, dim]", tokens*k, dim)
	check.factors("y", y, 2, "[tokens*k, dim]", tokens, k)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoEGather(x.memory(), rowSlot.memory(), y.memory(), int64(tokens), int64(k), int64(dim), dtype)
}

// MoERoute calls cuda_moe_route.
//
// Routes tokens to their experts and brings them there: softmax_topk of the logits, moe_plan, moe_gather and, with
// `loss`, aux_loss_forward, with the bits that these give one after the other. On a GPU it is two launches. (Fedus,
// Zoph, Shazeer 2021; Gale et al. 2022, "MegaBlocks")
//
//   - logits, in dtype_logits [tokens, experts]: as x of softmax_topk
//   - x, in dtype [tokens, dim]: tokens
//   - weights, out f32 [tokens, k]: the k probabilities of each token, renormalised if asked
//   - indices, out i32 [tokens, k]: its experts
//   - probs, out f32 [tokens, experts]: all probabilities
//   - counts, out i32 [experts]: slots routed to each expert, dropped ones included
//   - offsets, out i32 [experts+1]: first row of each expert; the last is the number of rows kept
//   - slotRow, out i32 [tokens, k]: row of each slot, -1 if dropped
//   - rowSlot, out i32 [tokens*k]: slot of each row; -1 from offsets[experts] on
//   - y, out dtype [tokens*k, dim]: the tokens in row order; zero in rows without a slot
//   - loss, inout f32 [1], may be nil: the load-balancing loss is added to it; null for none
//   - norm: 1 divides the k weights by their sum
//   - capacity, usually 0: most rows an expert may take; must be at least 1, or 0 for no limit
//   - alpha, usually 0: weight of the load-balancing loss; must be finite
func MoERoute(logits, x, weights, indices, probs, counts, offsets, slotRow, rowSlot, y, loss *Tensor, norm bool,
	capacity int64, alpha float32) error {
	check := begin("moe_route", "tokens and experts from logits, dim from x, k from weights")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("x", x, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("indices", indices, 2, dense) ||
		!check.required("probs", probs, 2, dense) ||
		!check.required("counts", counts, 1, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.required("row_slot", rowSlot, 1, dense) ||
		!check.required("y", y, 2, dense) ||
		!check.optional("loss", loss, 1, dense) {
		return check.err
	}
	check.same(named{"logits", logits}, named{"probs", probs})
	check.same(named{"weights", weights}, named{"indices", indices}, named{"slot_row", slotRow})
	check.folds("tokens", ranked{named{"logits", logits}, 2}, ranked{named{"x", x}, 2},
		ranked{named{"weights", weights}, 2})
	check.unfolded("counts", counts, 1, "[experts]", "experts", "logits")
	check.folds("tokens*k", ranked{named{"row_slot", rowSlot}, 1}, ranked{named{"y", y}, 2})
	tokens := logits.extent(2, 0)
	experts := logits.extent(2, 1)
	dim := x.extent(2, 1)
	k := weights.extent(2, 1)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	dtypeLogits := logits.dtype
	check.dtype("weights", weights, cuda.F32)
	check.dtype("indices", indices, cuda.I32)
	check.dtype("probs", probs, cuda.F32)
	check.dtype("counts", counts, cuda.I32)
	check.dtype("offsets", offsets, cuda.I32)
	check.dtype("slot_row", slotRow, cuda.I32)
	check.dtype("row_slot", rowSlot, cuda.I32)
	check.dtype("loss", loss, cuda.F32)
	check.shape("logits", logits, "[tokens, experts]", tokens, experts)
	check.shape("x", x, "[tokens, dim]", tokens, dim)
	check.shape("weights", weights, "[tokens, k]", tokens, k)
	check.shape("indices", indices, "[tokens, k]", tokens, k)
	check.shape("probs", probs, "[tokens, experts]", tokens, experts)
	check.shape("counts", counts, "[experts]", experts)
	check.shape("offsets", offsets, "[experts+1]", experts+1)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("row_slot", rowSlot, "[tokens*k]", tokens*k)
	check.factors("row_slot", rowSlot, 1, "[tokens*k]", tokens, k)
	check.shape("y", y, "[tokens*k, dim]", tokens*k, dim)
	check.factors("y", y, 2, "[tokens*k, dim]", tokens, k)
	check.shape("loss", loss, "[1]", 1)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoERoute(logits.memory(), x.memory(), weights.memory(), indices.memory(), probs.memory(),
		counts.memory(), offsets.memory(), slotRow.memory(), rowSlot.memory(), y.memory(), loss.memory(), int64(tokens),
		int64(experts), int64(k), int64(dim), norm, capacity, alpha, dtype, dtypeLogits)
}

// MoERouteBackward calls cuda_moe_route_backward.
//
// Gradient of moe_route with respect to the logits: softmax_topk_backward, whose dprobs is what aux_loss_backward
// gives, with the bits of these two calls. No gradient passes through the choice of experts, or through their counts.
//
//   - dweights, in f32 [tokens, k]: gradient of weights
//   - weights, in f32 [tokens, k]: from the forward call
//   - indices, in i32 [tokens, k]: from the forward call
//   - probs, in f32 [tokens, experts]: from the forward call
//   - counts, in i32 [experts]: from the forward call
//   - gradScale, in f32 [1]: gradient of the load-balancing loss
//   - dlogits, out dtype [tokens, experts]: gradient of the logits
//   - norm: as in the forward call
//   - alpha: as in the forward call; must be finite
func MoERouteBackward(dweights, weights, indices, probs, counts, gradScale, dlogits *Tensor, norm bool,
	alpha float32) error {
	check := begin("moe_route_backward", "tokens and k from dweights, experts from probs")
	if !check.required("dweights", dweights, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("indices", indices, 2, dense) ||
		!check.required("probs", probs, 2, dense) ||
		!check.required("counts", counts, 1, dense) ||
		!check.required("grad_scale", gradScale, 1, dense) ||
		!check.required("dlogits", dlogits, 2, dense) {
		return check.err
	}
	check.same(named{"dweights", dweights}, named{"weights", weights}, named{"indices", indices})
	check.same(named{"probs", probs}, named{"dlogits", dlogits})
	check.folds("tokens", ranked{named{"dweights", dweights}, 2}, ranked{named{"probs", probs}, 2})
	check.unfolded("counts", counts, 1, "[experts]", "experts", "probs")
	tokens := dweights.extent(2, 0)
	k := dweights.extent(2, 1)
	experts := probs.extent(2, 1)
	dtype := dlogits.dtype
	check.dtype("dweights", dweights, cuda.F32)
	check.dtype("weights", weights, cuda.F32)
	check.dtype("indices", indices, cuda.I32)
	check.dtype("probs", probs, cuda.F32)
	check.dtype("counts", counts, cuda.I32)
	check.dtype("grad_scale", gradScale, cuda.F32)
	check.shape("dweights", dweights, "[tokens, k]", tokens, k)
	check.shape("weights", weights, "[tokens, k]", tokens, k)
	check.shape("indices", indices, "[tokens, k]", tokens, k)
	check.shape("probs", probs, "[tokens, experts]", tokens, experts)
	check.shape("counts", counts, "[experts]", experts)
	check.shape("grad_scale", gradScale, "[1]", 1)
	check.shape("dlogits", dlogits, "[tokens, experts]", tokens, experts)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoERouteBackward(dweights.memory(), weights.memory(), indices.memory(), probs.memory(),
		counts.memory(), gradScale.memory(), dlogits.memory(), int64(tokens), int64(experts), int64(k), norm, alpha,
		dtype)
}

// MoEGatherBackward calls cuda_moe_gather_backward.
//
// Gradient of moe_gather: dx[t] = sum over j of dy[slot_row[t, j]], dropped slots left out.
//
//   - dy, in dtype [tokens*k, dim]: gradient of y
//   - slotRow, in i32 [tokens, k]: from moe_plan
//   - dx, out dtype [tokens, dim]: gradient of x
func MoEGatherBackward(dy, slotRow, dx *Tensor) error {
	check := begin("moe_gather_backward", "dim from dy, tokens and k from slot_row")
	if !check.required("dy", dy, 2, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.required("dx", dx, 2, dense) {
		return check.err
	}
	check.folds("tokens", ranked{named{"slot_row", slotRow}, 2}, ranked{named{"dx", dx}, 2})
	dim := dy.extent(2, 1)
	tokens := slotRow.extent(2, 0)
	k := slotRow.extent(2, 1)
	dtype := dy.dtype
	check.dtype("dx", dx, dtype)
	check.dtype("slot_row", slotRow, cuda.I32)
	check.shape("dy", dy, "[tokens*k, dim]", tokens*k, dim)
	check.factors("dy", dy, 2, "[tokens*k, dim]", tokens, k)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("dx", dx, "[tokens, dim]", tokens, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoEGatherBackward(dy.memory(), slotRow.memory(), dx.memory(), int64(tokens), int64(k), int64(dim),
		dtype)
}

// MoECombine calls cuda_moe_combine.
//
// Weighs the experts' outputs and brings them back into token order: out[t] = residual[t] + sum over j of weights[t, j]
// * y[slot_row[t, j]], dropped slots left out.
//
//   - y, in dtype [tokens*k, dim]: the experts' outputs, in row order
//   - weights, in f32 [tokens, k]: router weights
//   - slotRow, in i32 [tokens, k]: from moe_plan
//   - residual, in dtype [tokens, dim], may be nil: added, or null
//   - out, out dtype [tokens, dim], may be residual itself: output
func MoECombine(y, weights, slotRow, residual, out *Tensor) error {
	check := begin("moe_combine", "dim from y, tokens and k from weights")
	if !check.required("y", y, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.optional("residual", residual, 2, dense) ||
		!check.required("out", out, 2, dense) {
		return check.err
	}
	check.same(named{"weights", weights}, named{"slot_row", slotRow})
	check.same(named{"residual", residual}, named{"out", out})
	check.folds("tokens", ranked{named{"weights", weights}, 2}, ranked{named{"residual", residual}, 2},
		ranked{named{"out", out}, 2})
	dim := y.extent(2, 1)
	tokens := weights.extent(2, 0)
	k := weights.extent(2, 1)
	dtype := y.dtype
	check.dtype("out", out, dtype)
	check.dtype("residual", residual, dtype)
	check.dtype("weights", weights, cuda.F32)
	check.dtype("slot_row", slotRow, cuda.I32)
	check.shape("y", y, "[tokens*k, dim]", tokens*k, dim)
	check.factors("y", y, 2, "[tokens*k, dim]", tokens, k)
	check.shape("weights", weights, "[tokens, k]", tokens, k)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("residual", residual, "[tokens, dim]", tokens, dim)
	check.shape("out", out, "[tokens, dim]", tokens, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoECombine(y.memory(), weights.memory(), slotRow.memory(), residual.memory(), out.memory(),
		int64(tokens), int64(k), int64(dim), dtype)
}

// MoECombineBackward calls cuda_moe_combine_backward.
//
// Gradients of moe_combine: dy[r] = weights[t, j] * dout[t] for the slot (t, j) of row r, zero for rows without a slot;
// dweights[t, j] = dout[t] . y[slot_row[t, j]], zero for dropped slots. The residual's gradient is dout itself.
//
//   - dout, in dtype [tokens, dim]: gradient of out
//   - y, in dtype [tokens*k, dim]: as in the forward call
//   - weights, in f32 [tokens, k]: as in the forward call
//   - slotRow, in i32 [tokens, k]: from moe_plan
//   - rowSlot, in i32 [tokens*k]: from moe_plan
//   - dy, out dtype [tokens*k, dim], may be y itself: gradient of y
//   - dweights, out f32 [tokens, k]: gradient of weights
func MoECombineBackward(dout, y, weights, slotRow, rowSlot, dy, dweights *Tensor) error {
	check := begin("moe_combine_backward", "tokens and dim from dout, k from weights")
	if !check.required("dout", dout, 2, dense) ||
		!check.required("y", y, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.required("row_slot", rowSlot, 1, dense) ||
		!check.required("dy", dy, 2, dense) ||
		!check.required("dweights", dweights, 2, dense) {
		return check.err
	}
	check.same(named{"y", y}, named{"dy", dy})
	check.same(named{"weights", weights}, named{"slot_row", slotRow}, named{"dweights", dweights})
	check.folds("tokens", ranked{named{"dout", dout}, 2}, ranked{named{"weights", weights}, 2})
	check.folds("tokens*k", ranked{named{"y", y}, 2}, ranked{named{"row_slot", rowSlot}, 1})
	tokens := dout.extent(2, 0)
	dim := dout.extent(2, 1)
	k := weights.extent(2, 1)
	dtype := dout.dtype
	check.dtype("y", y, dtype)
	check.dtype("dy", dy, dtype)
	check.dtype("weights", weights, cuda.F32)
	check.dtype("slot_row", slotRow, cuda.I32)
	check.dtype("row_slot", rowSlot, cuda.I32)
	check.dtype("dweights", dweights, cuda.F32)
	check.shape("dout", dout, "[tokens, dim]", tokens, dim)
	check.shape("y", y, "[tokens*k, dim]", tokens*k, dim)
	check.factors("y", y, 2, "[tokens*k, dim]", tokens, k)
	check.shape("weights", weights, "[tokens, k]", tokens, k)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("row_slot", rowSlot, "[tokens*k]", tokens*k)
	check.factors("row_slot", rowSlot, 1, "[tokens*k]", tokens, k)
	check.shape("dy", dy, "[tokens*k, dim]", tokens*k, dim)
	check.shape("dweights", dweights, "[tokens, k]", tokens, k)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoECombineBackward(dout.memory(), y.memory(), weights.memory(), slotRow.memory(), rowSlot.memory(),
		dy.memory(), dweights.memory(), int64(tokens), int64(k), int64(dim), dtype)
}

// MoEOutputBackward calls cuda_moe_output_backward.
//
// What the gradient of a layer of experts begins with: moe_combine_backward, and moe_route_backward of the gradient of
// the weights that it gives, with the bits of these two calls. On a GPU it is one launch.
//
//   - dout, in dtype [tokens, dim]: gradient of the layer's output
//   - y, in dtype [tokens*k, dim]: the experts' outputs, as in the forward call
//   - weights, in f32 [tokens, k]: from moe_route
//   - indices, in i32 [tokens, k]: from moe_route
//   - probs, in f32 [tokens, experts]: from moe_route
//   - counts, in i32 [experts]: from moe_route
//   - slotRow, in i32 [tokens, k]: from moe_route
//   - rowSlot, in i32 [tokens*k]: from moe_route
//   - gradScale, in f32 [1]: gradient of the load-balancing loss
//   - dy, out dtype [tokens*k, dim], may be y itself: gradient of y
//   - dweights, out f32 [tokens, k]: gradient of weights
//   - dlogits, out dtype [tokens, experts]: gradient of the router's logits
//   - norm: as in moe_route
//   - alpha: as in moe_route; must be finite
func MoEOutputBackward(dout, y, weights, indices, probs, counts, slotRow, rowSlot, gradScale, dy, dweights,
	dlogits *Tensor, norm bool, alpha float32) error {
	check := begin("moe_output_backward", "tokens and dim from dout, k from weights, experts from probs")
	if !check.required("dout", dout, 2, dense) ||
		!check.required("y", y, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("indices", indices, 2, dense) ||
		!check.required("probs", probs, 2, dense) ||
		!check.required("counts", counts, 1, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.required("row_slot", rowSlot, 1, dense) ||
		!check.required("grad_scale", gradScale, 1, dense) ||
		!check.required("dy", dy, 2, dense) ||
		!check.required("dweights", dweights, 2, dense) ||
		!check.required("dlogits", dlogits, 2, dense) {
		return check.err
	}
	check.same(named{"y", y}, named{"dy", dy})
	check.same(named{"weights", weights}, named{"indices", indices}, named{"slot_row", slotRow},
		named{"dweights", dweights})
	check.same(named{"probs", probs}, named{"dlogits", dlogits})
	check.folds("tokens", ranked{named{"dout", dout}, 2}, ranked{named{"weights", weights}, 2},
		ranked{named{"probs", probs}, 2})
	check.folds("tokens*k", ranked{named{"y", y}, 2}, ranked{named{"row_slot", rowSlot}, 1})
	check.unfolded("counts", counts, 1, "[experts]", "experts", "probs")
	tokens := dout.extent(2, 0)
	dim := dout.extent(2, 1)
	k := weights.extent(2, 1)
	experts := probs.extent(2, 1)
	dtype := dout.dtype
	check.dtype("y", y, dtype)
	check.dtype("dy", dy, dtype)
	check.dtype("dlogits", dlogits, dtype)
	check.dtype("weights", weights, cuda.F32)
	check.dtype("indices", indices, cuda.I32)
	check.dtype("probs", probs, cuda.F32)
	check.dtype("counts", counts, cuda.I32)
	check.dtype("slot_row", slotRow, cuda.I32)
	check.dtype("row_slot", rowSlot, cuda.I32)
	check.dtype("grad_scale", gradScale, cuda.F32)
	check.dtype("dweights", dweights, cuda.F32)
	check.shape("dout", dout, "[tokens, dim]", tokens, dim)
	check.shape("y", y, "[tokens*k, dim]", tokens*k, dim)
	check.factors("y", y, 2, "[tokens*k, dim]", tokens, k)
	check.shape("weights", weights, "[tokens, k]", tokens, k)
	check.shape("indices", indices, "[tokens, k]", tokens, k)
	check.shape("probs", probs, "[tokens, experts]", tokens, experts)
	check.shape("counts", counts, "[experts]", experts)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("row_slot", rowSlot, "[tokens*k]", tokens*k)
	check.factors("row_slot", rowSlot, 1, "[tokens*k]", tokens, k)
	check.shape("grad_scale", gradScale, "[1]", 1)
	check.shape("dy", dy, "[tokens*k, dim]", tokens*k, dim)
	check.shape("dweights", dweights, "[tokens, k]", tokens, k)
	check.shape("dlogits", dlogits, "[tokens, experts]", tokens, experts)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoEOutputBackward(dout.memory(), y.memory(), weights.memory(), indices.memory(), probs.memory(),
		counts.memory(), slotRow.memory(), rowSlot.memory(), gradScale.memory(), dy.memory(), dweights.memory(),
		dlogits.memory(), int64(tokens), int64(experts), int64(k), int64(dim), norm, alpha, dtype)
}

// MoEInputBackward calls cuda_moe_input_backward.
//
// What the gradient of a layer of experts ends with, those of the router's gate and of the tokens: dgate = dlogits^T *
// x + beta * dgate, and dx[t] = sum over j of drows[slot_row[t, j]] + dlogits[t] * gate, as gemm_beta has the one,
// moe_gather_backward and gemm_beta the other. On a GPU it is one launch, or two where dgate is summed in pieces.
//
//   - dlogits, in dtype [tokens, experts]: gradient of the router's logits
//   - x, in dtype [tokens, dim]: tokens, as in the forward call
//   - gate, in dtype [experts, dim]: weights of the gate, x * gate^T being the logits
//   - drows, in dtype [tokens*k, dim]: gradient of the tokens in row order
//   - slotRow, in i32 [tokens, k]: from moe_route
//   - dx, out dtype [tokens, dim]: gradient of x
//   - dgate, inout dtype_c [experts, dim]: gradient of the gate; not read with beta = 0
//   - beta, usually 0: factor of the old dgate
func MoEInputBackward(dlogits, x, gate, drows, slotRow, dx, dgate *Tensor, beta float32) error {
	check := begin("moe_input_backward", "tokens and experts from dlogits, dim from x, k from slot_row")
	if !check.required("dlogits", dlogits, 2, dense) ||
		!check.required("x", x, 2, dense) ||
		!check.required("gate", gate, 2, dense) ||
		!check.required("drows", drows, 2, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.required("dx", dx, 2, dense) ||
		!check.required("dgate", dgate, 2, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"dx", dx})
	check.same(named{"gate", gate}, named{"dgate", dgate})
	check.folds("tokens", ranked{named{"dlogits", dlogits}, 2}, ranked{named{"x", x}, 2},
		ranked{named{"slot_row", slotRow}, 2})
	check.unfolded("gate", gate, 2, "[experts, dim]", "experts", "dlogits")
	tokens := dlogits.extent(2, 0)
	experts := dlogits.extent(2, 1)
	dim := x.extent(2, 1)
	k := slotRow.extent(2, 1)
	dtype := dlogits.dtype
	check.dtype("x", x, dtype)
	check.dtype("gate", gate, dtype)
	check.dtype("drows", drows, dtype)
	check.dtype("dx", dx, dtype)
	dtypeC := dgate.dtype
	check.dtype("slot_row", slotRow, cuda.I32)
	check.shape("dlogits", dlogits, "[tokens, experts]", tokens, experts)
	check.shape("x", x, "[tokens, dim]", tokens, dim)
	check.shape("gate", gate, "[experts, dim]", experts, dim)
	check.shape("drows", drows, "[tokens*k, dim]", tokens*k, dim)
	check.factors("drows", drows, 2, "[tokens*k, dim]", tokens, k)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("dx", dx, "[tokens, dim]", tokens, dim)
	check.shape("dgate", dgate, "[experts, dim]", experts, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MoEInputBackward(dlogits.memory(), x.memory(), gate.memory(), drows.memory(), slotRow.memory(),
		dx.memory(), dgate.memory(), int64(tokens), int64(experts), int64(k), int64(dim), beta, dtype, dtypeC)
}
