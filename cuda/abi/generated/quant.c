/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/quant_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_quantize(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes,
    int32_t format, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_quantize);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_Q4_0 || format == NNCUDA_FORMAT_Q4_1 || format == NNCUDA_FORMAT_Q5_0 ||
      format == NNCUDA_FORMAT_Q5_1 || format == NNCUDA_FORMAT_Q8_0 || format == NNCUDA_FORMAT_Q4_K ||
      format == NNCUDA_FORMAT_Q5_K || format == NNCUDA_FORMAT_Q6_K || format == NNCUDA_FORMAT_IQ4_NL ||
      format == NNCUDA_FORMAT_MXFP4 || format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_IQ4_XS ||
      format == NNCUDA_FORMAT_Q2_K || format == NNCUDA_FORMAT_Q3_K || format == NNCUDA_FORMAT_Q4_0_R16 ||
      format == NNCUDA_FORMAT_Q4_1_R16 || format == NNCUDA_FORMAT_Q5_0_R16 || format == NNCUDA_FORMAT_Q5_1_R16 ||
      format == NNCUDA_FORMAT_Q8_0_R16 || format == NNCUDA_FORMAT_Q4_K_R16 || format == NNCUDA_FORMAT_Q5_K_R16 ||
      format == NNCUDA_FORMAT_Q6_K_R16 || format == NNCUDA_FORMAT_IQ4_NL_R16 || format == NNCUDA_FORMAT_MXFP4_R16 ||
      format == NNCUDA_FORMAT_IQ4_XS_R16 || format == NNCUDA_FORMAT_Q2_K_R16 || format == NNCUDA_FORMAT_Q3_K_R16,
      NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NN_U8, NULL, 0, NN_SHAPE("[rows, row_bytes]", rows, row_bytes));
  const nn_quantize_args args = {x, y, rows, k, row_bytes, format, dtype};
  check_quantize(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_dequantize(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes,
    int32_t format, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_dequantize);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_Q4_0 || format == NNCUDA_FORMAT_Q4_1 || format == NNCUDA_FORMAT_Q5_0 ||
      format == NNCUDA_FORMAT_Q5_1 || format == NNCUDA_FORMAT_Q8_0 || format == NNCUDA_FORMAT_Q4_K ||
      format == NNCUDA_FORMAT_Q5_K || format == NNCUDA_FORMAT_Q6_K || format == NNCUDA_FORMAT_IQ4_NL ||
      format == NNCUDA_FORMAT_MXFP4 || format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_IQ4_XS ||
      format == NNCUDA_FORMAT_Q2_K || format == NNCUDA_FORMAT_Q3_K || format == NNCUDA_FORMAT_Q4_0_R16 ||
      format == NNCUDA_FORMAT_Q4_1_R16 || format == NNCUDA_FORMAT_Q5_0_R16 || format == NNCUDA_FORMAT_Q5_1_R16 ||
      format == NNCUDA_FORMAT_Q8_0_R16 || format == NNCUDA_FORMAT_Q4_K_R16 || format == NNCUDA_FORMAT_Q5_K_R16 ||
      format == NNCUDA_FORMAT_Q6_K_R16 || format == NNCUDA_FORMAT_IQ4_NL_R16 || format == NNCUDA_FORMAT_MXFP4_R16 ||
      format == NNCUDA_FORMAT_IQ4_XS_R16 || format == NNCUDA_FORMAT_Q2_K_R16 || format == NNCUDA_FORMAT_Q3_K_R16,
      NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, NN_U8, NULL, 0, NN_SHAPE("[rows, row_bytes]", rows, row_bytes));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[rows, k]", rows, k));
  const nn_dequantize_args args = {x, y, rows, k, row_bytes, format, dtype};
  check_dequantize(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_embedding_quant(nncuda_ctx *ctx, const void *table, const int32_t *ids, void *y, int64_t tokens,
    int64_t vocab, int64_t dim, int64_t row_bytes, int32_t format, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_embedding_quant);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "vocab", vocab);
  nn_call_size(&call, "dim", dim);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_Q4_0 || format == NNCUDA_FORMAT_Q4_1 || format == NNCUDA_FORMAT_Q5_0 ||
      format == NNCUDA_FORMAT_Q5_1 || format == NNCUDA_FORMAT_Q8_0 || format == NNCUDA_FORMAT_Q4_K ||
      format == NNCUDA_FORMAT_Q5_K || format == NNCUDA_FORMAT_Q6_K || format == NNCUDA_FORMAT_IQ4_NL ||
      format == NNCUDA_FORMAT_MXFP4 || format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_IQ4_XS ||
      format == NNCUDA_FORMAT_Q2_K || format == NNCUDA_FORMAT_Q3_K || format == NNCUDA_FORMAT_Q4_0_R16 ||
      format == NNCUDA_FORMAT_Q4_1_R16 || format == NNCUDA_FORMAT_Q5_0_R16 || format == NNCUDA_FORMAT_Q5_1_R16 ||
      format == NNCUDA_FORMAT_Q8_0_R16 || format == NNCUDA_FORMAT_Q4_K_R16 || format == NNCUDA_FORMAT_Q5_K_R16 ||
      format == NNCUDA_FORMAT_Q6_K_R16 || format == NNCUDA_FORMAT_IQ4_NL_R16 || format == NNCUDA_FORMAT_MXFP4_R16 ||
      format == NNCUDA_FORMAT_IQ4_XS_R16 || format == NNCUDA_FORMAT_Q2_K_R16 || format == NNCUDA_FORMAT_Q3_K_R16,
      NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "table", table, NN_U8, NULL, 0, NN_SHAPE("[vocab, row_bytes]", vocab, row_bytes));
  nn_call_tensor(&call, NN_ROLE_IN, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens]", tokens));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  const nn_embedding_quant_args args = {table, ids, y, tokens, vocab, dim, row_bytes, format, dtype};
  check_embedding_quant(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_gemm_quant(nncuda_ctx *ctx, const void *x, const void *w, const int32_t *offsets,
    const void *bias, const void *residual, void *y, int64_t groups, int64_t m, int64_t n, int64_t k, int64_t row_bytes,
    int32_t activation, int32_t format, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm_quant);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_require(&call, activation == NNCUDA_ACTIVATION_NONE || activation == NNCUDA_ACTIVATION_SILU,
      NNCUDA_ERROR_INVALID_VALUE,
      "activation is %d; it must be NNCUDA_ACTIVATION_NONE (0) or NNCUDA_ACTIVATION_SILU (1)", activation);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_Q4_0 || format == NNCUDA_FORMAT_Q4_1 || format == NNCUDA_FORMAT_Q5_0 ||
      format == NNCUDA_FORMAT_Q5_1 || format == NNCUDA_FORMAT_Q8_0 || format == NNCUDA_FORMAT_Q4_K ||
      format == NNCUDA_FORMAT_Q5_K || format == NNCUDA_FORMAT_Q6_K || format == NNCUDA_FORMAT_IQ4_NL ||
      format == NNCUDA_FORMAT_MXFP4 || format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_IQ4_XS ||
      format == NNCUDA_FORMAT_Q2_K || format == NNCUDA_FORMAT_Q3_K || format == NNCUDA_FORMAT_Q4_0_R16 ||
      format == NNCUDA_FORMAT_Q4_1_R16 || format == NNCUDA_FORMAT_Q5_0_R16 || format == NNCUDA_FORMAT_Q5_1_R16 ||
      format == NNCUDA_FORMAT_Q8_0_R16 || format == NNCUDA_FORMAT_Q4_K_R16 || format == NNCUDA_FORMAT_Q5_K_R16 ||
      format == NNCUDA_FORMAT_Q6_K_R16 || format == NNCUDA_FORMAT_IQ4_NL_R16 || format == NNCUDA_FORMAT_MXFP4_R16 ||
      format == NNCUDA_FORMAT_IQ4_XS_R16 || format == NNCUDA_FORMAT_Q2_K_R16 || format == NNCUDA_FORMAT_Q3_K_R16,
      NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[m, k]", m, k));
  nn_call_tensor(&call, NN_ROLE_IN, "w", w, NN_U8, NULL, 0, NN_SHAPE("[groups*n, row_bytes]", nn_mul(groups, n),
      row_bytes));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]",
      nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "bias", bias, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "residual", residual, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_alias(&call, "y", "residual");
  const nn_gemm_quant_parameters given = {x, w, offsets, bias, residual, y, groups, m, n, k, row_bytes, activation,
      format, dtype};
  const nn_gemm_quant_args args = lower_gemm_quant(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_gemm_quant_qkv(nncuda_ctx *ctx, const void *x, const void *wq, const void *wk, const void *wv,
    const void *bias, const void *norm, void *y, int64_t m, int64_t n_q, int64_t n_kv, int64_t n, int64_t k,
    int64_t row_bytes_q, int64_t row_bytes_k, int64_t row_bytes_v, float eps, int32_t format_q, int32_t format_k,
    int32_t format_v, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm_quant_qkv);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n_q", n_q);
  nn_call_size(&call, "n_kv", n_kv);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "row_bytes_q", row_bytes_q);
  nn_call_size(&call, "row_bytes_k", row_bytes_k);
  nn_call_size(&call, "row_bytes_v", row_bytes_v);
  nn_call_require(&call, isfinite(eps) && eps >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and at least 0", (double)eps);
  nn_call_require(&call, format_q == NNCUDA_FORMAT_F32 || format_q == NNCUDA_FORMAT_F16 ||
      format_q == NNCUDA_FORMAT_BF16 || format_q == NNCUDA_FORMAT_Q4_0 || format_q == NNCUDA_FORMAT_Q4_1 ||
      format_q == NNCUDA_FORMAT_Q5_0 || format_q == NNCUDA_FORMAT_Q5_1 || format_q == NNCUDA_FORMAT_Q8_0 ||
      format_q == NNCUDA_FORMAT_Q4_K || format_q == NNCUDA_FORMAT_Q5_K || format_q == NNCUDA_FORMAT_Q6_K ||
      format_q == NNCUDA_FORMAT_IQ4_NL || format_q == NNCUDA_FORMAT_MXFP4 || format_q == NNCUDA_FORMAT_E4M3 ||
      format_q == NNCUDA_FORMAT_IQ4_XS || format_q == NNCUDA_FORMAT_Q2_K || format_q == NNCUDA_FORMAT_Q3_K ||
      format_q == NNCUDA_FORMAT_Q4_0_R16 || format_q == NNCUDA_FORMAT_Q4_1_R16 || format_q == NNCUDA_FORMAT_Q5_0_R16 ||
      format_q == NNCUDA_FORMAT_Q5_1_R16 || format_q == NNCUDA_FORMAT_Q8_0_R16 || format_q == NNCUDA_FORMAT_Q4_K_R16 ||
      format_q == NNCUDA_FORMAT_Q5_K_R16 || format_q == NNCUDA_FORMAT_Q6_K_R16 ||
      format_q == NNCUDA_FORMAT_IQ4_NL_R16 || format_q == NNCUDA_FORMAT_MXFP4_R16 ||
      format_q == NNCUDA_FORMAT_IQ4_XS_R16 || format_q == NNCUDA_FORMAT_Q2_K_R16 || format_q == NNCUDA_FORMAT_Q3_K_R16,
      NNCUDA_ERROR_INVALID_VALUE,
      "format_q is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format_q);
  nn_call_require(&call, format_k == NNCUDA_FORMAT_F32 || format_k == NNCUDA_FORMAT_F16 ||
      format_k == NNCUDA_FORMAT_BF16 || format_k == NNCUDA_FORMAT_Q4_0 || format_k == NNCUDA_FORMAT_Q4_1 ||
      format_k == NNCUDA_FORMAT_Q5_0 || format_k == NNCUDA_FORMAT_Q5_1 || format_k == NNCUDA_FORMAT_Q8_0 ||
      format_k == NNCUDA_FORMAT_Q4_K || format_k == NNCUDA_FORMAT_Q5_K || format_k == NNCUDA_FORMAT_Q6_K ||
      format_k == NNCUDA_FORMAT_IQ4_NL || format_k == NNCUDA_FORMAT_MXFP4 || format_k == NNCUDA_FORMAT_E4M3 ||
      format_k == NNCUDA_FORMAT_IQ4_XS || format_k == NNCUDA_FORMAT_Q2_K || format_k == NNCUDA_FORMAT_Q3_K ||
      format_k == NNCUDA_FORMAT_Q4_0_R16 || format_k == NNCUDA_FORMAT_Q4_1_R16 || format_k == NNCUDA_FORMAT_Q5_0_R16 ||
      format_k == NNCUDA_FORMAT_Q5_1_R16 || format_k == NNCUDA_FORMAT_Q8_0_R16 || format_k == NNCUDA_FORMAT_Q4_K_R16 ||
      format_k == NNCUDA_FORMAT_Q5_K_R16 || format_k == NNCUDA_FORMAT_Q6_K_R16 ||
      format_k == NNCUDA_FORMAT_IQ4_NL_R16 || format_k == NNCUDA_FORMAT_MXFP4_R16 ||
      format_k == NNCUDA_FORMAT_IQ4_XS_R16 || format_k == NNCUDA_FORMAT_Q2_K_R16 || format_k == NNCUDA_FORMAT_Q3_K_R16,
      NNCUDA_ERROR_INVALID_VALUE,
      "format_k is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format_k);
  nn_call_require(&call, format_v == NNCUDA_FORMAT_F32 || format_v == NNCUDA_FORMAT_F16 ||
      format_v == NNCUDA_FORMAT_BF16 || format_v == NNCUDA_FORMAT_Q4_0 || format_v == NNCUDA_FORMAT_Q4_1 ||
      format_v == NNCUDA_FORMAT_Q5_0 || format_v == NNCUDA_FORMAT_Q5_1 || format_v == NNCUDA_FORMAT_Q8_0 ||
      format_v == NNCUDA_FORMAT_Q4_K || format_v == NNCUDA_FORMAT_Q5_K || format_v == NNCUDA_FORMAT_Q6_K ||
      format_v == NNCUDA_FORMAT_IQ4_NL || format_v == NNCUDA_FORMAT_MXFP4 || format_v == NNCUDA_FORMAT_E4M3 ||
      format_v == NNCUDA_FORMAT_IQ4_XS || format_v == NNCUDA_FORMAT_Q2_K || format_v == NNCUDA_FORMAT_Q3_K ||
      format_v == NNCUDA_FORMAT_Q4_0_R16 || format_v == NNCUDA_FORMAT_Q4_1_R16 || format_v == NNCUDA_FORMAT_Q5_0_R16 ||
      format_v == NNCUDA_FORMAT_Q5_1_R16 || format_v == NNCUDA_FORMAT_Q8_0_R16 || format_v == NNCUDA_FORMAT_Q4_K_R16 ||
      format_v == NNCUDA_FORMAT_Q5_K_R16 || format_v == NNCUDA_FORMAT_Q6_K_R16 ||
      format_v == NNCUDA_FORMAT_IQ4_NL_R16 || format_v == NNCUDA_FORMAT_MXFP4_R16 ||
      format_v == NNCUDA_FORMAT_IQ4_XS_R16 || format_v == NNCUDA_FORMAT_Q2_K_R16 || format_v == NNCUDA_FORMAT_Q3_K_R16,
      NNCUDA_ERROR_INVALID_VALUE,
      "format_v is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format_v);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[m, k]", m, k));
  nn_call_tensor(&call, NN_ROLE_IN, "wq", wq, NN_U8, NULL, 0, NN_SHAPE("[n_q, row_bytes_q]", n_q, row_bytes_q));
  nn_call_tensor(&call, NN_ROLE_IN, "wk", wk, NN_U8, NULL, 0, NN_SHAPE("[n_kv, row_bytes_k]", n_kv, row_bytes_k));
  nn_call_tensor(&call, NN_ROLE_IN, "wv", wv, NN_U8, NULL, 0, NN_SHAPE("[n_kv, row_bytes_v]", n_kv, row_bytes_v));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "bias", bias, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "norm", norm, dtype, NULL, 0, NN_SHAPE("[k]", k));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  const nn_gemm_quant_qkv_parameters given = {x, wq, wk, wv, bias, norm, y, m, n_q, n_kv, n, k, row_bytes_q,
      row_bytes_k, row_bytes_v, eps, format_q, format_k, format_v, dtype};
  const nn_gemm_quant_args args = lower_gemm_quant_qkv(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_gemm_quant_swiglu(nncuda_ctx *ctx, const void *x, const void *w_gate, const void *w_up,
    const int32_t *offsets, const void *norm, void *y, int64_t groups, int64_t m, int64_t n, int64_t k,
    int64_t row_bytes_gate, int64_t row_bytes_up, float eps, int32_t format_gate, int32_t format_up, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm_quant_swiglu);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "row_bytes_gate", row_bytes_gate);
  nn_call_size(&call, "row_bytes_up", row_bytes_up);
  nn_call_require(&call, isfinite(eps) && eps >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and at least 0", (double)eps);
  nn_call_require(&call, format_gate == NNCUDA_FORMAT_F32 || format_gate == NNCUDA_FORMAT_F16 ||
      format_gate == NNCUDA_FORMAT_BF16 || format_gate == NNCUDA_FORMAT_Q4_0 || format_gate == NNCUDA_FORMAT_Q4_1 ||
      format_gate == NNCUDA_FORMAT_Q5_0 || format_gate == NNCUDA_FORMAT_Q5_1 || format_gate == NNCUDA_FORMAT_Q8_0 ||
      format_gate == NNCUDA_FORMAT_Q4_K || format_gate == NNCUDA_FORMAT_Q5_K || format_gate == NNCUDA_FORMAT_Q6_K ||
      format_gate == NNCUDA_FORMAT_IQ4_NL || format_gate == NNCUDA_FORMAT_MXFP4 || format_gate == NNCUDA_FORMAT_E4M3 ||
      format_gate == NNCUDA_FORMAT_IQ4_XS || format_gate == NNCUDA_FORMAT_Q2_K || format_gate == NNCUDA_FORMAT_Q3_K ||
      format_gate == NNCUDA_FORMAT_Q4_0_R16 || format_gate == NNCUDA_FORMAT_Q4_1_R16 ||
      format_gate == NNCUDA_FORMAT_Q5_0_R16 || format_gate == NNCUDA_FORMAT_Q5_1_R16 ||
      format_gate == NNCUDA_FORMAT_Q8_0_R16 || format_gate == NNCUDA_FORMAT_Q4_K_R16 ||
      format_gate == NNCUDA_FORMAT_Q5_K_R16 || format_gate == NNCUDA_FORMAT_Q6_K_R16 ||
      format_gate == NNCUDA_FORMAT_IQ4_NL_R16 || format_gate == NNCUDA_FORMAT_MXFP4_R16 ||
      format_gate == NNCUDA_FORMAT_IQ4_XS_R16 || format_gate == NNCUDA_FORMAT_Q2_K_R16 ||
      format_gate == NNCUDA_FORMAT_Q3_K_R16, NNCUDA_ERROR_INVALID_VALUE,
      "format_gate is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format_gate);
  nn_call_require(&call, format_up == NNCUDA_FORMAT_F32 || format_up == NNCUDA_FORMAT_F16 ||
      format_up == NNCUDA_FORMAT_BF16 || format_up == NNCUDA_FORMAT_Q4_0 || format_up == NNCUDA_FORMAT_Q4_1 ||
      format_up == NNCUDA_FORMAT_Q5_0 || format_up == NNCUDA_FORMAT_Q5_1 || format_up == NNCUDA_FORMAT_Q8_0 ||
      format_up == NNCUDA_FORMAT_Q4_K || format_up == NNCUDA_FORMAT_Q5_K || format_up == NNCUDA_FORMAT_Q6_K ||
      format_up == NNCUDA_FORMAT_IQ4_NL || format_up == NNCUDA_FORMAT_MXFP4 || format_up == NNCUDA_FORMAT_E4M3 ||
      format_up == NNCUDA_FORMAT_IQ4_XS || format_up == NNCUDA_FORMAT_Q2_K || format_up == NNCUDA_FORMAT_Q3_K ||
      format_up == NNCUDA_FORMAT_Q4_0_R16 || format_up == NNCUDA_FORMAT_Q4_1_R16 ||
      format_up == NNCUDA_FORMAT_Q5_0_R16 || format_up == NNCUDA_FORMAT_Q5_1_R16 ||
      format_up == NNCUDA_FORMAT_Q8_0_R16 || format_up == NNCUDA_FORMAT_Q4_K_R16 ||
      format_up == NNCUDA_FORMAT_Q5_K_R16 || format_up == NNCUDA_FORMAT_Q6_K_R16 ||
      format_up == NNCUDA_FORMAT_IQ4_NL_R16 || format_up == NNCUDA_FORMAT_MXFP4_R16 ||
      format_up == NNCUDA_FORMAT_IQ4_XS_R16 || format_up == NNCUDA_FORMAT_Q2_K_R16 ||
      format_up == NNCUDA_FORMAT_Q3_K_R16, NNCUDA_ERROR_INVALID_VALUE,
      "format_up is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format_up);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[m, k]", m, k));
  nn_call_tensor(&call, NN_ROLE_IN, "w_gate", w_gate, NN_U8, NULL, 0, NN_SHAPE("[groups*n, row_bytes_gate]",
      nn_mul(groups, n), row_bytes_gate));
  nn_call_tensor(&call, NN_ROLE_IN, "w_up", w_up, NN_U8, NULL, 0, NN_SHAPE("[groups*n, row_bytes_up]", nn_mul(groups,
      n), row_bytes_up));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]",
      nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "norm", norm, dtype, NULL, 0, NN_SHAPE("[k]", k));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  const nn_gemm_quant_swiglu_parameters given = {x, w_gate, w_up, offsets, norm, y, groups, m, n, k, row_bytes_gate,
      row_bytes_up, eps, format_gate, format_up, dtype};
  const nn_gemm_quant_args args = lower_gemm_quant_swiglu(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_gemm_quant_route(nncuda_ctx *ctx, const float *x, const float *gains, const void *w, float *y,
    float *logits, float *weights, int32_t *indices, float *probs, int32_t *counts, int32_t *offsets, int32_t *slot_row,
    int32_t *row_slot, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int64_t row_bytes, float eps,
    int32_t norm, int32_t format) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm_quant_route);
  nn_call_flag(&call, "norm", norm);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "experts", experts);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_require(&call, experts <= 2147483647, NNCUDA_ERROR_INVALID_SIZE,
      "experts is %lld; it must be at most 2147483647", (long long)experts);
  nn_call_require(&call, k <= 64 && k <= experts, NNCUDA_ERROR_INVALID_SIZE,
      "k is %lld; it must be at most 64 and at most experts, which is %lld", (long long)k, (long long)experts);
  nn_call_require(&call, isfinite(eps) && eps >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and at least 0", (double)eps);
  nn_call_require(&call, format == NNCUDA_FORMAT_F32 || format == NNCUDA_FORMAT_F16 || format == NNCUDA_FORMAT_BF16 ||
      format == NNCUDA_FORMAT_Q4_0 || format == NNCUDA_FORMAT_Q4_1 || format == NNCUDA_FORMAT_Q5_0 ||
      format == NNCUDA_FORMAT_Q5_1 || format == NNCUDA_FORMAT_Q8_0 || format == NNCUDA_FORMAT_Q4_K ||
      format == NNCUDA_FORMAT_Q5_K || format == NNCUDA_FORMAT_Q6_K || format == NNCUDA_FORMAT_IQ4_NL ||
      format == NNCUDA_FORMAT_MXFP4 || format == NNCUDA_FORMAT_E4M3 || format == NNCUDA_FORMAT_IQ4_XS ||
      format == NNCUDA_FORMAT_Q2_K || format == NNCUDA_FORMAT_Q3_K || format == NNCUDA_FORMAT_Q4_0_R16 ||
      format == NNCUDA_FORMAT_Q4_1_R16 || format == NNCUDA_FORMAT_Q5_0_R16 || format == NNCUDA_FORMAT_Q5_1_R16 ||
      format == NNCUDA_FORMAT_Q8_0_R16 || format == NNCUDA_FORMAT_Q4_K_R16 || format == NNCUDA_FORMAT_Q5_K_R16 ||
      format == NNCUDA_FORMAT_Q6_K_R16 || format == NNCUDA_FORMAT_IQ4_NL_R16 || format == NNCUDA_FORMAT_MXFP4_R16 ||
      format == NNCUDA_FORMAT_IQ4_XS_R16 || format == NNCUDA_FORMAT_Q2_K_R16 || format == NNCUDA_FORMAT_Q3_K_R16,
      NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "gains", gains, NNCUDA_F32, NULL, 0, NN_SHAPE("[dim]", dim));
  nn_call_tensor(&call, NN_ROLE_IN, "w", w, NN_U8, NULL, 0, NN_SHAPE("[experts, row_bytes]", experts, row_bytes));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "logits", logits, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, experts]", tokens,
      experts));
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
  const nn_gemm_quant_route_args args = {x, gains, w, y, logits, weights, indices, probs, counts, offsets, slot_row,
      row_slot, tokens, experts, k, dim, row_bytes, eps, norm, format};
  check_gemm_quant_route(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_gemm_quant_experts(nncuda_ctx *ctx, const float *x, const void *w_gate, const void *w_up,
    const void *w_down, const float *weights, const int32_t *offsets, const int32_t *slot_row, const int32_t *row_slot,
    const float *residual, float *y, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int64_t n,
    int64_t row_bytes_gate, int64_t row_bytes_up, int64_t row_bytes_down, int32_t format_gate, int32_t format_up,
    int32_t format_down) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm_quant_experts);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "experts", experts);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "dim", dim);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "row_bytes_gate", row_bytes_gate);
  nn_call_size(&call, "row_bytes_up", row_bytes_up);
  nn_call_size(&call, "row_bytes_down", row_bytes_down);
  nn_call_require(&call, format_gate == NNCUDA_FORMAT_F32 || format_gate == NNCUDA_FORMAT_F16 ||
      format_gate == NNCUDA_FORMAT_BF16 || format_gate == NNCUDA_FORMAT_Q4_0 || format_gate == NNCUDA_FORMAT_Q4_1 ||
      format_gate == NNCUDA_FORMAT_Q5_0 || format_gate == NNCUDA_FORMAT_Q5_1 || format_gate == NNCUDA_FORMAT_Q8_0 ||
      format_gate == NNCUDA_FORMAT_Q4_K || format_gate == NNCUDA_FORMAT_Q5_K || format_gate == NNCUDA_FORMAT_Q6_K ||
      format_gate == NNCUDA_FORMAT_IQ4_NL || format_gate == NNCUDA_FORMAT_MXFP4 || format_gate == NNCUDA_FORMAT_E4M3 ||
      format_gate == NNCUDA_FORMAT_IQ4_XS || format_gate == NNCUDA_FORMAT_Q2_K || format_gate == NNCUDA_FORMAT_Q3_K ||
      format_gate == NNCUDA_FORMAT_Q4_0_R16 || format_gate == NNCUDA_FORMAT_Q4_1_R16 ||
      format_gate == NNCUDA_FORMAT_Q5_0_R16 || format_gate == NNCUDA_FORMAT_Q5_1_R16 ||
      format_gate == NNCUDA_FORMAT_Q8_0_R16 || format_gate == NNCUDA_FORMAT_Q4_K_R16 ||
      format_gate == NNCUDA_FORMAT_Q5_K_R16 || format_gate == NNCUDA_FORMAT_Q6_K_R16 ||
      format_gate == NNCUDA_FORMAT_IQ4_NL_R16 || format_gate == NNCUDA_FORMAT_MXFP4_R16 ||
      format_gate == NNCUDA_FORMAT_IQ4_XS_R16 || format_gate == NNCUDA_FORMAT_Q2_K_R16 ||
      format_gate == NNCUDA_FORMAT_Q3_K_R16, NNCUDA_ERROR_INVALID_VALUE,
      "format_gate is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format_gate);
  nn_call_require(&call, format_up == NNCUDA_FORMAT_F32 || format_up == NNCUDA_FORMAT_F16 ||
      format_up == NNCUDA_FORMAT_BF16 || format_up == NNCUDA_FORMAT_Q4_0 || format_up == NNCUDA_FORMAT_Q4_1 ||
      format_up == NNCUDA_FORMAT_Q5_0 || format_up == NNCUDA_FORMAT_Q5_1 || format_up == NNCUDA_FORMAT_Q8_0 ||
      format_up == NNCUDA_FORMAT_Q4_K || format_up == NNCUDA_FORMAT_Q5_K || format_up == NNCUDA_FORMAT_Q6_K ||
      format_up == NNCUDA_FORMAT_IQ4_NL || format_up == NNCUDA_FORMAT_MXFP4 || format_up == NNCUDA_FORMAT_E4M3 ||
      format_up == NNCUDA_FORMAT_IQ4_XS || format_up == NNCUDA_FORMAT_Q2_K || format_up == NNCUDA_FORMAT_Q3_K ||
      format_up == NNCUDA_FORMAT_Q4_0_R16 || format_up == NNCUDA_FORMAT_Q4_1_R16 ||
      format_up == NNCUDA_FORMAT_Q5_0_R16 || format_up == NNCUDA_FORMAT_Q5_1_R16 ||
      format_up == NNCUDA_FORMAT_Q8_0_R16 || format_up == NNCUDA_FORMAT_Q4_K_R16 ||
      format_up == NNCUDA_FORMAT_Q5_K_R16 || format_up == NNCUDA_FORMAT_Q6_K_R16 ||
      format_up == NNCUDA_FORMAT_IQ4_NL_R16 || format_up == NNCUDA_FORMAT_MXFP4_R16 ||
      format_up == NNCUDA_FORMAT_IQ4_XS_R16 || format_up == NNCUDA_FORMAT_Q2_K_R16 ||
      format_up == NNCUDA_FORMAT_Q3_K_R16, NNCUDA_ERROR_INVALID_VALUE,
      "format_up is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format_up);
  nn_call_require(&call, format_down == NNCUDA_FORMAT_F32 || format_down == NNCUDA_FORMAT_F16 ||
      format_down == NNCUDA_FORMAT_BF16 || format_down == NNCUDA_FORMAT_Q4_0 || format_down == NNCUDA_FORMAT_Q4_1 ||
      format_down == NNCUDA_FORMAT_Q5_0 || format_down == NNCUDA_FORMAT_Q5_1 || format_down == NNCUDA_FORMAT_Q8_0 ||
      format_down == NNCUDA_FORMAT_Q4_K || format_down == NNCUDA_FORMAT_Q5_K || format_down == NNCUDA_FORMAT_Q6_K ||
      format_down == NNCUDA_FORMAT_IQ4_NL || format_down == NNCUDA_FORMAT_MXFP4 || format_down == NNCUDA_FORMAT_E4M3 ||
      format_down == NNCUDA_FORMAT_IQ4_XS || format_down == NNCUDA_FORMAT_Q2_K || format_down == NNCUDA_FORMAT_Q3_K ||
      format_down == NNCUDA_FORMAT_Q4_0_R16 || format_down == NNCUDA_FORMAT_Q4_1_R16 ||
      format_down == NNCUDA_FORMAT_Q5_0_R16 || format_down == NNCUDA_FORMAT_Q5_1_R16 ||
      format_down == NNCUDA_FORMAT_Q8_0_R16 || format_down == NNCUDA_FORMAT_Q4_K_R16 ||
      format_down == NNCUDA_FORMAT_Q5_K_R16 || format_down == NNCUDA_FORMAT_Q6_K_R16 ||
      format_down == NNCUDA_FORMAT_IQ4_NL_R16 || format_down == NNCUDA_FORMAT_MXFP4_R16 ||
      format_down == NNCUDA_FORMAT_IQ4_XS_R16 || format_down == NNCUDA_FORMAT_Q2_K_R16 ||
      format_down == NNCUDA_FORMAT_Q3_K_R16, NNCUDA_ERROR_INVALID_VALUE,
      "format_down is %d; it must be NNCUDA_FORMAT_F32 (0), NNCUDA_FORMAT_F16 (1), NNCUDA_FORMAT_BF16 (2), NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19), NNCUDA_FORMAT_E4M3 (20), NNCUDA_FORMAT_IQ4_XS (21), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_Q4_0_R16 (30), NNCUDA_FORMAT_Q4_1_R16 (31), NNCUDA_FORMAT_Q5_0_R16 (32), NNCUDA_FORMAT_Q5_1_R16 (33), NNCUDA_FORMAT_Q8_0_R16 (34), NNCUDA_FORMAT_Q4_K_R16 (35), NNCUDA_FORMAT_Q5_K_R16 (36), NNCUDA_FORMAT_Q6_K_R16 (37), NNCUDA_FORMAT_IQ4_NL_R16 (38), NNCUDA_FORMAT_MXFP4_R16 (39), NNCUDA_FORMAT_IQ4_XS_R16 (41), NNCUDA_FORMAT_Q2_K_R16 (42) or NNCUDA_FORMAT_Q3_K_R16 (43)",
      format_down);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_IN, "w_gate", w_gate, NN_U8, NULL, 0, NN_SHAPE("[experts*n, row_bytes_gate]",
      nn_mul(experts, n), row_bytes_gate));
  nn_call_tensor(&call, NN_ROLE_IN, "w_up", w_up, NN_U8, NULL, 0, NN_SHAPE("[experts*n, row_bytes_up]", nn_mul(experts,
      n), row_bytes_up));
  nn_call_tensor(&call, NN_ROLE_IN, "w_down", w_down, NN_U8, NULL, 0, NN_SHAPE("[experts*dim, row_bytes_down]",
      nn_mul(experts, dim), row_bytes_down));
  nn_call_tensor(&call, NN_ROLE_IN, "weights", weights, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[experts+1]", nn_add(experts,
      1)));
  nn_call_tensor(&call, NN_ROLE_IN, "slot_row", slot_row, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens, k]", tokens, k));
  nn_call_tensor(&call, NN_ROLE_IN, "row_slot", row_slot, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens*k]", nn_mul(tokens,
      k)));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "residual", residual, NNCUDA_F32, NULL, 0,
      NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NNCUDA_F32, NULL, 0, NN_SHAPE("[tokens, dim]", tokens, dim));
  nn_call_alias(&call, "y", "residual");
  const nn_gemm_quant_experts_args args = {x, w_gate, w_up, w_down, weights, offsets, slot_row, row_slot, residual, y,
      tokens, experts, k, dim, n, row_bytes_gate, row_bytes_up, row_bytes_down, format_gate, format_up, format_down};
  check_gemm_quant_experts(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_interleave_rows(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k,
    int64_t row_bytes, int32_t format) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_interleave_rows);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_require(&call, rows % 16 == 0, NNCUDA_ERROR_INVALID_SIZE, "rows is %lld; it must be a multiple of 16",
      (long long)rows);
  nn_call_require(&call, format == NNCUDA_FORMAT_Q4_0 || format == NNCUDA_FORMAT_Q4_1 || format == NNCUDA_FORMAT_Q5_0 ||
      format == NNCUDA_FORMAT_Q5_1 || format == NNCUDA_FORMAT_Q8_0 || format == NNCUDA_FORMAT_Q4_K ||
      format == NNCUDA_FORMAT_Q5_K || format == NNCUDA_FORMAT_Q6_K || format == NNCUDA_FORMAT_Q2_K ||
      format == NNCUDA_FORMAT_Q3_K || format == NNCUDA_FORMAT_IQ4_NL || format == NNCUDA_FORMAT_MXFP4 ||
      format == NNCUDA_FORMAT_IQ4_XS, NNCUDA_ERROR_INVALID_VALUE,
      "format is %d; it must be NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q4_1 (11), NNCUDA_FORMAT_Q5_0 (12), NNCUDA_FORMAT_Q5_1 (13), NNCUDA_FORMAT_Q8_0 (14), NNCUDA_FORMAT_Q4_K (15), NNCUDA_FORMAT_Q5_K (16), NNCUDA_FORMAT_Q6_K (17), NNCUDA_FORMAT_Q2_K (22), NNCUDA_FORMAT_Q3_K (23), NNCUDA_FORMAT_IQ4_NL (18), NNCUDA_FORMAT_MXFP4 (19) or NNCUDA_FORMAT_IQ4_XS (21)",
      format);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, NN_U8, NULL, 0, NN_SHAPE("[rows, row_bytes]", rows, row_bytes));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NN_U8, NULL, 0, NN_SHAPE("[rows, row_bytes]", rows, row_bytes));
  const nn_interleave_rows_args args = {x, y, rows, k, row_bytes, format};
  check_interleave_rows(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
