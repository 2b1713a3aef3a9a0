/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_ROPE_GENERATED_H
#define NN_ABI_ROPE_GENERATED_H

#include <stdint.h>

typedef struct nn_rope_freqs_args {
  float *cosine;
  float *sine;
  int64_t first;
  int64_t positions;
  int64_t head_dim;
  double base;
  double ntk_alpha;
} nn_rope_freqs_args;

typedef struct nn_rope_freqs_scaled_args {
  const float *factors;
  float *cosine;
  float *sine;
  int64_t first;
  int64_t positions;
  int64_t head_dim;
  double base;
  double ntk_alpha;
  double scale;
} nn_rope_freqs_scaled_args;

typedef struct nn_rope_forward_args {
  const void *x;
  const float *cosine;
  const float *sine;
  const int32_t *positions;
  void *y;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t max_position;
  int64_t ld_x;
  int64_t ld_y;
  int32_t layout;
  int32_t dtype;
} nn_rope_forward_args;

typedef struct nn_rope_qk_args {
  void *q;
  void *k;
  const float *cosine;
  const float *sine;
  const int32_t *positions;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t max_position;
  int64_t ld_q;
  int64_t ld_k;
  int32_t layout;
  int32_t dtype;
} nn_rope_qk_args;

typedef struct nn_rope_backward_parameters {
  const void *dy;
  const float *cosine;
  const float *sine;
  const int32_t *positions;
  void *dx;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t max_position;
  int64_t ld_y;
  int64_t ld_x;
  int32_t layout;
  int32_t dtype;
} nn_rope_backward_parameters;
enum { nn_rope_backward_parameters_count = 13 };

typedef nn_rope_forward_args nn_rope_backward_args;

#endif
