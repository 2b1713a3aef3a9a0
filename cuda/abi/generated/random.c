/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/random_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_random_bits(nncuda_ctx *ctx, int32_t *y, int64_t n, int64_t seed, int64_t stream,
    int64_t offset) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_random_bits);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NNCUDA_I32, NULL, 0, NN_SHAPE("[n]", n));
  const nn_random_bits_args args = {y, n, seed, stream, offset};
  check_random_bits(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_uniform(nncuda_ctx *ctx, void *y, int64_t n, float low, float high, int64_t seed,
    int64_t stream, int64_t offset, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_uniform);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_require(&call, isfinite(low), NNCUDA_ERROR_INVALID_VALUE, "low is %g; it must be finite", (double)low);
  nn_call_require(&call, high >= low, NNCUDA_ERROR_INVALID_VALUE, "high is %g; it must be at least low, which is %g",
      (double)high, (double)low);
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
  const nn_uniform_args args = {y, n, low, high, seed, stream, offset, dtype};
  check_uniform(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_normal(nncuda_ctx *ctx, void *y, int64_t n, float mean, float std, int64_t seed, int64_t stream,
    int64_t offset, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_normal);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_require(&call, isfinite(mean), NNCUDA_ERROR_INVALID_VALUE, "mean is %g; it must be finite", (double)mean);
  nn_call_require(&call, isfinite(std) && std >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "std is %g; it must be finite and at least 0", (double)std);
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
  const nn_normal_args args = {y, n, mean, std, seed, stream, offset, dtype};
  check_normal(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
