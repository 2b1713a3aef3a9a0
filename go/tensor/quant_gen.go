// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// Quantize calls cuda_quantize.
//
// Stores rows in a format. q4_0, q4_1, q5_0, q5_1 and q8_0 as the `gguf` package does, to the bit; the others by a
// search for the scales and minima of least squared error, part by part. (Gerganov et al., ggml-quants)
//
//   - x, in dtype [rows, k]: numbers; in a block format finite, or the call fails with NNCUDA_ERROR_OUT_OF_RANGE
//   - y, out u8 [rows, row_bytes]: the same in `format`
//   - format: NNCUDA_FORMAT_* of y, other than those that are read alone
func Quantize(x, y *Tensor, format cuda.Format) error {
	check := begin("quantize", "rows and k from x, row_bytes from y")
	if !check.required("x", x, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"x", x}, 2}, ranked{named{"y", y}, 2})
	rows := x.extent(2, 0)
	k := x.extent(2, 1)
	rowBytes := y.extent(2, 1)
	dtype := x.dtype
	check.dtype("y", y, cuda.U8)
	check.shape("x", x, "[rows, k]", rows, k)
	check.shape("y", y, "[rows, row_bytes]", rows, rowBytes)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Quantize(x.memory(), y.memory(), int64(rows), int64(k), int64(rowBytes), format, dtype)
}

// Dequantize calls cuda_dequantize.
//
// The numbers that stored rows stand for: in f32 as the `gguf` package computes them, to the bit, then rounded to
// `dtype`.
//
//   - x, in u8 [rows, row_bytes]: rows in `format`
//   - y, out dtype [rows, k]: numbers
//   - format: NNCUDA_FORMAT_* of x
func Dequantize(x, y *Tensor, format cuda.Format) error {
	check := begin("dequantize", "rows and row_bytes from x, k from y")
	if !check.required("x", x, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"x", x}, 2}, ranked{named{"y", y}, 2})
	rows := x.extent(2, 0)
	rowBytes := x.extent(2, 1)
	k := y.extent(2, 1)
	dtype := y.dtype
	check.dtype("x", x, cuda.U8)
	check.shape("x", x, "[rows, row_bytes]", rows, rowBytes)
	check.shape("y", y, "[rows, k]", rows, k)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Dequantize(x.memory(), y.memory(), int64(rows), int64(k), int64(rowBytes), format, dtype)
}

// EmbeddingQuant calls cuda_embedding_quant.
//
// Gathers and dequantizes rows of a stored table: y[t] = table[ids[t]].
//
//   - table, in u8 [vocab, row_bytes]: embeddings in `format`
//   - ids, in i32 [tokens]: rows to take, 0 .. vocab-1
//   - y, out dtype [tokens, dim]: the rows
//   - format: NNCUDA_FORMAT_* of the table
func EmbeddingQuant(table, ids, y *Tensor, format cuda.Format) error {
	check := begin("embedding_quant", "vocab and row_bytes from table, tokens from ids, dim from y")
	if !check.required("table", table, 2, dense) ||
		!check.required("ids", ids, 1, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.folds("tokens", ranked{named{"ids", ids}, 1}, ranked{named{"y", y}, 2})
	vocab := table.extent(2, 0)
	rowBytes := table.extent(2, 1)
	tokens := ids.extent(1, 0)
	dim := y.extent(2, 1)
	dtype := y.dtype
	check.dtype("table", table, cuda.U8)
	check.dtype("ids", ids, cuda.I32)
	check.shape("table", table, "[vocab, row_bytes]", vocab, rowBytes)
	check.shape("ids", ids, "[tokens]", tokens)
	check.shape("y", y, "[tokens, dim]", tokens, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.EmbeddingQuant(table.memory(), ids.memory(), y.memory(), int64(tokens), int64(vocab), int64(dim),
		int64(rowBytes), format, dtype)
}

// GemmQuant calls cuda_gemm_quant.
//
// A linear layer with stored weights: y = activation(x * W^T + bias) + residual. With `offsets`, rows offsets[g] ..
// offsets[g+1]-1 of x meet the matrix W[g] (the experts' products), and rows from offsets[groups] on are neither read
// nor written. (Gale et al. 2022, "MegaBlocks")
//
//   - x, in dtype [m, k]: input
//   - w, in u8 [groups*n, row_bytes]: weights in `format`, a matrix [n, k] a group
//   - offsets, in i32 [groups+1], may be nil: first row of each group; offsets[0] = 0, never falling, at most m; null
//     for all rows and one group
//   - bias, in dtype [n], may be nil: added to each row, or null
//   - residual, in dtype [m, n], may be nil: added at the end, or null
//   - y, out dtype [m, n], may be residual itself: result
//   - activation, usually NNCUDA_ACTIVATION_NONE: NNCUDA_ACTIVATION_*
//   - format: NNCUDA_FORMAT_* of w
func GemmQuant(x, w, offsets, bias, residual, y *Tensor, activation cuda.Activation, format cuda.Format) error {
	check := begin("gemm_quant", "m and k from x, row_bytes and groups from w, n from y")
	if !check.required("x", x, 2, dense) ||
		!check.required("w", w, 2, dense) ||
		!check.optional("offsets", offsets, 1, dense) ||
		!check.optional("bias", bias, 1, dense) ||
		!check.optional("residual", residual, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.same(named{"residual", residual}, named{"y", y})
	check.folds("m", ranked{named{"x", x}, 2}, ranked{named{"residual", residual}, 2}, ranked{named{"y", y}, 2})
	check.unfolded("bias", bias, 1, "[n]", "n", "y")
	m := x.extent(2, 0)
	k := x.extent(2, 1)
	rowBytes := w.extent(2, 1)
	n := y.extent(2, 1)
	groups := check.solve("w", "groups*n", "groups", w.extent(2, 0), 0, 1, n)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.dtype("bias", bias, dtype)
	check.dtype("residual", residual, dtype)
	check.dtype("w", w, cuda.U8)
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("x", x, "[m, k]", m, k)
	check.shape("w", w, "[groups*n, row_bytes]", groups*n, rowBytes)
	check.factors("w", w, 2, "[groups*n, row_bytes]", groups, n)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("bias", bias, "[n]", n)
	check.shape("residual", residual, "[m, n]", m, n)
	check.shape("y", y, "[m, n]", m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GemmQuant(x.memory(), w.memory(), offsets.memory(), bias.memory(), residual.memory(), y.memory(),
		int64(groups), int64(m), int64(n), int64(k), int64(rowBytes), activation, format, dtype)
}

// GemmQuantQKV calls cuda_gemm_quant_qkv.
//
// Queries, keys and values in one call, as they come from three gemm_quant: y = [x * Wq^T, x * Wk^T, x * Wv^T] + bias.
// With `norm`, of the rows that rmsnorm gives, with its bits.
//
//   - x, in dtype [m, k]: input
//   - wq, in u8 [n_q, row_bytes_q]: weights of the queries
//   - wk, in u8 [n_kv, row_bytes_k]: weights of the keys
//   - wv, in u8 [n_kv, row_bytes_v]: weights of the values
//   - bias, in dtype [n], may be nil: added to each row, or null
//   - norm, in dtype [k], may be nil: gains of the norm of x, or null for x as it is
//   - y, out dtype [m, n]: result
//   - eps, usually 0: of the norm: added to the mean square; must be finite and at least 0
//   - formatQ: NNCUDA_FORMAT_* of wq
//   - formatK: NNCUDA_FORMAT_* of wk
//   - formatV: NNCUDA_FORMAT_* of wv
func GemmQuantQKV(x, wq, wk, wv, bias, norm, y *Tensor, eps float32, formatQ, formatK, formatV cuda.Format) error {
	check := begin("gemm_quant_qkv",
		"m and k from x, n_q and row_bytes_q from wq, n_kv and row_bytes_k from wk, row_bytes_v from wv, n from y")
	if !check.required("x", x, 2, dense) ||
		!check.required("wq", wq, 2, dense) ||
		!check.required("wk", wk, 2, dense) ||
		!check.required("wv", wv, 2, dense) ||
		!check.optional("bias", bias, 1, dense) ||
		!check.optional("norm", norm, 1, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.folds("m", ranked{named{"x", x}, 2}, ranked{named{"y", y}, 2})
	check.folds("n_kv", ranked{named{"wk", wk}, 2}, ranked{named{"wv", wv}, 2})
	check.unfolded("bias", bias, 1, "[n]", "n", "y")
	check.unfolded("norm", norm, 1, "[k]", "k", "x")
	m := x.extent(2, 0)
	k := x.extent(2, 1)
	nQ := wq.extent(2, 0)
	rowBytesQ := wq.extent(2, 1)
	nKV := wk.extent(2, 0)
	rowBytesK := wk.extent(2, 1)
	rowBytesV := wv.extent(2, 1)
	n := y.extent(2, 1)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.dtype("bias", bias, dtype)
	check.dtype("norm", norm, dtype)
	check.dtype("wq", wq, cuda.U8)
	check.dtype("wk", wk, cuda.U8)
	check.dtype("wv", wv, cuda.U8)
	check.shape("x", x, "[m, k]", m, k)
	check.shape("wq", wq, "[n_q, row_bytes_q]", nQ, rowBytesQ)
	check.shape("wk", wk, "[n_kv, row_bytes_k]", nKV, rowBytesK)
	check.shape("wv", wv, "[n_kv, row_bytes_v]", nKV, rowBytesV)
	check.shape("bias", bias, "[n]", n)
	check.shape("norm", norm, "[k]", k)
	check.shape("y", y, "[m, n]", m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GemmQuantQKV(x.memory(), wq.memory(), wk.memory(), wv.memory(), bias.memory(), norm.memory(),
		y.memory(), int64(m), int64(nQ), int64(nKV), int64(n), int64(k), int64(rowBytesQ), int64(rowBytesK),
		int64(rowBytesV), eps, formatQ, formatK, formatV, dtype)
}

// GemmQuantSwiGLU calls cuda_gemm_quant_swiglu.
//
// The gated unit in one call: y = silu(x * Wg^T) * (x * Wu^T), each product and the silu in f32. Groups as in
// gemm_quant. With `norm`, of the rows that rmsnorm gives, with its bits. (Shazeer 2020, "GLU Variants", eq. 6)
//
//   - x, in dtype [m, k]: input
//   - wGate, in u8 [groups*n, row_bytes_gate]: weights of the gate
//   - wUp, in u8 [groups*n, row_bytes_up]: weights of the other factor
//   - offsets, in i32 [groups+1], may be nil: first row of each group; offsets[0] = 0, never falling, at most m; null
//     for all rows and one group
//   - norm, in dtype [k], may be nil: gains of the norm of x, or null for x as it is
//   - y, out dtype [m, n]: result
//   - eps, usually 0: of the norm: added to the mean square; must be finite and at least 0
//   - formatGate: NNCUDA_FORMAT_* of w_gate
//   - formatUp: NNCUDA_FORMAT_* of w_up
func GemmQuantSwiGLU(x, wGate, wUp, offsets, norm, y *Tensor, eps float32, formatGate, formatUp cuda.Format) error {
	check := begin("gemm_quant_swiglu",
		"m and k from x, row_bytes_gate and groups from w_gate, row_bytes_up from w_up, n from y")
	if !check.required("x", x, 2, dense) ||
		!check.required("w_gate", wGate, 2, dense) ||
		!check.required("w_up", wUp, 2, dense) ||
		!check.optional("offsets", offsets, 1, dense) ||
		!check.optional("norm", norm, 1, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.folds("m", ranked{named{"x", x}, 2}, ranked{named{"y", y}, 2})
	check.folds("groups*n", ranked{named{"w_gate", wGate}, 2}, ranked{named{"w_up", wUp}, 2})
	check.unfolded("norm", norm, 1, "[k]", "k", "x")
	m := x.extent(2, 0)
	k := x.extent(2, 1)
	rowBytesGate := wGate.extent(2, 1)
	rowBytesUp := wUp.extent(2, 1)
	n := y.extent(2, 1)
	groups := check.solve("w_gate", "groups*n", "groups", wGate.extent(2, 0), 0, 1, n)
	dtype := x.dtype
	check.dtype("y", y, dtype)
	check.dtype("norm", norm, dtype)
	check.dtype("w_gate", wGate, cuda.U8)
	check.dtype("w_up", wUp, cuda.U8)
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("x", x, "[m, k]", m, k)
	check.shape("w_gate", wGate, "[groups*n, row_bytes_gate]", groups*n, rowBytesGate)
	check.factors("w_gate", wGate, 2, "[groups*n, row_bytes_gate]", groups, n)
	check.shape("w_up", wUp, "[groups*n, row_bytes_up]", groups*n, rowBytesUp)
	check.factors("w_up", wUp, 2, "[groups*n, row_bytes_up]", groups, n)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("norm", norm, "[k]", k)
	check.shape("y", y, "[m, n]", m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GemmQuantSwiGLU(x.memory(), wGate.memory(), wUp.memory(), offsets.memory(), norm.memory(),
		y.memory(), int64(groups), int64(m), int64(n), int64(k), int64(rowBytesGate), int64(rowBytesUp), eps,
		formatGate, formatUp, dtype)
}

// GemmQuantRoute calls cuda_gemm_quant_route.
//
// The router of a stored mixture of experts: rmsnorm of the residual stream, gemm_quant of what that gives,
// softmax_topk and moe_plan, with the bits of these calls. On a GPU it is one launch for up to 32 tokens. (Fedus, Zoph,
// Shazeer 2021, "Switch Transformers"; Gale et al. 2022, "MegaBlocks")
//
//   - x, in f32 [tokens, dim]: the residual stream
//   - gains, in f32 [dim]: gains of the norm of x
//   - w, in u8 [experts, row_bytes]: weights of the router in `format`
//   - y, out f32 [tokens, dim]: the normed rows, for the experts
//   - logits, out f32 [tokens, experts]: y * W^T
//   - weights, out f32 [tokens, k]: the k probabilities of each token, renormalised if asked
//   - indices, out i32 [tokens, k]: its experts
//   - probs, out f32 [tokens, experts]: all probabilities
//   - counts, out i32 [experts]: slots routed to each expert
//   - offsets, out i32 [experts+1]: first row of each expert
//   - slotRow, out i32 [tokens, k]: row of each slot
//   - rowSlot, out i32 [tokens*k]: slot of each row
//   - eps: of the norm: added to the mean square; must be finite and at least 0
//   - norm: 1 divides the k weights by their sum
//   - format: NNCUDA_FORMAT_* of w
func GemmQuantRoute(x, gains, w, y, logits, weights, indices, probs, counts, offsets, slotRow, rowSlot *Tensor,
	eps float32, norm bool, format cuda.Format) error {
	check := begin("gemm_quant_route", "tokens and dim from x, experts and row_bytes from w, k from weights")
	if !check.required("x", x, 2, dense) ||
		!check.required("gains", gains, 1, dense) ||
		!check.required("w", w, 2, dense) ||
		!check.required("y", y, 2, dense) ||
		!check.required("logits", logits, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("indices", indices, 2, dense) ||
		!check.required("probs", probs, 2, dense) ||
		!check.required("counts", counts, 1, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.required("row_slot", rowSlot, 1, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"y", y})
	check.same(named{"logits", logits}, named{"probs", probs})
	check.same(named{"weights", weights}, named{"indices", indices}, named{"slot_row", slotRow})
	check.folds("tokens", ranked{named{"x", x}, 2}, ranked{named{"logits", logits}, 2},
		ranked{named{"weights", weights}, 2})
	check.unfolded("gains", gains, 1, "[dim]", "dim", "x")
	check.unfolded("w", w, 2, "[experts, row_bytes]", "experts", "logits")
	check.unfolded("counts", counts, 1, "[experts]", "experts", "logits")
	tokens := x.extent(2, 0)
	dim := x.extent(2, 1)
	experts := w.extent(2, 0)
	rowBytes := w.extent(2, 1)
	k := weights.extent(2, 1)
	check.dtype("x", x, cuda.F32)
	check.dtype("gains", gains, cuda.F32)
	check.dtype("w", w, cuda.U8)
	check.dtype("y", y, cuda.F32)
	check.dtype("logits", logits, cuda.F32)
	check.dtype("weights", weights, cuda.F32)
	check.dtype("indices", indices, cuda.I32)
	check.dtype("probs", probs, cuda.F32)
	check.dtype("counts", counts, cuda.I32)
	check.dtype("offsets", offsets, cuda.I32)
	check.dtype("slot_row", slotRow, cuda.I32)
	check.dtype("row_slot", rowSlot, cuda.I32)
	check.shape("x", x, "[tokens, dim]", tokens, dim)
	check.shape("gains", gains, "[dim]", dim)
	check.shape("w", w, "[experts, row_bytes]", experts, rowBytes)
	check.shape("y", y, "[tokens, dim]", tokens, dim)
	check.shape("logits", logits, "[tokens, experts]", tokens, experts)
	check.shape("weights", weights, "[tokens, k]", tokens, k)
	check.shape("indices", indices, "[tokens, k]", tokens, k)
	check.shape("probs", probs, "[tokens, experts]", tokens, experts)
	check.shape("counts", counts, "[experts]", experts)
	check.shape("offsets", offsets, "[experts+1]", experts+1)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("row_slot", rowSlot, "[tokens*k]", tokens*k)
	check.factors("row_slot", rowSlot, 1, "[tokens*k]", tokens, k)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GemmQuantRoute(x.memory(), gains.memory(), w.memory(), y.memory(), logits.memory(),
		weights.memory(), indices.memory(), probs.memory(), counts.memory(), offsets.memory(), slotRow.memory(),
		rowSlot.memory(), int64(tokens), int64(experts), int64(k), int64(dim), int64(rowBytes), eps, norm, format)
}

// GemmQuantExperts calls cuda_gemm_quant_experts.
//
// The experts of a stored mixture: y[t] = residual[t] + sum over a token's experts of weight * ((silu(x[t] * Wg^T) *
// (x[t] * Wu^T)) * Wd^T), as moe_gather, gemm_quant_swiglu, gemm_quant and moe_combine give it, with the bits of these
// calls. On a GPU it is two launches where there is about a row an expert: tokens are gathered where they are loaded,
// and a token's rows added up by the blocks that end last. (Shazeer 2020, "GLU Variants", eq. 6; Gale et al. 2022,
// "MegaBlocks")
//
//   - x, in f32 [tokens, dim]: the normed rows
//   - wGate, in u8 [experts*n, row_bytes_gate]: weights of the gate, a matrix [n, dim] an expert
//   - wUp, in u8 [experts*n, row_bytes_up]: weights of the other factor
//   - wDown, in u8 [experts*dim, row_bytes_down]: weights of the last product, a matrix [dim, n] an expert
//   - weights, in f32 [tokens, k]: from gemm_quant_route
//   - offsets, in i32 [experts+1]: from gemm_quant_route; offsets[0] = 0, never falling, at most tokens*k
//   - slotRow, in i32 [tokens, k]: from gemm_quant_route
//   - rowSlot, in i32 [tokens*k]: from gemm_quant_route
//   - residual, in f32 [tokens, dim], may be nil: added, or null
//   - y, out f32 [tokens, dim], may be residual itself: output
//   - formatGate: NNCUDA_FORMAT_* of w_gate
//   - formatUp: NNCUDA_FORMAT_* of w_up
//   - formatDown: NNCUDA_FORMAT_* of w_down
func GemmQuantExperts(x, wGate, wUp, wDown, weights, offsets, slotRow, rowSlot, residual, y *Tensor, formatGate,
	formatUp, formatDown cuda.Format) error {
	check := begin("gemm_quant_experts",
		"tokens and dim from x, row_bytes_gate and n from w_gate, row_bytes_up from w_up, row_bytes_down and experts from w_down, k from weights")
	if !check.required("x", x, 2, dense) ||
		!check.required("w_gate", wGate, 2, dense) ||
		!check.required("w_up", wUp, 2, dense) ||
		!check.required("w_down", wDown, 2, dense) ||
		!check.required("weights", weights, 2, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("slot_row", slotRow, 2, dense) ||
		!check.required("row_slot", rowSlot, 1, dense) ||
		!check.optional("residual", residual, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.same(named{"x", x}, named{"residual", residual}, named{"y", y})
	check.same(named{"weights", weights}, named{"slot_row", slotRow})
	check.folds("tokens", ranked{named{"x", x}, 2}, ranked{named{"weights", weights}, 2})
	check.folds("experts*n", ranked{named{"w_gate", wGate}, 2}, ranked{named{"w_up", wUp}, 2})
	tokens := x.extent(2, 0)
	dim := x.extent(2, 1)
	rowBytesGate := wGate.extent(2, 1)
	rowBytesUp := wUp.extent(2, 1)
	rowBytesDown := wDown.extent(2, 1)
	k := weights.extent(2, 1)
	experts := check.solve("w_down", "experts*dim", "experts", wDown.extent(2, 0), 0, 1, dim)
	n := check.solve("w_gate", "experts*n", "n", wGate.extent(2, 0), 0, 1, experts)
	check.dtype("x", x, cuda.F32)
	check.dtype("w_gate", wGate, cuda.U8)
	check.dtype("w_up", wUp, cuda.U8)
	check.dtype("w_down", wDown, cuda.U8)
	check.dtype("weights", weights, cuda.F32)
	check.dtype("offsets", offsets, cuda.I32)
	check.dtype("slot_row", slotRow, cuda.I32)
	check.dtype("row_slot", rowSlot, cuda.I32)
	check.dtype("residual", residual, cuda.F32)
	check.dtype("y", y, cuda.F32)
	check.shape("x", x, "[tokens, dim]", tokens, dim)
	check.shape("w_gate", wGate, "[experts*n, row_bytes_gate]", experts*n, rowBytesGate)
	check.factors("w_gate", wGate, 2, "[experts*n, row_bytes_gate]", experts, n)
	check.shape("w_up", wUp, "[experts*n, row_bytes_up]", experts*n, rowBytesUp)
	check.factors("w_up", wUp, 2, "[experts*n, row_bytes_up]", experts, n)
	check.shape("w_down", wDown, "[experts*dim, row_bytes_down]", experts*dim, rowBytesDown)
	check.factors("w_down", wDown, 2, "[experts*dim, row_bytes_down]", experts, dim)
	check.shape("weights", weights, "[tokens, k]", tokens, k)
	check.shape("offsets", offsets, "[experts+1]", experts+1)
	check.shape("slot_row", slotRow, "[tokens, k]", tokens, k)
	check.shape("row_slot", rowSlot, "[tokens*k]", tokens*k)
	check.factors("row_slot", rowSlot, 1, "[tokens*k]", tokens, k)
	check.shape("residual", residual, "[tokens, dim]", tokens, dim)
	check.shape("y", y, "[tokens, dim]", tokens, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GemmQuantExperts(x.memory(), wGate.memory(), wUp.memory(), wDown.memory(), weights.memory(),
		offsets.memory(), slotRow.memory(), rowSlot.memory(), residual.memory(), y.memory(), int64(tokens),
		int64(experts), int64(k), int64(dim), int64(n), int64(rowBytesGate), int64(rowBytesUp), int64(rowBytesDown),
		formatGate, formatUp, formatDown)
}

// InterleaveRows calls cuda_interleave_rows.
//
// Puts the stored rows of a matrix into the order that products on a CPU read fastest: sixteen of them side by side, so
// that one word of each fills a vector. Products with the result have the same bits. Of each sixteen rows, block after
// block of `format`; of a block its fields, cut into words of four bytes; of each field or word those of the sixteen
// rows. q6_k: the f16 scale, the scale of each of 16 parts (one byte each), then for both halves of 128 elements and
// for i = 0 .. 7 words i and i+8 of the half's low bits and word i of its high bits. q2_k: the f16 scale and minimum,
// then the words of its parts' scales and those of its codes. q3_k: the f16 scale, the three words of its parts'
// scales, those of its high bits and those of its low bits. All others in the order of the block: its scale, of f16 or,
// in mxfp4, one byte, its f16 minimum where it has one, and words; iq4_xs, whose scales fill two words, words alone.
//
//   - x, in u8 [rows, row_bytes]: rows in `format`
//   - y, out u8 [rows, row_bytes]: the same in its _R16 form
//   - k: elements per row, whole blocks
//   - format: NNCUDA_FORMAT_*: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, Q2_K, Q3_K, IQ4_NL, MXFP4 or IQ4_XS
func InterleaveRows(x, y *Tensor, k int, format cuda.Format) error {
	check := begin("interleave_rows", "rows and row_bytes from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.size("k", k)
	check.same(named{"x", x}, named{"y", y})
	rows := x.extent(2, 0)
	rowBytes := x.extent(2, 1)
	check.dtype("x", x, cuda.U8)
	check.dtype("y", y, cuda.U8)
	check.shape("x", x, "[rows, row_bytes]", rows, rowBytes)
	check.shape("y", y, "[rows, row_bytes]", rows, rowBytes)
	if check.err != nil {
		return check.err
	}
	return check.ctx.InterleaveRows(x.memory(), y.memory(), int64(rows), int64(k), int64(rowBytes), format)
}
