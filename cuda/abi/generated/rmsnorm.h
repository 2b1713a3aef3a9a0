/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_RMSNORM_GENERATED_H
#define NN_ABI_RMSNORM_GENERATED_H

#include <stdint.h>

typedef struct nn_rmsnorm_args {
  const void *x;
  const void *weight;
  void *y;
  float *rstd;
  int64_t rows;
  int64_t cols;
  float eps;
  int32_t dtype;
} nn_rmsnorm_args;

typedef struct nn_rmsnorm_residual_args {
  const void *x;
  const void *residual;
  const void *weight;
  void *sum;
  void *y;
  float *rstd;
  int64_t rows;
  int64_t cols;
  float eps;
  int32_t dtype;
} nn_rmsnorm_residual_args;

typedef struct nn_rmsnorm_backward_args {
  const void *dy;
  const void *x;
  const void *weight;
  const float *rstd;
  const void *dresidual;
  void *dx;
  float *dweight;
  int64_t rows;
  int64_t cols;
  int32_t dtype;
} nn_rmsnorm_backward_args;

#endif
