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

// MinPSample calls cuda_minp_sample as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.MinPSample.
func (ctx *Context) MinPSample(logits, temperature, topK, topP, minP, seeds, steps, ids Memory, rows, vocab int64,
	dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	temperatureAt := in.at("temperature", temperature)
	topKAt := in.at("top_k", topK)
	topPAt := in.at("top_p", topP)
	minPAt := in.at("min_p", minP)
	seedsAt := in.at("seeds", seeds)
	stepsAt := in.at("steps", steps)
	idsAt := in.at("ids", ids)
	if in.refused() {
		return in.refuse("cuda_minp_sample")
	}
	status := C.call_cuda_minp_sample(in.handle, logitsAt, temperatureAt, topKAt, topPAt, minPAt, seedsAt, stepsAt,
		idsAt, C.int64_t(rows), C.int64_t(vocab), C.int32_t(dtype))
	return in.leave("cuda_minp_sample", status)
}

// CountTokens calls cuda_count_tokens as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.CountTokens.
func (ctx *Context) CountTokens(ids, seenIds, seenCounts, seenLengths Memory, rows, vocab, capacity int64) error {
	in := ctx.enter()
	idsAt := in.at("ids", ids)
	seenIdsAt := in.at("seen_ids", seenIds)
	seenCountsAt := in.at("seen_counts", seenCounts)
	seenLengthsAt := in.at("seen_lengths", seenLengths)
	if in.refused() {
		return in.refuse("cuda_count_tokens")
	}
	status := C.call_cuda_count_tokens(in.handle, idsAt, seenIdsAt, seenCountsAt, seenLengthsAt, C.int64_t(rows),
		C.int64_t(vocab), C.int64_t(capacity))
	return in.leave("cuda_count_tokens", status)
}

// PenalizeLogits calls cuda_penalize_logits as it is in bindings.h: sizes are not compared with those of the buffers.
// See tensor.PenalizeLogits.
func (ctx *Context) PenalizeLogits(logits, presence, frequency, repetition, seenIds, seenCounts, seenLengths Memory,
	rows, vocab, capacity int64, dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	presenceAt := in.at("presence", presence)
	frequencyAt := in.at("frequency", frequency)
	repetitionAt := in.at("repetition", repetition)
	seenIdsAt := in.at("seen_ids", seenIds)
	seenCountsAt := in.at("seen_counts", seenCounts)
	seenLengthsAt := in.at("seen_lengths", seenLengths)
	if in.refused() {
		return in.refuse("cuda_penalize_logits")
	}
	status := C.call_cuda_penalize_logits(in.handle, logitsAt, presenceAt, frequencyAt, repetitionAt, seenIdsAt,
		seenCountsAt, seenLengthsAt, C.int64_t(rows), C.int64_t(vocab), C.int64_t(capacity), C.int32_t(dtype))
	return in.leave("cuda_penalize_logits", status)
}

// BiasLogits calls cuda_bias_logits as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.BiasLogits.
func (ctx *Context) BiasLogits(logits, offsets, ids, bias Memory, rows, vocab, biases int64, dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	offsetsAt := in.at("offsets", offsets)
	idsAt := in.at("ids", ids)
	biasAt := in.at("bias", bias)
	if in.refused() {
		return in.refuse("cuda_bias_logits")
	}
	status := C.call_cuda_bias_logits(in.handle, logitsAt, offsetsAt, idsAt, biasAt, C.int64_t(rows), C.int64_t(vocab),
		C.int64_t(biases), C.int32_t(dtype))
	return in.leave("cuda_bias_logits", status)
}

// MaskLogits calls cuda_mask_logits as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.MaskLogits.
func (ctx *Context) MaskLogits(logits, masks, maskOf Memory, rows, vocab, n, words int64, dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	masksAt := in.at("masks", masks)
	maskOfAt := in.at("mask_of", maskOf)
	if in.refused() {
		return in.refuse("cuda_mask_logits")
	}
	status := C.call_cuda_mask_logits(in.handle, logitsAt, masksAt, maskOfAt, C.int64_t(rows), C.int64_t(vocab),
		C.int64_t(n), C.int64_t(words), C.int32_t(dtype))
	return in.leave("cuda_mask_logits", status)
}

// Logprobs calls cuda_logprobs as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.Logprobs.
func (ctx *Context) Logprobs(logits, ids, logprobs, topIds, topLogprobs Memory, rows, vocab, n int64,
	dtype DType) error {
	in := ctx.enter()
	logitsAt := in.at("logits", logits)
	idsAt := in.at("ids", ids)
	logprobsAt := in.at("logprobs", logprobs)
	topIdsAt := in.at("top_ids", topIds)
	topLogprobsAt := in.at("top_logprobs", topLogprobs)
	if in.refused() {
		return in.refuse("cuda_logprobs")
	}
	status := C.call_cuda_logprobs(in.handle, logitsAt, idsAt, logprobsAt, topIdsAt, topLogprobsAt, C.int64_t(rows),
		C.int64_t(vocab), C.int64_t(n), C.int32_t(dtype))
	return in.leave("cuda_logprobs", status)
}
