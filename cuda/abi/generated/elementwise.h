/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_ELEMENTWISE_GENERATED_H
#define NN_ABI_ELEMENTWISE_GENERATED_H

#include <stdint.h>

typedef struct nn_silu_args {
  const void *x;
  void *y;
  int64_t n;
  int32_t dtype;
} nn_silu_args;

typedef struct nn_silu_backward_args {
  const void *dy;
  const void *x;
  void *dx;
  int64_t n;
  int32_t dtype;
} nn_silu_backward_args;

typedef struct nn_add_args {
  const void *a;
  const void *b;
  void *y;
  int64_t n;
  int32_t dtype;
} nn_add_args;

typedef struct nn_mul_args {
  const void *a;
  const void *b;
  void *y;
  int64_t n;
  int32_t dtype;
} nn_mul_args;

typedef struct nn_scale_args {
  const void *x;
  void *y;
  int64_t n;
  float alpha;
  int32_t dtype;
} nn_scale_args;

typedef struct nn_swiglu_args {
  const void *gate;
  const void *up;
  const int32_t *used;
  void *y;
  int64_t rows;
  int64_t dim;
  int64_t ld;
  int32_t dtype;
} nn_swiglu_args;

typedef struct nn_swiglu_backward_args {
  const void *dy;
  const void *gate;
  const void *up;
  const int32_t *used;
  void *dgate;
  void *dup;
  int64_t rows;
  int64_t dim;
  int64_t ld;
  int32_t dtype;
} nn_swiglu_backward_args;

typedef struct nn_relu2_gate_args {
  const void *gate;
  const void *up;
  void *y;
  int64_t rows;
  int64_t dim;
  int64_t ld;
  int32_t dtype;
} nn_relu2_gate_args;

typedef struct nn_cast_args {
  const void *x;
  void *y;
  int64_t n;
  int32_t dtype_x;
  int32_t dtype_y;
} nn_cast_args;

typedef struct nn_round_args {
  const float *x;
  float *y;
  int64_t n;
  int32_t dtype;
} nn_round_args;

typedef struct nn_fill_args {
  void *y;
  int64_t n;
  float value;
  int32_t dtype;
} nn_fill_args;

typedef struct nn_increment_args {
  int32_t *x;
  int64_t n;
  int32_t by;
} nn_increment_args;

#endif
