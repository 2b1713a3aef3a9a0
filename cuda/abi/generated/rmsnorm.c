/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/rmsnorm_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_rmsnorm(nncuda_ctx *ctx, const void *x, const void *weight, void *y, float *rstd, int64_t rows,
    int64_t cols, float eps, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rmsnorm);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_require(&call, isfinite(eps) && eps >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and at least 0", (double)eps);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN, "weight", weight, dtype, NULL, 0, NN_SHAPE("[cols]", cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "rstd", rstd, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_alias(&call, "y", "x");
  const nn_rmsnorm_args args = {x, weight, y, rstd, rows, cols, eps, dtype};
  check_rmsnorm(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_rmsnorm_residual(nncuda_ctx *ctx, const void *x, const void *residual, const void *weight,
    void *sum, void *y, float *rstd, int64_t rows, int64_t cols, float eps, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rmsnorm_residual);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_require(&call, isfinite(eps) && eps >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and at least 0", (double)eps);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN, "residual", residual, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN, "weight", weight, dtype, NULL, 0, NN_SHAPE("[cols]", cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "sum", sum, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "rstd", rstd, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_alias(&call, "sum", "x");
  nn_call_alias(&call, "sum", "residual");
  const nn_rmsnorm_residual_args args = {x, residual, weight, sum, y, rstd, rows, cols, eps, dtype};
  check_rmsnorm_residual(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_rmsnorm_backward(nncuda_ctx *ctx, const void *dy, const void *x, const void *weight,
    const float *rstd, const void *dresidual, void *dx, float *dweight, int64_t rows, int64_t cols, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rmsnorm_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN, "weight", weight, dtype, NULL, 0, NN_SHAPE("[cols]", cols));
  nn_call_tensor(&call, NN_ROLE_IN, "rstd", rstd, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "dresidual", dresidual, dtype, NULL, 0, NN_SHAPE("[rows, cols]",
      rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "dx", dx, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_ACC, "dweight", dweight, NNCUDA_F32, NULL, 0, NN_SHAPE("[cols]", cols));
  nn_call_alias(&call, "dx", "dy");
  nn_call_alias(&call, "dx", "dresidual");
  const nn_rmsnorm_backward_args args = {dy, x, weight, rstd, dresidual, dx, dweight, rows, cols, dtype};
  check_rmsnorm_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
