/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/softmax_checks.h"

#include "runtime/call.h"

NNCUDA_API int32_t cuda_softmax(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t cols, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_softmax);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_alias(&call, "y", "x");
  const nn_softmax_args args = {x, y, rows, cols, dtype};
  check_softmax(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_softmax_backward(nncuda_ctx *ctx, const void *dy, const void *y, void *dx, int64_t rows,
    int64_t cols, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_softmax_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "dx", dx, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_alias(&call, "dx", "dy");
  const nn_softmax_backward_args args = {dy, y, dx, rows, cols, dtype};
  check_softmax_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_softmax_topk(nncuda_ctx *ctx, const void *x, float *weights, int32_t *indices, float *probs,
    int64_t rows, int64_t cols, int64_t k, int32_t norm, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_softmax_topk);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_flag(&call, "norm", norm);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_size(&call, "k", k);
  nn_call_require(&call, k <= 64 && k <= cols, NNCUDA_ERROR_INVALID_SIZE,
      "k is %lld; it must be at most 64 and at most cols, which is %lld", (long long)k, (long long)cols);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "weights", weights, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "indices", indices, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "probs", probs, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  const nn_softmax_topk_args args = {x, weights, indices, probs, rows, cols, k, norm, dtype};
  check_softmax_topk(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_softmax_topk_backward(nncuda_ctx *ctx, const float *dweights, const float *weights,
    const int32_t *indices, const float *probs, const float *dprobs, void *dx, int64_t rows, int64_t cols, int64_t k,
    int32_t norm, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_softmax_topk_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_flag(&call, "norm", norm);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_size(&call, "k", k);
  nn_call_require(&call, k <= 64 && k <= cols, NNCUDA_ERROR_INVALID_SIZE,
      "k is %lld; it must be at most 64 and at most cols, which is %lld", (long long)k, (long long)cols);
  nn_call_tensor(&call, NN_ROLE_IN, "dweights", dweights, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_IN, "weights", weights, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_IN, "indices", indices, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_IN, "probs", probs, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "dprobs", dprobs, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows, cols]",
      rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "dx", dx, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  const nn_softmax_topk_backward_args args = {dweights, weights, indices, probs, dprobs, dx, rows, cols, k, norm,
      dtype};
  check_softmax_topk_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
