/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/activation_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_softcap(nncuda_ctx *ctx, const void *x, void *y, int64_t n, float cap, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_softcap);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_require(&call, isfinite(cap) && cap > 0, NNCUDA_ERROR_INVALID_VALUE,
      "cap is %g; it must be finite and above 0", (double)cap);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_alias(&call, "y", "x");
  const nn_softcap_args args = {x, y, n, cap, dtype};
  check_softcap(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_geglu(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows, int64_t dim,
    int64_t ld, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_geglu);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "gate", gate, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "up", up, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  const nn_geglu_args args = {gate, up, y, rows, dim, ld, dtype};
  check_geglu(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_swiglu_clipped(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows,
    int64_t dim, int64_t ld, float alpha, float limit, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_swiglu_clipped);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "dim", dim);
  nn_call_require(&call, isfinite(alpha), NNCUDA_ERROR_INVALID_VALUE, "alpha is %g; it must be finite", (double)alpha);
  nn_call_require(&call, isfinite(limit) && limit > 0, NNCUDA_ERROR_INVALID_VALUE,
      "limit is %g; it must be finite and above 0", (double)limit);
  nn_call_tensor(&call, NN_ROLE_IN, "gate", gate, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "up", up, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  const nn_swiglu_clipped_args args = {gate, up, y, rows, dim, ld, alpha, limit, dtype};
  check_swiglu_clipped(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_relu2_gate_backward(nncuda_ctx *ctx, const void *dy, const void *gate, const void *up,
    void *dgate, void *dup, int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_relu2_gate_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "dim", dim);
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "gate", gate, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "up", up, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "dgate", dgate, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "dup", dup, dtype, "ld", ld, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_alias(&call, "dgate", "gate");
  nn_call_alias(&call, "dup", "up");
  const nn_relu2_gate_backward_args args = {dy, gate, up, dgate, dup, rows, dim, ld, dtype};
  check_relu2_gate_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_act_dequant_i8(nncuda_ctx *ctx, const void *codes, const float *scale, void *x, int64_t rows,
    int64_t cols, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_act_dequant_i8);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_tensor(&call, NN_ROLE_IN, "codes", codes, NNCUDA_I8, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN, "scale", scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  const nn_act_dequant_i8_args args = {codes, scale, x, rows, cols, dtype};
  check_act_dequant_i8(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grouped_bias(nncuda_ctx *ctx, const void *x, const void *bias, const int32_t *offsets, void *y,
    int64_t rows, int64_t dim, int64_t groups, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grouped_bias);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "dim", dim);
  nn_call_size(&call, "groups", groups);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "bias", bias, dtype, NULL, 0, NN_SHAPE("[groups, dim]", groups, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]", nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, dim]", rows, dim));
  nn_call_alias(&call, "y", "x");
  const nn_grouped_bias_args args = {x, bias, offsets, y, rows, dim, groups, dtype};
  check_grouped_bias(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
