// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// AttentionScores calls cuda_attention_scores.
//
// Scores: s = scale * q * k^T, with -inf where `causal` hides the key. (Vaswani et al. 2017, eq. 1)
//
//   - q, in dtype [batch, q_len, heads, head_dim]: queries
//   - k, in dtype [batch, kv_len, kv_heads, head_dim]: keys
//   - scores, out dtype [batch, heads, q_len, kv_len]: scores
//   - scale, usually 1/sqrt(head_dim): factor of the products; must be finite
//   - causal: 1 hides the keys after each query
func AttentionScores(q, k, scores *Tensor, scale float32, causal bool) error {
	check := begin("attention_scores", "batch and q_len and heads and head_dim from q, kv_len and kv_heads from k")
	if !check.required("q", q, 4, dense) ||
		!check.required("k", k, 4, dense) ||
		!check.required("scores", scores, 4, dense) {
		return check.err
	}
	check.folds("batch", ranked{named{"q", q}, 4}, ranked{named{"k", k}, 4}, ranked{named{"scores", scores}, 4})
	batch := q.extent(4, 0)
	qLen := q.extent(4, 1)
	heads := q.extent(4, 2)
	headDim := q.extent(4, 3)
	kvLen := k.extent(4, 1)
	kvHeads := k.extent(4, 2)
	dtype := q.dtype
	check.dtype("k", k, dtype)
	check.dtype("scores", scores, dtype)
	check.shape("q", q, "[batch, q_len, heads, head_dim]", batch, qLen, heads, headDim)
	check.shape("k", k, "[batch, kv_len, kv_heads, head_dim]", batch, kvLen, kvHeads, headDim)
	check.shape("scores", scores, "[batch, heads, q_len, kv_len]", batch, heads, qLen, kvLen)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AttentionScores(q.memory(), k.memory(), scores.memory(), int64(batch), int64(qLen), int64(kvLen),
		int64(heads), int64(kvHeads), int64(headDim), scale, causal, dtype)
}

// AttentionOutput calls cuda_attention_output.
//
// Output: out = probs * v. (Vaswani et al. 2017, eq. 1)
//
//   - probs, in dtype [batch, heads, q_len, kv_len]: softmax of the scores
//   - v, in dtype [batch, kv_len, kv_heads, head_dim]: values
//   - out, out dtype [batch, q_len, heads, head_dim]: output
func AttentionOutput(probs, v, out *Tensor) error {
	check := begin("attention_output", "batch and heads and q_len and kv_len from probs, kv_heads and head_dim from v")
	if !check.required("probs", probs, 4, dense) ||
		!check.required("v", v, 4, dense) ||
		!check.required("out", out, 4, dense) {
		return check.err
	}
	check.folds("batch", ranked{named{"probs", probs}, 4}, ranked{named{"v", v}, 4}, ranked{named{"out", out}, 4})
	batch := probs.extent(4, 0)
	heads := probs.extent(4, 1)
	qLen := probs.extent(4, 2)
	kvLen := probs.extent(4, 3)
	kvHeads := v.extent(4, 2)
	headDim := v.extent(4, 3)
	dtype := probs.dtype
	check.dtype("v", v, dtype)
	check.dtype("out", out, dtype)
	check.shape("probs", probs, "[batch, heads, q_len, kv_len]", batch, heads, qLen, kvLen)
	check.shape("v", v, "[batch, kv_len, kv_heads, head_dim]", batch, kvLen, kvHeads, headDim)
	check.shape("out", out, "[batch, q_len, heads, head_dim]", batch, qLen, heads, headDim)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AttentionOutput(probs.memory(), v.memory(), out.memory(), int64(batch), int64(qLen), int64(kvLen),
		int64(heads), int64(kvHeads), int64(headDim), dtype)
}

// FlashAttention calls cuda_flash_attention.
//
// Attention without storing the scores: out = softmax(scale * q * k^T) * v, and the log-sum-exp of the scaled scores.
// With `starts` query t of a sequence sees the keys starts[t] .. t alone, so that documents packed into one sequence do
// not see one another; then `causal` must be 1 and q_len = kv_len. Keys that no query of a block sees are not read.
// (Dao 2023, "FlashAttention-2", algorithm 1)
//
//   - q, in dtype [batch*q_len:ld_q, heads, head_dim]: queries
//   - k, in dtype [batch*kv_len:ld_kv, kv_heads, head_dim]: keys
//   - v, in dtype [batch*kv_len:ld_kv, kv_heads, head_dim]: values
//   - starts, in i32 [batch, q_len], may be nil: first key that each query sees, never falling in a sequence and never
//     behind its own; or null for 0
//   - out, out dtype [batch*q_len, heads, head_dim]: output
//   - lse, out f32 [batch, heads, q_len], may be nil: log-sum-exp (-inf for a query without keys), kept for the
//     backward call, or null
//   - batch: sequences
//   - scale, usually 1/sqrt(head_dim): factor of the products; must be finite
//   - causal: 1 hides the keys after each query
func FlashAttention(q, k, v, starts, out, lse *Tensor, batch int, scale float32, causal bool) error {
	check := begin("flash_attention", "heads and head_dim and q_len from q, kv_heads and kv_len from k")
	if !check.required("q", q, 3, strided) ||
		!check.required("k", k, 3, strided) ||
		!check.required("v", v, 3, strided) ||
		!check.optional("starts", starts, 2, dense) ||
		!check.required("out", out, 3, dense) ||
		!check.optional("lse", lse, 3, dense) {
		return check.err
	}
	check.size("batch", batch)
	check.same(named{"q", q}, named{"out", out})
	check.same(named{"k", k}, named{"v", v})
	check.folds("batch", ranked{named{"starts", starts}, 2}, ranked{named{"lse", lse}, 3})
	heads := q.extent(3, 1)
	headDim := q.extent(3, 2)
	kvHeads := k.extent(3, 1)
	qLen := check.solve("q", "batch*q_len", "q_len", q.extent(3, 0), 0, 1, batch)
	kvLen := check.solve("k", "batch*kv_len", "kv_len", k.extent(3, 0), 0, 1, batch)
	dtype := q.dtype
	check.dtype("k", k, dtype)
	check.dtype("v", v, dtype)
	check.dtype("out", out, dtype)
	check.dtype("starts", starts, cuda.I32)
	check.dtype("lse", lse, cuda.F32)
	check.shape("q", q, "[batch*q_len:ld_q, heads, head_dim]", batch*qLen, heads, headDim)
	check.factors("q", q, 3, "[batch*q_len:ld_q, heads, head_dim]", batch, qLen)
	check.shape("k", k, "[batch*kv_len:ld_kv, kv_heads, head_dim]", batch*kvLen, kvHeads, headDim)
	check.factors("k", k, 3, "[batch*kv_len:ld_kv, kv_heads, head_dim]", batch, kvLen)
	check.shape("v", v, "[batch*kv_len:ld_kv, kv_heads, head_dim]", batch*kvLen, kvHeads, headDim)
	check.shape("starts", starts, "[batch, q_len]", batch, qLen)
	check.shape("out", out, "[batch*q_len, heads, head_dim]", batch*qLen, heads, headDim)
	check.shape("lse", lse, "[batch, heads, q_len]", batch, heads, qLen)
	ldQ := q.stride(3)
	ldKV := check.strides("ld_kv", 3, named{"k", k}, named{"v", v})
	if check.err != nil {
		return check.err
	}
	return check.ctx.FlashAttention(q.memory(), k.memory(), v.memory(), starts.memory(), out.memory(), lse.memory(),
		int64(batch), int64(qLen), int64(kvLen), int64(heads), int64(kvHeads), int64(headDim), int64(ldQ), int64(ldKV),
		scale, causal, dtype)
}

// FlashAttentionBackward calls cuda_flash_attention_backward.
//
// Gradients of flash_attention; the probabilities are recomputed from lse. (Dao 2023, "FlashAttention-2", algorithm 2)
//
//   - dout, in dtype [batch*q_len, heads, head_dim]: gradient of out
//   - q, in dtype [batch*q_len:ld_q, heads, head_dim]: queries
//   - k, in dtype [batch*kv_len:ld_kv, kv_heads, head_dim]: keys
//   - v, in dtype [batch*kv_len:ld_kv, kv_heads, head_dim]: values
//   - out, in dtype [batch*q_len, heads, head_dim]: output of the forward call
//   - lse, in f32 [batch, heads, q_len]: from the forward call
//   - starts, in i32 [batch, q_len], may be nil: as in the forward call, or null
//   - dq, out dtype [batch*q_len:ld_q, heads, head_dim]: gradient of q
//   - dk, out dtype [batch*kv_len:ld_kv, kv_heads, head_dim]: gradient of k
//   - dv, out dtype [batch*kv_len:ld_kv, kv_heads, head_dim]: gradient of v
//   - scale, usually 1/sqrt(head_dim): as in the forward call; must be finite
//   - causal: as in the forward call
func FlashAttentionBackward(dout, q, k, v, out, lse, starts, dq, dk, dv *Tensor, scale float32, causal bool) error {
	check := begin("flash_attention_backward",
		"heads and head_dim from dout, kv_heads and kv_len from k, batch and q_len from lse")
	if !check.required("dout", dout, 3, dense) ||
		!check.required("q", q, 3, strided) ||
		!check.required("k", k, 3, strided) ||
		!check.required("v", v, 3, strided) ||
		!check.required("out", out, 3, dense) ||
		!check.required("lse", lse, 3, dense) ||
		!check.optional("starts", starts, 2, dense) ||
		!check.required("dq", dq, 3, strided) ||
		!check.required("dk", dk, 3, strided) ||
		!check.required("dv", dv, 3, strided) {
		return check.err
	}
	check.same(named{"dout", dout}, named{"q", q}, named{"out", out}, named{"dq", dq})
	check.same(named{"k", k}, named{"v", v}, named{"dk", dk}, named{"dv", dv})
	check.folds("batch", ranked{named{"lse", lse}, 3}, ranked{named{"starts", starts}, 2})
	heads := dout.extent(3, 1)
	headDim := dout.extent(3, 2)
	kvHeads := k.extent(3, 1)
	batch := lse.extent(3, 0)
	qLen := lse.extent(3, 2)
	kvLen := check.solve("k", "batch*kv_len", "kv_len", k.extent(3, 0), 0, 1, batch)
	dtype := dout.dtype
	check.dtype("q", q, dtype)
	check.dtype("k", k, dtype)
	check.dtype("v", v, dtype)
	check.dtype("out", out, dtype)
	check.dtype("dq", dq, dtype)
	check.dtype("dk", dk, dtype)
	check.dtype("dv", dv, dtype)
	check.dtype("lse", lse, cuda.F32)
	check.dtype("starts", starts, cuda.I32)
	check.shape("dout", dout, "[batch*q_len, heads, head_dim]", batch*qLen, heads, headDim)
	check.factors("dout", dout, 3, "[batch*q_len, heads, head_dim]", batch, qLen)
	check.shape("q", q, "[batch*q_len:ld_q, heads, head_dim]", batch*qLen, heads, headDim)
	check.shape("k", k, "[batch*kv_len:ld_kv, kv_heads, head_dim]", batch*kvLen, kvHeads, headDim)
	check.factors("k", k, 3, "[batch*kv_len:ld_kv, kv_heads, head_dim]", batch, kvLen)
	check.shape("v", v, "[batch*kv_len:ld_kv, kv_heads, head_dim]", batch*kvLen, kvHeads, headDim)
	check.shape("out", out, "[batch*q_len, heads, head_dim]", batch*qLen, heads, headDim)
	check.shape("lse", lse, "[batch, heads, q_len]", batch, heads, qLen)
	check.shape("starts", starts, "[batch, q_len]", batch, qLen)
	check.shape("dq", dq, "[batch*q_len:ld_q, heads, head_dim]", batch*qLen, heads, headDim)
	check.shape("dk", dk, "[batch*kv_len:ld_kv, kv_heads, head_dim]", batch*kvLen, kvHeads, headDim)
	check.shape("dv", dv, "[batch*kv_len:ld_kv, kv_heads, head_dim]", batch*kvLen, kvHeads, headDim)
	ldQ := check.strides("ld_q", 3, named{"q", q}, named{"dq", dq})
	ldKV := check.strides("ld_kv", 3, named{"k", k}, named{"v", v}, named{"dk", dk}, named{"dv", dv})
	if check.err != nil {
		return check.err
	}
	return check.ctx.FlashAttentionBackward(dout.memory(), q.memory(), k.memory(), v.memory(), out.memory(),
		lse.memory(), starts.memory(), dq.memory(), dk.memory(), dv.memory(), int64(batch), int64(qLen), int64(kvLen),
		int64(heads), int64(kvHeads), int64(headDim), int64(ldQ), int64(ldKV), scale, causal, dtype)
}

// DocumentStarts calls cuda_document_starts.
//
// Where the documents of packed sequences begin. Token t of a sequence belongs to the document that begins behind the
// last separator before t, or with the sequence: starts[t] is that place, positions[t] = t - starts[t]. A separator is
// the last token of its document.
//
//   - ids, in i32 [batch, length]: tokens of the sequences
//   - starts, out i32 [batch, length]: first token of each token's document, for flash_attention
//   - positions, out i32 [batch, length]: place of each token in its document, for rope_qk
//   - separator: id of the token that ends a document
func DocumentStarts(ids, starts, positions *Tensor, separator int32) error {
	check := begin("document_starts", "batch and length from ids")
	if !check.required("ids", ids, 2, dense) ||
		!check.required("starts", starts, 2, dense) ||
		!check.required("positions", positions, 2, dense) {
		return check.err
	}
	check.same(named{"ids", ids}, named{"starts", starts}, named{"positions", positions})
	batch := ids.extent(2, 0)
	length := ids.extent(2, 1)
	check.dtype("ids", ids, cuda.I32)
	check.dtype("starts", starts, cuda.I32)
	check.dtype("positions", positions, cuda.I32)
	check.shape("ids", ids, "[batch, length]", batch, length)
	check.shape("starts", starts, "[batch, length]", batch, length)
	check.shape("positions", positions, "[batch, length]", batch, length)
	if check.err != nil {
		return check.err
	}
	return check.ctx.DocumentStarts(ids.memory(), starts.memory(), positions.memory(), int64(batch), int64(length),
		separator)
}

// AttentionDecode calls cuda_attention_decode.
//
// Attention of one new query a sequence over its cache, split over the keys. Sequence b sees its first lengths[b] keys.
// (Dao et al. 2023, "Flash-Decoding")
//
//   - q, in dtype [batch:ld_q, heads, head_dim]: queries
//   - kCache, in dtype [batch, capacity, kv_heads, head_dim]: keys
//   - vCache, in dtype [batch, capacity, kv_heads, head_dim]: values
//   - lengths, in i32 [batch]: keys to see, 0 .. capacity
//   - out, out dtype [batch, heads, head_dim]: output
//   - scale, usually 1/sqrt(head_dim): factor of the products; must be finite
func AttentionDecode(q, kCache, vCache, lengths, out *Tensor, scale float32) error {
	check := begin("attention_decode", "batch and heads and head_dim from q, capacity and kv_heads from k_cache")
	if !check.required("q", q, 3, strided) ||
		!check.required("k_cache", kCache, 4, dense) ||
		!check.required("v_cache", vCache, 4, dense) ||
		!check.required("lengths", lengths, 1, dense) ||
		!check.required("out", out, 3, dense) {
		return check.err
	}
	check.same(named{"q", q}, named{"out", out})
	check.same(named{"k_cache", kCache}, named{"v_cache", vCache})
	check.folds("batch", ranked{named{"q", q}, 3}, ranked{named{"k_cache", kCache}, 4},
		ranked{named{"lengths", lengths}, 1})
	batch := q.extent(3, 0)
	heads := q.extent(3, 1)
	headDim := q.extent(3, 2)
	capacity := kCache.extent(4, 1)
	kvHeads := kCache.extent(4, 2)
	dtype := q.dtype
	check.dtype("k_cache", kCache, dtype)
	check.dtype("v_cache", vCache, dtype)
	check.dtype("out", out, dtype)
	check.dtype("lengths", lengths, cuda.I32)
	check.shape("q", q, "[batch:ld_q, heads, head_dim]", batch, heads, headDim)
	check.shape("k_cache", kCache, "[batch, capacity, kv_heads, head_dim]", batch, capacity, kvHeads, headDim)
	check.shape("v_cache", vCache, "[batch, capacity, kv_heads, head_dim]", batch, capacity, kvHeads, headDim)
	check.shape("lengths", lengths, "[batch]", batch)
	check.shape("out", out, "[batch, heads, head_dim]", batch, heads, headDim)
	ldQ := q.stride(3)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AttentionDecode(q.memory(), kCache.memory(), vCache.memory(), lengths.memory(), out.memory(),
		int64(batch), int64(capacity), int64(heads), int64(kvHeads), int64(headDim), int64(ldQ), scale, dtype)
}

// FlashAttentionPaged calls cuda_flash_attention_paged.
//
// Causal attention of new tokens over paged caches. Tokens offsets[b] .. offsets[b+1]-1 are the last of the lengths[b]
// tokens of sequence b, whose keys and values are in its pages already (kv_append_paged): row j of them is row j mod
// 128 of page page_table[b][j / 128]. Each token sees those before it and itself. A token's result depends on neither
// the other tokens of the call nor on how many there are: the same bits as attention_decode_paged. (Kwon et al. 2023,
// "PagedAttention"; Dao 2023, "FlashAttention-2", algorithm 1)
//
//   - q, in dtype [tokens:ld_q, heads, head_dim]: queries
//   - kPages, in u8 [pages, page_bytes]: keys; a page is [kv_heads, 128, head_dim], each row of head_dim in `format`
//   - vPages, in u8 [pages, page_bytes]: values, laid out as the keys
//   - offsets, in i32 [batch+1]: first token of each sequence; offsets[0] = 0, never falling, the last at most `tokens`
//   - lengths, in i32 [batch]: rows of each sequence's cache, its new tokens included, at most 128 * max_pages
//   - pageTable, in i32 [batch, max_pages]: pages of each sequence, 0 .. pages-1 where rows are seen; others are not
//     read
//   - sinks, in f32 [heads], may be nil: a score of each head that has no key, or null for none
//   - out, out dtype [tokens, heads, head_dim]: output; rows from offsets[batch] on are not written
//   - kvHeads: key and value heads
//   - scale, usually 1/sqrt(head_dim): factor of the products; must be finite
//   - window, usually 0: most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
//   - softcap, usually 0: bound of the scores, or 0 for none; must be finite and at least 0
//   - format, usually NNCUDA_FORMAT_F16: NNCUDA_FORMAT_*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
func FlashAttentionPaged(q, kPages, vPages, offsets, lengths, pageTable, sinks, out *Tensor, kvHeads int, scale float32,
	window int64, softcap float32, format cuda.Format) error {
	check := begin("flash_attention_paged",
		"tokens and heads and head_dim from q, pages and page_bytes from k_pages, batch from lengths, max_pages from page_table")
	if !check.required("q", q, 3, strided) ||
		!check.required("k_pages", kPages, 2, dense) ||
		!check.required("v_pages", vPages, 2, dense) ||
		!check.required("offsets", offsets, 1, dense) ||
		!check.required("lengths", lengths, 1, dense) ||
		!check.required("page_table", pageTable, 2, dense) ||
		!check.optional("sinks", sinks, 1, dense) ||
		!check.required("out", out, 3, dense) {
		return check.err
	}
	check.size("kv_heads", kvHeads)
	check.same(named{"q", q}, named{"out", out})
	check.same(named{"k_pages", kPages}, named{"v_pages", vPages})
	check.folds("batch", ranked{named{"lengths", lengths}, 1}, ranked{named{"page_table", pageTable}, 2})
	check.unfolded("sinks", sinks, 1, "[heads]", "heads", "q")
	tokens := q.extent(3, 0)
	heads := q.extent(3, 1)
	headDim := q.extent(3, 2)
	pages := kPages.extent(2, 0)
	pageBytes := kPages.extent(2, 1)
	batch := lengths.extent(1, 0)
	maxPages := pageTable.extent(2, 1)
	dtype := q.dtype
	check.dtype("out", out, dtype)
	check.dtype("k_pages", kPages, cuda.U8)
	check.dtype("v_pages", vPages, cuda.U8)
	check.dtype("offsets", offsets, cuda.I32)
	check.dtype("lengths", lengths, cuda.I32)
	check.dtype("page_table", pageTable, cuda.I32)
	check.dtype("sinks", sinks, cuda.F32)
	check.shape("q", q, "[tokens:ld_q, heads, head_dim]", tokens, heads, headDim)
	check.shape("k_pages", kPages, "[pages, page_bytes]", pages, pageBytes)
	check.shape("v_pages", vPages, "[pages, page_bytes]", pages, pageBytes)
	check.shape("offsets", offsets, "[batch+1]", batch+1)
	check.shape("lengths", lengths, "[batch]", batch)
	check.shape("page_table", pageTable, "[batch, max_pages]", batch, maxPages)
	check.shape("sinks", sinks, "[heads]", heads)
	check.shape("out", out, "[tokens, heads, head_dim]", tokens, heads, headDim)
	ldQ := q.stride(3)
	if check.err != nil {
		return check.err
	}
	return check.ctx.FlashAttentionPaged(q.memory(), kPages.memory(), vPages.memory(), offsets.memory(),
		lengths.memory(), pageTable.memory(), sinks.memory(), out.memory(), int64(tokens), int64(batch),
		int64(maxPages), int64(pages), int64(heads), int64(kvHeads), int64(headDim), int64(ldQ), int64(pageBytes),
		scale, window, softcap, format, dtype)
}

// AttentionDecodePaged calls cuda_attention_decode_paged.
//
// Attention of one new query a sequence over its pages, split over the keys. Sequence b sees its first lengths[b] rows,
// and gives zeros when it has none. (Dao et al. 2023, "Flash-Decoding"; Kwon et al. 2023, "PagedAttention")
//
//   - q, in dtype [batch:ld_q, heads, head_dim]: queries
//   - kPages, in u8 [pages, page_bytes]: keys; a page is [kv_heads, 128, head_dim], each row of head_dim in `format`
//   - vPages, in u8 [pages, page_bytes]: values, laid out as the keys
//   - lengths, in i32 [batch]: rows to see, 0 .. 128 * max_pages
//   - pageTable, in i32 [batch, max_pages]: pages of each sequence, 0 .. pages-1 where rows are seen; others are not
//     read
//   - sinks, in f32 [heads], may be nil: a score of each head that has no key, or null for none
//   - out, out dtype [batch, heads, head_dim]: output
//   - kvHeads: key and value heads
//   - scale, usually 1/sqrt(head_dim): factor of the products; must be finite
//   - window, usually 0: most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
//   - softcap, usually 0: bound of the scores, or 0 for none; must be finite and at least 0
//   - format, usually NNCUDA_FORMAT_F16: NNCUDA_FORMAT_*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
func AttentionDecodePaged(q, kPages, vPages, lengths, pageTable, sinks, out *Tensor, kvHeads int, scale float32,
	window int64, softcap float32, format cuda.Format) error {
	check := begin("attention_decode_paged",
		"batch and heads and head_dim from q, pages and page_bytes from k_pages, max_pages from page_table")
	if !check.required("q", q, 3, strided) ||
		!check.required("k_pages", kPages, 2, dense) ||
		!check.required("v_pages", vPages, 2, dense) ||
		!check.required("lengths", lengths, 1, dense) ||
		!check.required("page_table", pageTable, 2, dense) ||
		!check.optional("sinks", sinks, 1, dense) ||
		!check.required("out", out, 3, dense) {
		return check.err
	}
	check.size("kv_heads", kvHeads)
	check.same(named{"q", q}, named{"out", out})
	check.same(named{"k_pages", kPages}, named{"v_pages", vPages})
	check.folds("batch", ranked{named{"q", q}, 3}, ranked{named{"lengths", lengths}, 1},
		ranked{named{"page_table", pageTable}, 2})
	check.unfolded("sinks", sinks, 1, "[heads]", "heads", "q")
	batch := q.extent(3, 0)
	heads := q.extent(3, 1)
	headDim := q.extent(3, 2)
	pages := kPages.extent(2, 0)
	pageBytes := kPages.extent(2, 1)
	maxPages := pageTable.extent(2, 1)
	dtype := q.dtype
	check.dtype("out", out, dtype)
	check.dtype("k_pages", kPages, cuda.U8)
	check.dtype("v_pages", vPages, cuda.U8)
	check.dtype("lengths", lengths, cuda.I32)
	check.dtype("page_table", pageTable, cuda.I32)
	check.dtype("sinks", sinks, cuda.F32)
	check.shape("q", q, "[batch:ld_q, heads, head_dim]", batch, heads, headDim)
	check.shape("k_pages", kPages, "[pages, page_bytes]", pages, pageBytes)
	check.shape("v_pages", vPages, "[pages, page_bytes]", pages, pageBytes)
	check.shape("lengths", lengths, "[batch]", batch)
	check.shape("page_table", pageTable, "[batch, max_pages]", batch, maxPages)
	check.shape("sinks", sinks, "[heads]", heads)
	check.shape("out", out, "[batch, heads, head_dim]", batch, heads, headDim)
	ldQ := q.stride(3)
	if check.err != nil {
		return check.err
	}
	return check.ctx.AttentionDecodePaged(q.memory(), kPages.memory(), vPages.memory(), lengths.memory(),
		pageTable.memory(), sinks.memory(), out.memory(), int64(batch), int64(maxPages), int64(pages), int64(heads),
		int64(kvHeads), int64(headDim), int64(ldQ), int64(pageBytes), scale, window, softcap, format, dtype)
}

// AttentionStepPaged calls cuda_attention_step_paged.
//
// A layer's attention in a decoding step, in one call: rope_qk of one new query and key a sequence, kv_append_paged of
// the key and its value, then attention_decode_paged over the lengths[b] rows that sequence b has with them; the same
// bits as those three. q and k stay as they are. Two sequences must not write to the same row, nor one see a row that
// another writes: that is the caller's duty, and what they give otherwise is open. (Su et al. 2021, "RoFormer"; Kwon et
// al. 2023, "PagedAttention"; Dao et al. 2023, "Flash-Decoding")
//
//   - q, in dtype [batch:ld_q, heads, head_dim]: queries, not yet rotated
//   - k, in dtype [batch:ld_kv, kv_heads, head_dim]: new keys, not yet rotated
//   - v, in dtype [batch:ld_kv, kv_heads, head_dim]: new values
//   - cosine, in f32 [max_position, head_dim/2]: from rope_freqs
//   - sine, in f32 [max_position, head_dim/2]: from rope_freqs
//   - positions, in i32 [batch]: rows of the tables, 0 .. max_position-1
//   - lengths, in i32 [batch]: rows of each sequence's cache, the new one included, 1 .. 128 * max_pages
//   - pageTable, in i32 [batch, max_pages]: pages of each sequence, 0 .. pages-1 where rows are seen; others are not
//     read
//   - sinks, in f32 [heads], may be nil: a score of each head that has no key, or null for none
//   - kPages, inout u8 [pages, page_bytes]: keys; a page is [kv_heads, 128, head_dim], each row of head_dim in `format`
//   - vPages, inout u8 [pages, page_bytes]: values, laid out as the keys
//   - out, out dtype [batch, heads, head_dim]: output
//   - scale, usually 1/sqrt(head_dim): factor of the products; must be finite
//   - window, usually 0: most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
//   - softcap, usually 0: bound of the scores, or 0 for none; must be finite and at least 0
//   - layout, usually NNCUDA_ROPE_HALF: NNCUDA_ROPE_*
//   - format, usually NNCUDA_FORMAT_F16: NNCUDA_FORMAT_*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
func AttentionStepPaged(q, k, v, cosine, sine, positions, lengths, pageTable, sinks, kPages, vPages, out *Tensor,
	scale float32, window int64, softcap float32, layout cuda.RopeLayout, format cuda.Format) error {
	check := begin("attention_step_paged",
		"batch and heads and head_dim from q, kv_heads from k, max_position from cosine, max_pages from page_table, pages and page_bytes from k_pages")
	if !check.required("q", q, 3, strided) ||
		!check.required("k", k, 3, strided) ||
		!check.required("v", v, 3, strided) ||
		!check.required("cosine", cosine, 2, dense) ||
		!check.required("sine", sine, 2, dense) ||
		!check.required("positions", positions, 1, dense) ||
		!check.required("lengths", lengths, 1, dense) ||
		!check.required("page_table", pageTable, 2, dense) ||
		!check.optional("sinks", sinks, 1, dense) ||
		!check.required("k_pages", kPages, 2, dense) ||
		!check.required("v_pages", vPages, 2, dense) ||
		!check.required("out", out, 3, dense) {
		return check.err
	}
	check.same(named{"q", q}, named{"out", out})
	check.same(named{"k", k}, named{"v", v})
	check.same(named{"cosine", cosine}, named{"sine", sine})
	check.same(named{"positions", positions}, named{"lengths", lengths})
	check.same(named{"k_pages", kPages}, named{"v_pages", vPages})
	check.folds("batch", ranked{named{"q", q}, 3}, ranked{named{"k", k}, 3}, ranked{named{"positions", positions}, 1},
		ranked{named{"page_table", pageTable}, 2})
	check.unfolded("sinks", sinks, 1, "[heads]", "heads", "q")
	batch := q.extent(3, 0)
	heads := q.extent(3, 1)
	headDim := q.extent(3, 2)
	kvHeads := k.extent(3, 1)
	maxPosition := cosine.extent(2, 0)
	maxPages := pageTable.extent(2, 1)
	pages := kPages.extent(2, 0)
	pageBytes := kPages.extent(2, 1)
	dtype := q.dtype
	check.dtype("k", k, dtype)
	check.dtype("v", v, dtype)
	check.dtype("out", out, dtype)
	check.dtype("cosine", cosine, cuda.F32)
	check.dtype("sine", sine, cuda.F32)
	check.dtype("positions", positions, cuda.I32)
	check.dtype("lengths", lengths, cuda.I32)
	check.dtype("page_table", pageTable, cuda.I32)
	check.dtype("sinks", sinks, cuda.F32)
	check.dtype("k_pages", kPages, cuda.U8)
	check.dtype("v_pages", vPages, cuda.U8)
	check.shape("q", q, "[batch:ld_q, heads, head_dim]", batch, heads, headDim)
	check.shape("k", k, "[batch:ld_kv, kv_heads, head_dim]", batch, kvHeads, headDim)
	check.shape("v", v, "[batch:ld_kv, kv_heads, head_dim]", batch, kvHeads, headDim)
	check.shape("cosine", cosine, "[max_position, head_dim/2]", maxPosition, headDim/2)
	check.shape("sine", sine, "[max_position, head_dim/2]", maxPosition, headDim/2)
	check.shape("positions", positions, "[batch]", batch)
	check.shape("lengths", lengths, "[batch]", batch)
	check.shape("page_table", pageTable, "[batch, max_pages]", batch, maxPages)
	check.shape("sinks", sinks, "[heads]", heads)
	check.shape("k_pages", kPages, "[pages, page_bytes]", pages, pageBytes)
	check.shape("v_pages", vPages, "[pages, page_bytes]", pages, pageBytes)
	check.shape("out", out, "[batch, heads, head_dim]", batch, heads, headDim)
	ldQ := q.stride(3)
	ldKV := check.strides("ld_kv", 3, named{"k", k}, named{"v", v})
	if check.err != nil {
		return check.err
	}
	return check.ctx.AttentionStepPaged(q.memory(), k.memory(), v.memory(), cosine.memory(), sine.memory(),
		positions.memory(), lengths.memory(), pageTable.memory(), sinks.memory(), kPages.memory(), vPages.memory(),
		out.memory(), int64(batch), int64(maxPages), int64(pages), int64(heads), int64(kvHeads), int64(headDim),
		int64(maxPosition), int64(ldQ), int64(ldKV), int64(pageBytes), scale, window, softcap, layout, format, dtype)
}
