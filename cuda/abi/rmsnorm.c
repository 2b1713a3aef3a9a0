#include "rmsnorm.h"

#include "runtime/call.h"

#include <math.h>

static void require_eps(nn_call *call_, float eps) {
  nn_call_require(call_, eps >= 0.0f && isfinite(eps), NNCUDA_ERROR_INVALID_VALUE,
                  "eps is %g; it must be finite and at least 0", (double)eps);
}

int32_t cuda_rmsnorm(nncuda_ctx *ctx, const void *x, const void *weight, void *y, float *rstd, int64_t rows,
                     int64_t cols, float eps, int32_t dtype) {
  NN_BEGIN(rmsnorm);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_IN(x, dtype, rows, cols);
  NN_IN(weight, dtype, cols);
  NN_OUT(y, dtype, rows, cols);
  NN_OUT_OPT(rstd, NNCUDA_F32, rows);
  NN_ALIAS(y, x);
  require_eps(&call, eps);
  NN_FLOPS(4.0 * (double)rows * (double)cols);
  return NN_LAUNCH(nn_rmsnorm_args, .x = x, .weight = weight, .y = y, .rstd = rstd, .rows = rows, .cols = cols,
                   .eps = eps, .dtype = dtype);
}

int32_t cuda_rmsnorm_residual(nncuda_ctx *ctx, const void *x, const void *residual, const void *weight, void *sum,
                              void *y, float *rstd, int64_t rows, int64_t cols, float eps, int32_t dtype) {
  NN_BEGIN(rmsnorm_residual);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_IN(x, dtype, rows, cols);
  NN_IN(residual, dtype, rows, cols);
  NN_IN(weight, dtype, cols);
  NN_OUT(sum, dtype, rows, cols);
  NN_OUT(y, dtype, rows, cols);
  NN_OUT_OPT(rstd, NNCUDA_F32, rows);
  NN_ALIAS(sum, x);
  NN_ALIAS(sum, residual);
  require_eps(&call, eps);
  NN_FLOPS(5.0 * (double)rows * (double)cols);
  return NN_LAUNCH(nn_rmsnorm_residual_args, .x = x, .residual = residual, .weight = weight, .sum = sum, .y = y,
                   .rstd = rstd, .rows = rows, .cols = cols, .eps = eps, .dtype = dtype);
}

int32_t cuda_rmsnorm_backward(nncuda_ctx *ctx, const void *dy, const void *x, const void *weight, const float *rstd,
                              const void *dresidual, void *dx, float *dweight, int64_t rows, int64_t cols,
                              int32_t dtype) {
  NN_BEGIN(rmsnorm_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_IN(dy, dtype, rows, cols);
  NN_IN(x, dtype, rows, cols);
  NN_IN(weight, dtype, cols);
  NN_IN(rstd, NNCUDA_F32, rows);
  NN_IN_OPT(dresidual, dtype, rows, cols);
  NN_OUT(dx, dtype, rows, cols);
  NN_ACC(dweight, NNCUDA_F32, cols);
  NN_ALIAS(dx, dy);
  NN_ALIAS(dx, dresidual);
  NN_FLOPS(10.0 * (double)rows * (double)cols);
  return NN_LAUNCH(nn_rmsnorm_backward_args, .dy = dy, .x = x, .weight = weight, .rstd = rstd, .dresidual = dresidual,
                   .dx = dx, .dweight = dweight, .rows = rows, .cols = cols, .dtype = dtype);
}
