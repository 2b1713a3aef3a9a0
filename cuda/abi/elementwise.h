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

typedef struct nn_increment_args {
  int32_t *x;
  int64_t n;
  int32_t by;
} nn_increment_args;

/* The values of x for which x + by is an i32. The same test on both engines. */
static inline int64_t nn_increment_low(int32_t by) { return by < 0 ? (int64_t)INT32_MIN - by : INT32_MIN; }
static inline int64_t nn_increment_high(int32_t by) { return by > 0 ? (int64_t)INT32_MAX - by : INT32_MAX; }

#endif
