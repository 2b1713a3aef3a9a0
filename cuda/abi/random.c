#include "random.h"

#include "runtime/call.h"

#include <math.h>

int32_t cuda_random_bits(nncuda_ctx *ctx, int32_t *y, int64_t n, int64_t seed, int64_t stream, int64_t offset) {
  NN_BEGIN(random_bits);
  NN_SIZE(n);
  NN_OUT(y, NNCUDA_I32, n);
  return NN_LAUNCH(nn_random_bits_args, .y = y, .n = n, .seed = seed, .stream = stream, .offset = offset);
}

int32_t cuda_uniform(nncuda_ctx *ctx, void *y, int64_t n, float low, float high, int64_t seed, int64_t stream,
                     int64_t offset, int32_t dtype) {
  NN_BEGIN(uniform);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_OUT(y, dtype, n);
  NN_REQUIRE(isfinite(low), NNCUDA_ERROR_INVALID_VALUE, "low is %g; it must be finite", (double)low);
  NN_REQUIRE(high >= low && isfinite(high - low), NNCUDA_ERROR_INVALID_VALUE,
             "high is %g; it must be at least low, which is %g, and high - low must be finite", (double)high,
             (double)low);
  return NN_LAUNCH(nn_uniform_args, .y = y, .n = n, .low = low, .high = high, .seed = seed, .stream = stream,
                   .offset = offset, .dtype = dtype);
}

int32_t cuda_normal(nncuda_ctx *ctx, void *y, int64_t n, float mean, float std, int64_t seed, int64_t stream,
                    int64_t offset, int32_t dtype) {
  NN_BEGIN(normal);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_OUT(y, dtype, n);
  NN_REQUIRE(isfinite(mean), NNCUDA_ERROR_INVALID_VALUE, "mean is %g; it must be finite", (double)mean);
  NN_REQUIRE(std >= 0.0f && isfinite(std), NNCUDA_ERROR_INVALID_VALUE, "std is %g; it must be finite and at least 0",
             (double)std);
  return NN_LAUNCH(nn_normal_args, .y = y, .n = n, .mean = mean, .std = std, .seed = seed, .stream = stream,
                   .offset = offset, .dtype = dtype);
}
