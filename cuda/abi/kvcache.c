#include "kvcache.h"

#include "format_check.h"

int32_t cuda_kv_append(nncuda_ctx *ctx, const void *k, const void *v, const int32_t *starts, void *k_cache,
                       void *v_cache, int64_t batch, int64_t len, int64_t capacity, int64_t kv_heads, int64_t head_dim,
                       int64_t ld_kv, int32_t dtype) {
  NN_BEGIN(kv_append);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(batch);
  NN_SIZE(len);
  NN_SIZE(capacity);
  NN_SIZE(kv_heads);
  NN_SIZE(head_dim);
  NN_REQUIRE(len <= capacity, NNCUDA_ERROR_INVALID_SIZE, "len is %lld; it must be at most capacity, which is %lld",
             (long long)len, (long long)capacity);
  NN_TENSOR(NN_ROLE_IN, k, dtype, ld_kv, nn_mul(batch, len), kv_heads, head_dim);
  NN_TENSOR(NN_ROLE_IN, v, dtype, ld_kv, nn_mul(batch, len), kv_heads, head_dim);
  NN_IN(starts, NNCUDA_I32, batch);
  NN_INOUT(k_cache, dtype, batch, capacity, kv_heads, head_dim);
  NN_INOUT(v_cache, dtype, batch, capacity, kv_heads, head_dim);
  return NN_LAUNCH(nn_kv_append_args, .k = k, .v = v, .starts = starts, .k_cache = k_cache, .v_cache = v_cache,
                   .batch = batch, .len = len, .capacity = capacity, .kv_heads = kv_heads, .head_dim = head_dim,
                   .ld_kv = ld_kv, .dtype = dtype);
}

int32_t cuda_kv_trim(nncuda_ctx *ctx, void *k_cache, void *v_cache, int32_t *lengths, int64_t batch, int64_t capacity,
                     int64_t kv_heads, int64_t head_dim, int64_t keep, int32_t dtype) {
  NN_BEGIN(kv_trim);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(batch);
  NN_SIZE(capacity);
  NN_SIZE(kv_heads);
  NN_SIZE(head_dim);
  NN_REQUIRE(keep >= 0 && keep <= capacity, NNCUDA_ERROR_INVALID_VALUE,
             "keep is %lld; it must be 0 to %lld, the capacity", (long long)keep, (long long)capacity);
  NN_INOUT(k_cache, dtype, batch, capacity, kv_heads, head_dim);
  NN_INOUT(v_cache, dtype, batch, capacity, kv_heads, head_dim);
  NN_INOUT(lengths, NNCUDA_I32, batch);
  return NN_LAUNCH(nn_kv_trim_args, .k_cache = k_cache, .v_cache = v_cache, .lengths = lengths, .batch = batch,
                   .capacity = capacity, .kv_heads = kv_heads, .head_dim = head_dim, .keep = keep, .dtype = dtype);
}

int32_t cuda_kv_append_paged(nncuda_ctx *ctx, const void *k, const void *v, const int32_t *offsets,
                             const int32_t *lengths, const int32_t *page_table, void *k_pages, void *v_pages,
                             int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages, int64_t kv_heads,
                             int64_t head_dim, int64_t ld_kv, int64_t page_bytes, int32_t format, int32_t dtype) {
  NN_BEGIN(kv_append_paged);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(batch);
  NN_SIZE(max_pages);
  NN_SIZE(pages);
  NN_SIZE(kv_heads);
  NN_SIZE(head_dim);
  NN_SIZE(page_bytes);
  nn_check_page(&call, format, kv_heads, head_dim, page_bytes);
  NN_TENSOR(NN_ROLE_IN, k, dtype, ld_kv, tokens, kv_heads, head_dim);
  NN_TENSOR(NN_ROLE_IN, v, dtype, ld_kv, tokens, kv_heads, head_dim);
  NN_IN(offsets, NNCUDA_I32, nn_add(batch, 1));
  NN_IN(lengths, NNCUDA_I32, batch);
  NN_IN(page_table, NNCUDA_I32, batch, max_pages);
  NN_INOUT(k_pages, NN_U8, pages, page_bytes);
  NN_INOUT(v_pages, NN_U8, pages, page_bytes);
  return NN_LAUNCH(nn_kv_append_paged_args, .k = k, .v = v, .offsets = offsets, .lengths = lengths,
                   .page_table = page_table, .k_pages = k_pages, .v_pages = v_pages, .tokens = tokens, .batch = batch,
                   .max_pages = max_pages, .pages = pages, .kv_heads = kv_heads, .head_dim = head_dim, .ld_kv = ld_kv,
                   .page_bytes = page_bytes, .format = format, .dtype = dtype);
}
