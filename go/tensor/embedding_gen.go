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
