/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_TERNARY_GENERATED_H
#define NN_ABI_TERNARY_GENERATED_H

#include <stdint.h>

typedef struct nn_act_quant_i8_args {
  const void *x;
  int8_t *codes;
  float *scale;
  int64_t rows;
  int64_t cols;
  int32_t dtype;
} nn_act_quant_i8_args;

typedef struct nn_rmsnorm_quant_i8_args {
  const void *x;
  const void *weight;
  int8_t *codes;
  float *scale;
  int64_t rows;
  int64_t cols;
  float eps;
  int32_t dtype;
} nn_rmsnorm_quant_i8_args;

typedef struct nn_ternary_quantize_args {
  const void *x;
  int8_t *codes;
  float *scale;
  int64_t n;
  int64_t k;
  int32_t dtype;
} nn_ternary_quantize_args;

typedef struct nn_ternary_pack_args {
  const int8_t *codes;
  void *w;
  int64_t n;
  int64_t k;
  int64_t stored;
  int64_t row_bytes;
} nn_ternary_pack_args;

typedef struct nn_ternary_unpack_args {
  const void *w;
  int8_t *codes;
  int64_t n;
  int64_t k;
  int64_t stored;
  int64_t row_bytes;
} nn_ternary_unpack_args;

typedef struct nn_bitlinear_args {
  const int8_t *codes;
  const float *scale;
  const void *w;
  const float *w_scale;
  const void *residual;
  void *y;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t stored;
  int64_t row_bytes;
  int32_t dtype;
} nn_bitlinear_args;

typedef struct nn_bitlinear_norm_args {
  const void *x;
  const void *norm;
  const void *w;
  const float *w_scale;
  const void *residual;
  void *y;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t stored;
  int64_t row_bytes;
  float eps;
  int32_t dtype;
} nn_bitlinear_norm_args;

#endif
