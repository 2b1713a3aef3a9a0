/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_MOE_GENERATED_H
#define NN_ABI_MOE_GENERATED_H

#include <stdint.h>

typedef struct nn_moe_plan_args {
  const int32_t *indices;
  int32_t *counts;
  int32_t *offsets;
  int32_t *slot_row;
  int32_t *row_slot;
  int64_t tokens;
  int64_t k;
  int64_t experts;
  int64_t capacity;
} nn_moe_plan_args;

typedef struct nn_moe_gather_args {
  const void *x;
  const int32_t *row_slot;
  void *y;
  int64_t tokens;
  int64_t k;
  int64_t dim;
  int32_t dtype;
} nn_moe_gather_args;

typedef struct nn_moe_route_args {
  const void *logits;
  const void *x;
  float *weights;
  int32_t *indices;
  float *probs;
  int32_t *counts;
  int32_t *offsets;
  int32_t *slot_row;
  int32_t *row_slot;
  void *y;
  float *loss;
  int64_t tokens;
  int64_t experts;
  int64_t k;
  int64_t dim;
  int32_t norm;
  int64_t capacity;
  float alpha;
  int32_t dtype;
  int32_t dtype_logits;
} nn_moe_route_args;

typedef struct nn_moe_route_backward_args {
  const float *dweights;
  const float *weights;
  const int32_t *indices;
  const float *probs;
  const int32_t *counts;
  const float *grad_scale;
  void *dlogits;
  int64_t tokens;
  int64_t experts;
  int64_t k;
  int32_t norm;
  float alpha;
  int32_t dtype;
} nn_moe_route_backward_args;

typedef struct nn_moe_gather_backward_args {
  const void *dy;
  const int32_t *slot_row;
  void *dx;
  int64_t tokens;
  int64_t k;
  int64_t dim;
  int32_t dtype;
} nn_moe_gather_backward_args;

typedef struct nn_moe_combine_args {
  const void *y;
  const float *weights;
  const int32_t *slot_row;
  const void *residual;
  void *out;
  int64_t tokens;
  int64_t k;
  int64_t dim;
  int32_t dtype;
} nn_moe_combine_args;

typedef struct nn_moe_combine_backward_args {
  const void *dout;
  const void *y;
  const float *weights;
  const int32_t *slot_row;
  const int32_t *row_slot;
  void *dy;
  float *dweights;
  int64_t tokens;
  int64_t k;
  int64_t dim;
  int32_t dtype;
} nn_moe_combine_backward_args;

typedef struct nn_moe_output_backward_args {
  const void *dout;
  const void *y;
  const float *weights;
  const int32_t *indices;
  const float *probs;
  const int32_t *counts;
  const int32_t *slot_row;
  const int32_t *row_slot;
  const float *grad_scale;
  void *dy;
  float *dweights;
  void *dlogits;
  int64_t tokens;
  int64_t experts;
  int64_t k;
  int64_t dim;
  int32_t norm;
  float alpha;
  int32_t dtype;
} nn_moe_output_backward_args;

typedef struct nn_moe_input_backward_args {
  const void *dlogits;
  const void *x;
  const void *gate;
  const void *drows;
  const int32_t *slot_row;
  void *dx;
  void *dgate;
  int64_t tokens;
  int64_t experts;
  int64_t k;
  int64_t dim;
  float beta;
  int32_t dtype;
  int32_t dtype_c;
} nn_moe_input_backward_args;

#endif
