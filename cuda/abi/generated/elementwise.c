/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/elementwise_checks.h"

#include "runtime/call.h"

NNCUDA_API int32_t cuda_silu(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_silu);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_alias(&call, "y", "x");
  const nn_silu_args args = {x, y, n, dtype};
  check_silu(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_silu_backward(nncuda_ctx *ctx, const void *dy, const void *x, void *dx, int64_t n,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_silu_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "dx", dx, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_alias(&call, "dx", "dy");
  nn_call_alias(&call, "dx", "x");
  const nn_silu_backward_args args = {dy, x, dx, n, dtype};
  check_silu_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_add(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_add);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_alias(&call, "y", "a");
  nn_call_alias(&call, "y", "b");
  const nn_add_args args = {a, b, y, n, dtype};
  check_add(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_mul(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_mul);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_alias(&call, "y", "a");
  nn_call_alias(&call, "y", "b");
  const nn_mul_args args = {a, b, y, n, dtype};
  check_mul(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_scale(nncuda_ctx *ctx, const void *x, void *y, int64_t n, float alpha, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_scale);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_alias(&call, "y", "x");
  const nn_scale_args args = {x, y, n, alpha, dtype};
  check_scale(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_swiglu(nncuda_ctx *ctx, const void *gate, const void *up, const int32_t *used, void *y,
    int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_swiglu);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "gate", gate, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "up", up, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "used", used, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  const nn_swiglu_args args = {gate, up, used, y, rows, dim, ld, dtype};
  check_swiglu(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_swiglu_backward(nncuda_ctx *ctx, const void *dy, const void *gate, const void *up,
    const int32_t *used, void *dgate, void *dup, int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_swiglu_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "gate", gate, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "up", up, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "used", used, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "dgate", dgate, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "dup", dup, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_alias(&call, "dgate", "gate");
  nn_call_alias(&call, "dup", "up");
  const nn_swiglu_backward_args args = {dy, gate, up, used, dgate, dup, rows, dim, ld, dtype};
  check_swiglu_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_relu2_gate(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows,
    int64_t dim, int64_t ld, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_relu2_gate);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "gate", gate, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "up", up, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  const nn_relu2_gate_args args = {gate, up, y, rows, dim, ld, dtype};
  check_relu2_gate(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_cast(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype_x, int32_t dtype_y) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_cast);
  nn_call_dtype(&call, "dtype_x", dtype_x, NN_FLOATS);
  nn_call_dtype(&call, "dtype_y", dtype_y, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype_x, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype_y, NULL, 0, NN_SHAPE("[n]", n));
  const nn_cast_args args = {x, y, n, dtype_x, dtype_y};
  check_cast(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_round(nncuda_ctx *ctx, const float *x, float *y, int64_t n, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_round);
  nn_call_dtype(&call, "dtype", dtype, 1u << NNCUDA_F16 | 1u << NNCUDA_BF16);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_alias(&call, "y", "x");
  const nn_round_args args = {x, y, n, dtype};
  check_round(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_fill(nncuda_ctx *ctx, void *y, int64_t n, float value, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_fill);
  nn_call_dtype(&call, "dtype", dtype, 1u << NNCUDA_F32 | 1u << NNCUDA_F16 | 1u << NNCUDA_BF16 | 1u << NNCUDA_I32 |
      1u << NNCUDA_I8);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
  const nn_fill_args args = {y, n, value, dtype};
  check_fill(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_increment(nncuda_ctx *ctx, int32_t *x, int64_t n, int32_t by) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_increment);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_INOUT, "x", x, NNCUDA_I32, NULL, 0, NN_SHAPE("[n]", n));
  const nn_increment_args args = {x, n, by};
  check_increment(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
