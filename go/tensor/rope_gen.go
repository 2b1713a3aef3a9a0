// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// RopeFreqs calls cuda_rope_freqs.
//
// Tables of rotary embedding: for position p and pair i, the angle p * b^(-2i/head_dim), computed in f64; its cosine
// and sine, rounded to f32. b = base * ntk_alpha^(head_dim/(head_dim-2)), the NTK-aware base; ntk_alpha = 1 leaves it.
// (Su et al. 2021, "RoFormer", eq. 15; bloc97 2023, NTK-aware scaling)
//
//   - cosine, out f32 [positions, head_dim/2]: cosines
//   - sine, out f32 [positions, head_dim/2]: sines
//   - first, usually 0: position of the first row; must be at least 0
//   - base, usually 10000: base of the frequencies; must be finite and above 0
//   - ntkAlpha, usually 1: stretch of the base; must be finite and at least 1
func RopeFreqs(cosine, sine *Tensor, first int64, base, ntkAlpha float64) error {
	check := begin("rope_freqs", "positions and head_dim from cosine")
	if !check.required("cosine", cosine, 2, dense) ||
		!check.required("sine", sine, 2, dense) {
		return check.err
	}
	check.same(named{"cosine", cosine}, named{"sine", sine})
	positions := cosine.extent(2, 0)
	headDim := check.solve("cosine", "head_dim/2", "head_dim", cosine.extent(2, 1), 0, 2, 1)
	check.dtype("cosine", cosine, cuda.F32)
	check.dtype("sine", sine, cuda.F32)
	check.shape("cosine", cosine, "[positions, head_dim/2]", positions, headDim/2)
	check.shape("sine", sine, "[positions, head_dim/2]", positions, headDim/2)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RopeFreqs(cosine.memory(), sine.memory(), first, int64(positions), int64(headDim), base, ntkAlpha)
}

// RopeFreqsScaled calls cuda_rope_freqs_scaled.
//
// Tables of rotary embedding as rope_freqs, stretched: for position p and pair i, the angle scale * p *
// b^(-2i/head_dim) / factors[i], computed in f64. Position interpolation is scale = 1/factor; the scaling of Llama 3.1
// is a table of factors, rope_freqs.weight in GGUF files. (Chen et al. 2023, "Extending Context Window"; Dubey et al.
// 2024, "The Llama 3 Herd of Models")
//
//   - factors, in f32 [head_dim/2], may be nil: divisors of the frequencies, finite and above 0, or null for ones
//   - cosine, out f32 [positions, head_dim/2]: cosines
//   - sine, out f32 [positions, head_dim/2]: sines
//   - first, usually 0: position of the first row; must be at least 0
//   - base, usually 10000: base of the frequencies; must be finite and above 0
//   - ntkAlpha, usually 1: stretch of the base; must be finite and at least 1
//   - scale, usually 1: factor of the positions; must be finite and above 0
func RopeFreqsScaled(factors, cosine, sine *Tensor, first int64, base, ntkAlpha, scale float64) error {
	check := begin("rope_freqs_scaled", "positions and head_dim from cosine")
	if !check.optional("factors", factors, 1, dense) ||
		!check.required("cosine", cosine, 2, dense) ||
		!check.required("sine", sine, 2, dense) {
		return check.err
	}
	check.same(named{"cosine", cosine}, named{"sine", sine})
	check.unfolded("factors", factors, 1, "[head_dim/2]", "head_dim/2", "cosine")
	positions := cosine.extent(2, 0)
	headDim := check.solve("cosine", "head_dim/2", "head_dim", cosine.extent(2, 1), 0, 2, 1)
	check.dtype("factors", factors, cuda.F32)
	check.dtype("cosine", cosine, cuda.F32)
	check.dtype("sine", sine, cuda.F32)
	check.shape("factors", factors, "[head_dim/2]", headDim/2)
	check.shape("cosine", cosine, "[positions, head_dim/2]", positions, headDim/2)
	check.shape("sine", sine, "[positions, head_dim/2]", positions, headDim/2)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RopeFreqsScaled(factors.memory(), cosine.memory(), sine.memory(), first, int64(positions),
		int64(headDim), base, ntkAlpha, scale)
}

// RopeForward calls cuda_rope_forward.
//
// Rotates each pair (u, v) of each head by the angle of its token's position: (u cos - v sin, v cos + u sin). (Su et
// al. 2021, "RoFormer", eq. 34)
//
//   - x, in dtype [tokens:ld_x, heads, head_dim]: input
//   - cosine, in f32 [max_position, head_dim/2]: from rope_freqs
//   - sine, in f32 [max_position, head_dim/2]: from rope_freqs
//   - positions, in i32 [tokens]: rows of the tables, 0 .. max_position-1
//   - y, out dtype [tokens:ld_y, heads, head_dim], may be x itself: output
//   - layout, usually NNCUDA_ROPE_HALF: NNCUDA_ROPE_*
func RopeForward(x, cosine, sine, positions, y *Tensor, layout cuda.RopeLayout) error {
	check := begin("rope_forward", "tokens and heads and head_dim from x, max_position from cosine")
	if !check.required("x", x, 3, strided) ||
		!check.required("cosine", cosine, 2, dense) ||
		!check.required("sine", sine, 2, dense) ||
		!check.required("positions", positions, 1, dense) ||
		!check.required("y", y, 3, strided) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	check.same(named{"cosine", cosine}, named{"sine", sine})
	check.folds("tokens", ranked{named{"x", x}, 3}, ranked{named{"positions", positions}, 1})
	tokens := x.extent(3, 0)
	heads := x.extent(3, 1)
	headDim := x.extent(3, 2)
	maxPosition := cosine.extent(2, 0)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.dtype("cosine", cosine, cuda.F32)
	check.dtype("sine", sine, cuda.F32)
	check.dtype("positions", positions, cuda.I32)
	check.shape("x", x, "[tokens:ld_x, heads, head_dim]", tokens, heads, headDim)
	check.shape("cosine", cosine, "[max_position, head_dim/2]", maxPosition, headDim/2)
	check.shape("sine", sine, "[max_position, head_dim/2]", maxPosition, headDim/2)
	check.shape("positions", positions, "[tokens]", tokens)
	check.shape("y", y, "[tokens:ld_y, heads, head_dim]", tokens, heads, headDim)
	ldX := x.stride(3)
	ldY := y.stride(3)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RopeForward(x.memory(), cosine.memory(), sine.memory(), positions.memory(), y.memory(),
		int64(tokens), int64(heads), int64(headDim), int64(maxPosition), int64(ldX), int64(ldY), layout, dtype)
}

// RopeQK calls cuda_rope_qk.
//
// rope_forward of queries and keys in one call, in place.
//
//   - q, inout dtype [tokens:ld_q, heads, head_dim]: queries
//   - k, inout dtype [tokens:ld_k, kv_heads, head_dim]: keys
//   - cosine, in f32 [max_position, head_dim/2]: from rope_freqs
//   - sine, in f32 [max_position, head_dim/2]: from rope_freqs
//   - positions, in i32 [tokens]: rows of the tables, 0 .. max_position-1
//   - layout, usually NNCUDA_ROPE_HALF: NNCUDA_ROPE_*
func RopeQK(q, k, cosine, sine, positions *Tensor, layout cuda.RopeLayout) error {
	check := begin("rope_qk", "tokens and heads and head_dim from q, kv_heads from k, max_position from cosine")
	if !check.required("q", q, 3, strided) ||
		!check.required("k", k, 3, strided) ||
		!check.required("cosine", cosine, 2, dense) ||
		!check.required("sine", sine, 2, dense) ||
		!check.required("positions", positions, 1, dense) {
		return check.err
	}
	check.same(named{"cosine", cosine}, named{"sine", sine})
	check.folds("tokens", ranked{named{"q", q}, 3}, ranked{named{"k", k}, 3}, ranked{named{"positions", positions}, 1})
	tokens := q.extent(3, 0)
	heads := q.extent(3, 1)
	headDim := q.extent(3, 2)
	kvHeads := k.extent(3, 1)
	maxPosition := cosine.extent(2, 0)
	dtype := q.dtype
	check.dtype("k", k, dtype)
	check.dtype("cosine", cosine, cuda.F32)
	check.dtype("sine", sine, cuda.F32)
	check.dtype("positions", positions, cuda.I32)
	check.shape("q", q, "[tokens:ld_q, heads, head_dim]", tokens, heads, headDim)
	check.shape("k", k, "[tokens:ld_k, kv_heads, head_dim]", tokens, kvHeads, headDim)
	check.shape("cosine", cosine, "[max_position, head_dim/2]", maxPosition, headDim/2)
	check.shape("sine", sine, "[max_position, head_dim/2]", maxPosition, headDim/2)
	check.shape("positions", positions, "[tokens]", tokens)
	ldQ := q.stride(3)
	ldK := k.stride(3)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RopeQK(q.memory(), k.memory(), cosine.memory(), sine.memory(), positions.memory(), int64(tokens),
		int64(heads), int64(kvHeads), int64(headDim), int64(maxPosition), int64(ldQ), int64(ldK), layout, dtype)
}

// RopeBackward calls cuda_rope_backward.
//
// Gradient of rope_forward: the rotation by the opposite angle.
//
//   - dy, in dtype [tokens:ld_y, heads, head_dim]: gradient of y
//   - cosine, in f32 [max_position, head_dim/2]: from rope_freqs
//   - sine, in f32 [max_position, head_dim/2]: from rope_freqs
//   - positions, in i32 [tokens]: rows of the tables, 0 .. max_position-1
//   - dx, out dtype [tokens:ld_x, heads, head_dim], may be dy itself: gradient of x
//   - layout, usually NNCUDA_ROPE_HALF: NNCUDA_ROPE_*
func RopeBackward(dy, cosine, sine, positions, dx *Tensor, layout cuda.RopeLayout) error {
	check := begin("rope_backward", "tokens and heads and head_dim from dy, max_position from cosine")
	if !check.required("dy", dy, 3, strided) ||
		!check.required("cosine", cosine, 2, dense) ||
		!check.required("sine", sine, 2, dense) ||
		!check.required("positions", positions, 1, dense) ||
		!check.required("dx", dx, 3, strided) {
		return check.err
	}
	check.same(named{"dy", dy}, named{"dx", dx})
	check.same(named{"cosine", cosine}, named{"sine", sine})
	check.folds("tokens", ranked{named{"dy", dy}, 3}, ranked{named{"positions", positions}, 1})
	tokens := dy.extent(3, 0)
	heads := dy.extent(3, 1)
	headDim := dy.extent(3, 2)
	maxPosition := cosine.extent(2, 0)
	dtype := dy.dtype
	check.dtype("dx", dx, dtype)
	check.dtype("cosine", cosine, cuda.F32)
	check.dtype("sine", sine, cuda.F32)
	check.dtype("positions", positions, cuda.I32)
	check.shape("dy", dy, "[tokens:ld_y, heads, head_dim]", tokens, heads, headDim)
	check.shape("cosine", cosine, "[max_position, head_dim/2]", maxPosition, headDim/2)
	check.shape("sine", sine, "[max_position, head_dim/2]", maxPosition, headDim/2)
	check.shape("positions", positions, "[tokens]", tokens)
	check.shape("dx", dx, "[tokens:ld_x, heads, head_dim]", tokens, heads, headDim)
	ldY := dy.stride(3)
	ldX := dx.stride(3)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RopeBackward(dy.memory(), cosine.memory(), sine.memory(), positions.memory(), dx.memory(),
		int64(tokens), int64(heads), int64(headDim), int64(maxPosition), int64(ldY), int64(ldX), layout, dtype)
}
