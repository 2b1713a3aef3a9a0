/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/kvcache_checks.h"

#include "runtime/call.h"

NNCUDA_API int32_t cuda_kv_append(nncuda_ctx *ctx, const void *k, const void *v, const int32_t *starts, void *k_cache,
    void *v_cache, int64_t batch, int64_t len, int64_t capacity, int64_t kv_heads, int64_t head_dim, int64_t ld_kv,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_kv_append);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "len", len);
  nn_call_size(&call, "capacity", capacity);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, len <= capacity, NNCUDA_ERROR_INVALID_SIZE,
      "len is %lld; it must be at most capacity, which is %lld", (long long)len, (long long)capacity);
  nn_call_tensor(&call, NN_ROLE_IN, "k", k, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch*len, kv_heads, head_dim]",
      nn_mul(batch, len), kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "v", v, dtype, "ld_kv", ld_kv, NN_SHAPE("[batch*len, kv_heads, head_dim]",
      nn_mul(batch, len), kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "starts", starts, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch]", batch));
  nn_call_tensor(&call, NN_ROLE_INOUT, "k_cache", k_cache, dtype, NULL, 0,
      NN_SHAPE("[batch, capacity, kv_heads, head_dim]", batch, capacity, kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_INOUT, "v_cache", v_cache, dtype, NULL, 0,
      NN_SHAPE("[batch, capacity, kv_heads, head_dim]", batch, capacity, kv_heads, head_dim));
  const nn_kv_append_args args = {k, v, starts, k_cache, v_cache, batch, len, capacity, kv_heads, head_dim, ld_kv,
      dtype};
  check_kv_append(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_kv_trim(nncuda_ctx *ctx, void *k_cache, void *v_cache, int32_t *lengths, int64_t batch,
    int64_t capacity, int64_t kv_heads, int64_t head_dim, int64_t keep, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_kv_trim);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "capacity", capacity);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, keep >= 0 && keep <= capacity, NNCUDA_ERROR_INVALID_VALUE,
      "keep is %lld; it must be 0 to capacity, which is %lld", (long long)keep, (long long)capacity);
  nn_call_tensor(&call, NN_ROLE_INOUT, "k_cache", k_cache, dtype, NULL, 0,
      NN_SHAPE("[batch, capacity, kv_heads, head_dim]", batch, capacity, kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_INOUT, "v_cache", v_cache, dtype, NULL, 0,
      NN_SHAPE("[batch, capacity, kv_heads, head_dim]", batch, capacity, kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_INOUT, "lengths", lengths, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch]", batch));
  const nn_kv_trim_args args = {k_cache, v_cache, lengths, batch, capacity, kv_heads, head_dim, keep, dtype};
  check_kv_trim(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_kv_append_paged(nncuda_ctx *ctx, const void *k, const void *v, const int32_t *offsets,
    const int32_t *lengths, const int32_t *page_table, void *k_pages, void *v_pages, int64_t tokens, int64_t batch,
    int64_t max_pages, int64_t pages, int64_t kv_heads, int64_t head_dim, int64_t ld_kv, int64_t page_bytes,
    int32_t format, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_kv_append_paged);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "max_pages", max_pages);
  nn_call_size(&call, "pages", pages);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_size(&call, "page_bytes", page_bytes);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_Q8_0, NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_E4M3 (20) or NNCUDA_FORMAT_Q8_0 (14)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "k", k, dtype, "ld_kv", ld_kv, NN_SHAPE("[tokens, kv_heads, head_dim]", tokens,
      kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "v", v, dtype, "ld_kv", ld_kv, NN_SHAPE("[tokens, kv_heads, head_dim]", tokens,
      kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch+1]", nn_add(batch, 1)));
  nn_call_tensor(&call, NN_ROLE_IN, "lengths", lengths, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch]", batch));
  nn_call_tensor(&call, NN_ROLE_IN, "page_table", page_table, NNCUDA_I32, NULL, 0, NN_SHAPE("[batch, max_pages]", batch,
      max_pages));
  nn_call_tensor(&call, NN_ROLE_INOUT, "k_pages", k_pages, NN_U8, NULL, 0, NN_SHAPE("[pages, page_bytes]", pages,
      page_bytes));
  nn_call_tensor(&call, NN_ROLE_INOUT, "v_pages", v_pages, NN_U8, NULL, 0, NN_SHAPE("[pages, page_bytes]", pages,
      page_bytes));
  const nn_kv_append_paged_args args = {k, v, offsets, lengths, page_table, k_pages, v_pages, tokens, batch, max_pages,
      pages, kv_heads, head_dim, ld_kv, page_bytes, format, dtype};
  check_kv_append_paged(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
