/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/gemm_checks.h"

#include "runtime/call.h"

NNCUDA_API int32_t cuda_gemm(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t m, int64_t n, int64_t k,
    int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_dtype(&call, "dtype_c", dtype_c, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_flag(&call, "trans_a", trans_a);
  nn_call_flag(&call, "trans_b", trans_b);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE(trans_a ? "[k, m]" : "[m, k]", trans_a ? k : m,
      trans_a ? m : k));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE(trans_b ? "[n, k]" : "[k, n]", trans_b ? n : k,
      trans_b ? k : n));
  nn_call_tensor(&call, NN_ROLE_OUT, "c", c, dtype_c, NULL, 0, NN_SHAPE("[m, n]", m, n));
  const nn_gemm_parameters given = {a, b, c, m, n, k, trans_a, trans_b, dtype, dtype_c};
  const nn_gemm_args args = lower_gemm(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_gemm_beta(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t m, int64_t n,
    int64_t k, int64_t lda, int64_t ldb, int64_t ldc, float alpha, float beta, int32_t trans_a, int32_t trans_b,
    int32_t dtype, int32_t dtype_c) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm_beta);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_dtype(&call, "dtype_c", dtype_c, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_flag(&call, "trans_a", trans_a);
  nn_call_flag(&call, "trans_b", trans_b);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, "lda", lda, NN_SHAPE(trans_a ? "[k, m]" : "[m, k]", trans_a ? k : m,
      trans_a ? m : k));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, "ldb", ldb, NN_SHAPE(trans_b ? "[n, k]" : "[k, n]", trans_b ? n : k,
      trans_b ? k : n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "c", c, dtype_c, "ldc", ldc, NN_SHAPE("[m, n]", m, n));
  const nn_gemm_beta_parameters given = {a, b, c, m, n, k, lda, ldb, ldc, alpha, beta, trans_a, trans_b, dtype,
      dtype_c};
  const nn_gemm_args args = lower_gemm_beta(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_gemm_epilogue(nncuda_ctx *ctx, const void *a, const void *b, const void *bias,
    const void *residual, void *c, int64_t m, int64_t n, int64_t k, int32_t activation, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm_epilogue);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_require(&call, activation == NNCUDA_ACTIVATION_NONE || activation == NNCUDA_ACTIVATION_SILU,
      NNCUDA_ERROR_INVALID_VALUE,
      "activation is %d; it must be NNCUDA_ACTIVATION_NONE (0) or NNCUDA_ACTIVATION_SILU (1)", activation);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[m, k]", m, k));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE("[n, k]", n, k));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "bias", bias, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "residual", residual, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_tensor(&call, NN_ROLE_OUT, "c", c, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_alias(&call, "c", "residual");
  const nn_gemm_epilogue_parameters given = {a, b, bias, residual, c, m, n, k, activation, dtype};
  const nn_gemm_args args = lower_gemm_epilogue(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_batched_gemm(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t batch, int64_t m,
    int64_t n, int64_t k, float alpha, float beta, int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_batched_gemm);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_dtype(&call, "dtype_c", dtype_c, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_flag(&call, "trans_a", trans_a);
  nn_call_flag(&call, "trans_b", trans_b);
  nn_call_size(&call, "batch", batch);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE(trans_a ? "[batch, k, m]" : "[batch, m, k]", batch,
      trans_a ? k : m, trans_a ? m : k));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE(trans_b ? "[batch, n, k]" : "[batch, k, n]", batch,
      trans_b ? n : k, trans_b ? k : n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "c", c, dtype_c, NULL, 0, NN_SHAPE("[batch, m, n]", batch, m, n));
  const nn_batched_gemm_parameters given = {a, b, c, batch, m, n, k, alpha, beta, trans_a, trans_b, dtype, dtype_c};
  const nn_gemm_args args = lower_batched_gemm(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grouped_gemm(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c,
    int64_t groups, int64_t rows, int64_t n, int64_t k, float beta, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grouped_gemm);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_dtype(&call, "dtype_c", dtype_c, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_flag(&call, "trans_b", trans_b);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE(trans_b ? "[groups, n, k]" : "[groups, k, n]",
      groups, trans_b ? n : k, trans_b ? k : n));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]", nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_INOUT, "c", c, dtype_c, NULL, 0, NN_SHAPE("[rows, n]", rows, n));
  const nn_grouped_gemm_parameters given = {a, b, offsets, c, groups, rows, n, k, beta, trans_b, dtype, dtype_c};
  const nn_gemm_args args = lower_grouped_gemm(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grouped_gemm_wgrad(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets,
    void *c, int64_t groups, int64_t rows, int64_t m, int64_t n, float beta, int32_t dtype, int32_t dtype_c) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grouped_gemm_wgrad);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_dtype(&call, "dtype_c", dtype_c, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[rows, m]", rows, m));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE("[rows, n]", rows, n));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]", nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_INOUT, "c", c, dtype_c, NULL, 0, NN_SHAPE("[groups, m, n]", groups, m, n));
  const nn_grouped_gemm_wgrad_parameters given = {a, b, offsets, c, groups, rows, m, n, beta, dtype, dtype_c};
  const nn_gemm_args args = lower_grouped_gemm_wgrad(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grouped_gemm_swiglu(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets,
    void *gate_up, void *y, int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grouped_gemm_swiglu);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE("[groups, 2*n, k]", groups, nn_mul(2, n), k));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]", nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_OUT, "gate_up", gate_up, dtype, NULL, 0, NN_SHAPE("[rows, 2*n]", rows, nn_mul(2, n)));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, n]", rows, n));
  const nn_grouped_gemm_swiglu_args args = {a, b, offsets, gate_up, y, groups, rows, n, k, dtype};
  check_grouped_gemm_swiglu(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grouped_gemm_swiglu_backward(nncuda_ctx *ctx, const void *a, const void *b,
    const int32_t *offsets, void *gate_up, int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grouped_gemm_swiglu_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE("[groups, k, n]", groups, k, n));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]", nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_INOUT, "gate_up", gate_up, dtype, NULL, 0, NN_SHAPE("[rows, 2*n]", rows, nn_mul(2, n)));
  const nn_grouped_gemm_swiglu_backward_args args = {a, b, offsets, gate_up, groups, rows, n, k, dtype};
  check_grouped_gemm_swiglu_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grouped_gemm_fp8(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c,
    int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grouped_gemm_fp8);
  nn_call_dtype(&call, "dtype", dtype, 1u << NNCUDA_F32 | 1u << NNCUDA_BF16);
  nn_call_dtype(&call, "dtype_c", dtype_c, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_flag(&call, "trans_b", trans_b);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE(trans_b ? "[groups, n, k]" : "[groups, k, n]",
      groups, trans_b ? n : k, trans_b ? k : n));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]", nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_OUT, "c", c, dtype_c, NULL, 0, NN_SHAPE("[rows, n]", rows, n));
  const nn_grouped_gemm_fp8_args args = {a, b, offsets, c, groups, rows, n, k, trans_b, dtype, dtype_c};
  check_grouped_gemm_fp8(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grouped_gemm_wgrad_fp8(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets,
    void *c, int64_t groups, int64_t rows, int64_t m, int64_t n, float beta, int32_t dtype, int32_t dtype_c) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grouped_gemm_wgrad_fp8);
  nn_call_dtype(&call, "dtype", dtype, 1u << NNCUDA_F32 | 1u << NNCUDA_BF16);
  nn_call_dtype(&call, "dtype_c", dtype_c, nn_dtype_bit(dtype) | 1u << NNCUDA_F32);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "a", a, dtype, NULL, 0, NN_SHAPE("[rows, m]", rows, m));
  nn_call_tensor(&call, NN_ROLE_IN, "b", b, dtype, NULL, 0, NN_SHAPE("[rows, n]", rows, n));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]", nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_INOUT, "c", c, dtype_c, NULL, 0, NN_SHAPE("[groups, m, n]", groups, m, n));
  const nn_grouped_gemm_wgrad_fp8_args args = {a, b, offsets, c, groups, rows, m, n, beta, dtype, dtype_c};
  check_grouped_gemm_wgrad_fp8(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
