// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// Argmax calls cuda_argmax.
//
// The first token of each row in the order above.
//
//   - logits, in dtype [rows, vocab]: logits
//   - ids, out i32 [rows]: tokens
func Argmax(logits, ids *Tensor) error {
	check := begin("argmax", "rows and vocab from logits")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("ids", ids, 1, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"ids", ids}, 1})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	dtype := logits.dtype
	check.dtype("ids", ids, cuda.I32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("ids", ids, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Argmax(logits.memory(), ids.memory(), int64(rows), int64(vocab), dtype)
}

// Sample calls cuda_sample.
//
// Draws from softmax(logits / temperature).
//
//   - logits, in dtype [rows, vocab]: logits
//   - temperature, in f32 [rows]: finite, at least 0
//   - seeds, in i64 [rows]: key of each row
//   - steps, in i32 [rows]: number of the draw, at least 0
//   - ids, out i32 [rows]: tokens
func Sample(logits, temperature, seeds, steps, ids *Tensor) error {
	check := begin("sample", "rows and vocab from logits")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("temperature", temperature, 1, dense) ||
		!check.required("seeds", seeds, 1, dense) ||
		!check.required("steps", steps, 1, dense) ||
		!check.required("ids", ids, 1, dense) {
		return check.err
	}
	check.same(named{"temperature", temperature}, named{"seeds", seeds}, named{"steps", steps}, named{"ids", ids})
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"temperature", temperature}, 1})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	dtype := logits.dtype
	check.dtype("temperature", temperature, cuda.F32)
	check.dtype("seeds", seeds, cuda.I64)
	check.dtype("steps", steps, cuda.I32)
	check.dtype("ids", ids, cuda.I32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("temperature", temperature, "[rows]", rows)
	check.shape("seeds", seeds, "[rows]", rows)
	check.shape("steps", steps, "[rows]", rows)
	check.shape("ids", ids, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Sample(logits.memory(), temperature.memory(), seeds.memory(), steps.memory(), ids.memory(),
		int64(rows), int64(vocab), dtype)
}

// TopKSample calls cuda_topk_sample.
//
// Draws among the first top_k tokens of each row. (Fan, Lewis, Dauphin 2018)
//
//   - logits, in dtype [rows, vocab]: logits
//   - temperature, in f32 [rows]: finite, at least 0
//   - topK, in i32 [rows]: at least 1; more than vocab is all
//   - seeds, in i64 [rows]: key of each row
//   - steps, in i32 [rows]: number of the draw, at least 0
//   - ids, out i32 [rows]: tokens
func TopKSample(logits, temperature, topK, seeds, steps, ids *Tensor) error {
	check := begin("topk_sample", "rows and vocab from logits")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("temperature", temperature, 1, dense) ||
		!check.required("top_k", topK, 1, dense) ||
		!check.required("seeds", seeds, 1, dense) ||
		!check.required("steps", steps, 1, dense) ||
		!check.required("ids", ids, 1, dense) {
		return check.err
	}
	check.same(named{"temperature", temperature}, named{"top_k", topK}, named{"seeds", seeds}, named{"steps", steps},
		named{"ids", ids})
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"temperature", temperature}, 1})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	dtype := logits.dtype
	check.dtype("temperature", temperature, cuda.F32)
	check.dtype("top_k", topK, cuda.I32)
	check.dtype("seeds", seeds, cuda.I64)
	check.dtype("steps", steps, cuda.I32)
	check.dtype("ids", ids, cuda.I32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("temperature", temperature, "[rows]", rows)
	check.shape("top_k", topK, "[rows]", rows)
	check.shape("seeds", seeds, "[rows]", rows)
	check.shape("steps", steps, "[rows]", rows)
	check.shape("ids", ids, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.TopKSample(logits.memory(), temperature.memory(), topK.memory(), seeds.memory(), steps.memory(),
		ids.memory(), int64(rows), int64(vocab), dtype)
}

// TopPSample calls cuda_topp_sample.
//
// Draws among the shortest run of first tokens whose probability reaches top_p (of those that top_k leaves, if given).
// (Holtzman et al. 2020, "nucleus sampling", eq. 3)
//
//   - logits, in dtype [rows, vocab]: logits
//   - temperature, in f32 [rows]: finite, at least 0
//   - topK, in i32 [rows], may be nil: at least 1; or null for no such limit
//   - topP, in f32 [rows]: above 0, at most 1
//   - seeds, in i64 [rows]: key of each row
//   - steps, in i32 [rows]: number of the draw, at least 0
//   - ids, out i32 [rows]: tokens
func TopPSample(logits, temperature, topK, topP, seeds, steps, ids *Tensor) error {
	check := begin("topp_sample", "rows and vocab from logits")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("temperature", temperature, 1, dense) ||
		!check.optional("top_k", topK, 1, dense) ||
		!check.required("top_p", topP, 1, dense) ||
		!check.required("seeds", seeds, 1, dense) ||
		!check.required("steps", steps, 1, dense) ||
		!check.required("ids", ids, 1, dense) {
		return check.err
	}
	check.same(named{"temperature", temperature}, named{"top_k", topK}, named{"top_p", topP}, named{"seeds", seeds},
		named{"steps", steps}, named{"ids", ids})
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"temperature", temperature}, 1})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	dtype := logits.dtype
	check.dtype("temperature", temperature, cuda.F32)
	check.dtype("top_k", topK, cuda.I32)
	check.dtype("top_p", topP, cuda.F32)
	check.dtype("seeds", seeds, cuda.I64)
	check.dtype("steps", steps, cuda.I32)
	check.dtype("ids", ids, cuda.I32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("temperature", temperature, "[rows]", rows)
	check.shape("top_k", topK, "[rows]", rows)
	check.shape("top_p", topP, "[rows]", rows)
	check.shape("seeds", seeds, "[rows]", rows)
	check.shape("steps", steps, "[rows]", rows)
	check.shape("ids", ids, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.TopPSample(logits.memory(), temperature.memory(), topK.memory(), topP.memory(), seeds.memory(),
		steps.memory(), ids.memory(), int64(rows), int64(vocab), dtype)
}
