/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_QUANT_GENERATED_H
#define NN_ABI_QUANT_GENERATED_H

#include <stdint.h>

typedef struct nn_quantize_args {
  const void *x;
  void *y;
  int64_t rows;
  int64_t k;
  int64_t row_bytes;
  int32_t format;
  int32_t dtype;
} nn_quantize_args;

typedef struct nn_dequantize_args {
  const void *x;
  void *y;
  int64_t rows;
  int64_t k;
  int64_t row_bytes;
  int32_t format;
  int32_t dtype;
} nn_dequantize_args;

typedef struct nn_embedding_quant_args {
  const void *table;
  const int32_t *ids;
  void *y;
  int64_t tokens;
  int64_t vocab;
  int64_t dim;
  int64_t row_bytes;
  int32_t format;
  int32_t dtype;
} nn_embedding_quant_args;

typedef struct nn_gemm_quant_parameters {
  const void *x;
  const void *w;
  const int32_t *offsets;
  const void *bias;
  const void *residual;
  void *y;
  int64_t groups;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t row_bytes;
  int32_t activation;
  int32_t format;
  int32_t dtype;
} nn_gemm_quant_parameters;
enum { nn_gemm_quant_parameters_count = 14 };

typedef struct nn_gemm_quant_qkv_parameters {
  const void *x;
  const void *wq;
  const void *wk;
  const void *wv;
  const void *bias;
  const void *norm;
  void *y;
  int64_t m;
  int64_t n_q;
  int64_t n_kv;
  int64_t n;
  int64_t k;
  int64_t row_bytes_q;
  int64_t row_bytes_k;
  int64_t row_bytes_v;
  float eps;
  int32_t format_q;
  int32_t format_k;
  int32_t format_v;
  int32_t dtype;
} nn_gemm_quant_qkv_parameters;
enum { nn_gemm_quant_qkv_parameters_count = 20 };

typedef struct nn_gemm_quant_swiglu_parameters {
  const void *x;
  const void *w_gate;
  const void *w_up;
  const int32_t *offsets;
  const void *norm;
  void *y;
  int64_t groups;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t row_bytes_gate;
  int64_t row_bytes_up;
  float eps;
  int32_t format_gate;
  int32_t format_up;
  int32_t dtype;
} nn_gemm_quant_swiglu_parameters;
enum { nn_gemm_quant_swiglu_parameters_count = 16 };

typedef struct nn_gemm_quant_route_args {
  const float *x;
  const float *gains;
  const void *w;
  float *y;
  float *logits;
  float *weights;
  int32_t *indices;
  float *probs;
  int32_t *counts;
  int32_t *offsets;
  int32_t *slot_row;
  int32_t *row_slot;
  int64_t tokens;
  int64_t experts;
  int64_t k;
  int64_t dim;
  int64_t row_bytes;
  float eps;
  int32_t norm;
  int32_t format;
} nn_gemm_quant_route_args;

typedef struct nn_gemm_quant_experts_args {
  const float *x;
  const void *w_gate;
  const void *w_up;
  const void *w_down;
  const float *weights;
  const int32_t *offsets;
  const int32_t *slot_row;
  const int32_t *row_slot;
  const float *residual;
  float *y;
  int64_t tokens;
  int64_t experts;
  int64_t k;
  int64_t dim;
  int64_t n;
  int64_t row_bytes_gate;
  int64_t row_bytes_up;
  int64_t row_bytes_down;
  int32_t format_gate;
  int32_t format_up;
  int32_t format_down;
} nn_gemm_quant_experts_args;

typedef struct nn_interleave_rows_args {
  const void *x;
  void *y;
  int64_t rows;
  int64_t k;
  int64_t row_bytes;
  int32_t format;
} nn_interleave_rows_args;

#endif
