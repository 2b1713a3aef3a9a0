/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/lora_checks.h"

#include "runtime/call.h"

NNCUDA_API int32_t cuda_gemm_quant_backward(nncuda_ctx *ctx, const void *dy, const void *w, const int32_t *offsets,
    void *dx, int64_t groups, int64_t m, int64_t n, int64_t k, int64_t row_bytes, float beta, int32_t format,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_gemm_quant_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "groups", groups);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
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
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_tensor(&call, NN_ROLE_IN, "w", w, NN_U8, NULL, 0, NN_SHAPE("[groups*n, row_bytes]", nn_mul(groups, n),
      row_bytes));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[groups+1]",
      nn_add(groups, 1)));
  nn_call_tensor(&call, NN_ROLE_INOUT, "dx", dx, dtype, NULL, 0, NN_SHAPE("[m, k]", m, k));
  const nn_gemm_quant_backward_args args = {dy, w, offsets, dx, groups, m, n, k, row_bytes, beta, format, dtype};
  check_gemm_quant_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_bitlinear_backward(nncuda_ctx *ctx, const void *dy, const void *w, const float *w_scale,
    void *dx, int64_t m, int64_t n, int64_t k, int64_t stored, int64_t row_bytes, float beta, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_bitlinear_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "m", m);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "k", k);
  nn_call_size(&call, "stored", stored);
  nn_call_size(&call, "row_bytes", row_bytes);
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, NULL, 0, NN_SHAPE("[m, n]", m, n));
  nn_call_tensor(&call, NN_ROLE_IN, "w", w, NN_U8, NULL, 0, NN_SHAPE("[stored, row_bytes]", stored, row_bytes));
  nn_call_tensor(&call, NN_ROLE_IN, "w_scale", w_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "dx", dx, dtype, NULL, 0, NN_SHAPE("[m, k]", m, k));
  const nn_bitlinear_backward_args args = {dy, w, w_scale, dx, m, n, k, stored, row_bytes, beta, dtype};
  check_bitlinear_backward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
