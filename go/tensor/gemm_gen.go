// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// Gemm calls cuda_gemm.
//
// Matrix product: C = op(A) * op(B).
//
//   - a, in dtype [m, k]^trans_a: left factor
//   - b, in dtype [k, n]^trans_b: right factor; a weight [out, in] is read with trans_b = 1
//   - c, out dtype_c [m, n]: result
//   - transA: 1 when A is stored as [k, m]
//   - transB: 1 when B is stored as [n, k]
func Gemm(a, b, c *Tensor, transA, transB bool) error {
	check := begin("gemm", "m and k from a, n from b")
	if !check.required("a", a, 2, dense.exactIf(transA)) ||
		!check.required("b", b, 2, dense.exactIf(transB)) ||
		!check.required("c", c, 2, dense) {
		return check.err
	}
	if transA {
		check.unfolded("c", c, 2, "[m, n]", "m", "a")
	}
	check.folds("m", ranked{named{"a", a}, 2}, ranked{named{"c", c}, 2})
	if !transA {
		check.unfolded("b", b, 2, "[k, n]", "k", "a")
	}
	m := a.extentIf(transA, 2, 1, 0)
	k := a.extentIf(transA, 2, 0, 1)
	n := b.extentIf(transB, 2, 0, 1)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	dtypeC := c.dtype
	check.shapeIf(transA, "a", a, "[m, k]", "[k, m]", m, k)
	check.shapeIf(transB, "b", b, "[k, n]", "[n, k]", k, n)
	check.shape("c", c, "[m, n]", m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Gemm(a.memory(), b.memory(), c.memory(), int64(m), int64(n), int64(k), transA, transB, dtype,
		dtypeC)
}

// GemmBeta calls cuda_gemm_beta.
//
// Matrix product with leading dimensions: C = alpha * op(A) * op(B) + beta * C. With beta = 0, C is not read.
//
//   - a, in dtype [m:lda, k]^trans_a: left factor
//   - b, in dtype [k:ldb, n]^trans_b: right factor
//   - c, inout dtype_c [m:ldc, n]: result
//   - alpha, usually 1: factor of the product
//   - beta, usually 0: factor of the old C
//   - transA: 1 when A is stored as [k, m]
//   - transB: 1 when B is stored as [n, k]
func GemmBeta(a, b, c *Tensor, alpha, beta float32, transA, transB bool) error {
	check := begin("gemm_beta", "m and k from a, n from b")
	if !check.required("a", a, 2, strided.exactIf(transA)) ||
		!check.required("b", b, 2, strided.exactIf(transB)) ||
		!check.required("c", c, 2, strided) {
		return check.err
	}
	if transA {
		check.unfolded("c", c, 2, "[m, n]", "m", "a")
	}
	check.folds("m", ranked{named{"a", a}, 2}, ranked{named{"c", c}, 2})
	if !transA {
		check.unfolded("b", b, 2, "[k, n]", "k", "a")
	}
	m := a.extentIf(transA, 2, 1, 0)
	k := a.extentIf(transA, 2, 0, 1)
	n := b.extentIf(transB, 2, 0, 1)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	dtypeC := c.dtype
	check.shapeIf(transA, "a", a, "[m:lda, k]", "[k, m]", m, k)
	check.shapeIf(transB, "b", b, "[k:ldb, n]", "[n, k]", k, n)
	check.shape("c", c, "[m:ldc, n]", m, n)
	lda := a.stride(2)
	ldb := b.stride(2)
	ldc := c.stride(2)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GemmBeta(a.memory(), b.memory(), c.memory(), int64(m), int64(n), int64(k), int64(lda), int64(ldb),
		int64(ldc), alpha, beta, transA, transB, dtype, dtypeC)
}

// GemmEpilogue calls cuda_gemm_epilogue.
//
// A linear layer in one pass: C = activation(A * W^T + bias) + residual.
//
//   - a, in dtype [m, k]: input
//   - b, in dtype [n, k]: weight W
//   - bias, in dtype [n], may be nil: added to each row, or null
//   - residual, in dtype [m, n], may be nil: added at the end, or null
//   - c, out dtype [m, n], may be residual itself: result
//   - activation, usually NNCUDA_ACTIVATION_NONE: NNCUDA_ACTIVATION_*
func GemmEpilogue(a, b, bias, residual, c *Tensor, activation cuda.Activation) error {
	check := begin("gemm_epilogue", "m and k from a, n from b")
	if !check.required("a", a, 2, dense) ||
		!check.required("b", b, 2, dense) ||
		!check.optional("bias", bias, 1, dense) ||
		!check.optional("residual", residual, 2, dense) ||
		!check.required("c", c, 2, dense) {
		return check.err
	}
	check.same(named{"residual", residual}, named{"c", c})
	check.folds("m", ranked{named{"a", a}, 2}, ranked{named{"residual", residual}, 2}, ranked{named{"c", c}, 2})
	check.unfolded("b", b, 2, "[n, k]", "n", "c")
	check.unfolded("bias", bias, 1, "[n]", "n", "c")
	m := a.extent(2, 0)
	k := a.extent(2, 1)
	n := b.extent(2, 0)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	check.dtype("c", c, dtype)
	check.dtype("bias", bias, dtype)
	check.dtype("residual", residual, dtype)
	check.shape("a", a, "[m, k]", m, k)
	check.shape("b", b, "[n, k]", n, k)
	check.shape("bias", bias, "[n]", n)
	check.shape("residual", residual, "[m, n]", m, n)
	check.shape("c", c, "[m, n]", m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GemmEpilogue(a.memory(), b.memory(), bias.memory(), residual.memory(), c.memory(), int64(m),
		int64(n), int64(k), activation, dtype)
}

// BatchedGemm calls cuda_batched_gemm.
//
// One product a batch entry: C[i] = alpha * op(A[i]) * op(B[i]) + beta * C[i], each dense.
//
//   - a, in dtype [batch, m, k]^trans_a: left factors
//   - b, in dtype [batch, k, n]^trans_b: right factors
//   - c, inout dtype_c [batch, m, n]: results; not read with beta = 0
//   - alpha, usually 1: factor of the products
//   - beta, usually 0: factor of the old C
//   - transA: 1 when each A is stored as [k, m]
//   - transB: 1 when each B is stored as [n, k]
func BatchedGemm(a, b, c *Tensor, alpha, beta float32, transA, transB bool) error {
	check := begin("batched_gemm", "batch and m and k from a, n from b")
	if !check.required("a", a, 3, dense) ||
		!check.required("b", b, 3, dense) ||
		!check.required("c", c, 3, dense) {
		return check.err
	}
	check.folds("batch", ranked{named{"a", a}, 3}, ranked{named{"b", b}, 3}, ranked{named{"c", c}, 3})
	batch := a.extent(3, 0)
	m := a.extentIf(transA, 3, 2, 1)
	k := a.extentIf(transA, 3, 1, 2)
	n := b.extentIf(transB, 3, 1, 2)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	dtypeC := c.dtype
	check.shapeIf(transA, "a", a, "[batch, m, k]", "[batch, k, m]", batch, m, k)
	check.shapeIf(transB, "b", b, "[batch, k, n]", "[batch, n, k]", batch, k, n)
	check.shape("c", c, "[batch, m, n]", batch, m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.BatchedGemm(a.memory(), b.memory(), c.memory(), int64(batch), int64(m), int64(n), int64(k), alpha,
		beta, transA, transB, dtype, dtypeC)
}

// GroupedGemm calls cuda_grouped_gemm.
//
// One product a group of rows (the experts' products): for each group g and its rows r in offsets[g] .. offsets[g+1]-1,
// C[r] = A[r] * op(B[g]) + beta * C[r]. Rows from offsets[groups] on are neither read nor written. (Gale et al. 2022,
// "MegaBlocks")
//
//   - a, in dtype [rows, k]: rows, sorted by group
//   - b, in dtype [groups, k, n]^trans_b: a matrix a group
//   - offsets, in i32 [groups+1]: first row of each group; offsets[0] = 0, never falling, at most `rows`
//   - c, inout dtype_c [rows, n]: results; not read with beta = 0
//   - beta, usually 0: factor of the old C
//   - transB: 1 when each B is stored as [n, k]
func GroupedGemm(a, b, offsets, c *Tensor, beta float32, transB bool) error {
	check := begin("grouped_gemm", "rows and k from a, groups and n from b")
	if !check.required("a", a, 2, dense) ||
		!check.required("b", b, 3, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("c", c, 2, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"a", a}, 2}, ranked{named{"c", c}, 2})
	rows := a.extent(2, 0)
	k := a.extent(2, 1)
	groups := b.extent(3, 0)
	n := b.extentIf(transB, 3, 1, 2)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	dtypeC := c.dtype
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("a", a, "[rows, k]", rows, k)
	check.shapeIf(transB, "b", b, "[groups, k, n]", "[groups, n, k]", groups, k, n)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("c", c, "[rows, n]", rows, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GroupedGemm(a.memory(), b.memory(), offsets.memory(), c.memory(), int64(groups), int64(rows),
		int64(n), int64(k), beta, transB, dtype, dtypeC)
}

// GroupedGemmWGrad calls cuda_grouped_gemm_wgrad.
//
// The weights' gradients of grouped_gemm: C[g] = A_g^T * B_g + beta * C[g], summed over the rows of group g. A group
// without rows leaves beta * C[g].
//
//   - a, in dtype [rows, m]: rows, sorted by group (the gradient of the outputs, for a weight [out, in])
//   - b, in dtype [rows, n]: rows, sorted by group (the inputs)
//   - offsets, in i32 [groups+1]: as in grouped_gemm
//   - c, inout dtype_c [groups, m, n]: results; not read with beta = 0
//   - beta, usually 0: factor of the old C
func GroupedGemmWGrad(a, b, offsets, c *Tensor, beta float32) error {
	check := begin("grouped_gemm_wgrad", "rows and m from a, n from b, groups from c")
	if !check.required("a", a, 2, dense) ||
		!check.required("b", b, 2, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("c", c, 3, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"a", a}, 2}, ranked{named{"b", b}, 2})
	rows := a.extent(2, 0)
	m := a.extent(2, 1)
	n := b.extent(2, 1)
	groups := c.extent(3, 0)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	dtypeC := c.dtype
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("a", a, "[rows, m]", rows, m)
	check.shape("b", b, "[rows, n]", rows, n)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("c", c, "[groups, m, n]", groups, m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GroupedGemmWGrad(a.memory(), b.memory(), offsets.memory(), c.memory(), int64(groups), int64(rows),
		int64(m), int64(n), beta, dtype, dtypeC)
}

// GroupedGemmSwiGLU calls cuda_grouped_gemm_swiglu.
//
// The experts' first products and their gate: grouped_gemm by B^T, whose columns are gates and, behind them, ups, then
// swiglu of the two halves of its rows, with the bits of these two calls. On a GPU it is one launch. (Shazeer 2020,
// "GLU Variants", eq. 6; Gale et al. 2022, "MegaBlocks")
//
//   - a, in dtype [rows, k]: rows, sorted by group
//   - b, in dtype [groups, 2*n, k]: a matrix a group, the rows of gates before those of ups
//   - offsets, in i32 [groups+1]: as in grouped_gemm
//   - gateUp, out dtype [rows, 2*n]: the products, as the gradient needs them; rows from offsets[groups] on are left
//     alone
//   - y, out dtype [rows, n]: silu(gate) * up, likewise
func GroupedGemmSwiGLU(a, b, offsets, gateUp, y *Tensor) error {
	check := begin("grouped_gemm_swiglu", "rows and k from a, groups and n from b")
	if !check.required("a", a, 2, dense) ||
		!check.required("b", b, 3, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("gate_up", gateUp, 2, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"a", a}, 2}, ranked{named{"gate_up", gateUp}, 2}, ranked{named{"y", y}, 2})
	rows := a.extent(2, 0)
	k := a.extent(2, 1)
	groups := b.extent(3, 0)
	n := check.solve("b", "2*n", "n", b.extent(3, 1), 0, 1, 2)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	check.dtype("gate_up", gateUp, dtype)
	check.dtype("y", y, dtype)
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("a", a, "[rows, k]", rows, k)
	check.shape("b", b, "[groups, 2*n, k]", groups, 2*n, k)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("gate_up", gateUp, "[rows, 2*n]", rows, 2*n)
	check.shape("y", y, "[rows, n]", rows, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GroupedGemmSwiGLU(a.memory(), b.memory(), offsets.memory(), gateUp.memory(), y.memory(),
		int64(groups), int64(rows), int64(n), int64(k), dtype)
}

// GroupedGemmSwiGLUBackward calls cuda_grouped_gemm_swiglu_backward.
//
// Gradient of the experts' gate from that of what they give: dy = A * B of each group, as grouped_gemm has it, is the
// gradient of y in grouped_gemm_swiglu, from which swiglu_backward gives those of gate and up, in their place; with the
// bits of these two calls. On a GPU it is one launch, and dy is never in memory.
//
//   - a, in dtype [rows, k]: gradient of the experts' outputs
//   - b, in dtype [groups, k, n]: the matrices that y was multiplied by, [out, in]
//   - offsets, in i32 [groups+1]: as in grouped_gemm
//   - gateUp, inout dtype [rows, 2*n]: from the forward call; becomes its gradient; rows from offsets[groups] on are
//     left alone
func GroupedGemmSwiGLUBackward(a, b, offsets, gateUp *Tensor) error {
	check := begin("grouped_gemm_swiglu_backward", "rows and k from a, groups and n from b")
	if !check.required("a", a, 2, dense) ||
		!check.required("b", b, 3, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("gate_up", gateUp, 2, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"a", a}, 2}, ranked{named{"gate_up", gateUp}, 2})
	rows := a.extent(2, 0)
	k := a.extent(2, 1)
	groups := b.extent(3, 0)
	n := b.extent(3, 2)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	check.dtype("gate_up", gateUp, dtype)
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("a", a, "[rows, k]", rows, k)
	check.shape("b", b, "[groups, k, n]", groups, k, n)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("gate_up", gateUp, "[rows, 2*n]", rows, 2*n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GroupedGemmSwiGLUBackward(a.memory(), b.memory(), offsets.memory(), gateUp.memory(), int64(groups),
		int64(rows), int64(n), int64(k), dtype)
}

// GroupedGemmFP8 calls cuda_grouped_gemm_fp8.
//
// grouped_gemm with factors in 8 bits: C[r] = fp8(A)[r] * op(fp8(B)[g]). fp8 rounds each number of a block to the
// nearest e * 2^x, ties to even, where e is an OCP E4M3 and x, of the block, the least from -100 to 100 with which none
// of its finite numbers is beyond 448 * 2^x; those beyond it even then, and those that are not finite, become NaN. A
// block is 128 neighbouring elements of a row of A, and 128 x 128 of a matrix B, both counted from the first; the last
// may be smaller. A product of two such numbers is exact. On sm_89 and sm_90a tensor cores sum 128 of them in their own
// precision, of 14 bits; those sums are added up in f32. (DeepSeek-AI 2024, "DeepSeek-V3", 3.3; Micikevicius et al.
// 2022, "FP8 formats for deep learning")
//
//   - a, in dtype [rows, k]: rows, sorted by group
//   - b, in dtype [groups, k, n]^trans_b: a matrix a group
//   - offsets, in i32 [groups+1]: as in grouped_gemm
//   - c, out dtype_c [rows, n]: results; rows from offsets[groups] on are left alone
//   - transB: 1 when each B is stored as [n, k]
func GroupedGemmFP8(a, b, offsets, c *Tensor, transB bool) error {
	check := begin("grouped_gemm_fp8", "rows and k from a, groups and n from b")
	if !check.required("a", a, 2, dense) ||
		!check.required("b", b, 3, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("c", c, 2, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"a", a}, 2}, ranked{named{"c", c}, 2})
	rows := a.extent(2, 0)
	k := a.extent(2, 1)
	groups := b.extent(3, 0)
	n := b.extentIf(transB, 3, 1, 2)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	dtypeC := c.dtype
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("a", a, "[rows, k]", rows, k)
	check.shapeIf(transB, "b", b, "[groups, k, n]", "[groups, n, k]", groups, k, n)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("c", c, "[rows, n]", rows, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GroupedGemmFP8(a.memory(), b.memory(), offsets.memory(), c.memory(), int64(groups), int64(rows),
		int64(n), int64(k), transB, dtype, dtypeC)
}

// GroupedGemmWGradFP8 calls cuda_grouped_gemm_wgrad_fp8.
//
// grouped_gemm_wgrad with factors in 8 bits: C[g] = fp8(A)_g^T * fp8(B)_g + beta * C[g]. fp8 and the sums are those of
// grouped_gemm_fp8, but for a block: 128 elements of a column of A or B in neighbouring rows of a group, counted from
// its first.
//
//   - a, in dtype [rows, m]: rows, sorted by group (the gradient of the outputs, for a weight [out, in])
//   - b, in dtype [rows, n]: rows, sorted by group (the inputs)
//   - offsets, in i32 [groups+1]: as in grouped_gemm
//   - c, inout dtype_c [groups, m, n]: results; not read with beta = 0
//   - beta, usually 0: factor of the old C
func GroupedGemmWGradFP8(a, b, offsets, c *Tensor, beta float32) error {
	check := begin("grouped_gemm_wgrad_fp8", "rows and m from a, n from b, groups from c")
	if !check.required("a", a, 2, dense) ||
		!check.required("b", b, 2, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("c", c, 3, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"a", a}, 2}, ranked{named{"b", b}, 2})
	rows := a.extent(2, 0)
	m := a.extent(2, 1)
	n := b.extent(2, 1)
	groups := c.extent(3, 0)
	dtype := a.dtype
	check.dtype("b", b, dtype)
	dtypeC := c.dtype
	check.dtype("offsets", offsets, cuda.I32)
	check.shape("a", a, "[rows, m]", rows, m)
	check.shape("b", b, "[rows, n]", rows, n)
	check.shape("offsets", offsets, "[groups+1]", groups+1)
	check.shape("c", c, "[groups, m, n]", groups, m, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.GroupedGemmWGradFP8(a.memory(), b.memory(), offsets.memory(), c.memory(), int64(groups),
		int64(rows), int64(m), int64(n), beta, dtype, dtypeC)
}
