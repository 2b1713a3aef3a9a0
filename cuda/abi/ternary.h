/* Arguments of the kernels on ternary weights; bindings.h says what they mean. */
#ifndef NN_ABI_TERNARY_H
#define NN_ABI_TERNARY_H

#include <stdint.h>

/* Rows and columns of packed weights that lie together. */
enum { NN_TERNARY_ROWS = 16, NN_TERNARY_COLUMNS = 16 };

typedef struct nn_act_quant_i8_args {
  const void *x;
  int8_t *codes;
  float *scale;
  int64_t rows, cols;
  int32_t dtype;
} nn_act_quant_i8_args;

typedef struct nn_rmsnorm_quant_i8_args {
  const void *x, *weight;
  int8_t *codes;
  float *scale;
  int64_t rows, cols;
  float eps;
  int32_t dtype;
} nn_rmsnorm_quant_i8_args;

typedef struct nn_ternary_quantize_args {
  const void *x;
  int8_t *codes;
  float *scale;
  int64_t n, k;
  int32_t dtype;
} nn_ternary_quantize_args;

typedef struct nn_ternary_pack_args {
  const int8_t *codes;
  void *w;
  int64_t n, k, stored, row_bytes;
} nn_ternary_pack_args;

typedef struct nn_ternary_unpack_args {
  const void *w;
  int8_t *codes;
  int64_t n, k, stored, row_bytes;
} nn_ternary_unpack_args;

typedef struct nn_bitlinear_args {
  const int8_t *codes;
  const float *scale; /* [m]; null with dtype i32 */
  const void *w;
  const float *w_scale; /* [n]; null with dtype i32 */
  const void *residual; /* [m, n], or null */
  void *y;
  int64_t m, n, k, stored, row_bytes;
  int32_t dtype;
} nn_bitlinear_args;

#endif
