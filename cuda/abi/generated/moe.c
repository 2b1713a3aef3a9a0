/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/moe_checks.h"

#include "runtime/call.h"

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
