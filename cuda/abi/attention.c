#include "attention.h"

#include "format_check.h"

#include <math.h>

/* (query, key) pairs that meet: with the causal mask query i sees i + kv_len - q_len + 1 keys. */
static double attention_pairs(int64_t q_len, int64_t kv_len, int32_t causal) {
  const double q = (double)q_len, kv = (double)kv_len;
  if (!causal) {
    return q * kv;
  }
  return q_len <= kv_len ? q * kv - q * (q - 1) / 2 : kv * (kv + 1) / 2;
}

static void check_heads(nn_call *checked, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  nn_call_size(checked, "heads", heads);
  nn_call_size(checked, "kv_heads", kv_heads);
  nn_call_size(checked, "head_dim", head_dim);
  nn_call_require(checked, kv_heads <= 0 || heads % kv_heads == 0, NNCUDA_ERROR_INVALID_SIZE,
                  "heads is %lld; it must be a multiple of kv_heads, which is %lld", (long long)heads,
                  (long long)kv_heads);
  nn_call_require(checked, head_dim % 8 == 0 && head_dim <= 256, NNCUDA_ERROR_INVALID_SIZE,
                  "head_dim is %lld; it must be a multiple of 8, at most 256", (long long)head_dim);
}

#define CHECK_SCALE(scale)                                                                                             \
  NN_REQUIRE(isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite", (double)(scale))

#define SHAPE {batch, q_len, kv_len, heads, kv_heads, head_dim}

int32_t cuda_attention_scores(nncuda_ctx *ctx, const void *q, const void *k, void *scores, int64_t batch, int64_t q_len,
                              int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, float scale,
                              int32_t causal, int32_t dtype) {
  NN_BEGIN(attention_scores);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(batch);
  NN_SIZE(q_len);
  NN_SIZE(kv_len);
  check_heads(&call, heads, kv_heads, head_dim);
  CHECK_SCALE(scale);
  NN_FLAG(causal);
  NN_IN(q, dtype, batch, q_len, heads, head_dim);
  NN_IN(k, dtype, batch, kv_len, kv_heads, head_dim);
  NN_OUT(scores, dtype, batch, heads, q_len, kv_len);
  NN_FLOPS(2.0 * (double)batch * (double)heads * (double)head_dim * attention_pairs(q_len, kv_len, causal));
  return NN_LAUNCH(nn_attention_scores_args, .q = q, .k = k, .scores = scores, .shape = SHAPE, .scale = scale,
                   .causal = causal, .dtype = dtype);
}

int32_t cuda_attention_output(nncuda_ctx *ctx, const void *probs, const void *v, void *out, int64_t batch,
                              int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim,
                              int32_t dtype) {
  NN_BEGIN(attention_output);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(batch);
  NN_SIZE(q_len);
  NN_SIZE(kv_len);
  check_heads(&call, heads, kv_heads, head_dim);
  NN_IN(probs, dtype, batch, heads, q_len, kv_len);
  NN_IN(v, dtype, batch, kv_len, kv_heads, head_dim);
  NN_OUT(out, dtype, batch, q_len, heads, head_dim);
  NN_FLOPS(2.0 * (double)batch * (double)heads * (double)head_dim * attention_pairs(q_len, kv_len, 0));
  return NN_LAUNCH(nn_attention_output_args, .probs = probs, .v = v, .out = out, .shape = SHAPE, .dtype = dtype);
}

int32_t cuda_flash_attention(nncuda_ctx *ctx, const void *q, const void *k, const void *v, void *out, float *lse,
                             int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads,
                             int64_t head_dim, int64_t ld_q, int64_t ld_kv, float scale, int32_t causal,
                             int32_t dtype) {
  NN_BEGIN(flash_attention);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(batch);
  NN_SIZE(q_len);
  NN_SIZE(kv_len);
  check_heads(&call, heads, kv_heads, head_dim);
  CHECK_SCALE(scale);
  NN_FLAG(causal);
  NN_TENSOR(NN_ROLE_IN, q, dtype, ld_q, nn_mul(batch, q_len), heads, head_dim);
  NN_TENSOR(NN_ROLE_IN, k, dtype, ld_kv, nn_mul(batch, kv_len), kv_heads, head_dim);
  NN_TENSOR(NN_ROLE_IN, v, dtype, ld_kv, nn_mul(batch, kv_len), kv_heads, head_dim);
  NN_OUT(out, dtype, nn_mul(batch, q_len), heads, head_dim);
  NN_OUT_OPT(lse, NNCUDA_F32, batch, heads, q_len);
  NN_FLOPS(4.0 * (double)batch * (double)heads * (double)head_dim * attention_pairs(q_len, kv_len, causal));
  return NN_LAUNCH(nn_flash_attention_args, .q = q, .k = k, .v = v, .out = out, .lse = lse, .shape = SHAPE,
                   .ld_q = ld_q, .ld_kv = ld_kv, .scale = scale, .causal = causal, .dtype = dtype);
}

int32_t cuda_flash_attention_backward(nncuda_ctx *ctx, const void *dout, const void *q, const void *k, const void *v,
                                      const void *out, const float *lse, void *dq, void *dk, void *dv, int64_t batch,
                                      int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim,
                                      int64_t ld_q, int64_t ld_kv, float scale, int32_t causal, int32_t dtype) {
  NN_BEGIN(flash_attention_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(batch);
  NN_SIZE(q_len);
  NN_SIZE(kv_len);
  check_heads(&call, heads, kv_heads, head_dim);
  CHECK_SCALE(scale);
  NN_FLAG(causal);
  NN_IN(dout, dtype, nn_mul(batch, q_len), heads, head_dim);
  NN_TENSOR(NN_ROLE_IN, q, dtype, ld_q, nn_mul(batch, q_len), heads, head_dim);
  NN_TENSOR(NN_ROLE_IN, k, dtype, ld_kv, nn_mul(batch, kv_len), kv_heads, head_dim);
  NN_TENSOR(NN_ROLE_IN, v, dtype, ld_kv, nn_mul(batch, kv_len), kv_heads, head_dim);
  NN_IN(out, dtype, nn_mul(batch, q_len), heads, head_dim);
  NN_IN(lse, NNCUDA_F32, batch, heads, q_len);
  NN_TENSOR(NN_ROLE_OUT, dq, dtype, ld_q, nn_mul(batch, q_len), heads, head_dim);
  NN_TENSOR(NN_ROLE_OUT, dk, dtype, ld_kv, nn_mul(batch, kv_len), kv_heads, head_dim);
  NN_TENSOR(NN_ROLE_OUT, dv, dtype, ld_kv, nn_mul(batch, kv_len), kv_heads, head_dim);
  NN_FLOPS(10.0 * (double)batch * (double)heads * (double)head_dim * attention_pairs(q_len, kv_len, causal));
  return NN_LAUNCH(nn_flash_attention_backward_args, .dout = dout, .q = q, .k = k, .v = v, .out = out, .lse = lse,
                   .dq = dq, .dk = dk, .dv = dv, .shape = SHAPE, .ld_q = ld_q, .ld_kv = ld_kv, .scale = scale,
                   .causal = causal, .dtype = dtype);
}

int32_t cuda_attention_decode(nncuda_ctx *ctx, const void *q, const void *k_cache, const void *v_cache,
                              const int32_t *lengths, void *out, int64_t batch, int64_t capacity, int64_t heads,
                              int64_t kv_heads, int64_t head_dim, int64_t ld_q, float scale, int32_t dtype) {
  NN_BEGIN(attention_decode);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(batch);
  NN_SIZE(capacity);
  check_heads(&call, heads, kv_heads, head_dim);
  CHECK_SCALE(scale);
  NN_TENSOR(NN_ROLE_IN, q, dtype, ld_q, batch, heads, head_dim);
  NN_IN(k_cache, dtype, batch, capacity, kv_heads, head_dim);
  NN_IN(v_cache, dtype, batch, capacity, kv_heads, head_dim);
  NN_IN(lengths, NNCUDA_I32, batch);
  NN_OUT(out, dtype, batch, heads, head_dim);
  NN_FLOPS(4.0 * (double)batch * (double)heads * (double)head_dim * (double)capacity); /* lengths are not read here */
  return NN_LAUNCH(nn_attention_decode_args, .q = q, .k_cache = k_cache, .v_cache = v_cache, .lengths = lengths,
                   .out = out, .batch = batch, .capacity = capacity, .heads = heads, .kv_heads = kv_heads,
                   .head_dim = head_dim, .ld_q = ld_q, .scale = scale, .dtype = dtype);
}

int32_t cuda_flash_attention_paged(nncuda_ctx *ctx, const void *q, const void *k_pages, const void *v_pages,
                                   const int32_t *offsets, const int32_t *lengths, const int32_t *page_table, void *out,
                                   int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages, int64_t heads,
                                   int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t page_bytes, float scale,
                                   int32_t format, int32_t dtype) {
  NN_BEGIN(flash_attention_paged);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(batch);
  NN_SIZE(max_pages);
  NN_SIZE(pages);
  check_heads(&call, heads, kv_heads, head_dim);
  NN_SIZE(page_bytes);
  nn_check_page(&call, format, kv_heads, head_dim, page_bytes);
  CHECK_SCALE(scale);
  NN_TENSOR(NN_ROLE_IN, q, dtype, ld_q, tokens, heads, head_dim);
  NN_IN(k_pages, NN_U8, pages, page_bytes);
  NN_IN(v_pages, NN_U8, pages, page_bytes);
  NN_IN(offsets, NNCUDA_I32, nn_add(batch, 1));
  NN_IN(lengths, NNCUDA_I32, batch);
  NN_IN(page_table, NNCUDA_I32, batch, max_pages);
  NN_OUT(out, dtype, tokens, heads, head_dim);
  NN_FLOPS(4.0 * (double)heads * (double)head_dim * attention_pairs(tokens, tokens, 1)); /* lengths are not read here */
  return NN_LAUNCH(nn_flash_attention_paged_args, .q = q, .k_pages = k_pages, .v_pages = v_pages, .offsets = offsets,
                   .lengths = lengths, .page_table = page_table, .out = out, .tokens = tokens, .batch = batch,
                   .max_pages = max_pages, .pages = pages, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim,
                   .ld_q = ld_q, .page_bytes = page_bytes, .scale = scale, .format = format, .dtype = dtype);
}

int32_t cuda_attention_decode_paged(nncuda_ctx *ctx, const void *q, const void *k_pages, const void *v_pages,
                                    const int32_t *lengths, const int32_t *page_table, void *out, int64_t batch,
                                    int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim,
                                    int64_t ld_q, int64_t page_bytes, float scale, int32_t format, int32_t dtype) {
  NN_BEGIN(attention_decode_paged);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(batch);
  NN_SIZE(max_pages);
  NN_SIZE(pages);
  check_heads(&call, heads, kv_heads, head_dim);
  NN_SIZE(page_bytes);
  nn_check_page(&call, format, kv_heads, head_dim, page_bytes);
  CHECK_SCALE(scale);
  NN_TENSOR(NN_ROLE_IN, q, dtype, ld_q, batch, heads, head_dim);
  NN_IN(k_pages, NN_U8, pages, page_bytes);
  NN_IN(v_pages, NN_U8, pages, page_bytes);
  NN_IN(lengths, NNCUDA_I32, batch);
  NN_IN(page_table, NNCUDA_I32, batch, max_pages);
  NN_OUT(out, dtype, batch, heads, head_dim);
  /* lengths are not read here */
  NN_FLOPS(4.0 * (double)batch * (double)heads * (double)head_dim * (double)max_pages * NN_PAGE_TOKENS);
  return NN_LAUNCH(nn_attention_decode_paged_args, .q = q, .k_pages = k_pages, .v_pages = v_pages, .lengths = lengths,
                   .page_table = page_table, .out = out, .tokens = batch, .batch = batch, .max_pages = max_pages,
                   .pages = pages, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .ld_q = ld_q,
                   .page_bytes = page_bytes, .scale = scale, .format = format, .dtype = dtype);
}
