// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// Argmax calls cuda_argmax as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Argmax.
func (ctx *Context) Argmax(logits, ids Memory, rows, vocab int64, dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	idsAt := in.at("ids", ids)
	if in.refused() {
		return in.refuse("cuda_argmax")
	}
	status := C.call_cuda_argmax(in.handle, logitsAt, idsAt, C.int64_t(rows), C.int64_t(vocab), C.int32_t(dtype))
	return in.leave("cuda_argmax", status)
}

// Sample calls cuda_sample as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Sample.
func (ctx *Context) Sample(logits, temperature, seeds, steps, ids Memory, rows, vocab int64, dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	temperatureAt := in.at("temperature", temperature)
	seedsAt := in.at("seeds", seeds)
	stepsAt := in.at("steps", steps)
	idsAt := in.at("ids", ids)
	if in.refused() {
		return in.refuse("cuda_sample")
	}
	status := C.call_cuda_sample(in.handle, logitsAt, temperatureAt, seedsAt, stepsAt, idsAt, C.int64_t(rows),
		C.int64_t(vocab), C.int32_t(dtype))
	return in.leave("cuda_sample", status)
}

// TopKSample calls cuda_topk_sample as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.TopKSample.
func (ctx *Context) TopKSample(logits, temperature, topK, seeds, steps, ids Memory, rows, vocab int64,
	dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	temperatureAt := in.at("temperature", temperature)
	topKAt := in.at("top_k", topK)
	seedsAt := in.at("seeds", seeds)
	stepsAt := in.at("steps", steps)
	idsAt := in.at("ids", ids)
	if in.refused() {
		return in.refuse("cuda_topk_sample")
	}
	status := C.call_cuda_topk_sample(in.handle, logitsAt, temperatureAt, topKAt, seedsAt, stepsAt, idsAt,
		C.int64_t(rows), C.int64_t(vocab), C.int32_t(dtype))
	return in.leave("cuda_topk_sample", status)
}

// TopPSample calls cuda_topp_sample as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.TopPSample.
func (ctx *Context) TopPSample(logits, temperature, topK, topP, seeds, steps, ids Memory, rows, vocab int64,
	dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	temperatureAt := in.at("temperature", temperature)
	topKAt := in.at("top_k", topK)
	topPAt := in.at("top_p", topP)
	seedsAt := in.at("seeds", seeds)
	stepsAt := in.at("steps", steps)
	idsAt := in.at("ids", ids)
	if in.refused() {
		return in.refuse("cuda_topp_sample")
	}
	status := C.call_cuda_topp_sample(in.handle, logitsAt, temperatureAt, topKAt, topPAt, seedsAt, stepsAt, idsAt,
		C.int64_t(rows), C.int64_t(vocab), C.int32_t(dtype))
	return in.leave("cuda_topp_sample", status)
}
