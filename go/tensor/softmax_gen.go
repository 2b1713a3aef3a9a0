// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// Softmax calls cuda_softmax.
//
// Softmax of each row: y = exp(x - max) / sum(exp(x - max)). A row of nothing but -inf gives zeros; a NaN or +inf in a
// row makes the whole row NaN. (Goodfellow, Bengio, Courville 2016, eq. 4.1)
//
//   - x, in dtype [rows, cols]: logits
//   - y, out dtype [rows, cols], may be x itself: probabilities
func Softmax(x, y *Tensor) error {
	check := begin("softmax", "rows and cols from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	rows := x.extent(2, 0)
	cols := x.extent(2, 1)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.shape("x", x, "[rows, cols]", rows, cols)
	check.shape("y", y, "[rows, cols]", rows, cols)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Softmax(x.memory(), y.memory(), int64(rows), int64(cols), dtype)
}

// SoftmaxBackward calls cuda_softmax_backward.
//
// Gradient of softmax: dx = y * (dy - sum(dy * y)).
//
//   - dy, in dtype [rows, cols]: gradient of y
//   - y, in dtype [rows, cols]: the output of the forward call
//   - dx, out dtype [rows, cols], may be dy itself: gradient of x
func SoftmaxBackward(dy, y, dx *Tensor) error {
	check := begin("softmax_backward", "rows and cols from dy")
	if !check.required("dy", dy, 2, dense) ||
		!check.required("y", y, 2, dense) ||
		!check.required("dx", dx, 2, dense) {
		return check.err
	}
	check.same(named{"dy", dy}, named{"y", y}, named{"dx", dx})
	rows := dy.extent(2, 0)
	cols := dy.extent(2, 1)
	dtype := dy.dtype
	check.dtype("y", y, dtype)
	check.dtype("dx", dx, dtype)
	check.shape("dy", dy, "[rows, cols]", rows, cols)
	check.shape("y", y, "[rows, cols]", rows, cols)
	check.shape("dx", dx, "[rows, cols]", rows, cols)
	if check.err != nil {
		return check.err
	}
	return check.ctx.SoftmaxBackward(dy.memory(), y.memory(), dx.memory(), int64(rows), int64(cols), dtype)
}

// SoftmaxTopK calls cuda_softmax_topk.
//
// The router: softmax over all columns in f32, then the k largest of each row in falling order. Ties go to the lower
// index; NaN counts as less than everything, so the k indices are always distinct and in range. With `norm` the k
// weights are divided by their sum. (Shazeer et al. 2017; Jiang et al. 2024, "Mixtral", section 2.1)
//
//   - x, in dtype [rows, cols]: logits
//   - weights, out f32 [rows, k]: the k probabilities, renormalised if asked
//   - indices, out i32 [rows, k]: their columns
//   - probs, out f32 [rows, cols]: all probabilities, as the backward call and the auxiliary loss need them
//   - norm: 1 divides the k weights by their sum
func SoftmaxTopK(x, weights, indices, probs *Tensor, norm bool) error {
	check := begin("softmax_topk", "rows and cols from x, k from weights")
	if !check.required("x", x, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("indices", indices, 2, dense) ||
		!check.required("probs", probs, 2, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"probs", probs})
	check.same(named{"weights", weights}, named{"indices", indices})
	check.folds("rows", ranked{named{"x", x}, 2}, ranked{named{"weights", weights}, 2})
	rows := x.extent(2, 0)
	cols := x.extent(2, 1)
	k := weights.extent(2, 1)
	dtype := x.dtype
	check.dtype("weights", weights, cuda.F32)
	check.dtype("indices", indices, cuda.I32)
	check.dtype("probs", probs, cuda.F32)
	check.shape("x", x, "[rows, cols]", rows, cols)
	check.shape("weights", weights, "[rows, k]", rows, k)
	check.shape("indices", indices, "[rows, k]", rows, k)
	check.shape("probs", probs, "[rows, cols]", rows, cols)
	if check.err != nil {
		return check.err
	}
	return check.ctx.SoftmaxTopK(x.memory(), weights.memory(), indices.memory(), probs.memory(), int64(rows),
		int64(cols), int64(k), norm, dtype)
}

// SoftmaxTopKBackward calls cuda_softmax_topk_backward.
//
// Gradient of the router with respect to its logits; no gradient passes through the choice of indices. With g the
// gradient of the probabilities (dprobs, plus dweights carried through the renormalisation at the chosen columns): dx =
// probs * (g - sum(g * probs)).
//
//   - dweights, in f32 [rows, k]: gradient of weights
//   - weights, in f32 [rows, k]: from the forward call
//   - indices, in i32 [rows, k]: from the forward call
//   - probs, in f32 [rows, cols]: from the forward call
//   - dprobs, in f32 [rows, cols], may be nil: further gradient of probs (the auxiliary loss), or null
//   - dx, out dtype [rows, cols]: gradient of the logits
//   - norm: as in the forward call
func SoftmaxTopKBackward(dweights, weights, indices, probs, dprobs, dx *Tensor, norm bool) error {
	check := begin("softmax_topk_backward", "rows and k from dweights, cols from probs")
	if !check.required("dweights", dweights, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("indices", indices, 2, dense) ||
		!check.required("probs", probs, 2, dense) ||
		!check.optional("dprobs", dprobs, 2, dense) ||
		!check.required("dx", dx, 2, dense) {
		return check.err
	}
	check.same(named{"dweights", dweights}, named{"weights", weights}, named{"indices", indices})
	check.same(named{"probs", probs}, named{"dprobs", dprobs}, named{"dx", dx})
	check.folds("rows", ranked{named{"dweights", dweights}, 2}, ranked{named{"probs", probs}, 2})
	rows := dweights.extent(2, 0)
	k := dweights.extent(2, 1)
	cols := probs.extent(2, 1)
	dtype := dx.dtype
	check.dtype("dweights", dweights, cuda.F32)
	check.dtype("weights", weights, cuda.F32)
	check.dtype("indices", indices, cuda.I32)
	check.dtype("probs", probs, cuda.F32)
	check.dtype("dprobs", dprobs, cuda.F32)
	check.shape("dweights", dweights, "[rows, k]", rows, k)
	check.shape("weights", weights, "[rows, k]", rows, k)
	check.shape("indices", indices, "[rows, k]", rows, k)
	check.shape("probs", probs, "[rows, cols]", rows, cols)
	check.shape("dprobs", dprobs, "[rows, cols]", rows, cols)
	check.shape("dx", dx, "[rows, cols]", rows, cols)
	if check.err != nil {
		return check.err
	}
	return check.ctx.SoftmaxTopKBackward(dweights.memory(), weights.memory(), indices.memory(), probs.memory(),
		dprobs.memory(), dx.memory(), int64(rows), int64(cols), int64(k), norm, dtype)
}
