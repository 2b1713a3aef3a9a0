/* Arguments of the rotary embedding kernels; bindings.h says what they mean. */
#ifndef NN_ABI_ROPE_H
#define NN_ABI_ROPE_H

#include <stdint.h>

typedef struct nn_rope_freqs_args {
  float *cosine, *sine;
  int64_t first, positions, head_dim;
  double base, ntk_alpha;
} nn_rope_freqs_args;

typedef struct nn_rope_freqs_scaled_args {
  const float *factors; /* [head_dim / 2], or null */
  float *cosine, *sine;
  int64_t first, positions, head_dim;
  double base, ntk_alpha, scale;
} nn_rope_freqs_scaled_args;

typedef struct nn_rope_forward_args {
  const void *x;
  const float *cosine, *sine;
  const int32_t *positions;
  void *y;
  int64_t tokens, heads, head_dim, max_position, ld_x, ld_y;
  int32_t layout, dtype;
} nn_rope_forward_args;

typedef struct nn_rope_qk_args {
  void *q, *k;
  const float *cosine, *sine;
  const int32_t *positions;
  int64_t tokens, heads, kv_heads, head_dim, max_position, ld_q, ld_k;
  int32_t layout, dtype;
} nn_rope_qk_args;

/* x is dy, y is dx. */
typedef nn_rope_forward_args nn_rope_backward_args;

#endif
