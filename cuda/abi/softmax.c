#include "softmax.h"

#include "runtime/call.h"

int32_t cuda_softmax(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t cols, int32_t dtype) {
  NN_BEGIN(softmax);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_IN(x, dtype, rows, cols);
  NN_OUT(y, dtype, rows, cols);
  NN_ALIAS(y, x);
  NN_FLOPS(5.0 * (double)rows * (double)cols);
  return NN_LAUNCH(nn_softmax_args, .x = x, .y = y, .rows = rows, .cols = cols, .dtype = dtype);
}

int32_t cuda_softmax_backward(nncuda_ctx *ctx, const void *dy, const void *y, void *dx, int64_t rows, int64_t cols,
                              int32_t dtype) {
  NN_BEGIN(softmax_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_IN(dy, dtype, rows, cols);
  NN_IN(y, dtype, rows, cols);
  NN_OUT(dx, dtype, rows, cols);
  NN_ALIAS(dx, dy);
  NN_FLOPS(4.0 * (double)rows * (double)cols);
  return NN_LAUNCH(nn_softmax_backward_args, .dy = dy, .y = y, .dx = dx, .rows = rows, .cols = cols, .dtype = dtype);
}

/* What both router calls ask of k. */
static void require_k(nn_call *call_, int64_t k, int64_t cols) {
  const int64_t most = cols < NN_TOPK_MAX ? cols : NN_TOPK_MAX;
  nn_call_require(call_, cols == 0 || k <= most, NNCUDA_ERROR_INVALID_SIZE,
                  "k is %lld; it must be at most %lld (cols is %lld, and no more than %d are supported)", (long long)k,
                  (long long)most, (long long)cols, NN_TOPK_MAX);
}

int32_t cuda_softmax_topk(nncuda_ctx *ctx, const void *x, float *weights, int32_t *indices, float *probs, int64_t rows,
                          int64_t cols, int64_t k, int32_t norm, int32_t dtype) {
  NN_BEGIN(softmax_topk);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_SIZE(k);
  NN_FLAG(norm);
  require_k(&call, k, cols);
  NN_IN(x, dtype, rows, cols);
  NN_OUT(weights, NNCUDA_F32, rows, k);
  NN_OUT(indices, NNCUDA_I32, rows, k);
  NN_OUT(probs, NNCUDA_F32, rows, cols);
  NN_FLOPS(6.0 * (double)rows * (double)cols);
  return NN_LAUNCH(nn_softmax_topk_args, .x = x, .weights = weights, .indices = indices, .probs = probs, .rows = rows,
                   .cols = cols, .k = k, .norm = norm, .dtype = dtype);
}

int32_t cuda_softmax_topk_backward(nncuda_ctx *ctx, const float *dweights, const float *weights, const int32_t *indices,
                                   const float *probs, const float *dprobs, void *dx, int64_t rows, int64_t cols,
                                   int64_t k, int32_t norm, int32_t dtype) {
  NN_BEGIN(softmax_topk_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_SIZE(k);
  NN_FLAG(norm);
  require_k(&call, k, cols);
  NN_IN(dweights, NNCUDA_F32, rows, k);
  NN_IN(weights, NNCUDA_F32, rows, k);
  NN_IN(indices, NNCUDA_I32, rows, k);
  NN_IN(probs, NNCUDA_F32, rows, cols);
  NN_IN_OPT(dprobs, NNCUDA_F32, rows, cols);
  NN_OUT(dx, dtype, rows, cols);
  NN_FLOPS(4.0 * (double)rows * ((double)cols + (double)k));
  return NN_LAUNCH(nn_softmax_topk_backward_args, .dweights = dweights, .weights = weights, .indices = indices,
                   .probs = probs, .dprobs = dprobs, .dx = dx, .rows = rows, .cols = cols, .k = k, .norm = norm,
                   .dtype = dtype);
}
