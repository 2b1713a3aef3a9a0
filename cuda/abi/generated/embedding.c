/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/embedding_checks.h"

#include "runtime/call.h"

NNCUDA_API int32_t cuda_embedding(nncuda_ctx *ctx, const void *table, const int32_t *ids, void *y, int64_t tokens,
    int64_t vocab, int64_t dim, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_embedding);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "vocab", vocab);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "table", table, dtype, NULL, 0, NN_SHAPE("[vocab, dim]", vocab, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens]", tokens));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  const nn_embedding_args args = {table, ids, y, tokens, vocab, dim, dtype};
  check_embedding(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_scatter_add(nncuda_ctx *ctx, const void *x, const int32_t *ids, float *table, int64_t tokens,
    int64_t vocab, int64_t dim, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_scatter_add);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "vocab", vocab);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens]", tokens));
  nn_call_tensor(&call, NN_ROLE_ACC, "table", table, NNCUDA_F32, NULL, 0, NN_SHAPE("[vocab, dim]", vocab, dim));
  const nn_scatter_add_args args = {x, ids, table, tokens, vocab, dim, dtype};
  check_scatter_add(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_pool_rows(nncuda_ctx *ctx, const float *x, float *sum, int64_t rows, int64_t dim) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_pool_rows);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_INOUT, "sum", sum, NNCUDA_F32, NULL, 0, NN_SHAPE("[2, dim]", 2, dim));
  const nn_pool_rows_args args = {x, sum, rows, dim};
  check_pool_rows(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_pool_unit(nncuda_ctx *ctx, const float *sum, float *y, int64_t dim) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_pool_unit);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "sum", sum, NNCUDA_F32, NULL, 0, NN_SHAPE("[2, dim]", 2, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NNCUDA_F32, NULL, 0, NN_SHAPE("[dim]", dim));
  const nn_pool_unit_args args = {sum, y, dim};
  check_pool_unit(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
