/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_ATTENTION_GENERATED_H
#define NN_ABI_ATTENTION_GENERATED_H

#include <stdint.h>

typedef struct nn_attention_shape {
  int64_t batch;
  int64_t q_len;
  int64_t kv_len;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
} nn_attention_shape;

typedef struct nn_attention_scores_args {
  const void *q;
  const void *k;
  void *scores;
  nn_attention_shape shape;
  float scale;
  int32_t causal;
  int32_t dtype;
} nn_attention_scores_args;

typedef struct nn_attention_output_args {
  const void *probs;
  const void *v;
  void *out;
  nn_attention_shape shape;
  int32_t dtype;
} nn_attention_output_args;

typedef struct nn_flash_attention_args {
  const void *q;
  const void *k;
  const void *v;
  const int32_t *starts;
  void *out;
  float *lse;
  nn_attention_shape shape;
  int64_t ld_q;
  int64_t ld_kv;
  float scale;
  int32_t causal;
  int32_t dtype;
} nn_flash_attention_args;

typedef struct nn_flash_attention_backward_args {
  const void *dout;
  const void *q;
  const void *k;
  const void *v;
  const void *out;
  const float *lse;
  const int32_t *starts;
  void *dq;
  void *dk;
  void *dv;
  nn_attention_shape shape;
  int64_t ld_q;
  int64_t ld_kv;
  float scale;
  int32_t causal;
  int32_t dtype;
} nn_flash_attention_backward_args;

typedef struct nn_document_starts_args {
  const int32_t *ids;
  int32_t *starts;
  int32_t *positions;
  int64_t batch;
  int64_t length;
  int32_t separator;
} nn_document_starts_args;

typedef struct nn_attention_decode_args {
  const void *q;
  const void *k_cache;
  const void *v_cache;
  const int32_t *lengths;
  void *out;
  int64_t batch;
  int64_t capacity;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t ld_q;
  float scale;
  int32_t dtype;
} nn_attention_decode_args;

typedef struct nn_flash_attention_paged_args {
  const void *q;
  const void *k_pages;
  const void *v_pages;
  const int32_t *offsets;
  const int32_t *lengths;
  const int32_t *page_table;
  const float *sinks;
  void *out;
  int64_t tokens;
  int64_t batch;
  int64_t max_pages;
  int64_t pages;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t ld_q;
  int64_t page_bytes;
  float scale;
  int64_t window;
  float softcap;
  int32_t format;
  int32_t dtype;
} nn_flash_attention_paged_args;

typedef struct nn_attention_decode_paged_parameters {
  const void *q;
  const void *k_pages;
  const void *v_pages;
  const int32_t *lengths;
  const int32_t *page_table;
  const float *sinks;
  void *out;
  int64_t batch;
  int64_t max_pages;
  int64_t pages;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t ld_q;
  int64_t page_bytes;
  float scale;
  int64_t window;
  float softcap;
  int32_t format;
  int32_t dtype;
} nn_attention_decode_paged_parameters;
enum { nn_attention_decode_paged_parameters_count = 20 };

typedef nn_flash_attention_paged_args nn_attention_decode_paged_args;

typedef struct nn_attention_step_paged_args {
  const void *q;
  const void *k;
  const void *v;
  const float *cosine;
  const float *sine;
  const int32_t *positions;
  const int32_t *lengths;
  const int32_t *page_table;
  const float *sinks;
  void *k_pages;
  void *v_pages;
  void *out;
  int64_t batch;
  int64_t max_pages;
  int64_t pages;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t max_position;
  int64_t ld_q;
  int64_t ld_kv;
  int64_t page_bytes;
  float scale;
  int64_t window;
  float softcap;
  int32_t layout;
  int32_t format;
  int32_t dtype;
} nn_attention_step_paged_args;

#endif
