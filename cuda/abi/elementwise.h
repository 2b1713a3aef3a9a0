/* Arguments of the elementwise kernels; bindings.h says what they mean. */
#ifndef NN_ABI_ELEMENTWISE_H
#define NN_ABI_ELEMENTWISE_H

#include <stdint.h>

typedef struct nn_silu_args {
  const void *x;
  void *y;
  int64_t n;
  int32_t dtype;
} nn_silu_args;

typedef struct nn_silu_backward_args {
  const void *dy, *x;
  void *dx;
  int64_t n;
  int32_t dtype;
} nn_silu_backward_args;

typedef struct nn_add_args {
  const void *a, *b;
  void *y;
  int64_t n;
  int32_t dtype;
} nn_add_args;

typedef nn_add_args nn_mul_args;

typedef struct nn_scale_args {
  const void *x;
  void *y;
  int64_t n;
  float alpha;
  int32_t dtype;
} nn_scale_args;

typedef struct nn_swiglu_args {
  const void *gate, *up;
  void *y;
  int64_t rows, dim, ld;
  int32_t dtype;
} nn_swiglu_args;

typedef nn_swiglu_args nn_relu2_gate_args;

typedef struct nn_swiglu_backward_args {
  const void *dy, *gate, *up;
  void *dgate, *dup;
  int64_t rows, dim, ld;
  int32_t dtype;
} nn_swiglu_backward_args;

typedef struct nn_cast_args {
  const void *x;
  void *y;
  int64_t n;
  int32_t dtype_x, dtype_y;
} nn_cast_args;

typedef struct nn_fill_args {
  void *y;
  int64_t n;
  float value;
  int32_t dtype;
} nn_fill_args;

#endif
