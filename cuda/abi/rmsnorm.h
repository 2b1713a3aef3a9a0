/* Arguments of the rmsnorm kernels; bindings.h says what they mean. */
#ifndef NN_ABI_RMSNORM_H
#define NN_ABI_RMSNORM_H

#include <stdint.h>

typedef struct nn_rmsnorm_args {
  const void *x, *weight;
  void *y;
  float *rstd;
  int64_t rows, cols;
  float eps;
  int32_t dtype;
} nn_rmsnorm_args;

typedef struct nn_rmsnorm_residual_args {
  const void *x, *residual, *weight;
  void *sum, *y;
  float *rstd;
  int64_t rows, cols;
  float eps;
  int32_t dtype;
} nn_rmsnorm_residual_args;

typedef struct nn_rmsnorm_backward_args {
  const void *dy, *x, *weight;
  const float *rstd;
  const void *dresidual;
  void *dx;
  float *dweight;
  int64_t rows, cols;
  int32_t dtype;
} nn_rmsnorm_backward_args;

#endif
