/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/ternary_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_act_quant_i8(nncuda_ctx *ctx, const void *x, void *codes, float *scale, int64_t rows,
    int64_t cols, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_act_quant_i8);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "codes", codes, NNCUDA_I8, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "scale", scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_act_quant_i8_args args = {x, codes, scale, rows, cols, dtype};
  check_act_quant_i8(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_rmsnorm_quant_i8(nncuda_ctx *ctx, const void *x, const void *weight, void *codes, float *scale,
    int64_t rows, int64_t cols, float eps, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rmsnorm_quant_i8);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_require(&call, isfinite(eps) && eps >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and at least 0", (double)eps);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_IN, "weight", weight, dtype, NULL, 0, NN_SHAPE("[cols]", cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "codes", codes, NNCUDA_I8, NULL, 0, NN_SHAPE("[rows, cols]", rows, cols));
  nn_call_tensor(&call, NN_ROLE_OUT, "scale", scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_rmsnorm_quant_i8_args args = {x, weight, codes, scale, rows, cols, eps, dtype};
  check_rmsnorm_quant_i8(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_ternary_quantize(nncuda_ctx *ctx, const void *x, void *codes, float *scale, int64_t n,
    int64_t k, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_ternary_quantize);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[n, k]", n, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "codes", codes, NNCUDA_I8, NULL, 0, NN_SHAPE("[n, k]", n, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "scale", scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  const nn_ternary_quantize_args args = {x, codes, scale, n, k, dtype};
  check_ternary_quantize(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_ternary_pack(nncuda_ctx *ctx, const void *codes, void *w, int64_t n, int64_t k, int64_t stored,
    int64_t row_bytes) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_ternary_pack);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "stored", stored);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_tensor(&call, NN_ROLE_IN, "codes", codes, NNCUDA_I8, NULL, 0, NN_SHAPE("[n, k]", n, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "w", w, NN_U8, NULL, 0, NN_SHAPE("[stored, row_bytes]", stored, row_bytes));
  const nn_ternary_pack_args args = {codes, w, n, k, stored, row_bytes};
  check_ternary_pack(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_ternary_unpack(nncuda_ctx *ctx, const void *w, void *codes, int64_t n, int64_t k,
    int64_t stored, int64_t row_bytes) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_ternary_unpack);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "stored", stored);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_tensor(&call, NN_ROLE_IN, "w", w, NN_U8, NULL, 0, NN_SHAPE("[stored, row_bytes]", stored, row_bytes));
  nn_call_tensor(&call, NN_ROLE_OUT, "codes", codes, NNCUDA_I8, NULL, 0, NN_SHAPE("[n, k]", n, k));
  const nn_ternary_unpack_args args = {w, codes, n, k, stored, row_bytes};
  check_ternary_unpack(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_bitlinear(nncuda_ctx *ctx, const void *codes, const float *scale, const void *w,
    const float *w_scale, const void *residual, void *y, int64_t m, int64_t n, int64_t k, int64_t stored,
    int64_t row_bytes, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_bitlinear);
  nn_call_dtype(&call, "dtype", dtype, 1u << NNCUDA_F32 | 1u << NNCUDA_F16 | 1u << NNCUDA_BF16 | 1u << NNCUDA_I32);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "stored", stored);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_require(&call, k <= 262144, NNCUDA_ERROR_INVALID_SIZE, "k is %lld; it must be at most 262144", (long long)k);
  nn_call_tensor(&call, NN_ROLE_IN, "codes", codes, NNCUDA_I8, NULL, 0, NN_SHAPE("[m, k]", m, k));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "scale", scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[m]", m));
  nn_call_tensor(&call, NN_ROLE_IN, "w", w, NN_U8, NULL, 0, NN_SHAPE("[stored, row_bytes]", stored, row_bytes));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "w_scale", w_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "residual", residual, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_alias(&call, "y", "residual");
  const nn_bitlinear_args args = {codes, scale, w, w_scale, residual, y, m, n, k, stored, row_bytes, dtype};
  check_bitlinear(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_bitlinear_norm(nncuda_ctx *ctx, const void *x, const void *norm, const void *w,
    const float *w_scale, const void *residual, void *y, int64_t m, int64_t n, int64_t k, int64_t stored,
    int64_t row_bytes, float eps, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_bitlinear_norm);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "stored", stored);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_require(&call, k <= 262144, NNCUDA_ERROR_INVALID_SIZE, "k is %lld; it must be at most 262144", (long long)k);
  nn_call_require(&call, isfinite(eps) && eps >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and at least 0", (double)eps);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[m, k]", m, k));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "norm", norm, dtype, NULL, 0, NN_SHAPE("[k]", k));
  nn_call_tensor(&call, NN_ROLE_IN, "w", w, NN_U8, NULL, 0, NN_SHAPE("[stored, row_bytes]", stored, row_bytes));
  nn_call_tensor(&call, NN_ROLE_IN, "w_scale", w_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "residual", residual, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_alias(&call, "y", "residual");
  const nn_bitlinear_norm_args args = {x, norm, w, w_scale, residual, y, m, n, k, stored, row_bytes, eps, dtype};
  check_bitlinear_norm(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
