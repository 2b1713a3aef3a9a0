#include "moe.h"

#include "runtime/call.h"

/* Slots and rows are counted in i32. */
#define NN_REQUIRE_SLOTS()                                                                                             \
  NN_REQUIRE(nn_mul(tokens, k) <= INT32_MAX, NNCUDA_ERROR_INVALID_SIZE,                                                \
             "tokens * k is %lld * %lld; an i32 must hold the product", (long long)tokens, (long long)k)

int32_t cuda_moe_plan(nncuda_ctx *ctx, const int32_t *indices, int32_t *counts, int32_t *offsets, int32_t *slot_row,
                      int32_t *row_slot, int64_t tokens, int64_t k, int64_t experts, int64_t capacity) {
  NN_BEGIN(moe_plan);
  NN_SIZE(tokens);
  NN_SIZE(k);
  NN_SIZE(experts);
  NN_IN(indices, NNCUDA_I32, tokens, k);
  NN_OUT(counts, NNCUDA_I32, experts);
  NN_OUT(offsets, NNCUDA_I32, nn_add(experts, 1));
  NN_OUT(slot_row, NNCUDA_I32, tokens, k);
  NN_OUT(row_slot, NNCUDA_I32, nn_mul(tokens, k));
  NN_REQUIRE_SLOTS();
  NN_REQUIRE(experts <= INT32_MAX, NNCUDA_ERROR_INVALID_SIZE, "experts is %lld; it must be at most %d",
             (long long)experts, INT32_MAX);
  NN_REQUIRE(capacity >= 0, NNCUDA_ERROR_INVALID_VALUE, "capacity is %lld; it must be at least 1, or 0 for no limit",
             (long long)capacity);
  return NN_LAUNCH(nn_moe_plan_args, .indices = indices, .counts = counts, .offsets = offsets, .slot_row = slot_row,
                   .row_slot = row_slot, .tokens = tokens, .k = k, .experts = experts, .capacity = capacity);
}

int32_t cuda_moe_gather(nncuda_ctx *ctx, const void *x, const int32_t *row_slot, void *y, int64_t tokens, int64_t k,
                        int64_t dim, int32_t dtype) {
  NN_BEGIN(moe_gather);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(k);
  NN_SIZE(dim);
  NN_IN(x, dtype, tokens, dim);
  NN_IN(row_slot, NNCUDA_I32, nn_mul(tokens, k));
  NN_OUT(y, dtype, nn_mul(tokens, k), dim);
  NN_REQUIRE_SLOTS();
  return NN_LAUNCH(nn_moe_gather_args, .x = x, .row_slot = row_slot, .y = y, .tokens = tokens, .k = k, .dim = dim,
                   .dtype = dtype);
}

int32_t cuda_moe_gather_backward(nncuda_ctx *ctx, const void *dy, const int32_t *slot_row, void *dx, int64_t tokens,
                                 int64_t k, int64_t dim, int32_t dtype) {
  NN_BEGIN(moe_gather_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(k);
  NN_SIZE(dim);
  NN_IN(dy, dtype, nn_mul(tokens, k), dim);
  NN_IN(slot_row, NNCUDA_I32, tokens, k);
  NN_OUT(dx, dtype, tokens, dim);
  NN_REQUIRE_SLOTS();
  NN_FLOPS((double)tokens * (double)k * (double)dim);
  return NN_LAUNCH(nn_moe_gather_backward_args, .dy = dy, .slot_row = slot_row, .dx = dx, .tokens = tokens, .k = k,
                   .dim = dim, .dtype = dtype);
}

int32_t cuda_moe_combine(nncuda_ctx *ctx, const void *y, const float *weights, const int32_t *slot_row,
                         const void *residual, void *out, int64_t tokens, int64_t k, int64_t dim, int32_t dtype) {
  NN_BEGIN(moe_combine);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(k);
  NN_SIZE(dim);
  NN_IN(y, dtype, nn_mul(tokens, k), dim);
  NN_IN(weights, NNCUDA_F32, tokens, k);
  NN_IN(slot_row, NNCUDA_I32, tokens, k);
  NN_IN_OPT(residual, dtype, tokens, dim);
  NN_OUT(out, dtype, tokens, dim);
  NN_ALIAS(out, residual);
  NN_REQUIRE_SLOTS();
  NN_FLOPS(2.0 * (double)tokens * (double)k * (double)dim);
  return NN_LAUNCH(nn_moe_combine_args, .y = y, .weights = weights, .slot_row = slot_row, .residual = residual,
                   .out = out, .tokens = tokens, .k = k, .dim = dim, .dtype = dtype);
}

int32_t cuda_moe_combine_backward(nncuda_ctx *ctx, const void *dout, const void *y, const float *weights,
                                  const int32_t *slot_row, const int32_t *row_slot, void *dy, float *dweights,
                                  int64_t tokens, int64_t k, int64_t dim, int32_t dtype) {
  NN_BEGIN(moe_combine_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(k);
  NN_SIZE(dim);
  NN_IN(dout, dtype, tokens, dim);
  NN_IN(y, dtype, nn_mul(tokens, k), dim);
  NN_IN(weights, NNCUDA_F32, tokens, k);
  NN_IN(slot_row, NNCUDA_I32, tokens, k);
  NN_IN(row_slot, NNCUDA_I32, nn_mul(tokens, k));
  NN_OUT(dy, dtype, nn_mul(tokens, k), dim);
  NN_OUT(dweights, NNCUDA_F32, tokens, k);
  NN_ALIAS(dy, y);
  NN_REQUIRE_SLOTS();
  NN_FLOPS(3.0 * (double)tokens * (double)k * (double)dim);
  return NN_LAUNCH(nn_moe_combine_backward_args, .dout = dout, .y = y, .weights = weights, .slot_row = slot_row,
                   .row_slot = row_slot, .dy = dy, .dweights = dweights, .tokens = tokens, .k = k, .dim = dim,
                   .dtype = dtype);
}
