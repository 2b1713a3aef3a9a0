/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_GEMM_GENERATED_H
#define NN_ABI_GEMM_GENERATED_H

#include <stdint.h>

typedef struct nn_gemm_parameters {
  const void *a;
  const void *b;
  void *c;
  int64_t m;
  int64_t n;
  int64_t k;
  int32_t trans_a;
  int32_t trans_b;
  int32_t dtype;
  int32_t dtype_c;
} nn_gemm_parameters;
enum { nn_gemm_parameters_count = 10 };

typedef struct nn_gemm_beta_parameters {
  const void *a;
  const void *b;
  void *c;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t lda;
  int64_t ldb;
  int64_t ldc;
  float alpha;
  float beta;
  int32_t trans_a;
  int32_t trans_b;
  int32_t dtype;
  int32_t dtype_c;
} nn_gemm_beta_parameters;
enum { nn_gemm_beta_parameters_count = 15 };

typedef struct nn_gemm_epilogue_parameters {
  const void *a;
  const void *b;
  const void *bias;
  const void *residual;
  void *c;
  int64_t m;
  int64_t n;
  int64_t k;
  int32_t activation;
  int32_t dtype;
} nn_gemm_epilogue_parameters;
enum { nn_gemm_epilogue_parameters_count = 10 };

typedef struct nn_batched_gemm_parameters {
  const void *a;
  const void *b;
  void *c;
  int64_t batch;
  int64_t m;
  int64_t n;
  int64_t k;
  float alpha;
  float beta;
  int32_t trans_a;
  int32_t trans_b;
  int32_t dtype;
  int32_t dtype_c;
} nn_batched_gemm_parameters;
enum { nn_batched_gemm_parameters_count = 13 };

typedef struct nn_grouped_gemm_parameters {
  const void *a;
  const void *b;
  const int32_t *offsets;
  void *c;
  int64_t groups;
  int64_t rows;
  int64_t n;
  int64_t k;
  float beta;
  int32_t trans_b;
  int32_t dtype;
  int32_t dtype_c;
} nn_grouped_gemm_parameters;
enum { nn_grouped_gemm_parameters_count = 12 };

typedef struct nn_grouped_gemm_wgrad_parameters {
  const void *a;
  const void *b;
  const int32_t *offsets;
  void *c;
  int64_t groups;
  int64_t rows;
  int64_t m;
  int64_t n;
  float beta;
  int32_t dtype;
  int32_t dtype_c;
} nn_grouped_gemm_wgrad_parameters;
enum { nn_grouped_gemm_wgrad_parameters_count = 11 };

typedef struct nn_grouped_gemm_swiglu_args {
  const void *a;
  const void *b;
  const int32_t *offsets;
  void *gate_up;
  void *y;
  int64_t groups;
  int64_t rows;
  int64_t n;
  int64_t k;
  int32_t dtype;
} nn_grouped_gemm_swiglu_args;

typedef struct nn_grouped_gemm_swiglu_backward_args {
  const void *a;
  const void *b;
  const int32_t *offsets;
  void *gate_up;
  int64_t groups;
  int64_t rows;
  int64_t n;
  int64_t k;
  int32_t dtype;
} nn_grouped_gemm_swiglu_backward_args;

typedef struct nn_grouped_gemm_fp8_args {
  const void *a;
  const void *b;
  const int32_t *offsets;
  void *c;
  int64_t groups;
  int64_t rows;
  int64_t n;
  int64_t k;
  int32_t trans_b;
  int32_t dtype;
  int32_t dtype_c;
} nn_grouped_gemm_fp8_args;

typedef struct nn_grouped_gemm_wgrad_fp8_args {
  const void *a;
  const void *b;
  const int32_t *offsets;
  void *c;
  int64_t groups;
  int64_t rows;
  int64_t m;
  int64_t n;
  float beta;
  int32_t dtype;
  int32_t dtype_c;
} nn_grouped_gemm_wgrad_fp8_args;

#endif
