// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// GemmQuantBackward calls cuda_gemm_quant_backward.
//
// The gradient of a linear layer with stored weights with respect to its input: dx = dy * W + beta * dx, of the layer y
// = x * W^T that gemm_quant computes. Groups as in gemm_quant. (Hu et al. 2021, section 4.1: W is frozen, its gradient
// not needed)
//
//   - dy, in dtype [m, n]: gradient of y
//   - w, in u8 [groups*n, row_bytes]: weights in `format`, a matrix [n, k] a group
//   - offsets, in i32 [groups+1], may be nil: first row of each group; offsets[0] = 0, never falling, at most m; null
//     for all rows and one group
//   - dx, inout dtype [m, k]: gradient of x; not read with beta = 0
//   - beta, usually 0: factor of the old dx
//   - format: NNCUDA_FORMAT_* of w, none of the _R16
func GemmQuantBackward(dy, w, offsets, dx *Tensor, beta float32, format cuda.Format) error {
	check := begin("gemm_quant_backward", "m and n from dy, row_bytes and groups from w, k from dx")
	if !check.required("dy", dy, 2, dense) ||
		!check.required("w", w, 2, dense) ||
		!check.optional("offsets", offsets, 1, dense) ||
		!check.required("dx", dx, 2, dense) {
		return check.err
	}
	check.folds("m", ranked{named{"dy", dy}, 2}, ranked{named{"dx", dx}, 2})
	m := dy.extent(2, 0)
	n := dy.extent(2, 1)
	rowBytes := w.extent(2, 1)
	k := dx.extent(2, 1)
	groups := check.solve("w", "groups*n", "groups", w.extent(2, 0), 0, 1, n)
	dtype := dy.dtype
	check.dtype("dx", dx, dtype)
	check.dtype("w", w, cuda.U8)
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("dy", dy, "[m, n]", m, n)
	check.shape("w", w, "[groups*n, row_bytes]", groups*n, rowBytes)
	check.factors("w", w, 2, "[groups*n, row_bytes]", groups, n)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("dx", dx, "[m, k]", m, k)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GemmQuantBackward(dy.memory(), w.memory(), offsets.memory(), dx.memory(), int64(groups), int64(m),
		int64(n), int64(k), int64(rowBytes), beta, format, dtype)
}

// BitLinearBackward calls cuda_bitlinear_backward.
//
// The gradient of a linear layer with ternary weights with respect to its input: dx = dy * (w_scale * W) + beta * dx,
// of the layer that bitlinear computes, with the rounding of its input to 8 bits taken as the identity. (Bengio,
// Léonard, Courville 2013, "Estimating or Propagating Gradients Through Stochastic Neurons", section 4; Ma et al. 2024,
// section 2)
//
//   - dy, in dtype [m, n]: gradient of y
//   - w, in u8 [stored, row_bytes]: weights from ternary_pack; two bits 3, which are no code, count as 2
//   - wScale, in f32 [n]: of each output
//   - dx, inout dtype [m, k]: gradient of x; not read with beta = 0
//   - beta, usually 0: factor of the old dx
func BitLinearBackward(dy, w, wScale, dx *Tensor, beta float32) error {
	check := begin("bitlinear_backward", "m and n from dy, stored and row_bytes from w, k from dx")
	if !check.required("dy", dy, 2, dense) ||
		!check.required("w", w, 2, dense) ||
		!check.required("w_scale", wScale, 1, dense) ||
		!check.required("dx", dx, 2, dense) {
		return check.err
	}
	check.folds("m", ranked{named{"dy", dy}, 2}, ranked{named{"dx", dx}, 2})
	check.unfolded("w_scale", wScale, 1, "[n]", "n", "dy")
	m := dy.extent(2, 0)
	n := dy.extent(2, 1)
	stored := w.extent(2, 0)
	rowBytes := w.extent(2, 1)
	k := dx.extent(2, 1)
	dtype := dy.dtype
	check.dtype("dx", dx, dtype)
	check.dtype("w", w, cuda.U8)
	check.dtype("w_scale", wScale, cuda.F32)
	check.shape("dy", dy, "[m, n]", m, n)
	check.shape("w", w, "[stored, row_bytes]", stored, rowBytes)
	check.shape("w_scale", wScale, "[n]", n)
	check.shape("dx", dx, "[m, k]", m, k)
	if check.err != nil {
		return check.err
	}
	return check.ctx.BitLinearBackward(dy.memory(), w.memory(), wScale.memory(), dx.memory(), int64(m), int64(n),
		int64(k), int64(stored), int64(rowBytes), beta, dtype)
}
