/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/moe_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_moe_plan(nncuda_ctx *ctx, const int32_t *indices, int32_t *counts, int32_t *offsets,
    int32_t *slot_row, int32_t *row_slot, int64_t tokens, int64_t k, int64_t experts, int64_t capacity) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_plan);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "experts", experts);
  nn_call_require(&call, experts <= 2147483647, NNCUDA_ERROR_INVALID_SIZE,
      "experts is %lld; it must be at most 2147483647", (long long)experts);
  nn_call_require(&call, capacity == 0 || (capacity >= 1), NNCUDA_ERROR_INVALID_VALUE,
      "capacity is %lld; it must be at least 1, or 0 for no limit", (long long)capacity);
  nn_call_tensor(&call, NN_ROLE_IN, "indices", indices, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "counts", counts, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts]", experts));
  nn_call_tensor(&call, NN_ROLE_OUT, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts+1]", nn_add(experts,
      1)));
  nn_call_tensor(&call, NN_ROLE_OUT, "slot_row", slot_row, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "row_slot", row_slot, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens*k]", nn_mul(tokens,
      k)));
  const nn_moe_plan_args args = {indices, counts, offsets, slot_row, row_slot, tokens, k, experts, capacity};
  check_moe_plan(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_moe_gather(nncuda_ctx *ctx, const void *x, const int32_t *row_slot, void *y, int64_t tokens,
    int64_t k, int64_t dim, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_gather);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "row_slot", row_slot, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens*k]", nn_mul(tokens,
      k)));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k), dim));
  const nn_moe_gather_args args = {x, row_slot, y, tokens, k, dim, dtype};
  check_moe_gather(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_moe_route(nncuda_ctx *ctx, const void *logits, const void *x, float *weights, int32_t *indices,
    float *probs, int32_t *counts, int32_t *offsets, int32_t *slot_row, int32_t *row_slot, void *y, float *loss,
    int64_t tokens, int64_t experts, int64_t k, int64_t dim, int32_t norm, int64_t capacity, float alpha, int32_t dtype,
    int32_t dtype_logits) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_route);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_dtype(&call, "dtype_logits", dtype_logits, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_flag(&call, "norm", norm);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "experts", experts);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_require(&call, experts <= 2147483647, NNCUDA_ERROR_INVALID_SIZE,
      "experts is %lld; it must be at most 2147483647", (long long)experts);
  nn_call_require(&call, k <= 64 && k <= experts, NNCUDA_ERROR_INVALID_SIZE,
      "k is %lld; it must be at most 64 and at most experts, which is %lld", (long long)k, (long long)experts);
  nn_call_require(&call, capacity == 0 || (capacity >= 1), NNCUDA_ERROR_INVALID_VALUE,
      "capacity is %lld; it must be at least 1, or 0 for no limit", (long long)capacity);
  nn_call_require(&call, isfinite(alpha), NNCUDA_ERROR_INVALID_VALUE, "alpha is %g; it must be finite", (double)alpha);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype_logits, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "weights", weights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "indices", indices, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "probs", probs, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
  nn_call_tensor(&call, NN_ROLE_OUT, "counts", counts, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts]", experts));
  nn_call_tensor(&call, NN_ROLE_OUT, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts+1]", nn_add(experts,
      1)));
  nn_call_tensor(&call, NN_ROLE_OUT, "slot_row", slot_row, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "row_slot", row_slot, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens*k]", nn_mul(tokens,
      k)));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k), dim));
  nn_call_tensor(&call, NN_ROLE_INOUT | NN_ROLE_OPTIONAL, "loss", loss, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  const nn_moe_route_args args = {logits, x, weights, indices, probs, counts, offsets, slot_row, row_slot, y, loss,
      tokens, experts, k, dim, norm, capacity, alpha, dtype, dtype_logits};
  check_moe_route(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_moe_route_backward(nncuda_ctx *ctx, const float *dweights, const float *weights,
    const int32_t *indices, const float *probs, const int32_t *counts, const float *grad_scale, void *dlogits,
    int64_t tokens, int64_t experts, int64_t k, int32_t norm, float alpha, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_route_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_flag(&call, "norm", norm);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "experts", experts);
  nn_call_size(&call, "k", k);
  nn_call_require(&call, k <= 64 && k <= experts, NNCUDA_ERROR_INVALID_SIZE,
      "k is %lld; it must be at most 64 and at most experts, which is %lld", (long long)k, (long long)experts);
  nn_call_require(&call, isfinite(alpha), NNCUDA_ERROR_INVALID_VALUE, "alpha is %g; it must be finite", (double)alpha);
  nn_call_tensor(&call, NN_ROLE_IN, "dweights", dweights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "weights", weights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "indices", indices, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "probs", probs, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
  nn_call_tensor(&call, NN_ROLE_IN, "counts", counts, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts]", experts));
  nn_call_tensor(&call, NN_ROLE_IN, "grad_scale", grad_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "dlogits", dlogits, dtype, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
  const nn_moe_route_backward_args args = {dweights, weights, indices, probs, counts, grad_scale, dlogits, tokens,
      experts, k, norm, alpha, dtype};
  check_moe_route_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_moe_gather_backward(nncuda_ctx *ctx, const void *dy, const int32_t *slot_row, void *dx,
    int64_t tokens, int64_t k, int64_t dim, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_gather_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k), dim));
  nn_call_tensor(&call, NN_ROLE_IN, "slot_row", slot_row, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "dx", dx, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  const nn_moe_gather_backward_args args = {dy, slot_row, dx, tokens, k, dim, dtype};
  check_moe_gather_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_moe_combine(nncuda_ctx *ctx, const void *y, const float *weights, const int32_t *slot_row,
    const void *residual, void *out, int64_t tokens, int64_t k, int64_t dim, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_combine);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "y", y, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k), dim));
  nn_call_tensor(&call, NN_ROLE_IN, "weights", weights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "slot_row", slot_row, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "residual", residual, dtype, NULL, 0, NN_SHAPE("[tokens, dim]",
      tokens, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "out", out, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_alias(&call, "out", "residual");
  const nn_moe_combine_args args = {y, weights, slot_row, residual, out, tokens, k, dim, dtype};
  check_moe_combine(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_moe_combine_backward(nncuda_ctx *ctx, const void *dout, const void *y, const float *weights,
    const int32_t *slot_row, const int32_t *row_slot, void *dy, float *dweights, int64_t tokens, int64_t k, int64_t dim,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_combine_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "dout", dout, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "y", y, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k), dim));
  nn_call_tensor(&call, NN_ROLE_IN, "weights", weights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "slot_row", slot_row, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "row_slot", row_slot, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens*k]", nn_mul(tokens,
      k)));
  nn_call_tensor(&call, NN_ROLE_OUT, "dy", dy, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k), dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "dweights", dweights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_alias(&call, "dy", "y");
  const nn_moe_combine_backward_args args = {dout, y, weights, slot_row, row_slot, dy, dweights, tokens, k, dim, dtype};
  check_moe_combine_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_moe_output_backward(nncuda_ctx *ctx, const void *dout, const void *y, const float *weights,
    const int32_t *indices, const float *probs, const int32_t *counts, const int32_t *slot_row, const int32_t *row_slot,
    const float *grad_scale, void *dy, float *dweights, void *dlogits, int64_t tokens, int64_t experts, int64_t k,
    int64_t dim, int32_t norm, float alpha, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_output_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_flag(&call, "norm", norm);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "experts", experts);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_require(&call, k <= 64 && k <= experts, NNCUDA_ERROR_INVALID_SIZE,
      "k is %lld; it must be at most 64 and at most experts, which is %lld", (long long)k, (long long)experts);
  nn_call_require(&call, isfinite(alpha), NNCUDA_ERROR_INVALID_VALUE, "alpha is %g; it must be finite", (double)alpha);
  nn_call_tensor(&call, NN_ROLE_IN, "dout", dout, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "y", y, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k), dim));
  nn_call_tensor(&call, NN_ROLE_IN, "weights", weights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "indices", indices, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "probs", probs, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
  nn_call_tensor(&call, NN_ROLE_IN, "counts", counts, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts]", experts));
  nn_call_tensor(&call, NN_ROLE_IN, "slot_row", slot_row, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "row_slot", row_slot, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens*k]", nn_mul(tokens,
      k)));
  nn_call_tensor(&call, NN_ROLE_IN, "grad_scale", grad_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "dy", dy, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k), dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "dweights", dweights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "dlogits", dlogits, dtype, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
  nn_call_alias(&call, "dy", "y");
  const nn_moe_output_backward_args args = {dout, y, weights, indices, probs, counts, slot_row, row_slot, grad_scale,
      dy, dweights, dlogits, tokens, experts, k, dim, norm, alpha, dtype};
  check_moe_output_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_moe_input_backward(nncuda_ctx *ctx, const void *dlogits, const void *x, const void *gate,
    const void *drows, const int32_t *slot_row, void *dx, void *dgate, int64_t tokens, int64_t experts, int64_t k,
    int64_t dim, float beta, int32_t dtype, int32_t dtype_c) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_moe_input_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_dtype(&call, "dtype_c", dtype_c, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "experts", experts);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "dlogits", dlogits, dtype, NULL, 0, NN_SHAPE("[tokens, experts]", tokens, experts));
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "gate", gate, dtype, NULL, 0, NN_SHAPE("[experts, dim]", experts, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "drows", drows, dtype, NULL, 0, NN_SHAPE("[tokens*k, dim]", nn_mul(tokens, k),
      dim));
  nn_call_tensor(&call, NN_ROLE_IN, "slot_row", slot_row, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "dx", dx, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_INOUT, "dgate", dgate, dtype_c, NULL, 0, NN_SHAPE("[experts, dim]", experts, dim));
  const nn_moe_input_backward_args args = {dlogits, x, gate, drows, slot_row, dx, dgate, tokens, experts, k, dim, beta,
      dtype, dtype_c};
  check_moe_input_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
