// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// SiLU calls cuda_silu.
//
// SiLU: y = x * sigmoid(x). (Elfwing, Uchibe, Doya 2018, eq. 4)
//
//   - x, in dtype [n]: input
//   - y, out dtype [n], may be x itself: output
func SiLU(x, y *Tensor) error {
	check := begin("silu", "n from x")
	if !check.required("x", x, 1, dense) ||
		!check.required("y", y, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	n := x.extent(1, 0)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.shape("x", x, "[n]", n)
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.SiLU(x.memory(), y.memory(), int64(n), dtype)
}

// SiLUBackward calls cuda_silu_backward.
//
// Gradient of SiLU: dx = dy * s * (1 + x * (1 - s)), s = sigmoid(x). (Elfwing, Uchibe, Doya 2018, eq. 5)
//
//   - dy, in dtype [n]: gradient of y
//   - x, in dtype [n]: the input of the forward call
//   - dx, out dtype [n], may be dy or x itself: gradient of x
func SiLUBackward(dy, x, dx *Tensor) error {
	check := begin("silu_backward", "n from dy")
	if !check.required("dy", dy, 1, dense) ||
		!check.required("x", x, 1, dense) ||
		!check.required("dx", dx, 1, dense) {
		return check.err
	}
	check.same(named{"dy", dy}, named{"x", x}, named{"dx", dx})
	n := dy.extent(1, 0)
	dtype := dy.dtype
	check.dtype("x", x, dtype)
	check.dtype("dx", dx, dtype)
	check.shape("dy", dy, "[n]", n)
	check.shape("x", x, "[n]", n)
	check.shape("dx", dx, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.SiLUBackward(dy.memory(), x.memory(), dx.memory(), int64(n), dtype)
}

// Add calls cuda_add.
//
// Sum: y = a + b.
//
//   - a, in dtype [n]: first term
//   - b, in dtype [n]: second term
//   - y, out dtype [n], may be a or b itself: output
func Add(a, b, y *Tensor) error {
	check := begin("add", "n from a")
	if !check.required("a", a, 1, dense) ||
		!check.required("b", b, 1, dense) ||
		!check.required("y", y, 1, dense) {
		return check.err
	}
	check.same(named{"a", a}, named{"b", b}, named{"y", y})
	n := a.extent(1, 0)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	check.dtype("y", y, dtype)
	check.shape("a", a, "[n]", n)
	check.shape("b", b, "[n]", n)
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Add(a.memory(), b.memory(), y.memory(), int64(n), dtype)
}

// Mul calls cuda_mul.
//
// Product, element by element: y = a * b.
//
//   - a, in dtype [n]: first factor
//   - b, in dtype [n]: second factor
//   - y, out dtype [n], may be a or b itself: output
func Mul(a, b, y *Tensor) error {
	check := begin("mul", "n from a")
	if !check.required("a", a, 1, dense) ||
		!check.required("b", b, 1, dense) ||
		!check.required("y", y, 1, dense) {
		return check.err
	}
	check.same(named{"a", a}, named{"b", b}, named{"y", y})
	n := a.extent(1, 0)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	check.dtype("y", y, dtype)
	check.shape("a", a, "[n]", n)
	check.shape("b", b, "[n]", n)
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Mul(a.memory(), b.memory(), y.memory(), int64(n), dtype)
}

// Scale calls cuda_scale.
//
// Scaling: y = alpha * x.
//
//   - x, in dtype [n]: input
//   - y, out dtype [n], may be x itself: output
//   - alpha: factor
func Scale(x, y *Tensor, alpha float32) error {
	check := begin("scale", "n from x")
	if !check.required("x", x, 1, dense) ||
		!check.required("y", y, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	n := x.extent(1, 0)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.shape("x", x, "[n]", n)
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Scale(x.memory(), y.memory(), int64(n), alpha, dtype)
}

// SwiGLU calls cuda_swiglu.
//
// SwiGLU gate: y = silu(gate) * up. (Shazeer 2020, "GLU Variants", eq. 6, without the products) With up = gate + dim
// and ld = 2*dim it reads the two halves of one fused product.
//
//   - gate, in dtype [rows:ld, dim]: what passes through SiLU
//   - up, in dtype [rows:ld, dim]: what is gated
//   - used, in i32 [1], may be nil: how many rows there are, at most `rows`; those behind are neither read nor written;
//     null for all
//   - y, out dtype [rows, dim]: output
func SwiGLU(gate, up, used, y *Tensor) error {
	check := begin("swiglu", "rows and dim from gate")
	if !check.required("gate", gate, 2, strided) ||
		!check.required("up", up, 2, strided) ||
		!check.optional("used", used, 1, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.same(named{"gate", gate}, named{"up", up}, named{"y", y})
	rows := gate.extent(2, 0)
	dim := gate.extent(2, 1)
	dtype := gate.dtype
	check.dtype("up", up, dtype)
	check.dtype("y", y, dtype)
	check.dtype("used", used, cuda.I32)
	check.shape("gate", gate, "[rows:ld, dim]", rows, dim)
	check.shape("up", up, "[rows:ld, dim]", rows, dim)
	check.shape("used", used, "[1]", 1)
	check.shape("y", y, "[rows, dim]", rows, dim)
	ld := check.strides("ld", 2, named{"gate", gate}, named{"up", up})
	if check.err != nil {
		return check.err
	}
	return check.ctx.SwiGLU(gate.memory(), up.memory(), used.memory(), y.memory(), int64(rows), int64(dim), int64(ld),
		dtype)
}

// SwiGLUBackward calls cuda_swiglu_backward.
//
// Gradient of the SwiGLU gate: dgate = dy * up * silu'(gate), dup = dy * silu(gate).
//
//   - dy, in dtype [rows, dim]: gradient of y
//   - gate, in dtype [rows:ld, dim]: as in the forward call
//   - up, in dtype [rows:ld, dim]: as in the forward call
//   - used, in i32 [1], may be nil: as in the forward call
//   - dgate, out dtype [rows:ld, dim], may be gate itself: gradient of gate
//   - dup, out dtype [rows:ld, dim], may be up itself: gradient of up
func SwiGLUBackward(dy, gate, up, used, dgate, dup *Tensor) error {
	check := begin("swiglu_backward", "rows and dim from dy")
	if !check.required("dy", dy, 2, dense) ||
		!check.required("gate", gate, 2, strided) ||
		!check.required("up", up, 2, strided) ||
		!check.optional("used", used, 1, dense) ||
		!check.required("dgate", dgate, 2, strided) ||
		!check.required("dup", dup, 2, strided) {
		return check.err
	}
	check.same(named{"dy", dy}, named{"gate", gate}, named{"up", up}, named{"dgate", dgate}, named{"dup", dup})
	rows := dy.extent(2, 0)
	dim := dy.extent(2, 1)
	dtype := dy.dtype
	check.dtype("gate", gate, dtype)
	check.dtype("up", up, dtype)
	check.dtype("dgate", dgate, dtype)
	check.dtype("dup", dup, dtype)
	check.dtype("used", used, cuda.I32)
	check.shape("dy", dy, "[rows, dim]", rows, dim)
	check.shape("gate", gate, "[rows:ld, dim]", rows, dim)
	check.shape("up", up, "[rows:ld, dim]", rows, dim)
	check.shape("used", used, "[1]", 1)
	check.shape("dgate", dgate, "[rows:ld, dim]", rows, dim)
	check.shape("dup", dup, "[rows:ld, dim]", rows, dim)
	ld := check.strides("ld", 2, named{"gate", gate}, named{"up", up}, named{"dgate", dgate}, named{"dup", dup})
	if check.err != nil {
		return check.err
	}
	return check.ctx.SwiGLUBackward(dy.memory(), gate.memory(), up.memory(), used.memory(), dgate.memory(),
		dup.memory(), int64(rows), int64(dim), int64(ld), dtype)
}

// ReLU2Gate calls cuda_relu2_gate.
//
// Squared-ReLU gate: y = max(gate, 0)^2 * up. (So et al. 2021, "Primer"; the feed-forward gate of BitNet b1.58 2B-4T)
//
//   - gate, in dtype [rows:ld, dim]: what passes through the squared ReLU
//   - up, in dtype [rows:ld, dim]: what is gated
//   - y, out dtype [rows, dim]: output
func ReLU2Gate(gate, up, y *Tensor) error {
	check := begin("relu2_gate", "rows and dim from gate")
	if !check.required("gate", gate, 2, strided) ||
		!check.required("up", up, 2, strided) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.same(named{"gate", gate}, named{"up", up}, named{"y", y})
	rows := gate.extent(2, 0)
	dim := gate.extent(2, 1)
	dtype := gate.dtype
	check.dtype("up", up, dtype)
	check.dtype("y", y, dtype)
	check.shape("gate", gate, "[rows:ld, dim]", rows, dim)
	check.shape("up", up, "[rows:ld, dim]", rows, dim)
	check.shape("y", y, "[rows, dim]", rows, dim)
	ld := check.strides("ld", 2, named{"gate", gate}, named{"up", up})
	if check.err != nil {
		return check.err
	}
	return check.ctx.ReLU2Gate(gate.memory(), up.memory(), y.memory(), int64(rows), int64(dim), int64(ld), dtype)
}

// Cast calls cuda_cast.
//
// Conversion, rounding to nearest-even; f32 too large for the 16-bit type becomes infinity, NaN stays NaN.
//
//   - x, in dtype_x [n]: input
//   - y, out dtype_y [n]: output
func Cast(x, y *Tensor) error {
	check := begin("cast", "n from x")
	if !check.required("x", x, 1, dense) ||
		!check.required("y", y, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	n := x.extent(1, 0)
	dtypeX := x.dtype
	dtypeY := y.dtype
	check.shape("x", x, "[n]", n)
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Cast(x.memory(), y.memory(), int64(n), dtypeX, dtypeY)
}

// Round calls cuda_round.
//
// y = x, rounded to a 16-bit type as cuda_cast rounds, and f32 again.
//
//   - x, in f32 [n]: input
//   - y, out f32 [n], may be x itself: output
//   - dtype: f16, bf16
func Round(x, y *Tensor, dtype cuda.DType) error {
	check := begin("round", "n from x")
	if !check.required("x", x, 1, dense) ||
		!check.required("y", y, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	n := x.extent(1, 0)
	check.dtype("x", x, cuda.F32)
	check.dtype("y", y, cuda.F32)
	check.shape("x", x, "[n]", n)
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Round(x.memory(), y.memory(), int64(n), dtype)
}

// Fill calls cuda_fill.
//
// Sets every element to a value, rounded to the dtype (for i32 and i8 it must be a whole number in range).
//
//   - y, out dtype [n]: output
//   - value: the value
func Fill(y *Tensor, value float32) error {
	check := begin("fill", "n from y")
	if !check.required("y", y, 1, dense) {
		return check.err
	}
	n := y.extent(1, 0)
	dtype := y.dtype
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Fill(y.memory(), int64(n), value, dtype)
}

// Increment calls cuda_increment.
//
// Counts on: x += by. For lengths, positions and numbers of draws that live in device memory, where a captured graph
// finds them moved on at each launch. Nothing wraps: an element for which x + by is no i32 is
// NNCUDA_ERROR_OUT_OF_RANGE.
//
//   - x, inout i32 [n]: counters
//   - by, usually 1: what is added
func Increment(x *Tensor, by int32) error {
	check := begin("increment", "n from x")
	if !check.required("x", x, 1, dense) {
		return check.err
	}
	n := x.extent(1, 0)
	check.dtype("x", x, cuda.I32)
	check.shape("x", x, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Increment(x.memory(), int64(n), by)
}
