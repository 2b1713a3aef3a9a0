/* Arguments of the mixture-of-experts kernels; bindings.h says what they mean. */
#ifndef NN_ABI_MOE_H
#define NN_ABI_MOE_H

#include <stdint.h>

typedef struct nn_moe_plan_args {
  const int32_t *indices;
  int32_t *counts, *offsets, *slot_row, *row_slot;
  int64_t tokens, k, experts, capacity;
} nn_moe_plan_args;

typedef struct nn_moe_gather_args {
  const void *x;
  const int32_t *row_slot;
  void *y;
  int64_t tokens, k, dim;
  int32_t dtype;
} nn_moe_gather_args;

typedef struct nn_moe_gather_backward_args {
  const void *dy;
  const int32_t *slot_row;
  void *dx;
  int64_t tokens, k, dim;
  int32_t dtype;
} nn_moe_gather_backward_args;

typedef struct nn_moe_combine_args {
  const void *y;
  const float *weights;
  const int32_t *slot_row;
  const void *residual;
  void *out;
  int64_t tokens, k, dim;
  int32_t dtype;
} nn_moe_combine_args;

typedef struct nn_moe_combine_backward_args {
  const void *dout, *y;
  const float *weights;
  const int32_t *slot_row, *row_slot;
  void *dy;
  float *dweights;
  int64_t tokens, k, dim;
  int32_t dtype;
} nn_moe_combine_backward_args;

#endif
