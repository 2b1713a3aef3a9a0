// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// RMSNorm calls cuda_rmsnorm.
//
// RMSNorm: y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). (Zhang, Sennrich 2019, eq. 4)
//
//   - x, in dtype [rows, cols]: input
//   - weight, in dtype [cols]: gain
//   - y, out dtype [rows, cols], may be x itself: output
//   - rstd, out f32 [rows], may be nil: kept for the backward call, or null
//   - eps: added to the mean square; must be finite and at least 0
func RMSNorm(x, weight, y, rstd *Tensor, eps float32) error {
	check := begin("rmsnorm", "rows and cols from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("weight", weight, 1, dense) ||
		!check.required("y", y, 2, dense) ||
		!check.optional("rstd", rstd, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	check.folds("rows", ranked{named{"x", x}, 2}, ranked{named{"rstd", rstd}, 1})
	check.unfolded("weight", weight, 1, "[cols]", "cols", "x")
	rows := x.extent(2, 0)
	cols := x.extent(2, 1)
	dtype := x.dtype
	check.dtype("weight", weight, dtype)
	check.dtype("y", y, dtype)
	check.dtype("rstd", rstd, cuda.F32)
	check.shape("x", x, "[rows, cols]", rows, cols)
	check.shape("weight", weight, "[cols]", cols)
	check.shape("y", y, "[rows, cols]", rows, cols)
	check.shape("rstd", rstd, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RMSNorm(x.memory(), weight.memory(), y.memory(), rstd.memory(), int64(rows), int64(cols), eps,
		dtype)
}

// RMSNormResidual calls cuda_rmsnorm_residual.
//
// Residual sum and its RMSNorm in one pass: sum = x + residual (rounded to dtype), y = rmsnorm(sum).
//
//   - x, in dtype [rows, cols]: a block's output
//   - residual, in dtype [rows, cols]: the residual stream
//   - weight, in dtype [cols]: gain
//   - sum, out dtype [rows, cols], may be x or residual itself: the new residual stream
//   - y, out dtype [rows, cols]: its norm
//   - rstd, out f32 [rows], may be nil: kept for the backward call, or null
//   - eps: added to the mean square; must be finite and at least 0
func RMSNormResidual(x, residual, weight, sum, y, rstd *Tensor, eps float32) error {
	check := begin("rmsnorm_residual", "rows and cols from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("residual", residual, 2, dense) ||
		!check.required("weight", weight, 1, dense) ||
		!check.required("sum", sum, 2, dense) ||
		!check.required("y", y, 2, dense) ||
		!check.optional("rstd", rstd, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"residual", residual}, named{"sum", sum}, named{"y", y})
	check.folds("rows", ranked{named{"x", x}, 2}, ranked{named{"rstd", rstd}, 1})
	check.unfolded("weight", weight, 1, "[cols]", "cols", "x")
	rows := x.extent(2, 0)
	cols := x.extent(2, 1)
	dtype := x.dtype
	check.dtype("residual", residual, dtype)
	check.dtype("weight", weight, dtype)
	check.dtype("sum", sum, dtype)
	check.dtype("y", y, dtype)
	check.dtype("rstd", rstd, cuda.F32)
	check.shape("x", x, "[rows, cols]", rows, cols)
	check.shape("residual", residual, "[rows, cols]", rows, cols)
	check.shape("weight", weight, "[cols]", cols)
	check.shape("sum", sum, "[rows, cols]", rows, cols)
	check.shape("y", y, "[rows, cols]", rows, cols)
	check.shape("rstd", rstd, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RMSNormResidual(x.memory(), residual.memory(), weight.memory(), sum.memory(), y.memory(),
		rstd.memory(), int64(rows), int64(cols), eps, dtype)
}

// RMSNormBackward calls cuda_rmsnorm_backward.
//
// Gradient of RMSNorm: with xhat = x * rstd and g = dy * weight, dx = dresidual + rstd * (g - xhat * mean(g * xhat));
// dweight += sum over rows of dy * xhat.
//
//   - dy, in dtype [rows, cols]: gradient of y
//   - x, in dtype [rows, cols]: the input (of rmsnorm_residual: its sum)
//   - weight, in dtype [cols]: gain
//   - rstd, in f32 [rows]: from the forward call
//   - dresidual, in dtype [rows, cols], may be nil: gradient that reaches x past the norm, or null for none
//   - dx, out dtype [rows, cols], may be dy or dresidual itself: gradient of x
//   - dweight, acc f32 [cols]: gradient of weight
func RMSNormBackward(dy, x, weight, rstd, dresidual, dx, dweight *Tensor) error {
	check := begin("rmsnorm_backward", "rows and cols from dy")
	if !check.required("dy", dy, 2, dense) ||
		!check.required("x", x, 2, dense) ||
		!check.required("weight", weight, 1, dense) ||
		!check.required("rstd", rstd, 1, dense) ||
		!check.optional("dresidual", dresidual, 2, dense) ||
		!check.required("dx", dx, 2, dense) ||
		!check.required("dweight", dweight, 1, dense) {
		return check.err
	}
	check.same(named{"dy", dy}, named{"x", x}, named{"dresidual", dresidual}, named{"dx", dx})
	check.same(named{"weight", weight}, named{"dweight", dweight})
	check.folds("rows", ranked{named{"dy", dy}, 2}, ranked{named{"rstd", rstd}, 1})
	check.unfolded("weight", weight, 1, "[cols]", "cols", "dy")
	rows := dy.extent(2, 0)
	cols := dy.extent(2, 1)
	dtype := dy.dtype
	check.dtype("x", x, dtype)
	check.dtype("weight", weight, dtype)
	check.dtype("dx", dx, dtype)
	check.dtype("dresidual", dresidual, dtype)
	check.dtype("rstd", rstd, cuda.F32)
	check.dtype("dweight", dweight, cuda.F32)
	check.shape("dy", dy, "[rows, cols]", rows, cols)
	check.shape("x", x, "[rows, cols]", rows, cols)
	check.shape("weight", weight, "[cols]", cols)
	check.shape("rstd", rstd, "[rows]", rows)
	check.shape("dresidual", dresidual, "[rows, cols]", rows, cols)
	check.shape("dx", dx, "[rows, cols]", rows, cols)
	check.shape("dweight", dweight, "[cols]", cols)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RMSNormBackward(dy.memory(), x.memory(), weight.memory(), rstd.memory(), dresidual.memory(),
		dx.memory(), dweight.memory(), int64(rows), int64(cols), dtype)
}
