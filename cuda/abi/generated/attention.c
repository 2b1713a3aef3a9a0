/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/attention_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_attention_scores(nncuda_ctx *ctx, const void *q, const void *k, void *scores, int64_t batch,
    int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, float scale, int32_t causal,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_attention_scores);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_flag(&call, "causal", causal);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "q_len", q_len);
  nn_call_size(&call, "kv_len", kv_len);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, (kv_heads <= 0 || heads % kv_heads == 0), NNCUDA_ERROR_INVALID_SIZE,
      "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads, (long long)kv_heads);
  nn_call_require(&call, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
      "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
  nn_call_require(&call, isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite", (double)scale);
  nn_call_tensor(&call, NN_ROLE_IN, "q", q, dtype, NULL, 0, NN_SHAPE("[batch, q_len, heads, head_dim]", batch, q_len,
      heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "k", k, dtype, NULL, 0, NN_SHAPE("[batch, kv_len, kv_heads, head_dim]", batch,
      kv_len, kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "scores", scores, dtype, NULL, 0, NN_SHAPE("[batch, heads, q_len, kv_len]", batch,
      heads, q_len, kv_len));
  const nn_attention_scores_args args = {q, k, scores, {batch, q_len, kv_len, heads, kv_heads, head_dim}, scale, causal,
      dtype};
  check_attention_scores(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_attention_output(nncuda_ctx *ctx, const void *probs, const void *v, void *out, int64_t batch,
    int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_attention_output);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "q_len", q_len);
  nn_call_size(&call, "kv_len", kv_len);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, (kv_heads <= 0 || heads % kv_heads == 0), NNCUDA_ERROR_INVALID_SIZE,
      "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads, (long long)kv_heads);
  nn_call_require(&call, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
      "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
  nn_call_tensor(&call, NN_ROLE_IN, "probs", probs, dtype, NULL, 0, NN_SHAPE("[batch, heads, q_len, kv_len]", batch,
      heads, q_len, kv_len));
  nn_call_tensor(&call, NN_ROLE_IN, "v", v, dtype, NULL, 0, NN_SHAPE("[batch, kv_len, kv_heads, head_dim]", batch,
      kv_len, kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "out", out, dtype, NULL, 0, NN_SHAPE("[batch, q_len, heads, head_dim]", batch,
      q_len, heads, head_dim));
  const nn_attention_output_args args = {probs, v, out, {batch, q_len, kv_len, heads, kv_heads, head_dim}, dtype};
  check_attention_output(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_flash_attention(nncuda_ctx *ctx, const void *q, const void *k, const void *v,
    const int32_t *starts, void *out, float *lse, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads,
    int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t ld_kv, float scale, int32_t causal, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_flash_attention);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_flag(&call, "causal", causal);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "q_len", q_len);
  nn_call_size(&call, "kv_len", kv_len);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, (kv_heads <= 0 || heads % kv_heads == 0), NNCUDA_ERROR_INVALID_SIZE,
      "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads, (long long)kv_heads);
  nn_call_require(&call, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
      "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
  nn_call_require(&call, isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite", (double)scale);
  nn_call_tensor(&call, NN_ROLE_IN, "q", q, dtype, "ld_q", ld_q, NN_SHAPE("[batch*q_len, heads, head_dim]",
      nn_mul(batch, q_len), heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "k", k, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch*kv_len, kv_heads, head_dim]",
      nn_mul(batch, kv_len), kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "v", v, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch*kv_len, kv_heads, head_dim]",
      nn_mul(batch, kv_len), kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "starts", starts, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, q_len]",
      batch, q_len));
  nn_call_tensor(&call, NN_ROLE_OUT, "out", out, dtype, NULL, 0, NN_SHAPE("[batch*q_len, heads, head_dim]",
      nn_mul(batch, q_len), heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "lse", lse, NNCUDA_F32, NULL, 0,
      NN_SHAPE("[batch, heads, q_len]", batch, heads, q_len));
  const nn_flash_attention_args args = {q, k, v, starts, out, lse, {batch, q_len, kv_len, heads, kv_heads, head_dim},
      ld_q, ld_kv, scale, causal, dtype};
  check_flash_attention(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_flash_attention_backward(nncuda_ctx *ctx, const void *dout, const void *q, const void *k,
    const void *v, const void *out, const float *lse, const int32_t *starts, void *dq, void *dk, void *dv,
    int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q,
    int64_t ld_kv, float scale, int32_t causal, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_flash_attention_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_flag(&call, "causal", causal);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "q_len", q_len);
  nn_call_size(&call, "kv_len", kv_len);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, (kv_heads <= 0 || heads % kv_heads == 0), NNCUDA_ERROR_INVALID_SIZE,
      "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads, (long long)kv_heads);
  nn_call_require(&call, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
      "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
  nn_call_require(&call, isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite", (double)scale);
  nn_call_tensor(&call, NN_ROLE_IN, "dout", dout, dtype, NULL, 0, NN_SHAPE("[batch*q_len, heads, head_dim]",
      nn_mul(batch, q_len), heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "q", q, dtype, "ld_q", ld_q, NN_SHAPE("[batch*q_len, heads, head_dim]",
      nn_mul(batch, q_len), heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "k", k, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch*kv_len, kv_heads, head_dim]",
      nn_mul(batch, kv_len), kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "v", v, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch*kv_len, kv_heads, head_dim]",
      nn_mul(batch, kv_len), kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "out", out, dtype, NULL, 0, NN_SHAPE("[batch*q_len, heads, head_dim]", nn_mul(batch,
      q_len), heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "lse", lse, NNCUDA_F32, NULL, 0, NN_SHAPE("[batch, heads, q_len]", batch, heads,
      q_len));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "starts", starts, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, q_len]",
      batch, q_len));
  nn_call_tensor(&call, NN_ROLE_OUT, "dq", dq, dtype, "ld_q", ld_q, NN_SHAPE("[batch*q_len, heads, head_dim]",
      nn_mul(batch, q_len), heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "dk", dk, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch*kv_len, kv_heads, head_dim]",
      nn_mul(batch, kv_len), kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "dv", dv, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch*kv_len, kv_heads, head_dim]",
      nn_mul(batch, kv_len), kv_heads, head_dim));
  const nn_flash_attention_backward_args args = {dout, q, k, v, out, lse, starts, dq, dk, dv, {batch, q_len, kv_len,
      heads, kv_heads, head_dim}, ld_q, ld_kv, scale, causal, dtype};
  check_flash_attention_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_document_starts(nncuda_ctx *ctx, const int32_t *ids, int32_t *starts, int32_t *positions,
    int64_t batch, int64_t length, int32_t separator) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_document_starts);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "length", length);
  nn_call_require(&call, length <= 2147483647, NNCUDA_ERROR_INVALID_SIZE,
      "length is %lld; it must be at most 2147483647", (long long)length);
  nn_call_tensor(&call, NN_ROLE_IN, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, length]", batch, length));
  nn_call_tensor(&call, NN_ROLE_OUT, "starts", starts, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, length]", batch, length));
  nn_call_tensor(&call, NN_ROLE_OUT, "positions", positions, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, length]", batch,
      length));
  const nn_document_starts_args args = {ids, starts, positions, batch, length, separator};
  check_document_starts(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_attention_decode(nncuda_ctx *ctx, const void *q, const void *k_cache, const void *v_cache,
    const int32_t *lengths, void *out, int64_t batch, int64_t capacity, int64_t heads, int64_t kv_heads,
    int64_t head_dim, int64_t ld_q, float scale, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_attention_decode);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "capacity", capacity);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, (kv_heads <= 0 || heads % kv_heads == 0), NNCUDA_ERROR_INVALID_SIZE,
      "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads, (long long)kv_heads);
  nn_call_require(&call, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
      "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
  nn_call_require(&call, isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite", (double)scale);
  nn_call_tensor(&call, NN_ROLE_IN, "q", q, dtype, "ld_q", ld_q, NN_SHAPE("[batch, heads, head_dim]", batch, heads,
      head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "k_cache", k_cache, dtype, NULL, 0,
      NN_SHAPE("[batch, capacity, kv_heads, head_dim]", batch, capacity, kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "v_cache", v_cache, dtype, NULL, 0,
      NN_SHAPE("[batch, capacity, kv_heads, head_dim]", batch, capacity, kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "lengths", lengths, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch]", batch));
  nn_call_tensor(&call, NN_ROLE_OUT, "out", out, dtype, NULL, 0, NN_SHAPE("[batch, heads, head_dim]", batch, heads,
      head_dim));
  const nn_attention_decode_args args = {q, k_cache, v_cache, lengths, out, batch, capacity, heads, kv_heads, head_dim,
      ld_q, scale, dtype};
  check_attention_decode(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_flash_attention_paged(nncuda_ctx *ctx, const void *q, const void *k_pages, const void *v_pages,
    const int32_t *offsets, const int32_t *lengths, const int32_t *page_table, const float *sinks, void *out,
    int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim,
    int64_t ld_q, int64_t page_bytes, float scale, int64_t window, float softcap, int32_t format, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_flash_attention_paged);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "max_pages", max_pages);
  nn_call_size(&call, "pages", pages);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_size(&call, "page_bytes", page_bytes);
  nn_call_require(&call, (kv_heads <= 0 || heads % kv_heads == 0), NNCUDA_ERROR_INVALID_SIZE,
      "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads, (long long)kv_heads);
  nn_call_require(&call, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
      "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
  nn_call_require(&call, isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite", (double)scale);
  nn_call_require(&call, window == 0 || (window >= 1), NNCUDA_ERROR_INVALID_VALUE,
      "window is %lld; it must be at least 1, or 0 for all", (long long)window);
  nn_call_require(&call, isfinite(softcap) && softcap >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "softcap is %g; it must be finite and at least 0", (double)softcap);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_Q8_0, NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_E4M3 (20) or NNCUDA_FORMAT_Q8_0 (14)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "q", q, dtype, "ld_q", ld_q, NN_SHAPE("[tokens, heads, head_dim]", tokens, heads,
      head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "k_pages", k_pages, NN_U8, NULL, 0, NN_SHAPE("[pages, page_bytes]", pages,
      page_bytes));
  nn_call_tensor(&call, NN_ROLE_IN, "v_pages", v_pages, NN_U8, NULL, 0, NN_SHAPE("[pages, page_bytes]", pages,
      page_bytes));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch+1]", nn_add(batch, 1)));
  nn_call_tensor(&call, NN_ROLE_IN, "lengths", lengths, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch]", batch));
  nn_call_tensor(&call, NN_ROLE_IN, "page_table", page_table, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, max_pages]", batch,
      max_pages));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "sinks", sinks, NNCUDA_F32, NULL, 0, NN_SHAPE("[heads]", heads));
  nn_call_tensor(&call, NN_ROLE_OUT, "out", out, dtype, NULL, 0, NN_SHAPE("[tokens, heads, head_dim]", tokens, heads,
      head_dim));
  const nn_flash_attention_paged_args args = {q, k_pages, v_pages, offsets, lengths, page_table, sinks, out, tokens,
      batch, max_pages, pages, heads, kv_heads, head_dim, ld_q, page_bytes, scale, window, softcap, format, dtype};
  check_flash_attention_paged(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_attention_decode_paged(nncuda_ctx *ctx, const void *q, const void *k_pages, const void *v_pages,
    const int32_t *lengths, const int32_t *page_table, const float *sinks, void *out, int64_t batch, int64_t max_pages,
    int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t page_bytes, float scale,
    int64_t window, float softcap, int32_t format, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_attention_decode_paged);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "max_pages", max_pages);
  nn_call_size(&call, "pages", pages);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_size(&call, "page_bytes", page_bytes);
  nn_call_require(&call, (kv_heads <= 0 || heads % kv_heads == 0), NNCUDA_ERROR_INVALID_SIZE,
      "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads, (long long)kv_heads);
  nn_call_require(&call, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
      "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
  nn_call_require(&call, isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite", (double)scale);
  nn_call_require(&call, window == 0 || (window >= 1), NNCUDA_ERROR_INVALID_VALUE,
      "window is %lld; it must be at least 1, or 0 for all", (long long)window);
  nn_call_require(&call, isfinite(softcap) && softcap >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "softcap is %g; it must be finite and at least 0", (double)softcap);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_Q8_0, NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_E4M3 (20) or NNCUDA_FORMAT_Q8_0 (14)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "q", q, dtype, "ld_q", ld_q, NN_SHAPE("[batch, heads, head_dim]", batch, heads,
      head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "k_pages", k_pages, NN_U8, NULL, 0, NN_SHAPE("[pages, page_bytes]", pages,
      page_bytes));
  nn_call_tensor(&call, NN_ROLE_IN, "v_pages", v_pages, NN_U8, NULL, 0, NN_SHAPE("[pages, page_bytes]", pages,
      page_bytes));
  nn_call_tensor(&call, NN_ROLE_IN, "lengths", lengths, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch]", batch));
  nn_call_tensor(&call, NN_ROLE_IN, "page_table", page_table, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, max_pages]", batch,
      max_pages));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "sinks", sinks, NNCUDA_F32, NULL, 0, NN_SHAPE("[heads]", heads));
  nn_call_tensor(&call, NN_ROLE_OUT, "out", out, dtype, NULL, 0, NN_SHAPE("[batch, heads, head_dim]", batch, heads,
      head_dim));
  const nn_attention_decode_paged_parameters given = {q, k_pages, v_pages, lengths, page_table, sinks, out, batch,
      max_pages, pages, heads, kv_heads, head_dim, ld_q, page_bytes, scale, window, softcap, format, dtype};
  const nn_flash_attention_paged_args args = lower_attention_decode_paged(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_attention_step_paged(nncuda_ctx *ctx, const void *q, const void *k, const void *v,
    const float *cosine, const float *sine, const int32_t *positions, const int32_t *lengths, const int32_t *page_table,
    const float *sinks, void *k_pages, void *v_pages, void *out, int64_t batch, int64_t max_pages, int64_t pages,
    int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t max_position, int64_t ld_q, int64_t ld_kv,
    int64_t page_bytes, float scale, int64_t window, float softcap, int32_t layout, int32_t format, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_attention_step_paged);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "max_pages", max_pages);
  nn_call_size(&call, "pages", pages);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_size(&call, "max_position", max_position);
  nn_call_size(&call, "page_bytes", page_bytes);
  nn_call_require(&call, (kv_heads <= 0 || heads % kv_heads == 0), NNCUDA_ERROR_INVALID_SIZE,
      "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads, (long long)kv_heads);
  nn_call_require(&call, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
      "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
  nn_call_require(&call, isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite", (double)scale);
  nn_call_require(&call, window == 0 || (window >= 1), NNCUDA_ERROR_INVALID_VALUE,
      "window is %lld; it must be at least 1, or 0 for all", (long long)window);
  nn_call_require(&call, isfinite(softcap) && softcap >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "softcap is %g; it must be finite and at least 0", (double)softcap);
  nn_call_require(&call, layout == NNCUDA_ROPE_HALF || layout == NNCUDA_ROPE_INTERLEAVED, NNCUDA_ERROR_INVALID_VALUE,
      "layout is %d; it must be NNCUDA_ROPE_HALF (0) or NNCUDA_ROPE_INTERLEAVED (1)", layout);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_Q8_0, NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_E4M3 (20) or NNCUDA_FORMAT_Q8_0 (14)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "q", q, dtype, "ld_q", ld_q, NN_SHAPE("[batch, heads, head_dim]", batch, heads,
      head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "k", k, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch, kv_heads, head_dim]", batch,
      kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "v", v, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch, kv_heads, head_dim]", batch,
      kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "cosine", cosine, NNCUDA_F32, NULL, 0, NN_SHAPE("[max_position, head_dim/2]",
      max_position, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_IN, "sine", sine, NNCUDA_F32, NULL, 0, NN_SHAPE("[max_position, head_dim/2]",
      max_position, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_IN, "positions", positions, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch]", batch));
  nn_call_tensor(&call, NN_ROLE_IN, "lengths", lengths, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch]", batch));
  nn_call_tensor(&call, NN_ROLE_IN, "page_table", page_table, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, max_pages]", batch,
      max_pages));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "sinks", sinks, NNCUDA_F32, NULL, 0, NN_SHAPE("[heads]", heads));
  nn_call_tensor(&call, NN_ROLE_INOUT, "k_pages", k_pages, NN_U8, NULL, 0, NN_SHAPE("[pages, page_bytes]", pages,
      page_bytes));
  nn_call_tensor(&call, NN_ROLE_INOUT, "v_pages", v_pages, NN_U8, NULL, 0, NN_SHAPE("[pages, page_bytes]", pages,
      page_bytes));
  nn_call_tensor(&call, NN_ROLE_OUT, "out", out, dtype, NULL, 0, NN_SHAPE("[batch, heads, head_dim]", batch, heads,
      head_dim));
  const nn_attention_step_paged_args args = {q, k, v, cosine, sine, positions, lengths, page_table, sinks, k_pages,
      v_pages, out, batch, max_pages, pages, heads, kv_heads, head_dim, max_position, ld_q, ld_kv, page_bytes, scale,
      window, softcap, layout, format, dtype};
  check_attention_step_paged(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
