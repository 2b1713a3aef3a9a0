// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// Softcap calls cuda_softcap.
//
// Bounds scores softly: y = cap * tanh(x / cap). (Gemma Team 2024, "Gemma 2", section 2)
//
//   - x, in dtype [n]: input
//   - y, out dtype [n], may be x itself: output, between -cap and cap
//   - capacity: bound; must be finite and above 0
func Softcap(x, y *Tensor, capacity float32) error {
	check := begin("softcap", "n from x")
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
	return check.ctx.Softcap(x.memory(), y.memory(), int64(n), capacity, dtype)
}

// Geglu calls cuda_geglu.
//
// GELU gate: y = gelu(gate) * up, where gelu(x) = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))). (Hendrycks,
// Gimpel 2016, "GELUs", section 2; Shazeer 2020, "GLU Variants", eq. 6, without the products)
//
//   - gate, in dtype [rows:ld, dim]: what passes through GELU
//   - up, in dtype [rows:ld, dim]: what is gated
//   - y, out dtype [rows, dim]: output
func Geglu(gate, up, y *Tensor) error {
	check := begin("geglu", "rows and dim from gate")
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
	return check.ctx.Geglu(gate.memory(), up.memory(), y.memory(), int64(rows), int64(dim), int64(ld), dtype)
}

// SwiGLUClipped calls cuda_swiglu_clipped.
//
// Clipped SwiGLU gate: with g = min(gate, limit) and u = up held between -limit and limit, y = g * sigmoid(alpha * g) *
// (u + 1). (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.3)
//
//   - gate, in dtype [rows:ld, dim]: what passes through the sigmoid
//   - up, in dtype [rows:ld, dim]: what is gated
//   - y, out dtype [rows, dim]: output
//   - alpha, usually 1.702: factor in the sigmoid; must be finite
//   - limit, usually 7: bound; must be finite and above 0
func SwiGLUClipped(gate, up, y *Tensor, alpha, limit float32) error {
	check := begin("swiglu_clipped", "rows and dim from gate")
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
	return check.ctx.SwiGLUClipped(gate.memory(), up.memory(), y.memory(), int64(rows), int64(dim), int64(ld), alpha,
		limit, dtype)
}

// ReLU2GateBackward calls cuda_relu2_gate_backward.
//
// Gradient of the squared-ReLU gate: dgate = 2 * dy * up * max(gate, 0), dup = dy * max(gate, 0)^2. (So et al. 2021,
// "Primer")
//
//   - dy, in dtype [rows, dim]: gradient of y
//   - gate, in dtype [rows:ld, dim]: as in the forward call, relu2_gate
//   - up, in dtype [rows:ld, dim]: as in the forward call
//   - dgate, out dtype [rows:ld, dim], may be gate itself: gradient of gate
//   - dup, out dtype [rows:ld, dim], may be up itself: gradient of up
func ReLU2GateBackward(dy, gate, up, dgate, dup *Tensor) error {
	check := begin("relu2_gate_backward", "rows and dim from dy")
	if !check.required("dy", dy, 2, dense) ||
		!check.required("gate", gate, 2, strided) ||
		!check.required("up", up, 2, strided) ||
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
	check.shape("dy", dy, "[rows, dim]", rows, dim)
	check.shape("gate", gate, "[rows:ld, dim]", rows, dim)
	check.shape("up", up, "[rows:ld, dim]", rows, dim)
	check.shape("dgate", dgate, "[rows:ld, dim]", rows, dim)
	check.shape("dup", dup, "[rows:ld, dim]", rows, dim)
	ld := check.strides("ld", 2, named{"gate", gate}, named{"up", up}, named{"dgate", dgate}, named{"dup", dup})
	if check.err != nil {
		return check.err
	}
	return check.ctx.ReLU2GateBackward(dy.memory(), gate.memory(), up.memory(), dgate.memory(), dup.memory(),
		int64(rows), int64(dim), int64(ld), dtype)
}

// ActDequantI8 calls cuda_act_dequant_i8.
//
// What rows in 8 bits stand for: x = codes * scale. The gradient of a weight takes it for the input that the product
// had, while the rounding counts as the identity. (Ma et al. 2024, eq. 4; Bengio, Léonard, Courville 2013, section 4)
//
//   - codes, in i8 [rows, cols]: from act_quant_i8 or rmsnorm_quant_i8
//   - scale, in f32 [rows]: of each row
//   - x, out dtype [rows, cols]: output
func ActDequantI8(codes, scale, x *Tensor) error {
	check := begin("act_dequant_i8", "rows and cols from codes")
	if !check.required("codes", codes, 2, dense) ||
		!check.required("scale", scale, 1, dense) ||
		!check.required("x", x, 2, dense) {
		return check.err
	}
	check.same(named{"codes", codes}, named{"x", x})
	check.folds("rows", ranked{named{"codes", codes}, 2}, ranked{named{"scale", scale}, 1})
	rows := codes.extent(2, 0)
	cols := codes.extent(2, 1)
	dtype := x.dtype
	check.dtype("codes", codes, cuda.I8)
	check.dtype("scale", scale, cuda.F32)
	check.shape("codes", codes, "[rows, cols]", rows, cols)
	check.shape("scale", scale, "[rows]", rows)
	check.shape("x", x, "[rows, cols]", rows, cols)
	if check.err != nil {
		return check.err
	}
	return check.ctx.ActDequantI8(codes.memory(), scale.memory(), x.memory(), int64(rows), int64(cols), dtype)
}

// GroupedBias calls cuda_grouped_bias.
//
// Biases of grouped rows, such as those of experts: y[r] = x[r] + bias[g] for the rows offsets[g] .. offsets[g+1]-1.
// Rows from offsets[groups] on are neither read nor written.
//
//   - x, in dtype [rows, dim]: input
//   - bias, in dtype [groups, dim]: of each group
//   - offsets, in i32 [groups+1]: first row of each group; offsets[0] = 0, never falling, at most rows
//   - y, out dtype [rows, dim], may be x itself: output
func GroupedBias(x, bias, offsets, y *Tensor) error {
	check := begin("grouped_bias", "rows and dim from x, groups from bias")
	if !check.required("x", x, 2, dense) ||
		!check.required("bias", bias, 2, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	rows := x.extent(2, 0)
	dim := x.extent(2, 1)
	groups := bias.extent(2, 0)
	dtype := x.dtype
	check.dtype("bias", bias, dtype)
	check.dtype("y", y, dtype)
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("x", x, "[rows, dim]", rows, dim)
	check.shape("bias", bias, "[groups, dim]", groups, dim)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("y", y, "[rows, dim]", rows, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GroupedBias(x.memory(), bias.memory(), offsets.memory(), y.memory(), int64(rows), int64(dim),
		int64(groups), dtype)
}
