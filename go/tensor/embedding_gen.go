// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// Embedding calls cuda_embedding.
//
// Gathers rows of a table: y[t] = table[ids[t]].
//
//   - table, in dtype [vocab, dim]: the table
//   - ids, in i32 [tokens]: rows to take, 0 .. vocab-1
//   - y, out dtype [tokens, dim]: the rows
func Embedding(table, ids, y *Tensor) error {
	check := begin("embedding", "vocab and dim from table, tokens from ids")
	if !check.required("table", table, 2, dense) ||
		!check.required("ids", ids, 1, dense) ||
		!check.required("y", y, 2, dense) {
		return check.err
	}
	check.folds("tokens", ranked{named{"ids", ids}, 1}, ranked{named{"y", y}, 2})
	vocab := table.extent(2, 0)
	dim := table.extent(2, 1)
	tokens := ids.extent(1, 0)
	dtype := table.dtype
	check.dtype("y", y, dtype)
	check.dtype("ids", ids, cuda.I32)
	check.shape("table", table, "[vocab, dim]", vocab, dim)
	check.shape("ids", ids, "[tokens]", tokens)
	check.shape("y", y, "[tokens, dim]", tokens, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Embedding(table.memory(), ids.memory(), y.memory(), int64(tokens), int64(vocab), int64(dim), dtype)
}

// ScatterAdd calls cuda_scatter_add.
//
// Adds rows into a table, in the order of the tokens: table[ids[t]] += x[t]. The gradient of embedding.
//
//   - x, in dtype [tokens, dim]: rows to add
//   - ids, in i32 [tokens]: where to, 0 .. vocab-1
//   - table, acc f32 [vocab, dim]: the table
func ScatterAdd(x, ids, table *Tensor) error {
	check := begin("scatter_add", "tokens and dim from x, vocab from table")
	if !check.required("x", x, 2, dense) ||
		!check.required("ids", ids, 1, dense) ||
		!check.required("table", table, 2, dense) {
		return check.err
	}
	check.folds("tokens", ranked{named{"x", x}, 2}, ranked{named{"ids", ids}, 1})
	tokens := x.extent(2, 0)
	dim := x.extent(2, 1)
	vocab := table.extent(2, 0)
	dtype := x.dtype
	check.dtype("ids", ids, cuda.I32)
	check.dtype("table", table, cuda.F32)
	check.shape("x", x, "[tokens, dim]", tokens, dim)
	check.shape("ids", ids, "[tokens]", tokens)
	check.shape("table", table, "[vocab, dim]", vocab, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.ScatterAdd(x.memory(), ids.memory(), table.memory(), int64(tokens), int64(vocab), int64(dim),
		dtype)
}

// PoolRows calls cuda_pool_rows.
//
// Adds rows to a sum of two f32, the nearest and what is left of it: sum[0] + sum[1] += x[0] + x[1] + .... Each row is
// added without error to sum[0], the error to sum[1], and of both the nearest f32 is taken again. So a long text loses
// no more than a short one, and the bits do not depend on the calls that rows are cut into. A column is NaN from where
// its sum is not finite. The first call begins with zeros. (Dekker 1971; Knuth, volume 2, 4.2.2, theorems B and C)
//
//   - x, in f32 [rows, dim]: rows to add, in their order
//   - sum, inout f32 [2, dim]: the sum so far, its nearest f32 and the rest
func PoolRows(x, sum *Tensor) error {
	check := begin("pool_rows", "rows and dim from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("sum", sum, 2, dense) {
		return check.err
	}
	rows := x.extent(2, 0)
	dim := x.extent(2, 1)
	check.dtype("x", x, cuda.F32)
	check.dtype("sum", sum, cuda.F32)
	check.shape("x", x, "[rows, dim]", rows, dim)
	check.shape("sum", sum, "[2, dim]", 2, dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.PoolRows(x.memory(), sum.memory(), int64(rows), int64(dim))
}

// PoolUnit calls cuda_pool_unit.
//
// The vector of length 1 in the direction of a sum, which is that of the mean: y = s / |s|, s = sum[0] + sum[1]; zeros
// where s is zero. Computed in f64, rounded once.
//
//   - sum, in f32 [2, dim]: from pool_rows
//   - y, out f32 [dim]: the vector
func PoolUnit(sum, y *Tensor) error {
	check := begin("pool_unit", "dim from sum")
	if !check.required("sum", sum, 2, dense) ||
		!check.required("y", y, 1, dense) {
		return check.err
	}
	check.unfolded("y", y, 1, "[dim]", "dim", "sum")
	dim := sum.extent(2, 1)
	check.dtype("sum", sum, cuda.F32)
	check.dtype("y", y, cuda.F32)
	check.shape("sum", sum, "[2, dim]", 2, dim)
	check.shape("y", y, "[dim]", dim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.PoolUnit(sum.memory(), y.memory(), int64(dim))
}
