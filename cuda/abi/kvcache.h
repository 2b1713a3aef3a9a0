/* Arguments of the kvcache kernels; bindings.h says what they mean. */
#ifndef NN_ABI_KVCACHE_H
#define NN_ABI_KVCACHE_H

#include <stdint.h>

typedef struct nn_kv_append_args {
  const void *k, *v;
  const int32_t *starts;
  void *k_cache, *v_cache;
  int64_t batch, len, capacity, kv_heads, head_dim, ld_kv;
  int32_t dtype;
} nn_kv_append_args;

typedef struct nn_kv_trim_args {
  void *k_cache, *v_cache;
  int32_t *lengths;
  int64_t batch, capacity, kv_heads, head_dim, keep;
  int32_t dtype;
} nn_kv_trim_args;

typedef struct nn_kv_append_paged_args {
  const void *k, *v;
  const int32_t *offsets, *lengths, *page_table;
  void *k_pages, *v_pages;
  int64_t tokens, batch, max_pages, pages, kv_heads, head_dim, ld_kv, page_bytes;
  int32_t format, dtype;
} nn_kv_append_paged_args;

#endif
