#include "elementwise.h"

#include "call.h"

int32_t cuda_silu(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype) {
  NN_BEGIN(silu);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_IN(x, dtype, n);
  NN_OUT(y, dtype, n);
  NN_ALIAS(y, x);
  NN_FLOPS(5.0 * (double)n);
  return NN_LAUNCH(nn_silu_args, .x = x, .y = y, .n = n, .dtype = dtype);
}
