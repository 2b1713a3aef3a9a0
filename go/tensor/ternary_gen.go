// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// ActQuantI8 calls cuda_act_quant_i8.
//
// Rounds rows to 8 bits, each with a scale of its own: with a = max(max |x|, 1e-5), codes = rint(x * (127/a)), ties to
// even, scale = a/127, all in f32. A row with a value that is not finite gets codes 0 and scale NaN. (Ma et al. 2024,
// eq. 4)
//
//   - x, in dtype [rows, cols]: activations
//   - codes, out i8 [rows, cols]: -127 .. 127
//   - scale, out f32 [rows]: x is about codes * scale
func ActQuantI8(x, codes, scale *Tensor) error {
	check := begin("act_quant_i8", "rows and cols from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("codes", codes, 2, dense) ||
		!check.required("scale", scale, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"codes", codes})
	check.folds("rows", ranked{named{"x", x}, 2}, ranked{named{"scale", scale}, 1})
	rows := x.extent(2, 0)
	cols := x.extent(2, 1)
	dtype := x.dtype
	check.dtype("codes", codes, cuda.I8)
	check.dtype("scale", scale, cuda.F32)
	check.shape("x", x, "[rows, cols]", rows, cols)
	check.shape("codes", codes, "[rows, cols]", rows, cols)
	check.shape("scale", scale, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.ActQuantI8(x.memory(), codes.memory(), scale.memory(), int64(rows), int64(cols), dtype)
}

// RMSNormQuantI8 calls cuda_rmsnorm_quant_i8.
//
// RMSNorm and act_quant_i8 in one pass: the bits of cuda_rmsnorm, its result rounded to dtype, then of
// cuda_act_quant_i8.
//
//   - x, in dtype [rows, cols]: input
//   - weight, in dtype [cols]: gain
//   - codes, out i8 [rows, cols]: the norm in 8 bits
//   - scale, out f32 [rows]: the norm is about codes * scale
//   - eps: added to the mean square; must be finite and at least 0
func RMSNormQuantI8(x, weight, codes, scale *Tensor, eps float32) error {
	check := begin("rmsnorm_quant_i8", "rows and cols from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("weight", weight, 1, dense) ||
		!check.required("codes", codes, 2, dense) ||
		!check.required("scale", scale, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"codes", codes})
	check.folds("rows", ranked{named{"x", x}, 2}, ranked{named{"scale", scale}, 1})
	check.unfolded("weight", weight, 1, "[cols]", "cols", "x")
	rows := x.extent(2, 0)
	cols := x.extent(2, 1)
	dtype := x.dtype
	check.dtype("weight", weight, dtype)
	check.dtype("codes", codes, cuda.I8)
	check.dtype("scale", scale, cuda.F32)
	check.shape("x", x, "[rows, cols]", rows, cols)
	check.shape("weight", weight, "[cols]", cols)
	check.shape("codes", codes, "[rows, cols]", rows, cols)
	check.shape("scale", scale, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RMSNormQuantI8(x.memory(), weight.memory(), codes.memory(), scale.memory(), int64(rows),
		int64(cols), eps, dtype)
}

// TernaryQuantize calls cuda_ternary_quantize.
//
// Ternary weights by their mean magnitude: with s = max(mean |x|, 1e-5), codes = rint(x * (1/s)) cut to -1 .. 1, ties
// to even. The mean is taken in f64: in each row, column by column, sixteen sums, of the columns equal modulo 16, then
// sum j + sum j + 8, the same with 4, 2 and 1; then row after row; the quotient is rounded to f32 once. A value that is
// not finite makes the call fail with NNCUDA_ERROR_OUT_OF_RANGE. (Ma et al. 2024, eqs. 1 to 3)
//
//   - x, in dtype [n, k]: weights
//   - codes, out i8 [n, k]: -1, 0, 1
//   - scale, out f32 [1]: s; x is about codes * scale
func TernaryQuantize(x, codes, scale *Tensor) error {
	check := begin("ternary_quantize", "n and k from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("codes", codes, 2, dense) ||
		!check.required("scale", scale, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"codes", codes})
	n := x.extent(2, 0)
	k := x.extent(2, 1)
	dtype := x.dtype
	check.dtype("codes", codes, cuda.I8)
	check.dtype("scale", scale, cuda.F32)
	check.shape("x", x, "[n, k]", n, k)
	check.shape("codes", codes, "[n, k]", n, k)
	check.shape("scale", scale, "[1]", 1)
	if check.err != nil {
		return check.err
	}
	return check.ctx.TernaryQuantize(x.memory(), codes.memory(), scale.memory(), int64(n), int64(k), dtype)
}

// TernaryPack calls cuda_ternary_pack.
//
// Packs ternary weights. A code other than -1, 0 and 1 makes the call fail with NNCUDA_ERROR_OUT_OF_RANGE.
//
//   - codes, in i8 [n, k]: -1, 0, 1
//   - w, out u8 [stored, row_bytes]: packed weights
func TernaryPack(codes, w *Tensor) error {
	check := begin("ternary_pack", "n and k from codes, stored and row_bytes from w")
	if !check.required("codes", codes, 2, dense) ||
		!check.required("w", w, 2, dense) {
		return check.err
	}
	n := codes.extent(2, 0)
	k := codes.extent(2, 1)
	stored := w.extent(2, 0)
	rowBytes := w.extent(2, 1)
	check.dtype("codes", codes, cuda.I8)
	check.dtype("w", w, cuda.U8)
	check.shape("codes", codes, "[n, k]", n, k)
	check.shape("w", w, "[stored, row_bytes]", stored, rowBytes)
	if check.err != nil {
		return check.err
	}
	return check.ctx.TernaryPack(codes.memory(), w.memory(), int64(n), int64(k), int64(stored), int64(rowBytes))
}

// TernaryUnpack calls cuda_ternary_unpack.
//
// The codes of packed weights. Two bits that are no code (3) make the call fail with NNCUDA_ERROR_OUT_OF_RANGE.
//
//   - w, in u8 [stored, row_bytes]: packed weights
//   - codes, out i8 [n, k]: -1, 0, 1
func TernaryUnpack(w, codes *Tensor) error {
	check := begin("ternary_unpack", "stored and row_bytes from w, n and k from codes")
	if !check.required("w", w, 2, dense) ||
		!check.required("codes", codes, 2, dense) {
		return check.err
	}
	stored := w.extent(2, 0)
	rowBytes := w.extent(2, 1)
	n := codes.extent(2, 0)
	k := codes.extent(2, 1)
	check.dtype("w", w, cuda.U8)
	check.dtype("codes", codes, cuda.I8)
	check.shape("w", w, "[stored, row_bytes]", stored, rowBytes)
	check.shape("codes", codes, "[n, k]", n, k)
	if check.err != nil {
		return check.err
	}
	return check.ctx.TernaryUnpack(w.memory(), codes.memory(), int64(n), int64(k), int64(stored), int64(rowBytes))
}

// BitLinear calls cuda_bitlinear.
//
// A linear layer with ternary weights: y = float(codes * W^T) * (scale * w_scale) + residual, the product of integers
// exact, its conversion to f32, the product of the scales, the product of the two and the sum each rounded once to f32.
// With dtype i32, y is the integers, and scale, w_scale and residual must be null. Two bits 3, which are no code, count
// as 2.
//
//   - codes, in i8 [m, k]: activations, from act_quant_i8 or rmsnorm_quant_i8
//   - scale, in f32 [m], may be nil: of each row of the activations; null for i32
//   - w, in u8 [stored, row_bytes]: weights from ternary_pack
//   - wScale, in f32 [n], may be nil: of each output, so that matrices with scales of their own can be one; null for
//     i32
//   - residual, in dtype [m, n], may be nil: added at the end, or null
//   - y, out dtype [m, n], may be residual itself: result
func BitLinear(codes, scale, w, wScale, residual, y *Tensor) error {
	check := begin("bitlinear", "m and k from codes, stored and row_bytes from w, n from y")
	if !check.required("codes", codes, 2, dense) ||
		!check.optional("scale", scale, 1, dense) ||
		!check.required("w", w, 2, dense) ||
		!check.optional("w_scale", wScale, 1, dense) ||
		!check.optional("residual", residual, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.same(named{"residual", residual}, named{"y", y})
	check.folds("m", ranked{named{"codes", codes}, 2}, ranked{named{"scale", scale}, 1},
		ranked{named{"residual", residual}, 2}, ranked{named{"y", y}, 2})
	check.unfolded("w_scale", wScale, 1, "[n]", "n", "y")
	m := codes.extent(2, 0)
	k := codes.extent(2, 1)
	stored := w.extent(2, 0)
	rowBytes := w.extent(2, 1)
	n := y.extent(2, 1)
	dtype := y.dtype
	check.dtype("residual", residual, dtype)
	check.dtype("codes", codes, cuda.I8)
	check.dtype("scale", scale, cuda.F32)
	check.dtype("w", w, cuda.U8)
	check.dtype("w_scale", wScale, cuda.F32)
	check.shape("codes", codes, "[m, k]", m, k)
	check.shape("scale", scale, "[m]", m)
	check.shape("w", w, "[stored, row_bytes]", stored, rowBytes)
	check.shape("w_scale", wScale, "[n]", n)
	check.shape("residual", residual, "[m, n]", m, n)
	check.shape("y", y, "[m, n]", m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.BitLinear(codes.memory(), scale.memory(), w.memory(), wScale.memory(), residual.memory(),
		y.memory(), int64(m), int64(n), int64(k), int64(stored), int64(rowBytes), dtype)
}

// BitLinearNorm calls cuda_bitlinear_norm.
//
// A linear layer with ternary weights and the norm before it: bitlinear of what rmsnorm_quant_i8 makes of x, or
// act_quant_i8 where there are no gains, with the bits of these two calls.
//
//   - x, in dtype [m, k]: input
//   - norm, in dtype [k], may be nil: gains of the norm of x, or null for x as it is
//   - w, in u8 [stored, row_bytes]: weights from ternary_pack
//   - wScale, in f32 [n]: of each output, so that matrices with scales of their own can be one
//   - residual, in dtype [m, n], may be nil: added at the end, or null
//   - y, out dtype [m, n], may be residual itself: result
//   - eps, usually 0: of the norm: added to the mean square; must be finite and at least 0
func BitLinearNorm(x, norm, w, wScale, residual, y *Tensor, eps float32) error {
	check := begin("bitlinear_norm", "m and k from x, stored and row_bytes from w, n from w_scale")
	if !check.required("x", x, 2, dense) ||
		!check.optional("norm", norm, 1, dense) ||
		!check.required("w", w, 2, dense) ||
		!check.required("w_scale", wScale, 1, dense) ||
		!check.optional("residual", residual, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.same(named{"residual", residual}, named{"y", y})
	check.folds("m", ranked{named{"x", x}, 2}, ranked{named{"residual", residual}, 2}, ranked{named{"y", y}, 2})
	check.unfolded("norm", norm, 1, "[k]", "k", "x")
	check.unfolded("w_scale", wScale, 1, "[n]", "n", "y")
	m := x.extent(2, 0)
	k := x.extent(2, 1)
	stored := w.extent(2, 0)
	rowBytes := w.extent(2, 1)
	n := wScale.extent(1, 0)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.dtype("norm", norm, dtype)
	check.dtype("residual", residual, dtype)
	check.dtype("w", w, cuda.U8)
	check.dtype("w_scale", wScale, cuda.F32)
	check.shape("x", x, "[m, k]", m, k)
	check.shape("norm", norm, "[k]", k)
	check.shape("w", w, "[stored, row_bytes]", stored, rowBytes)
	check.shape("w_scale", wScale, "[n]", n)
	check.shape("residual", residual, "[m, n]", m, n)
	check.shape("y", y, "[m, n]", m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.BitLinearNorm(x.memory(), norm.memory(), w.memory(), wScale.memory(), residual.memory(),
		y.memory(), int64(m), int64(n), int64(k), int64(stored), int64(rowBytes), eps, dtype)
}
