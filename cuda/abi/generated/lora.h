/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_LORA_GENERATED_H
#define NN_ABI_LORA_GENERATED_H

#include <stdint.h>

typedef struct nn_gemm_quant_backward_args {
  const void *dy;
  const void *w;
  const int32_t *offsets;
  void *dx;
  int64_t groups;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t row_bytes;
  float beta;
  int32_t format;
  int32_t dtype;
} nn_gemm_quant_backward_args;

typedef struct nn_bitlinear_backward_args {
  const void *dy;
  const void *w;
  const float *w_scale;
  void *dx;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t stored;
  int64_t row_bytes;
  float beta;
  int32_t dtype;
} nn_bitlinear_backward_args;

#endif
