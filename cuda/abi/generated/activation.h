/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_ACTIVATION_GENERATED_H
#define NN_ABI_ACTIVATION_GENERATED_H

#include <stdint.h>

typedef struct nn_softcap_args {
  const void *x;
  void *y;
  int64_t n;
  float cap;
  int32_t dtype;
} nn_softcap_args;

typedef struct nn_geglu_args {
  const void *gate;
  const void *up;
  void *y;
  int64_t rows;
  int64_t dim;
  int64_t ld;
  int32_t dtype;
} nn_geglu_args;

typedef struct nn_swiglu_clipped_args {
  const void *gate;
  const void *up;
  void *y;
  int64_t rows;
  int64_t dim;
  int64_t ld;
  float alpha;
  float limit;
  int32_t dtype;
} nn_swiglu_clipped_args;

typedef struct nn_relu2_gate_backward_args {
  const void *dy;
  const void *gate;
  const void *up;
  void *dgate;
  void *dup;
  int64_t rows;
  int64_t dim;
  int64_t ld;
  int32_t dtype;
} nn_relu2_gate_backward_args;

typedef struct nn_act_dequant_i8_args {
  const int8_t *codes;
  const float *scale;
  void *x;
  int64_t rows;
  int64_t cols;
  int32_t dtype;
} nn_act_dequant_i8_args;

typedef struct nn_grouped_bias_args {
  const void *x;
  const void *bias;
  const int32_t *offsets;
  void *y;
  int64_t rows;
  int64_t dim;
  int64_t groups;
  int32_t dtype;
} nn_grouped_bias_args;

#endif
