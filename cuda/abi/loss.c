#include "loss.h"

#include "runtime/call.h"

#include <math.h>

int32_t cuda_cross_entropy_forward(nncuda_ctx *ctx, const void *logits, const int32_t *targets, float *losses,
                                   float *lse, float *loss_sum, int32_t *count, int64_t rows, int64_t vocab,
                                   int32_t ignore_index, int32_t dtype) {
  NN_BEGIN(cross_entropy_forward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(vocab);
  NN_IN(logits, dtype, rows, vocab);
  NN_IN(targets, NNCUDA_I32, rows);
  NN_OUT_OPT(losses, NNCUDA_F32, rows);
  NN_OUT(lse, NNCUDA_F32, rows);
  NN_OUT(loss_sum, NNCUDA_F32, 1);
  NN_OUT(count, NNCUDA_I32, 1);
  NN_REQUIRE(rows <= INT32_MAX, NNCUDA_ERROR_INVALID_SIZE, "rows is %lld; count can hold %d", (long long)rows,
             INT32_MAX);
  NN_FLOPS(3.0 * (double)rows * (double)vocab);
  return NN_LAUNCH(nn_cross_entropy_forward_args, .logits = logits, .targets = targets, .losses = losses, .lse = lse,
                   .loss_sum = loss_sum, .count = count, .rows = rows, .vocab = vocab, .ignore_index = ignore_index,
                   .dtype = dtype);
}

int32_t cuda_cross_entropy_backward(nncuda_ctx *ctx, const void *logits, const int32_t *targets, const float *lse,
                                    const float *grad_scale, void *dlogits, int64_t rows, int64_t vocab,
                                    int32_t ignore_index, int32_t dtype) {
  NN_BEGIN(cross_entropy_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(vocab);
  NN_IN(logits, dtype, rows, vocab);
  NN_IN(targets, NNCUDA_I32, rows);
  NN_IN(lse, NNCUDA_F32, rows);
  NN_IN(grad_scale, NNCUDA_F32, 1);
  NN_OUT(dlogits, dtype, rows, vocab);
  NN_ALIAS(dlogits, logits);
  NN_FLOPS(3.0 * (double)rows * (double)vocab);
  return NN_LAUNCH(nn_cross_entropy_backward_args, .logits = logits, .targets = targets, .lse = lse,
                   .grad_scale = grad_scale, .dlogits = dlogits, .rows = rows, .vocab = vocab,
                   .ignore_index = ignore_index, .dtype = dtype);
}

int32_t cuda_aux_loss_forward(nncuda_ctx *ctx, const float *probs, const int32_t *counts, float *loss, int64_t tokens,
                              int64_t experts, float alpha) {
  NN_BEGIN(aux_loss_forward);
  NN_SIZE(tokens);
  NN_SIZE(experts);
  NN_IN(probs, NNCUDA_F32, tokens, experts);
  NN_IN(counts, NNCUDA_I32, experts);
  NN_ACC(loss, NNCUDA_F32, 1);
  NN_REQUIRE(isfinite(alpha), NNCUDA_ERROR_INVALID_VALUE, "alpha is %g; it must be finite", (double)alpha);
  NN_FLOPS((double)tokens * (double)experts);
  return NN_LAUNCH(nn_aux_loss_forward_args, .probs = probs, .counts = counts, .loss = loss, .tokens = tokens,
                   .experts = experts, .alpha = alpha);
}

int32_t cuda_aux_loss_backward(nncuda_ctx *ctx, const int32_t *counts, const float *grad_scale, float *dprobs,
                               int64_t tokens, int64_t experts, float alpha) {
  NN_BEGIN(aux_loss_backward);
  NN_SIZE(tokens);
  NN_SIZE(experts);
  NN_IN(counts, NNCUDA_I32, experts);
  NN_IN(grad_scale, NNCUDA_F32, 1);
  NN_OUT(dprobs, NNCUDA_F32, tokens, experts);
  NN_REQUIRE(isfinite(alpha), NNCUDA_ERROR_INVALID_VALUE, "alpha is %g; it must be finite", (double)alpha);
  NN_FLOPS((double)experts);
  return NN_LAUNCH(nn_aux_loss_backward_args, .counts = counts, .grad_scale = grad_scale, .dprobs = dprobs,
                   .tokens = tokens, .experts = experts, .alpha = alpha);
}

int32_t cuda_weighted_mean(nncuda_ctx *ctx, const float *x, const int32_t *weights, float *y, int64_t n,
                           int64_t divisor) {
  NN_BEGIN(weighted_mean);
  NN_SIZE(n);
  NN_IN(x, NNCUDA_F32, n);
  NN_IN_OPT(weights, NNCUDA_I32, n);
  NN_OUT(y, NNCUDA_F32, 1);
  NN_REQUIRE(divisor >= 1, NNCUDA_ERROR_INVALID_VALUE, "divisor is %lld; it must be at least 1", (long long)divisor);
  NN_FLOPS(2.0 * (double)n);
  return NN_LAUNCH(nn_weighted_mean_args, .x = x, .weights = weights, .y = y, .n = n, .divisor = divisor);
}
