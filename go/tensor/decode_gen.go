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

// MinPSample calls cuda_minp_sample.
//
// Draws among the tokens, of those that top_k and then top_p leave, if given, whose probability is at least min_p times
// that of the first one: exp((logit - largest) / temperature) >= min_p. (Nguyen et al. 2024, "Turning up the heat:
// min-p sampling", section 3)
//
//   - logits, in dtype [rows, vocab]: logits
//   - temperature, in f32 [rows]: finite, at least 0
//   - topK, in i32 [rows], may be nil: at least 1; or null for no such limit
//   - topP, in f32 [rows], may be nil: above 0, at most 1; or null for no such limit
//   - minP, in f32 [rows]: 0 to 1; 0 leaves all, 1 those that are as likely as the first
//   - seeds, in i64 [rows]: key of each row
//   - steps, in i32 [rows]: number of the draw, at least 0
//   - ids, out i32 [rows]: tokens
func MinPSample(logits, temperature, topK, topP, minP, seeds, steps, ids *Tensor) error {
	check := begin("minp_sample", "rows and vocab from logits")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("temperature", temperature, 1, dense) ||
		!check.optional("top_k", topK, 1, dense) ||
		!check.optional("top_p", topP, 1, dense) ||
		!check.required("min_p", minP, 1, dense) ||
		!check.required("seeds", seeds, 1, dense) ||
		!check.required("steps", steps, 1, dense) ||
		!check.required("ids", ids, 1, dense) {
		return check.err
	}
	check.same(named{"temperature", temperature}, named{"top_k", topK}, named{"top_p", topP}, named{"min_p", minP},
		named{"seeds", seeds}, named{"steps", steps}, named{"ids", ids})
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"temperature", temperature}, 1})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	dtype := logits.dtype
	check.dtype("temperature", temperature, cuda.F32)
	check.dtype("top_k", topK, cuda.I32)
	check.dtype("top_p", topP, cuda.F32)
	check.dtype("min_p", minP, cuda.F32)
	check.dtype("seeds", seeds, cuda.I64)
	check.dtype("steps", steps, cuda.I32)
	check.dtype("ids", ids, cuda.I32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("temperature", temperature, "[rows]", rows)
	check.shape("top_k", topK, "[rows]", rows)
	check.shape("top_p", topP, "[rows]", rows)
	check.shape("min_p", minP, "[rows]", rows)
	check.shape("seeds", seeds, "[rows]", rows)
	check.shape("steps", steps, "[rows]", rows)
	check.shape("ids", ids, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MinPSample(logits.memory(), temperature.memory(), topK.memory(), topP.memory(), minP.memory(),
		seeds.memory(), steps.memory(), ids.memory(), int64(rows), int64(vocab), dtype)
}

// CountTokens calls cuda_count_tokens.
//
// Adds the token that was drawn for each row to the row's list: to its count, or as a new token with a count of 1.
//
//   - ids, in i32 [rows]: tokens, 0 .. vocab-1
//   - seenIds, inout i32 [rows, capacity]: the list's tokens, ascending; those behind its length are not looked at
//   - seenCounts, inout i32 [rows, capacity]: how often each was drawn; at 2147483647 it stays
//   - seenLengths, inout i32 [rows]: tokens of each list, at most `capacity`, and less where one must be added; -1 for
//     a row that has no list
//   - vocab: tokens of the vocabulary; must be at most 2147483647
func CountTokens(ids, seenIds, seenCounts, seenLengths *Tensor, vocab int) error {
	check := begin("count_tokens", "rows from ids, capacity from seen_ids")
	if !check.required("ids", ids, 1, dense) ||
		!check.required("seen_ids", seenIds, 2, dense) ||
		!check.required("seen_counts", seenCounts, 2, dense) ||
		!check.required("seen_lengths", seenLengths, 1, dense) {
		return check.err
	}
	check.size("vocab", vocab)
	check.same(named{"ids", ids}, named{"seen_lengths", seenLengths})
	check.same(named{"seen_ids", seenIds}, named{"seen_counts", seenCounts})
	check.folds("rows", ranked{named{"ids", ids}, 1}, ranked{named{"seen_ids", seenIds}, 2})
	rows := ids.extent(1, 0)
	capacity := seenIds.extent(2, 1)
	check.dtype("ids", ids, cuda.I32)
	check.dtype("seen_ids", seenIds, cuda.I32)
	check.dtype("seen_counts", seenCounts, cuda.I32)
	check.dtype("seen_lengths", seenLengths, cuda.I32)
	check.shape("ids", ids, "[rows]", rows)
	check.shape("seen_ids", seenIds, "[rows, capacity]", rows, capacity)
	check.shape("seen_counts", seenCounts, "[rows, capacity]", rows, capacity)
	check.shape("seen_lengths", seenLengths, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.CountTokens(ids.memory(), seenIds.memory(), seenCounts.memory(), seenLengths.memory(), int64(rows),
		int64(vocab), int64(capacity))
}

// PenalizeLogits calls cuda_penalize_logits.
//
// Makes tokens of a row's list less likely. With c the count of a token there, first x = x / repetition where x > 0 and
// x * repetition elsewhere (Keskar et al. 2019, "CTRL", section 4.1, in the form that every program has), then x = x -
// (frequency * c + presence), the last of them only where c > 0 (OpenAI's API reference, "frequency and presence
// penalties"). So tokens of the prompt, with a count of 0, meet the first alone.
//
//   - logits, inout dtype [rows, vocab]: logits
//   - presence, in f32 [rows]: finite; 0 for none
//   - frequency, in f32 [rows]: finite; 0 for none
//   - repetition, in f32 [rows]: finite and above 0; 1 for none
//   - seenIds, in i32 [rows, capacity]: the list's tokens, ascending, 0 .. vocab-1
//   - seenCounts, in i32 [rows, capacity]: how often each was drawn, at least 0
//   - seenLengths, in i32 [rows]: tokens of each list, at most `capacity`; -1 for a row that has no list, which stays
//     as it is
func PenalizeLogits(logits, presence, frequency, repetition, seenIds, seenCounts, seenLengths *Tensor) error {
	check := begin("penalize_logits", "rows and vocab from logits, capacity from seen_ids")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("presence", presence, 1, dense) ||
		!check.required("frequency", frequency, 1, dense) ||
		!check.required("repetition", repetition, 1, dense) ||
		!check.required("seen_ids", seenIds, 2, dense) ||
		!check.required("seen_counts", seenCounts, 2, dense) ||
		!check.required("seen_lengths", seenLengths, 1, dense) {
		return check.err
	}
	check.same(named{"presence", presence}, named{"frequency", frequency}, named{"repetition", repetition},
		named{"seen_lengths", seenLengths})
	check.same(named{"seen_ids", seenIds}, named{"seen_counts", seenCounts})
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"presence", presence}, 1},
		ranked{named{"seen_ids", seenIds}, 2})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	capacity := seenIds.extent(2, 1)
	dtype := logits.dtype
	check.dtype("presence", presence, cuda.F32)
	check.dtype("frequency", frequency, cuda.F32)
	check.dtype("repetition", repetition, cuda.F32)
	check.dtype("seen_ids", seenIds, cuda.I32)
	check.dtype("seen_counts", seenCounts, cuda.I32)
	check.dtype("seen_lengths", seenLengths, cuda.I32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("presence", presence, "[rows]", rows)
	check.shape("frequency", frequency, "[rows]", rows)
	check.shape("repetition", repetition, "[rows]", rows)
	check.shape("seen_ids", seenIds, "[rows, capacity]", rows, capacity)
	check.shape("seen_counts", seenCounts, "[rows, capacity]", rows, capacity)
	check.shape("seen_lengths", seenLengths, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.PenalizeLogits(logits.memory(), presence.memory(), frequency.memory(), repetition.memory(),
		seenIds.memory(), seenCounts.memory(), seenLengths.memory(), int64(rows), int64(vocab), int64(capacity), dtype)
}

// BiasLogits calls cuda_bias_logits.
//
// Adds to some logits of each row r: bias[i] to that of token ids[i], for i = offsets[r] .. offsets[r+1]-1.
//
//   - logits, inout dtype [rows, vocab]: logits
//   - offsets, in i32 [rows+1]: first bias of each row; offsets[0] = 0, never falling, the last at most `biases`
//   - ids, in i32 [biases]: tokens, ascending within a row, 0 .. vocab-1
//   - bias, in f32 [biases]: finite
func BiasLogits(logits, offsets, ids, bias *Tensor) error {
	check := begin("bias_logits", "rows and vocab from logits, biases from ids")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("ids", ids, 1, dense) ||
		!check.required("bias", bias, 1, dense) {
		return check.err
	}
	check.same(named{"ids", ids}, named{"bias", bias})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	biases := ids.extent(1, 0)
	dtype := logits.dtype
	check.dtype("offsets", offsets, cuda.I32)
	check.dtype("ids", ids, cuda.I32)
	check.dtype("bias", bias, cuda.F32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("offsets", offsets, "[rows+1]", rows+1)
	check.shape("ids", ids, "[biases]", biases)
	check.shape("bias", bias, "[biases]", biases)
	if check.err != nil {
		return check.err
	}
	return check.ctx.BiasLogits(logits.memory(), offsets.memory(), ids.memory(), bias.memory(), int64(rows),
		int64(vocab), int64(biases), dtype)
}

// MaskLogits calls cuda_mask_logits.
//
// Sets the logits of tokens that a row's mask does not allow to -inf. Bit t % 32, from the lowest, of word t / 32 of a
// mask is 1 where token t is allowed; tokens beyond its words are not, bits beyond the vocabulary mean nothing. (The
// bit masks of llguidance and XGrammar)
//
//   - logits, inout dtype [rows, vocab]: logits
//   - masks, in i32 [n, words]: masks
//   - maskOf, in i32 [rows]: the mask of each row, -1 .. n-1; a row of -1 stays as it is
func MaskLogits(logits, masks, maskOf *Tensor) error {
	check := begin("mask_logits", "rows and vocab from logits, n and words from masks")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("masks", masks, 2, dense) ||
		!check.required("mask_of", maskOf, 1, dense) {
		return check.err
	}
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"mask_of", maskOf}, 1})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	n := masks.extent(2, 0)
	words := masks.extent(2, 1)
	dtype := logits.dtype
	check.dtype("masks", masks, cuda.I32)
	check.dtype("mask_of", maskOf, cuda.I32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("masks", masks, "[n, words]", n, words)
	check.shape("mask_of", maskOf, "[rows]", rows)
	if check.err != nil {
		return check.err
	}
	return check.ctx.MaskLogits(logits.memory(), masks.memory(), maskOf.memory(), int64(rows), int64(vocab), int64(n),
		int64(words), dtype)
}

// Logprobs calls cuda_logprobs.
//
// Log-probabilities, log softmax(logits), of one token of each row, and of the first n in the order above if they are
// asked for. Tokens that are never drawn have -inf.
//
//   - logits, in dtype [rows, vocab]: logits
//   - ids, in i32 [rows]: tokens, 0 .. vocab-1
//   - logprobs, out f32 [rows]: their log-probabilities
//   - topIds, out i32 [rows, n], may be nil: the first n tokens of each row, -1 where fewer can be drawn
//   - topLogprobs, out f32 [rows, n], may be nil: their log-probabilities, -inf where there is none
func Logprobs(logits, ids, logprobs, topIds, topLogprobs *Tensor) error {
	check := begin("logprobs", "rows and vocab from logits, n from top_ids")
	if !check.required("logits", logits, 2, dense) ||
		!check.required("ids", ids, 1, dense) ||
		!check.required("logprobs", logprobs, 1, dense) ||
		!check.optional("top_ids", topIds, 2, dense) ||
		!check.optional("top_logprobs", topLogprobs, 2, dense) {
		return check.err
	}
	check.same(named{"ids", ids}, named{"logprobs", logprobs})
	check.same(named{"top_ids", topIds}, named{"top_logprobs", topLogprobs})
	check.folds("rows", ranked{named{"logits", logits}, 2}, ranked{named{"ids", ids}, 1},
		ranked{named{"top_ids", topIds}, 2}, ranked{named{"top_logprobs", topLogprobs}, 2})
	rows := logits.extent(2, 0)
	vocab := logits.extent(2, 1)
	n := 1
	if topIds != nil {
		n = topIds.extent(2, 1)
	}
	dtype := logits.dtype
	check.dtype("ids", ids, cuda.I32)
	check.dtype("logprobs", logprobs, cuda.F32)
	check.dtype("top_ids", topIds, cuda.I32)
	check.dtype("top_logprobs", topLogprobs, cuda.F32)
	check.shape("logits", logits, "[rows, vocab]", rows, vocab)
	check.shape("ids", ids, "[rows]", rows)
	check.shape("logprobs", logprobs, "[rows]", rows)
	check.shape("top_ids", topIds, "[rows, n]", rows, n)
	check.shape("top_logprobs", topLogprobs, "[rows, n]", rows, n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Logprobs(logits.memory(), ids.memory(), logprobs.memory(), topIds.memory(), topLogprobs.memory(),
		int64(rows), int64(vocab), int64(n), dtype)
}
