/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/loss_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_cross_entropy_forward(nncuda_ctx *ctx, const void *logits, const int32_t *targets,
    float *losses, float *lse, float *loss_sum, int32_t *count, int64_t rows, int64_t vocab, int32_t ignore_index,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_cross_entropy_forward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_require(&call, rows <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "rows is %lld; it must be at most 2147483647",
      (long long)rows);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "targets", targets, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "losses", losses, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]",
      rows));
  nn_call_tensor(&call, NN_ROLE_OUT, "lse", lse, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT, "loss_sum", loss_sum, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "count", count, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  const nn_cross_entropy_forward_args args = {logits, targets, losses, lse, loss_sum, count, rows, vocab, ignore_index,
      dtype};
  check_cross_entropy_forward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_cross_entropy_backward(nncuda_ctx *ctx, const void *logits, const int32_t *targets,
    const float *lse, const float *grad_scale, void *dlogits, int64_t rows, int64_t vocab, int32_t ignore_index,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_cross_entropy_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "targets", targets, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "lse", lse, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "grad_scale", grad_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "dlogits", dlogits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_alias(&call, "dlogits", "logits");
  const nn_cross_entropy_backward_args args = {logits, targets, lse, grad_scale, dlogits, rows, vocab, ignore_index,
      dtype};
  check_cross_entropy_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_aux_loss_forward(nncuda_ctx *ctx, const float *probs, const int32_t *counts, float *loss,
    int64_t tokens, int64_t experts, float alpha) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_aux_loss_forward);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "experts", experts);
  nn_call_require(&call, isfinite(alpha), NNCUDA_ERROR_INVALID_VALUE, "alpha is %g; it must be finite", (double)alpha);
  nn_call_tensor(&call, NN_ROLE_IN, "probs", probs, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
  nn_call_tensor(&call, NN_ROLE_IN, "counts", counts, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts]", experts));
  nn_call_tensor(&call, NN_ROLE_ACC, "loss", loss, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  const nn_aux_loss_forward_args args = {probs, counts, loss, tokens, experts, alpha};
  check_aux_loss_forward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_aux_loss_backward(nncuda_ctx *ctx, const int32_t *counts, const float *grad_scale,
    float *dprobs, int64_t tokens, int64_t experts, float alpha) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_aux_loss_backward);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "experts", experts);
  nn_call_require(&call, isfinite(alpha), NNCUDA_ERROR_INVALID_VALUE, "alpha is %g; it must be finite", (double)alpha);
  nn_call_tensor(&call, NN_ROLE_IN, "counts", counts, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts]", experts));
  nn_call_tensor(&call, NN_ROLE_IN, "grad_scale", grad_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "dprobs", dprobs, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
  const nn_aux_loss_backward_args args = {counts, grad_scale, dprobs, tokens, experts, alpha};
  check_aux_loss_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_weighted_mean(nncuda_ctx *ctx, const float *x, const int32_t *weights, float *y, int64_t n,
    int64_t divisor) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_weighted_mean);
  nn_call_size(&call, "n", n);
  nn_call_require(&call, divisor >= 1, NNCUDA_ERROR_INVALID_VALUE, "divisor is %lld; it must be at least 1",
      (long long)divisor);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "weights", weights, NNCUDA_I32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  const nn_weighted_mean_args args = {x, weights, y, n, divisor};
  check_weighted_mean(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
