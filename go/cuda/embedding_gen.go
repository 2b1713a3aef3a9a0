// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// Embedding calls cuda_embedding as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.Embedding.
func (ctx *Context) Embedding(table, ids, y Memory, tokens, vocab, dim int64, dtype DType) error {
	in := ctx.enter()
	tableAt := in.at("table", table)
	idsAt := in.at("ids", ids)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_embedding")
	}
	status := C.call_cuda_embedding(in.handle, tableAt, idsAt, yAt, C.int64_t(tokens), C.int64_t(vocab), C.int64_t(dim),
		C.int32_t(dtype))
	return in.leave("cuda_embedding", status)
}

// ScatterAdd calls cuda_scatter_add as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.ScatterAdd.
func (ctx *Context) ScatterAdd(x, ids, table Memory, tokens, vocab, dim int64, dtype DType) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	idsAt := in.at("ids", ids)
	tableAt := in.at("table", table)
	if in.refused() {
		return in.refuse("cuda_scatter_add")
	}
	status := C.call_cuda_scatter_add(in.handle, xAt, idsAt, tableAt, C.int64_t(tokens), C.int64_t(vocab),
		C.int64_t(dim), C.int32_t(dtype))
	return in.leave("cuda_scatter_add", status)
}

// PoolRows calls cuda_pool_rows as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.PoolRows.
func (ctx *Context) PoolRows(x, sum Memory, rows, dim int64) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	sumAt := in.at("sum", sum)
	if in.refused() {
		return in.refuse("cuda_pool_rows")
	}
	status := C.call_cuda_pool_rows(in.handle, xAt, sumAt, C.int64_t(rows), C.int64_t(dim))
	return in.leave("cuda_pool_rows", status)
}

// PoolUnit calls cuda_pool_unit as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.PoolUnit.
func (ctx *Context) PoolUnit(sum, y Memory, dim int64) error {
	in := ctx.enter()
	sumAt := in.at("sum", sum)
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_pool_unit")
	}
	status := C.call_cuda_pool_unit(in.handle, sumAt, yAt, C.int64_t(dim))
	return in.leave("cuda_pool_unit", status)
}
