/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_KVCACHE_GENERATED_H
#define NN_ABI_KVCACHE_GENERATED_H

#include <stdint.h>

typedef struct nn_kv_append_args {
  const void *k;
  const void *v;
  const int32_t *starts;
  void *k_cache;
  void *v_cache;
  int64_t batch;
  int64_t len;
  int64_t capacity;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t ld_kv;
  int32_t dtype;
} nn_kv_append_args;

typedef struct nn_kv_trim_args {
  void *k_cache;
  void *v_cache;
  int32_t *lengths;
  int64_t batch;
  int64_t capacity;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t keep;
  int32_t dtype;
} nn_kv_trim_args;

typedef struct nn_kv_append_paged_args {
  const void *k;
  const void *v;
  const int32_t *offsets;
  const int32_t *lengths;
  const int32_t *page_table;
  void *k_pages;
  void *v_pages;
  int64_t tokens;
  int64_t batch;
  int64_t max_pages;
  int64_t pages;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t ld_kv;
  int64_t page_bytes;
  int32_t format;
  int32_t dtype;
} nn_kv_append_paged_args;

#endif
