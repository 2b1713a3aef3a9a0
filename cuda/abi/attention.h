/* Arguments of the attention kernels; bindings.h says what they mean. */
#ifndef NN_ABI_ATTENTION_H
#define NN_ABI_ATTENTION_H

#include <stdint.h>

/* The sizes that all of them share. */
typedef struct nn_attention_shape {
  int64_t batch, q_len, kv_len, heads, kv_heads, head_dim;
} nn_attention_shape;

typedef struct nn_attention_scores_args {
  const void *q, *k;
  void *scores;
  nn_attention_shape shape;
  float scale;
  int32_t causal, dtype;
} nn_attention_scores_args;

typedef struct nn_attention_output_args {
  const void *probs, *v;
  void *out;
  nn_attention_shape shape;
  int32_t dtype;
} nn_attention_output_args;

typedef struct nn_flash_attention_args {
  const void *q, *k, *v;
  void *out;
  float *lse; /* or null */
  nn_attention_shape shape;
  int64_t ld_q, ld_kv;
  float scale;
  int32_t causal, dtype;
} nn_flash_attention_args;

typedef struct nn_flash_attention_backward_args {
  const void *dout, *q, *k, *v, *out;
  const float *lse;
  void *dq, *dk, *dv;
  nn_attention_shape shape;
  int64_t ld_q, ld_kv;
  float scale;
  int32_t causal, dtype;
} nn_flash_attention_backward_args;

typedef struct nn_attention_decode_args {
  const void *q, *k_cache, *v_cache;
  const int32_t *lengths;
  void *out;
  int64_t batch, capacity, heads, kv_heads, head_dim, ld_q;
  float scale;
  int32_t dtype;
} nn_attention_decode_args;

/* Both kernels over pages; `offsets` is null where each sequence has one query. */
typedef struct nn_flash_attention_paged_args {
  const void *q, *k_pages, *v_pages;
  const int32_t *offsets, *lengths, *page_table;
  void *out;
  int64_t tokens, batch, max_pages, pages, heads, kv_heads, head_dim, ld_q, page_bytes;
  float scale;
  int32_t format, dtype;
} nn_flash_attention_paged_args;

typedef nn_flash_attention_paged_args nn_attention_decode_paged_args;

#endif
